// The number formats as the device has them: the vendor's conversions (cuda_fp16.h, cuda_bf16.h, cuda_fp8.h), and the
// instruction that rounds to tf32, which has no function.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "sample_app/dtype_kernels.h"

// Each format: `decode`, the number of a bit pattern; `round`, what a number is after it was stored.

struct fp64 {
    static __device__ double decode(uint64_t bits) { return __longlong_as_double((long long)bits); }
    static __device__ double round(double x, bool) { return x; }
};

struct fp32 {
    static __device__ double decode(uint64_t bits) { return __uint_as_float((unsigned)bits); }
    static __device__ double round(double x, bool) { return (float)x; }
};

struct tf32 {
    static __device__ float converted(float x) {
        unsigned bits;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
        return __uint_as_float(bits);
    }
    static __device__ double decode(uint64_t bits) { return converted(__uint_as_float((unsigned)bits << 13)); }
    static __device__ double round(double x, bool) { return converted((float)x); }
};

struct fp16 {
    static __device__ double decode(uint64_t bits) { return __half2float(__ushort_as_half((unsigned short)bits)); }
    static __device__ double round(double x, bool) { return __half2float(__float2half_rn((float)x)); }
};

struct bf16 {
    static __device__ double decode(uint64_t bits) {
        return __bfloat162float(__ushort_as_bfloat16((unsigned short)bits));
    }
    static __device__ double round(double x, bool) { return __bfloat162float(__float2bfloat16_rn((float)x)); }
};

template <__nv_fp8_interpretation_t KIND> struct fp8 {
    static __device__ double decode(uint64_t bits) {
        return __half2float(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)bits, KIND));
    }
    static __device__ double round(double x, bool saturate) {
        return decode(__nv_cvt_float_to_fp8((float)x, saturate ? __NV_SATFINITE : __NV_NOSAT, KIND));
    }
};

template <typename Format> __global__ void decode_kernel(double *out, const uint64_t *bits, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = Format::decode(bits[i]);
}

template <typename Format> __global__ void round_kernel(double *out, const double *x, int n, bool saturate) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = Format::round(x[i], saturate);
}

static constexpr int THREADS = 32; // of a block: the lists are short

// Calls `launch` with a value of the format's struct.
template <typename Launch> static void in_dtype(enum dtype f, Launch launch) {
    switch (f) {
    case SHOWN_FP64:
        return launch(fp64());
    case SHOWN_FP32:
        return launch(fp32());
    case SHOWN_TF32:
        return launch(tf32());
    case SHOWN_FP16:
        return launch(fp16());
    case SHOWN_BF16:
        return launch(bf16());
    case SHOWN_E4M3:
        return launch(fp8<__NV_E4M3>());
    case SHOWN_E5M2:
        return launch(fp8<__NV_E5M2>());
    }
}

void dtype_decode(enum dtype f, double *out, const uint64_t *bits, int n, cudaStream_t stream) {
    in_dtype(f, [=](auto format) {
        decode_kernel<decltype(format)><<<(n + THREADS - 1) / THREADS, THREADS, 0, stream>>>(out, bits, n);
    });
}

void dtype_round(enum dtype f, bool saturate, double *out, const double *x, int n, cudaStream_t stream) {
    in_dtype(f, [=](auto format) {
        round_kernel<decltype(format)><<<(n + THREADS - 1) / THREADS, THREADS, 0, stream>>>(out, x, n, saturate);
    });
}
