/* The kernels, as the text that nvcc made of measure_kernels.cu. */
#include "measure/measure_cuda.h"

__asm__(".section .rodata\n"
        ".global measure_ptx\n"
        ".hidden measure_ptx\n"
        "measure_ptx:\n"
        ".incbin \"" MEASURE_PTX "\"\n"
        ".byte 0\n"
        ".previous\n");
