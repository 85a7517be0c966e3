/* References of zoo_reduce.cu and zoo_atomic.cu: integers exactly, floats in double. */
#include "tests/zoo/zoo_reference.h"
#include <math.h>
#include <string.h>

static double sum_of(const float *x, int n) {
    double s = 0;
    for (int i = 0; i < n; i++) s += x[i];
    return s;
}

REF(reduce_tree) {
    for (int k = 0; k < COUNT(1); k++) F32P(1)[k] = (float)sum_of(F32P(0) + 256 * k, 256);
    UNUSED_CASE;
}

REF(reduce_bfly) {
    for (int i = 0; i < COUNT(0); i += 32) {
        int s = 0;
        for (int k = 0; k < 32; k++) s += I32P(0)[i + k];
        for (int k = 0; k < 32; k++) I32P(1)[i + k] = s;
    }
}

REF(reduce_down) {
    for (int k = 0; k < COUNT(1); k++) F32P(1)[k] = (float)sum_of(F32P(0) + INT(2) * k, INT(2));
}

REF(reduce_atomic) {
    for (int i = 0; i < INT(2); i++) I32P(1)[0] += I32P(0)[i];
}

REF(reduce_redux) {
    for (int i = 0; i < COUNT(0); i += 32) {
        uint32_t add = 0, low = UINT32_MAX, high = 0, all = UINT32_MAX, any = 0, odd = 0;
        int32_t signed_low = INT32_MAX, signed_high = INT32_MIN;
        for (int k = i; k < i + 32; k++) {
            uint32_t v = U32P(0)[k];
            int32_t s = (int32_t)v;
            add += v, all &= v, any |= v, odd ^= v;
            low = v < low ? v : low, high = v > high ? v : high;
            signed_low = s < signed_low ? s : signed_low, signed_high = s > signed_high ? s : signed_high;
        }
        for (int k = i; k < i + 32; k++) U32P(1)
        [k] = add ^ low * 3 ^ high * 5 ^ (uint32_t)signed_low * 7 ^ (uint32_t)signed_high * 11 ^ all * 13 ^ any * 17 ^
              odd * 19;
    }
}

REF(argmax) {
    int n = INT(3);
    for (int r = 0; r < COUNT(1); r++) {
        int at = 0;
        for (int i = 1; i < n; i++)
            if (F32P(0)[r * n + i] > F32P(0)[r * n + at]) at = i;
        I32P(1)[r] = at;
        F32P(2)[r] = F32P(0)[r * n + at];
    }
}

static void inclusive(const int *x, int *sums, int n, int every) {
    for (int i = 0; i < n; i++) sums[i] = x[i] + (i % every ? sums[i - 1] : 0);
}
REF(scan_block) {
    inclusive(I32P(0), I32P(1), COUNT(0), 256);
}
REF(scan_warp) {
    inclusive(I32P(0), I32P(1), COUNT(0), 32);
}

REF(scan_exclusive) {
    for (int i = 0; i < COUNT(0); i++) U32P(1)[i] = i ? U32P(1)[i - 1] + U32P(0)[i - 1] : 0;
}

REF(votes) {
    for (int w = 0; w < COUNT(0); w += 32) {
        uint32_t ballot = 0, all = 1, any = 0, bits = 0, equal = 1;
        for (int k = 0; k < 32; k++) {
            int v = I32P(0)[w + k];
            ballot |= (uint32_t)(v & 1) << k;
            any |= v > 90;
            all &= v > 2;
            bits += (v & 0x40) != 0;
            equal &= v / 101 == I32P(0)[w] / 101;
        }
        for (int k = 0; k < 32; k++) {
            uint32_t same = 0;
            for (int n = 0; n < 32; n++) same |= (uint32_t)(I32P(0)[w + n] % 5 == I32P(0)[w + k] % 5) << n;
            U32P(1)
            [w + k] = ballot ^ any << 3 ^ all << 5 ^ (uint32_t)(bits == 0 || bits == 32) << 7 ^ same * 3 ^
                      (equal ? UINT32_MAX : 0) * 5 ^ equal << 9;
        }
    }
}

REF(shuffles) {
    const int *v = I32P(0);
    for (int i = 0; i < 32; i++) {
        int in8 = i & ~7, in16 = i & ~15;
        int up = i - 3 < in16 ? i : i - 3, down = i + 5 > in8 + 7 ? i : i + 5;
        int64_t wide = (int64_t)((uint64_t)(int64_t)v[i ^ 1] << 20 | (uint64_t)(i ^ 1));
        I32P(1)
        [i] = v[in8 + (i * 7 & 7)] + 3 * v[up] + 5 * v[down] + 7 * v[i ^ 9] + 11 * v[31 - i] + (int)(wide >> 10) * 13;
    }
    UNUSED_CASE;
}

REF(masked_shuffle) {
    int v[32];
    for (int i = 0; i < 32; i++) v[i] = i & 1 ? I32P(0)[i] * 2 + I32P(0)[i ^ 2] : I32P(0)[i] * 3 - I32P(0)[i ^ 4];
    for (int i = 0; i < 32; i++) I32P(1)[i] = v[i] + v[5];
    UNUSED_CASE;
}

REF(filter) {
    for (int i = 0; i < INT(3); i++) {
        if (I32P(0)[i] > 0) {
            I32P(1)[0]++;
            I32P(2)[0] += I32P(0)[i];
        }
    }
}

REF(groups) {
    for (int block = 0; block < COUNT(0); block += 128) {
        const int *x = I32P(0) + block;
        int sums[8] = {0};
        for (int i = 0; i < 128; i++) sums[i / 16] += x[i];
        for (int i = 0; i < 128; i++) {
            int seven = 0, odd = 0;
            for (int k = 0; k < 16; k++) {
                seven |= x[(i & ~15) + k] == 7;
                odd |= (x[(i & ~15) + k] & 1) << k;
            }
            I32P(1)[block + i] = sums[(i + 1) % 8] + seven * 1000 + odd;
        }
    }
}

REF(block_votes) {
    int n = zoo_threads(c);
    for (int block = 0; block < COUNT(0); block += n) {
        int count = 0, all = 1, any = 0;
        for (int i = block; i < block + n; i++) {
            count += I32P(0)[i] > 50;
            all &= I32P(0)[i] >= 0;
            any |= I32P(0)[i] == 99;
        }
        for (int i = block; i < block + n; i++) I32P(1)[i] = count * 4 + all * 2 + any;
    }
}

REF(lanes) {
    for (uint32_t i = 0; i < c->arg[0].count; i++) {
        uint32_t lane = i % 32, lt = 0, le = 0, eq = 0, ge = 0, gt = 0;
        for (uint32_t k = 0; k < 32; k++) {
            uint32_t bit = UINT32_C(1) << k;
            lt |= k < lane ? bit : 0;
            le |= k <= lane ? bit : 0;
            eq |= k == lane ? bit : 0;
            ge |= k >= lane ? bit : 0;
            gt |= k > lane ? bit : 0;
        }
        U32P(0)[i] = lt + 3 * le + 5 * eq + 7 * ge + 11 * gt + lane + 100 * (i / 32);
    }
}

/* ---- zoo_atomic.cu ---- */
REF(histogram_global) {
    for (int i = 0; i < INT(2); i++) U32P(1)[U8P(0)[i] % 32]++;
}
REF(histogram_shared) {
    for (int i = 0; i < INT(2); i++) U32P(1)[U8P(0)[i] % 64]++;
}

REF(atomic_cas) {
    float high = 0;
    for (int i = 0; i < INT(3); i++) {
        F64P(1)[0] += F64P(0)[i];
        high = fmaxf(high, (float)F64P(0)[i]);
    }
    memcpy(b[2], &high, 4);
}

REF(atomic_wrap) {
    for (int i = 0; i < INT(2); i++) {
        U32P(0)[0] = (U32P(0)[0] + 1) % 13;
        U32P(1)[0] = (U32P(1)[0] + 9) % 10;
    }
}

REF(atomic_all) {
    int32_t *i32 = I32P(1);
    uint32_t *u32 = U32P(2);
    int64_t *i64 = I64P(3);
    uint64_t *u64 = U64P(4);
    for (int i = 0; i < COUNT(0); i++) {
        int v = I32P(0)[i];
        uint32_t m = (uint32_t)v * 2654435761u;
        int64_t w = (int64_t)v * ((int64_t)1 << 33);
        uint64_t u = (uint64_t)(int64_t)v;
        i32[0] = v < i32[0] ? v : i32[0];
        i32[1] = v > i32[1] ? v : i32[1];
        i32[2] -= v;
        u32[0] = m < u32[0] ? m : u32[0];
        u32[1] = m > u32[1] ? m : u32[1];
        u32[2] &= ~(UINT32_C(1) << (v & 31));
        u32[3] |= UINT32_C(1) << (v & 31);
        u32[4] ^= (uint32_t)v * 77u;
        i64[0] = w < i64[0] ? w : i64[0];
        i64[1] = w > i64[1] ? w : i64[1];
        u64[0] += u << 20;
        u64[1] |= UINT64_C(1) << (v & 63);
        u64[2] = u << 40 > u64[2] ? u << 40 : u64[2];
    }
    i32[3] = 0;
    u32[5] = 4711;
}

REF(atomic_float) {
    for (int i = 0; i < COUNT(0); i++) {
        F32P(1)[0] += (float)I32P(0)[i];
        F64P(2)[0] += I32P(0)[i] * 0.5;
        F32P(1)[1] += (float)(I32P(0)[i] & 15);
    }
}

REF(last_block) {
    int n = zoo_threads(c);
    I32P(2)[0] = 0;
    for (int k = 0; k < COUNT(1); k++) {
        I32P(1)[k] = 0;
        for (int i = k * n; i < (k + 1) * n && i < INT(3); i++) I32P(1)[k] += I32P(0)[i];
        I32P(2)[0] += I32P(1)[k];
    }
}

REF(grid_stride) {
    for (int i = 0; i < INT(3); i++) F32P(1)[i] = (float)((double)c->arg[2].f * F32P(0)[i] + F32P(1)[i]);
}

REF(grid_2d) {
    for (int y = 0; y < INT(2); y++)
        for (int x = 0; x < INT(1); x++) I32P(0)[y * INT(1) + x] = x * 1000 + y;
}

REF(grid_3d) {
    int nx = (int)(c->grid[0] * c->block[0]), ny = (int)(c->grid[1] * c->block[1]),
        nz = (int)(c->grid[2] * c->block[2]);
    for (int z = 0; z < nz; z++)
        for (int y = 0; y < ny; y++)
            for (int x = 0; x < nx; x++)
                I32P(0)[(z * ny + y) * nx + x] = x + 100 * y + 10000 * z + 1000000 * (z % (int)c->block[2]);
}
