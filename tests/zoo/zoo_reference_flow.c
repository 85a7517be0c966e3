/* References of zoo_flow.cu and zoo_model.cu: plain loops; floats in double. */
#include "tests/zoo/zoo_reference.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

REF(collatz) {
    for (int i = 0; i < INT(2); i++) {
        uint64_t v = U32P(0)[i] % 100000 + 1;
        int k = 0;
        for (; v != 1; k++) v = v % 2 ? 3 * v + 1 : v / 2;
        I32P(1)[i] = k;
    }
}

REF(early_exit) {
    for (int i = 0; i < INT(2); i++) {
        int v = I32P(0)[i], k = 0;
        if (v < 30) continue;
        while (k * k <= v) k++;
        I32P(1)[i] = v % 3 ? k : -1;
    }
}

static int nested(int v) {
    int r;
    if (v % 4 == 3) {
        r = v * 3 + (v & 4 ? 7 : -5);
    } else if (v % 2 == 1) {
        r = 0;
        for (int k = 0; k < v % 8; k++) r += k % 2 ? k : -k;
    } else if (v & 8) {
        r = v % 7 == 0 ? 100 : v % 5 == 0 ? 200 : 300;
    } else {
        r = v / 2;
    }
    return r + (v & 16 ? 1 : 2);
}
REF(nested) {
    for (int i = 0; i < INT(2); i++) I32P(1)[i] = nested(I32P(0)[i]);
}

static int switched(int v) {
    static const int eight[] = {0, 0, 1, 3, 6};
    int r[] = {v * 31 + 1, v ^ 0x55, v - 983, v + 17, -v, v * 8, v / 3, v * v, v + eight[v % 5] * v, -v - 1, 77};
    return r[v % 11];
}
REF(switches) {
    for (int i = 0; i < INT(2); i++) I32P(1)[i] = switched(I32P(0)[i]);
}

static int looped(int x) {
    int sum = 0;
    for (int a = 0; a < 20; a++) {
        if ((x + a) % 3 == 0) continue;
        for (int b = 0;; b++) {
            sum += a * b;
            if (sum > 500 + x) return sum;
            if (b * a > 40 || b + 1 >= x % 9) break;
        }
        sum ^= a;
    }
    return sum;
}
REF(loops) {
    for (int i = 0; i < INT(2); i++) I32P(1)[i] = looped(I32P(0)[i]);
}

REF(stencil) {
    for (int block = 0; block < COUNT(0); block += 128) {
        double cell[130] = {0}, next[130] = {0};
        for (int i = 0; i < 128; i++) cell[i + 1] = F32P(0)[block + i];
        for (int k = 0; k < INT(2); k++) {
            for (int i = 1; i <= 128; i++) next[i] = 0.25 * cell[i - 1] + 0.5 * cell[i] + 0.25 * cell[i + 1];
            memcpy(cell, next, sizeof cell);
        }
        for (int i = 0; i < 128; i++) F32P(1)[block + i] = (float)cell[i + 1];
    }
}

static int by_value(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}
REF(bitonic_sort) {
    memcpy(b[1], b[0], zoo_bytes(&c->arg[0]));
    for (int block = 0; block < COUNT(0); block += 256) qsort(I32P(1) + block, 256, 4, by_value);
}

REF(producer_consumer) {
    for (int i = 0; i < COUNT(0); i++) I32P(1)[i] = I32P(0)[i] * 2 + 1;
}

REF(leave_early) {
    for (int i = 0; i < 64; i++) I32P(1)[i] = I32P(0)[63 - i];
    UNUSED_CASE;
}

REF(dynamic_views) {
    int n = INT(3);
    for (int t = 0; t < n; t++)
        F32P(2)[t] = (float)((double)F32P(0)[n - 1 - t] + I32P(1)[(t + 1) % n] + (I32P(1)[(t + 2) % n] * 3) % 256);
}

REF(vector_shared) {
    for (int t = 0; t < 64; t++) {
        memcpy(F32P(1) + 4 * t, F32P(0) + 4 * (63 - t), 16);
        F32P(1)[4 * t] += F32P(0)[t];
    }
    UNUSED_CASE;
}

REF(local_index) {
    for (int i = 0; i < INT(2); i++) {
        uint32_t seen[16] = {0}, r = 0, x = U32P(0)[i];
        for (uint32_t k = 0; k < 32; k++) seen[(x * (k + 1) + k) % 16] += k;
        for (uint32_t k = 0; k < 16; k++) r = r * 3 + seen[k * 5 % 16];
        U32P(1)[i] = r;
    }
}

REF(generic_pointers) {
    int s[64];
    for (int t = 0; t < 64; t++) s[t] = (t & 3) + 1;
    for (int t = 0; t < 64; t++) {
        int local[4] = {1, 2, 3, 4}, at = (t + 1) & 3;
        local[t & 3] = I32P(0)[t];
        int v = local[at];
        local[at] = local[2];
        local[2] = v;
        I32P(1)[t] = s[t ^ 1] + local[0] * 100 + local[1] * 1000 + local[2] * 10000 + local[3] * 100000 + 7;
    }
    for (int t = 0; t < 64; t++) I32P(0)[t] = t * 10;
    UNUSED_CASE;
}

REF(noinline_calls) {
    for (int i = 0; i < INT(3); i++) {
        int x = I32P(0)[i];
        I64P(1)[i] = (int64_t)(x - 2) * 100 + (int16_t)(3 ^ -2 ^ -1 ^ 0 ^ 1);
        F32P(2)[i] = (float)pow(x % 7, 4);
    }
}

REF(recursion) {
    static const int fibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
    for (int t = 0; t < COUNT(0); t++) I32P(0)[t] = fibonacci[t % 12];
}

REF(indirect_calls) {
    for (int t = 0; t < COUNT(0); t++)
        I32P(1)[t] = t % 3 == 0 ? I32P(0)[t] + 5 : t % 3 == 1 ? I32P(0)[t] - 5 : I32P(0)[t] * 5;
}

REF(struct_by_value) {
    for (int i = 0; i < INT(2); i++) F32P(3)[i] = F32P(0)[I32P(4)[i]] * c->arg[1].f + c->arg[5].f;
}

REF(selected_pointer) {
    for (int i = 0; i < INT(4); i++) F32P(INT(3) ? 0 : 1)[i] = F32P(2)[i] + 1;
}

REF(offset_pointer) {
    for (int i = 0; i < INT(1); i++) F32P(0)[INT(1) + i] = F32P(0)[i] * 2;
}

REF(constant_table) {
    static const int primes[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53}, quarter[] = {4, -4, 2};
    for (int t = 0; t < COUNT(0); t++) I32P(1)[t] = primes[I32P(0)[t] % 16] * primes[t % 16] + 5 + quarter[t % 3];
}

REF(device_globals) {
    static const int table[] = {1, 1, 2, 3, 5, 8, 13, 21};
    for (int t = 0; t < COUNT(0); t++) I32P(1)[t] = I32P(0)[t] + table[t % 4 + 2] * 10 + table[t % 8] * 1000;
}

REF(inline_asm) {
    for (int t = 0; t < COUNT(0); t++) {
        int v = I32P(0)[t], u = v + 5, r = (u > 40 ? v * 3 : v - 3) + u, turns = v % 8 ? v % 8 : 1;
        I32P(1)[t] = r + turns * (turns + 1) / 2;
    }
}

REF(prints) {
    for (int t = 0; t < COUNT(0); t++) I32P(1)[t] = I32P(0)[t] + 1;
}

/* ---- zoo_model.cu ---- */
REF(saxpy) {
    for (int i = 0; i < INT(3); i++) F32P(1)[i] = (float)((double)c->arg[2].f * F32P(0)[i] + F32P(1)[i]);
}

REF(transpose) {
    int width = INT(2), height = INT(3);
    for (int r = 0; r < height; r++)
        for (int k = 0; k < width; k++) F32P(1)[k * height + r] = F32P(0)[r * width + k];
}

REF(copy_v4) {
    for (int i = 0; i < 4 * INT(2); i++)
        F32P(1)[i] = i % 4 == 0 ? F32P(0)[i] + 1 : i % 4 == 3 ? -F32P(0)[i] : F32P(0)[i];
}

REF(axpy_v2) {
    for (int i = 0; i < 2 * INT(3); i++) F64P(1)[i] = fma((double)c->arg[2].f, F64P(0)[i], F64P(1)[i]);
}

REF(bytes_v4) {
    for (int i = 0; i < INT(2); i++) {
        const uint8_t *v = U8P(0) + 4 * i;
        U16P(1)[2 * i] = (uint16_t)(v[0] * v[1]);
        U16P(1)[2 * i + 1] = (uint16_t)(v[2] + 256 * v[3]);
    }
}

REF(matmul_tiled) {
    int n = INT(3);
    for (int r = 0; r < n; r++) {
        for (int k = 0; k < n; k++) {
            double s = 0;
            for (int i = 0; i < n; i++) s += (double)F32P(0)[r * n + i] * F32P(1)[i * n + k];
            F32P(2)[r * n + k] = (float)s;
        }
    }
}

static void softmax_row(const float *x, float *y, int n) {
    double high = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) high = fmax(high, x[i]);
    for (int i = 0; i < n; i++) sum += exp(x[i] - high);
    for (int i = 0; i < n; i++) y[i] = (float)(exp(x[i] - high) / sum);
}
REF(softmax) {
    for (int r = 0; r < (int)c->grid[0]; r++) softmax_row(F32P(0) + r * INT(2), F32P(1) + r * INT(2), INT(2));
}
REF(softmax_causal) {
    int n = INT(2);
    for (int r = 0; r < n; r++) {
        softmax_row(F32P(0) + r * n, F32P(1) + r * n, r + 1);
        for (int i = r + 1; i < n; i++) F32P(1)[r * n + i] = 0;
    }
}

REF(layernorm) {
    int n = INT(6);
    for (int r = 0; r < (int)c->grid[0]; r++) {
        const float *x = F32P(0) + r * n;
        double mean = 0, square = 0;
        for (int i = 0; i < n; i++) mean += (double)x[i] / n;
        for (int i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / n;
        double scale = 1 / sqrt(square + 1e-5);
        for (int i = 0; i < n; i++) F32P(3)[r * n + i] = (float)((x[i] - mean) * scale * F32P(1)[i] + F32P(2)[i]);
        F32P(4)[r] = (float)mean;
        F32P(5)[r] = (float)scale;
    }
}

REF(rmsnorm_inplace) {
    int n = INT(2);
    for (int r = 0; r < (int)c->grid[0]; r++) {
        float *x = F32P(0) + r * n;
        double square = 0;
        for (int i = 0; i < n; i++) square += (double)x[i] * x[i] / n;
        for (int i = 0; i < n; i++) x[i] = (float)(x[i] / sqrt(square + 1e-6) * F32P(1)[i]);
    }
}

REF(gelu) {
    for (int i = 0; i < INT(2); i++) {
        double v = F32P(0)[i];
        F32P(1)[i] = (float)(0.5 * v * (1 + tanh(0.7978845608 * (v + 0.044715 * v * v * v))));
    }
}

REF(rope) {
    int heads = INT(1), width = INT(2);
    for (int p = 0; p < (int)c->grid[0]; p++) {
        for (int h = 0; h < heads; h++) {
            for (int k = 0; k < width / 2; k++) {
                float *v = F32P(0) + (p * heads + h) * width + 2 * k;
                double angle = p * pow(c->arg[3].f, -2.0 * k / width), x = v[0], y = v[1];
                v[0] = (float)(x * cos(angle) - y * sin(angle));
                v[1] = (float)(x * sin(angle) + y * cos(angle));
            }
        }
    }
}

/* MurmurHash3's last mixing step, of which the kernel's generator is made. */
REF(dropout) {
    for (uint32_t i = 0; i < (uint32_t)INT(6); i++) {
        uint32_t h = i * 0x9e3779b9u + (uint32_t)INT(3);
        h = (h ^ h >> 16) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        h ^= h >> 16;
        U8P(2)[i] = h >= (uint32_t)INT(4);
        F32P(1)[i] = U8P(2)[i] ? F32P(0)[i] * c->arg[5].f : 0;
    }
}

REF(gather) {
    for (int r = 0; r < COUNT(1); r++) memcpy(F32P(2) + r * INT(3), F32P(0) + I32P(1)[r] * INT(3), 4 * (size_t)INT(3));
}

REF(scatter) {
    for (int i = 0; i < INT(3); i++) F32P(2)[I32P(1)[i]] = F32P(0)[i];
}

REF(segmented_sum) {
    for (int s = 0; s < INT(3); s++) {
        double sum = 0;
        for (int i = I32P(1)[s]; i < I32P(1)[s + 1]; i++) sum += F32P(0)[i];
        F32P(2)[s] = (float)sum;
    }
}

REF(momentum) {
    for (int i = 0; i < INT(6); i++) {
        double g = F32P(2)[i] + (b[3] ? (double)F32P(3)[i] * F32P(0)[i] : 0), m = (double)c->arg[5].f * F32P(1)[i] + g;
        F32P(1)[i] = (float)m;
        F32P(0)[i] = (float)(F32P(0)[i] - (double)c->arg[4].f * m);
    }
}

REF(cross_entropy) {
    int n = INT(4);
    for (int r = 0; r < COUNT(1); r++) {
        const float *x = F32P(0) + r * n;
        double sum = 0;
        for (int i = 0; i < n; i++) sum += exp(x[i]);
        F32P(2)[r] = (float)(log(sum) - x[I32P(1)[r]]);
        for (int i = 0; i < n; i++) F32P(3)[r * n + i] = (float)(exp(x[i]) / sum - (i == I32P(1)[r]));
    }
}
