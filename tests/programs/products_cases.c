/* Runs the products of sample_app/products.h and the casts of sample_app/fp8_kernels.h that are asked for.
 *
 *   products_cases DTYPE WORKSPACE ROWS WIDEST WEIGHT ACCOUNT <requests >results
 *
 * DTYPE: of enum dtype_choice; the three sizes: what is reserved for fp8; ACCOUNT: where the account goes, in which
 * each request is a step. A request is a struct request, the bytes of its matrices A and B, and what C holds before;
 * the result is the bytes of C afterwards (for a cast: the two scales, then C). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample_app/checked_call.h"
#include "sample_app/fp8_kernels.h"
#include "sample_app/products.h"
#include "sample_app/train_options.h"

enum op { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, PLAIN, BATCHED, CAST, CAST_TRANSPOSED };

struct request {
    int32_t op, transpose_a, transpose_b, M, N, K, batch, format; /* format: of C */
    int64_t a_bytes, b_bytes, c_bytes;
    float beta;
    int32_t pad;
};

/* C lies between bytes of this value, at a multiple of 16 elements and of no larger power of two: where a tensor may
 * lie that shares a block with others. */
enum { GUARD = 64, GUARD_BYTE = 0xa5 };

static void read_all(void *to, size_t bytes) {
    if (fread(to, 1, bytes, stdin) != bytes) die(EXIT_USAGE, "the requests end early");
}

static void *host_bytes(size_t bytes) {
    void *p = malloc(bytes + 1);
    if (!p) die(EXIT_RUN_TIME, "out of host memory");
    return p;
}

/* `bytes` of standard input in device memory, after `guard` bytes. */
static char *read_matrix(size_t bytes, size_t guard) {
    char *host = host_bytes(bytes), *device;
    read_all(host, bytes);
    CHECK(cudaMalloc((void **)&device, bytes + 2 * guard + 1));
    CHECK(cudaMemset(device, GUARD_BYTE, bytes + 2 * guard));
    CHECK(cudaMemcpy(device + guard, host, bytes, cudaMemcpyHostToDevice));
    free(host);
    return device;
}

static void write_matrix(const char *device, size_t bytes) {
    char *host = host_bytes(bytes + 2 * GUARD);
    CHECK(cudaMemcpy(host, device, bytes + 2 * GUARD, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < GUARD; i++)
        if ((unsigned char)host[i] != GUARD_BYTE || (unsigned char)host[GUARD + bytes + i] != GUARD_BYTE)
            die(EXIT_RUN_TIME, "what lies beside the result was overwritten");
    fwrite(host + GUARD, 1, bytes, stdout);
    free(host);
}

static void run_cast(const struct products *p, const struct request *r, const char *a, char *c) {
    float *parts, *scale, host[2];
    size_t n = (size_t)r->M * (size_t)r->K;
    CHECK(cudaMalloc((void **)&parts, FP8_PARTS * sizeof *parts));
    CHECK(cudaMalloc((void **)&scale, sizeof host));
    LAUNCH(fp8_amax(parts, a, n, p->stream));
    LAUNCH(fp8_scale((enum number_format)r->format, scale, parts, n, p->stream));
    if (r->op == CAST)
        LAUNCH(fp8_cast((enum number_format)r->format, c, a, n, scale, p->stream));
    else
        LAUNCH(fp8_cast_transposed((enum number_format)r->format, c, a, r->M, r->K, scale, p->stream));
    CHECK(cudaStreamSynchronize(p->stream));
    CHECK(cudaMemcpy(host, scale, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(parts));
    CHECK(cudaFree(scale));
    fwrite(host, sizeof host, 1, stdout);
}

static void run(struct products *p, const struct request *r, const char *a, const char *b, char *c) {
    cublasOperation_t ta = r->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, tb = r->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    int M = r->M, N = r->N, K = r->K;
    switch ((enum op)r->op) {
    case FORWARD: /* A (N, IC), B (OC, IC) */
        products_forward(p, c, a, b, M, N, K);
        break;
    case INPUT_GRADIENT: /* A (N, OC), B (OC, IC) */
        products_input_gradient(p, c, a, b, M, K, N);
        break;
    case WEIGHT_GRADIENT: /* A (N, OC), B (N, IC) */
        products_weight_gradient(p, (float *)c, a, b, K, M, N);
        break;
    case PLAIN:
        products_plain(p, ta, tb, M, N, K, a, b, r->beta, c, (enum number_format)r->format);
        break;
    case BATCHED:
        products_batched(p, ta, tb, M, N, K, a, b, c, r->batch);
        break;
    default:
        run_cast(p, r, a, c);
    }
    CHECK(cudaStreamSynchronize(p->stream));
}

static void serve(struct products *p, const struct request *r) {
    char *a = read_matrix((size_t)r->a_bytes, 0), *b = read_matrix((size_t)r->b_bytes, 0);
    char *c = read_matrix((size_t)r->c_bytes, GUARD);
    truth_step_begin();
    truth_phase_begin(TRUTH_FORWARD);
    run(p, r, a, b, c + GUARD);
    truth_phase_end();
    truth_step_end(false);
    truth_loss(0);
    write_matrix(c, (size_t)r->c_bytes);
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(c));
}

int main(int argc, char **argv) {
    struct products p;
    struct request r;
    cudaStream_t stream;
    if (argc != 7) die(EXIT_USAGE, "six arguments are wanted");
    CHECK(cudaStreamCreate(&stream));
    products_create(&p, atoi(argv[1]), stream, (size_t)atoll(argv[2]));
    products_fp8_reserve(&p, atoi(argv[3]), atoi(argv[4]), (size_t)atoll(argv[5]));
    while (fread(&r, sizeof r, 1, stdin) == 1) serve(&p, &r);
    products_destroy(&p);
    CHECK(cudaStreamDestroy(stream));
    FILE *account = fopen(argv[6], "w");
    if (!account || truth_write(account, &(struct train_options){0}, 0, 0, 1))
        die(EXIT_RUN_TIME, "cannot write %s", argv[6]);
    return fclose(account) || fflush(stdout) ? EXIT_RUN_TIME : 0;
}
