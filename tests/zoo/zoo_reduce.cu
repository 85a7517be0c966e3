// Zoo: reductions, scans, and what the lanes of a warp say to each other.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// The sum of each block's 256 values, by a tree in shared memory.
ZOO reduce_tree(const float *x, float *sums)
{
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
    for (int half = 128; half > 0; half >>= 1) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0)
        sums[blockIdx.x] = part[0];
}

ZOO reduce_bfly(const int *x, int *sums)
{
    int v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int m = 16; m > 0; m >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, m);
    sums[blockIdx.x * blockDim.x + threadIdx.x] = v; // every lane has its warp's
}

ZOO reduce_down(const float *x, float *sums, int n)
{
    __shared__ float warp_sum[32];
    float v = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        v += x[blockIdx.x * n + i];
    for (int d = 16; d > 0; d >>= 1)
        v += __shfl_down_sync(0xffffffffu, v, d);
    if (threadIdx.x % 32 == 0)
        warp_sum[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? warp_sum[threadIdx.x] : 0.0f;
        for (int d = 16; d > 0; d >>= 1)
            v += __shfl_down_sync(0xffffffffu, v, d);
        if (threadIdx.x == 0)
            sums[blockIdx.x] = v;
    }
}

ZOO reduce_atomic(const int *x, int *sum, int n)
{
    int v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        v += x[i];
    atomicAdd(sum, v);
}

ZOO reduce_redux(const unsigned *x, unsigned *out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i];
    unsigned add = __reduce_add_sync(~0u, v), low = __reduce_min_sync(~0u, v), high = __reduce_max_sync(~0u, v);
    int signed_low = __reduce_min_sync(~0u, (int)v), signed_high = __reduce_max_sync(~0u, (int)v);
    unsigned all = __reduce_and_sync(~0u, v), any = __reduce_or_sync(~0u, v), odd = __reduce_xor_sync(~0u, v);
    out[i] = add ^ low * 3 ^ high * 5 ^ (unsigned)signed_low * 7 ^ (unsigned)signed_high * 11 ^ all * 13 ^ any * 17 ^ odd * 19;
}

// The first place of the highest value of each row of n.
ZOO argmax(const float *x, int *where, float *what, int n)
{
    float best = -INFINITY;
    int at = n;
    for (int i = threadIdx.x; i < n; i += 32) {
        float v = x[blockIdx.x * n + i];
        if (v > best) {
            best = v;
            at = i;
        }
    }
    for (int d = 16; d > 0; d >>= 1) {
        float v = __shfl_down_sync(0xffffffffu, best, d);
        int k = __shfl_down_sync(0xffffffffu, at, d);
        if (v > best || (v == best && k < at)) {
            best = v;
            at = k;
        }
    }
    if (threadIdx.x == 0) {
        where[blockIdx.x] = at;
        what[blockIdx.x] = best;
    }
}

// Inclusive sums of a block's values, Hillis and Steele's way, with two buffers.
ZOO scan_block(const int *x, int *sums)
{
    __shared__ int buffer[2][256];
    int t = threadIdx.x, from = 0;
    buffer[0][t] = x[blockIdx.x * 256 + t];
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        int v = buffer[from][t];
        if (t >= d)
            v += buffer[from][t - d];
        buffer[1 - from][t] = v;
        from = 1 - from;
        __syncthreads();
    }
    sums[blockIdx.x * 256 + t] = buffer[from][t];
}

ZOO scan_warp(const int *x, int *sums)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, v = x[i];
    for (int d = 1; d < 32; d *= 2) {
        int low = __shfl_up_sync(0xffffffffu, v, d);
        if (lane >= d)
            v += low;
    }
    sums[i] = v;
}

// Exclusive sums, Blelloch's way: up the tree and down again.
ZOO scan_exclusive(const unsigned *x, unsigned *sums)
{
    extern __shared__ unsigned tree[];
    int t = threadIdx.x, n = 2 * blockDim.x;
    tree[2 * t] = x[2 * t];
    tree[2 * t + 1] = x[2 * t + 1];
    int step = 1;
    for (int d = n >> 1; d > 0; d >>= 1, step *= 2) {
        __syncthreads();
        if (t < d)
            tree[step * (2 * t + 2) - 1] += tree[step * (2 * t + 1) - 1];
    }
    if (t == 0)
        tree[n - 1] = 0;
    for (int d = 1; d < n; d *= 2) {
        step >>= 1;
        __syncthreads();
        if (t < d) {
            unsigned v = tree[step * (2 * t + 1) - 1];
            tree[step * (2 * t + 1) - 1] = tree[step * (2 * t + 2) - 1];
            tree[step * (2 * t + 2) - 1] += v;
        }
    }
    __syncthreads();
    sums[2 * t] = tree[2 * t];
    sums[2 * t + 1] = tree[2 * t + 1];
}

ZOO votes(const int *x, unsigned *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i];
    unsigned ballot = __ballot_sync(~0u, v & 1);
    int any = __any_sync(~0u, v > 90), all = __all_sync(~0u, v > 2), uniform = 0;
    asm("{ .reg .pred p, q; setp.ne.s32 p, %1, 0; vote.sync.uni.pred q, p, 0xffffffff; selp.s32 %0, 1, 0, q; }"
        : "=r"(uniform)
        : "r"(v & 0x40));
    unsigned same = __match_any_sync(~0u, v % 5);
    int equal;
    unsigned all_same = __match_all_sync(~0u, v / 101, &equal);
    out[i] = ballot ^ (unsigned)any << 3 ^ (unsigned)all << 5 ^ (unsigned)uniform << 7 ^ same * 3 ^ all_same * 5 ^ (unsigned)equal << 9;
}

// Shuffles within segments of 8 and 16 lanes, with sources that differ by lane.
ZOO shuffles(const int *x, int *out)
{
    int i = threadIdx.x, v = x[i];
    int a = __shfl_sync(~0u, v, i * 7, 8), b = __shfl_up_sync(~0u, v, 3, 16), c = __shfl_down_sync(~0u, v, 5, 8),
        d = __shfl_xor_sync(~0u, v, 9, 16), e = __shfl_sync(~0u, v, 31 - i);
    long long wide = __shfl_xor_sync(~0u, (long long)v << 20 | i, 1);
    out[i] = a + 3 * b + 5 * c + 7 * d + 11 * e + (int)(wide >> 10) * 13;
}

// Half of the warp exchanges on its own, with a mask.
ZOO masked_shuffle(const int *x, int *out)
{
    int i = threadIdx.x, v = x[i];
    if (i & 1)
        v = v * 2 + __shfl_xor_sync(0xaaaaaaaau, v, 2);
    else
        v = v * 3 - __shfl_xor_sync(0x55555555u, v, 4);
    __syncwarp();
    out[i] = v + __shfl_sync(~0u, v, 5);
}

// One atomic per group of lanes that come along (what compilers call warp-aggregated). Which place a lane gets is open,
// the set is not.
ZOO filter(const int *x, int *count, int *sum, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) {
        cg::coalesced_group g = cg::coalesced_threads();
        int base = 0;
        if (g.thread_rank() == 0)
            base = atomicAdd(count, (int)g.size());
        base = g.shfl(base, 0);
        atomicAdd(sum, x[i] + 0 * base);
    }
}

ZOO groups(const int *x, int *out)
{
    __shared__ int stage[128];
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
    int i = blockIdx.x * 128 + block.thread_rank();
    int v = x[i];
    for (int d = tile.size() / 2; d > 0; d /= 2)
        v += tile.shfl_down(v, d);
    if (tile.thread_rank() == 0)
        stage[tile.meta_group_rank()] = v;
    block.sync();
    v = stage[(block.thread_rank() + 1) % 8];
    tile.sync();
    out[i] = v + tile.any(x[i] == 7) * 1000 + (int)tile.ballot(x[i] & 1);
}

ZOO block_votes(const int *x, int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int count = __syncthreads_count(x[i] > 50), all = __syncthreads_and(x[i] >= 0), any = __syncthreads_or(x[i] == 99);
    out[i] = count * 4 + (all != 0) * 2 + (any != 0);
}

// Positions of the lanes, as masks and as the matter of an election.
ZOO lanes(unsigned *out)
{
    unsigned lt, le, eq, ge, gt, lane, warp;
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
    asm volatile("mov.u32 %0, %%lanemask_le;" : "=r"(le));
    asm volatile("mov.u32 %0, %%lanemask_eq;" : "=r"(eq));
    asm volatile("mov.u32 %0, %%lanemask_ge;" : "=r"(ge));
    asm volatile("mov.u32 %0, %%lanemask_gt;" : "=r"(gt));
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    unsigned i = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[i] = lt + 3 * le + 5 * eq + 7 * ge + 11 * gt + lane + 100 * warp;
}
