/* Kernels with asynchronous copies and barriers of their own: each gives back what test_ptx_matrix.c says. */
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;

/* out[i] = in[i ^ 1], zero-filled from n on; three sizes of copies. 128 threads a block. */
extern "C" __global__ void copy_pairs(const float4 *in, float4 *out, int n) {
    __shared__ float4 s[128];
    int i = blockIdx.x * 128 + threadIdx.x, from = i < n ? i : 0;
    __pipeline_memcpy_async(&s[threadIdx.x], in + from, 16, i < n ? 0 : 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[i] = s[threadIdx.x ^ 1];
}

/* The first two of each four, the other two zeros; 8 bytes a copy, and 4. */
extern "C" __global__ void copy_half(const float4 *in, float4 *out) {
    __shared__ float4 s[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    s[threadIdx.x] = make_float4(0, 0, 0, 0);
    __pipeline_memcpy_async((float2 *)&s[threadIdx.x], (const float2 *)(in + i), 8);
    __pipeline_memcpy_async((float *)&s[threadIdx.x] + 3, (const float *)(in + i), 4, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[i] = s[127 - threadIdx.x];
}

/* Reversed in each block of 256. */
extern "C" __global__ void reversed_by_barrier(const int *in, int *out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ alignas(16) int s[256];
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&barrier, block.size());
    block.sync();
    cuda::memcpy_async(block, s, in + blockIdx.x * 256, cuda::aligned_size_t<16>(sizeof(int) * 256), barrier);
    barrier.arrive_and_wait();
    out[blockIdx.x * 256 + threadIdx.x] = s[255 - threadIdx.x];
}

extern "C" __global__ void reversed_by_group(const int *in, int *out) {
    __shared__ int s[256];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, in + blockIdx.x * 256, sizeof(int) * 256);
    cg::wait(block);
    out[blockIdx.x * 256 + threadIdx.x] = s[255 - threadIdx.x];
}

/* Reversed in each of n pieces of 128, two on their way at a time; one block. */
extern "C" __global__ void reversed_by_pipeline(const int *in, int *out, int n) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    __shared__ int s[2][128];
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int done = 0, begun = 0; done < n; done++) {
        for (; begun < n && begun < done + 2; begun++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, s[begun % 2], in + begun * 128, sizeof(int) * 128, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        out[done * 128 + threadIdx.x] = s[done % 2][127 - threadIdx.x];
        pipe.consumer_release();
    }
}
