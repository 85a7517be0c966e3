/* The switch by hand: swapcontext makes two system calls. It ends in pop and jmp, since a processor predicts a ret to
 * go where the last call came from, and is wrong at every switch (27 ns instead of 6). With shadow stacks this would
 * not work; an object without the mark for them, as this one is, has the loader switch them off. */
#include "vgpu/vgpu_run_fiber.h"

#include <stdint.h>
#include <string.h>

void vgpu_fiber_start(void); /* takes run and context out of registers that vgpu_fiber_make filled */

#if defined(__x86_64__)
enum { REGISTERS = 7 }; /* r15 r14 r13 r12 rbx rbp, then where to go on */
__asm__(".text\n"
        ".hidden vgpu_fiber_switch\n.globl vgpu_fiber_switch\n.type vgpu_fiber_switch,@function\n"
        "vgpu_fiber_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  popq %rcx\n"
        "  notrack jmp *%rcx\n"
        ".size vgpu_fiber_switch, .-vgpu_fiber_switch\n"
        ".hidden vgpu_fiber_start\n.globl vgpu_fiber_start\n.type vgpu_fiber_start,@function\n"
        "vgpu_fiber_start:\n"
        "  movq %r12, %rdi\n"
        "  call *%r13\n"
        "  ud2\n"
        ".size vgpu_fiber_start, .-vgpu_fiber_start\n");

void *vgpu_fiber_make(void *stack, size_t bytes, void (*run)(void *), void *context) {
    uint64_t *sp = (uint64_t *)(((uintptr_t)stack + bytes) / 16 * 16) - REGISTERS;
    memset(sp, 0, REGISTERS * sizeof *sp);
    sp[2] = (uint64_t)(uintptr_t)run;     /* r13 */
    sp[3] = (uint64_t)(uintptr_t)context; /* r12 */
    sp[6] = (uint64_t)(uintptr_t)vgpu_fiber_start;
    return sp;
}

#elif defined(__aarch64__)
enum { REGISTERS = 20 }; /* x19–x28, x29, x30 (where to go on), d8–d15 */
__asm__(".text\n"
        ".hidden vgpu_fiber_switch\n.globl vgpu_fiber_switch\n.type vgpu_fiber_switch,@function\n"
        "vgpu_fiber_switch:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n"
        "  mov sp, x1\n"
        "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  br x30\n"
        ".size vgpu_fiber_switch, .-vgpu_fiber_switch\n"
        ".hidden vgpu_fiber_start\n.globl vgpu_fiber_start\n.type vgpu_fiber_start,@function\n"
        "vgpu_fiber_start:\n"
        "  mov x0, x19\n"
        "  blr x20\n"
        "  brk #1\n"
        ".size vgpu_fiber_start, .-vgpu_fiber_start\n");

void *vgpu_fiber_make(void *stack, size_t bytes, void (*run)(void *), void *context) {
    uint64_t *sp = (uint64_t *)(((uintptr_t)stack + bytes) / 16 * 16) - REGISTERS;
    memset(sp, 0, REGISTERS * sizeof *sp);
    sp[0] = (uint64_t)(uintptr_t)context; /* x19 */
    sp[1] = (uint64_t)(uintptr_t)run;     /* x20 */
    sp[11] = (uint64_t)(uintptr_t)vgpu_fiber_start;
    return sp;
}

#else
#error "vgpu_run_fiber.c: no switch for this processor yet"
#endif
