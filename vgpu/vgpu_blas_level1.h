/* What one problem of level 1 computes, by the call's type; for the functions of one type and those of any. */
#ifndef VGPU_BLAS_LEVEL1_H
#define VGPU_BLAS_LEVEL1_H

#include "vgpu/vgpu_blas_call.h"

typedef void vgpu_level1_fn(const struct vgpu_call *call, void *const *p, const struct vgpu_value *alpha,
                            const struct vgpu_value *beta);

vgpu_level1_fn vgpu_level1_asum;
vgpu_level1_fn vgpu_level1_nrm2;
vgpu_level1_fn vgpu_level1_dot;
vgpu_level1_fn vgpu_level1_iamax;
vgpu_level1_fn vgpu_level1_axpy;
vgpu_level1_fn vgpu_level1_copy;
vgpu_level1_fn vgpu_level1_swap;
vgpu_level1_fn vgpu_level1_scal;
vgpu_level1_fn vgpu_level1_rot;
vgpu_level1_fn vgpu_level1_rotm;

/* Operands of a call, from arguments of these names. */
#define ONE_VECTOR .p = {(void *)x}, .ld = {incx}
#define TWO_VECTORS .p = {(void *)x, (void *)y}, .ld = {incx, incy}

#endif
