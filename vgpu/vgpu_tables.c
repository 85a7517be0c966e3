/* The one exported symbol. */
#include "vgpu/vgpu_engine.h"
#include "vgpu/vgpu_run.h"

extern const struct vgpu_cudart_api vgpu_cudart_table; /* generated */
extern const struct vgpu_cublas_api vgpu_cublas_table;
extern const struct vgpu_cublasLt_api vgpu_cublasLt_table;
extern const struct vgpu_cupti_api vgpu_cupti_table;
extern const struct vgpu_nccl_api vgpu_nccl_table;

__attribute__((visibility("default"))) extern const struct vgpu_engine vgpu_engine;

const struct vgpu_engine vgpu_engine = {
    .version = VGPU_LINK_VERSION,
    .cudart = &vgpu_cudart_table,
    .cublas = &vgpu_cublas_table,
    .cublasLt = &vgpu_cublasLt_table,
    .cupti = &vgpu_cupti_table,
    .nccl = &vgpu_nccl_table,
    .device = vgpu_device,
    .note = vgpu_cudart_note,
    .note_cupti = vgpu_cupti_note,
    .registry = vgpu_run_registry,
    .init_module = vgpu_run_init_module,
};
