/* Switching stacks on one thread. */
#ifndef VGPU_RUN_FIBER_H
#define VGPU_RUN_FIBER_H

#include <stddef.h>

/* Keeps the registers that a call keeps, and the stack pointer in *save; goes on with what `load` was kept as. Returns
 * when somebody goes on with *save. Signal mask and floating-point control stay the thread's. */
void vgpu_fiber_switch(void **save, void *load);

/* A stack [stack, stack + bytes) that, gone on with, calls run(context), which must not return. */
void *vgpu_fiber_make(void *stack, size_t bytes, void (*run)(void *context), void *context);

#endif
