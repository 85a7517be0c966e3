/* NCCL within one process, on four devices: every collective and type against sums in double, messages, ranks as a
 * group and as threads, order in streams, errors. */
#include "tests/unit/vgpu_testing.h"
#include "vgpu/vgpu_nccl.h"
#include "vgpu/vgpu_number.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

enum { RANKS = 4, N = 5000 };

static ncclComm_t comms[RANKS];
static cudaStream_t streams[RANKS];

static int open_all(void **state) {
    (void)state;
    OK(ncclCommInitAll(comms, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        OK(cudaSetDevice(r));
        OK(cudaStreamCreate(&streams[r]));
    }
    OK(cudaSetDevice(0));
    return 0;
}

static int close_all(void **state) {
    (void)state;
    for (int r = 0; r < RANKS; r++) {
        OK(ncclCommDestroy(comms[r]));
        OK(cudaStreamDestroy(streams[r]));
    }
    return 0;
}

static void synchronize_all(void) {
    for (int r = 0; r < RANKS; r++) OK(cudaStreamSynchronize(streams[r]));
}

/* ---- elements of every type ---- */

static const size_t widths[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static const double epsilons[ncclNumTypes] = {0, 0, 0, 0, 0, 0, 0x1p-11, 0x1p-24, 0x1p-53, 0x1p-8, 0x1p-4, 0x1p-3};

static double get(ncclDataType_t type, const void *p, size_t i) {
    switch (type) {
    case ncclInt8:
        return ((const int8_t *)p)[i];
    case ncclUint8:
        return ((const uint8_t *)p)[i];
    case ncclInt32:
        return ((const int32_t *)p)[i];
    case ncclUint32:
        return ((const uint32_t *)p)[i];
    case ncclInt64:
        return (double)((const int64_t *)p)[i];
    case ncclUint64:
        return (double)((const uint64_t *)p)[i];
    case ncclFloat16:
        return vgpu_half_to_float(((const uint16_t *)p)[i]);
    case ncclFloat32:
        return ((const float *)p)[i];
    case ncclFloat64:
        return ((const double *)p)[i];
    case ncclBfloat16:
        return vgpu_bf16_to_float(((const uint16_t *)p)[i]);
    case ncclFloat8e4m3:
        return vgpu_e4m3_to_float(((const uint8_t *)p)[i]);
    default:
        return vgpu_e5m2_to_float(((const uint8_t *)p)[i]);
    }
}

static void put(ncclDataType_t type, void *p, size_t i, double v) {
    switch (type) {
    case ncclInt8:
        ((int8_t *)p)[i] = (int8_t)v;
        break;
    case ncclUint8:
        ((uint8_t *)p)[i] = (uint8_t)fabs(v);
        break;
    case ncclInt32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    case ncclUint32:
        ((uint32_t *)p)[i] = (uint32_t)fabs(v);
        break;
    case ncclInt64:
        ((int64_t *)p)[i] = (int64_t)v;
        break;
    case ncclUint64:
        ((uint64_t *)p)[i] = (uint64_t)fabs(v);
        break;
    case ncclFloat16:
        ((uint16_t *)p)[i] = vgpu_float_to_half((float)v);
        break;
    case ncclFloat32:
        ((float *)p)[i] = (float)v;
        break;
    case ncclFloat64:
        ((double *)p)[i] = v;
        break;
    case ncclBfloat16:
        ((uint16_t *)p)[i] = vgpu_float_to_bf16((float)v);
        break;
    case ncclFloat8e4m3:
        ((uint8_t *)p)[i] = vgpu_float_to_e4m3((float)v);
        break;
    default:
        ((uint8_t *)p)[i] = vgpu_float_to_e5m2((float)v);
        break;
    }
}

/* Small, so that no sum or product leaves a narrow type; whole numbers for integers. */
static double sample(ncclDataType_t type, int rank, size_t i) {
    double v = (double)((i * 7919 + (size_t)rank * 104729) % 61) / 20 - 1.5;
    return type < ncclFloat16 ? floor(v * 2) : v;
}

static void *host_buffer(ncclDataType_t type, int rank, size_t n) {
    void *p = malloc(n * widths[type]);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) put(type, p, i, sample(type, rank, i));
    return p;
}

static void *device_buffer(int device, const void *host, size_t bytes) {
    void *p;
    OK(cudaSetDevice(device));
    OK(cudaMalloc(&p, bytes));
    if (host) OK(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
    return p;
}

static double reference(ncclRedOp_t op, ncclDataType_t type, void *const host[RANKS], size_t i) {
    double v = get(type, host[0], i);
    for (int r = 1; r < RANKS; r++) {
        double x = get(type, host[r], i);
        v = op == ncclProd ? v * x : op == ncclMax ? fmax(v, x) : op == ncclMin ? fmin(v, x) : v + x;
    }
    if (op != ncclAvg) return v;
    return type < ncclFloat16 ? trunc(v / RANKS) : v / RANKS;
}

static void check(ncclDataType_t type, double got, double want) {
    double slack = epsilons[type] * fabs(want) +
                   (type == ncclFloat16      ? 0x1p-25
                    : type == ncclFloat8e4m3 ? 0x1p-10
                                             : 0) +
                   (type == ncclFloat8e5m2 ? 0x1p-17 : 0);
    if (fabs(got - want) > slack) fail_msg("type %d: got %g, want %g", (int)type, got, want);
}

static void all_reduce(ncclDataType_t type, ncclRedOp_t op, bool in_place) {
    void *host[RANKS], *send[RANKS], *recv[RANKS];
    size_t bytes = N * widths[type];
    for (int r = 0; r < RANKS; r++) {
        host[r] = host_buffer(type, r, N);
        send[r] = device_buffer(r, host[r], bytes);
        recv[r] = in_place ? send[r] : device_buffer(r, NULL, bytes);
    }
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) OK(ncclAllReduce(send[r], recv[r], N, type, op, comms[r], streams[r]));
    OK(ncclGroupEnd());
    synchronize_all();
    void *back = malloc(bytes);
    for (int r = 0; r < RANKS; r++) {
        OK(cudaMemcpy(back, recv[r], bytes, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < N; i++) check(type, get(type, back, i), reference(op, type, host, i));
    }
    free(back);
    for (int r = 0; r < RANKS; r++) {
        free(host[r]);
        OK(cudaFree(send[r]));
        if (!in_place) OK(cudaFree(recv[r]));
    }
}

static void every_type_and_operation(void **state) {
    (void)state;
    for (int type = 0; type < ncclNumTypes; type++)
        for (int op = 0; op < ncclNumOps; op++) all_reduce((ncclDataType_t)type, (ncclRedOp_t)op, (type + op) % 2);
}

/* 64-bit integers are exact, and wrap. */
static void wide_integers(void **state) {
    (void)state;
    uint64_t host[RANKS] = {UINT64_MAX, 5, (UINT64_C(1) << 53) + 1, 1}, back;
    void *p[RANKS];
    for (int r = 0; r < RANKS; r++) p[r] = device_buffer(r, &host[r], 8);
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) OK(ncclAllReduce(p[r], p[r], 1, ncclUint64, ncclSum, comms[r], streams[r]));
    OK(ncclGroupEnd());
    synchronize_all();
    for (int r = 0; r < RANKS; r++) {
        OK(cudaMemcpy(&back, p[r], 8, cudaMemcpyDefault));
        assert_true(back == (UINT64_C(1) << 53) + 6);
        OK(cudaFree(p[r]));
    }
}

struct buffers {
    float *host[RANKS], *send[RANKS], *recv[RANKS], *back;
    size_t sends, recvs;
};

static void open_buffers(struct buffers *b, size_t sends, size_t recvs) {
    b->sends = sends;
    b->recvs = recvs;
    b->back = malloc(recvs * 4);
    for (int r = 0; r < RANKS; r++) {
        b->host[r] = host_buffer(ncclFloat32, r, sends);
        b->send[r] = device_buffer(r, b->host[r], sends * 4);
        b->recv[r] = device_buffer(r, NULL, recvs * 4);
        OK(cudaMemset(b->recv[r], 0, recvs * 4));
        OK(cudaDeviceSynchronize());
    }
}

static const float *fetch(struct buffers *b, int rank) {
    OK(cudaMemcpy(b->back, b->recv[rank], b->recvs * 4, cudaMemcpyDeviceToHost));
    return b->back;
}

static void close_buffers(struct buffers *b) {
    for (int r = 0; r < RANKS; r++) {
        free(b->host[r]);
        OK(cudaFree(b->send[r]));
        OK(cudaFree(b->recv[r]));
    }
    free(b->back);
}

static void reduce_and_broadcast(void **state) {
    (void)state;
    struct buffers b;
    open_buffers(&b, N, N);
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ncclReduce(b.send[r], b.recv[r], N, ncclFloat32, ncclSum, 2, comms[r], streams[r]));
    OK(ncclGroupEnd());
    synchronize_all();
    for (int r = 0; r < RANKS; r++) {
        const float *x = fetch(&b, r);
        for (size_t i = 0; i < N; i++) {
            if (r == 2)
                check(ncclFloat32, x[i], reference(ncclSum, ncclFloat32, (void **)b.host, i));
            else
                assert_true(x[i] == 0); /* not the root's: left alone */
        }
    }
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ncclBroadcast(r == 1 ? b.send[r] : NULL, b.recv[r], N, ncclFloat32, 1, comms[r], streams[r]));
    OK(ncclGroupEnd());
    synchronize_all();
    for (int r = 0; r < RANKS; r++) assert_memory_equal(fetch(&b, r), b.host[1], N * 4);
    close_buffers(&b);
}

static void gather_and_scatter(void **state) {
    (void)state;
    struct buffers b;
    open_buffers(&b, N, RANKS * N);
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) OK(ncclAllGather(b.send[r], b.recv[r], N, ncclFloat32, comms[r], streams[r]));
    OK(ncclGroupEnd());
    synchronize_all();
    for (int r = 0; r < RANKS; r++)
        for (int from = 0; from < RANKS; from++) assert_memory_equal(fetch(&b, r) + from * N, b.host[from], N * 4);
    close_buffers(&b);
    open_buffers(&b, RANKS * N, N);
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ncclReduceScatter(b.send[r], b.recv[r], N, ncclFloat32, ncclAvg, comms[r], streams[r]));
    OK(ncclGroupEnd());
    synchronize_all();
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < N; i++)
            check(ncclFloat32, fetch(&b, r)[i], reference(ncclAvg, ncclFloat32, (void **)b.host, (size_t)r * N + i));
    close_buffers(&b);
}

/* Each rank sends to the next and receives from the one before: crossing messages of one group do not wait for each
 * other. */
static void ring_of_messages(void **state) {
    (void)state;
    struct buffers b;
    open_buffers(&b, N, N);
    for (int round = 0; round < 3; round++) {
        OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) {
            OK(ncclSend(b.send[r], N, ncclFloat32, (r + 1) % RANKS, comms[r], streams[r]));
            OK(ncclRecv(b.recv[r], N, ncclFloat32, (r + RANKS - 1) % RANKS, comms[r], streams[r]));
        }
        OK(ncclGroupEnd());
    }
    synchronize_all();
    for (int r = 0; r < RANKS; r++) assert_memory_equal(fetch(&b, r), b.host[(r + RANKS - 1) % RANKS], N * 4);
    close_buffers(&b);
}

/* ---- a thread for each rank, as data-parallel training has it ---- */

enum { STEPS = 20 };

struct worker {
    pthread_t thread;
    ncclUniqueId id;
    int rank, failures;
    double sums[N]; /* what this rank has added up */
};

/* Each step: this rank's gradient is copied in, averaged over ranks, copied out, all in stream order. */
static void *train(void *arg) {
    struct worker *w = arg;
    ncclComm_t comm;
    cudaStream_t s;
    float *gradient, *host;
    int bad = cudaSetDevice(w->rank) || ncclCommInitRank(&comm, RANKS, w->id, w->rank) || cudaStreamCreate(&s) ||
              cudaMalloc((void **)&gradient, N * 4) || cudaMallocHost((void **)&host, N * 4);
    for (int step = 0; step < STEPS && !bad; step++) {
        for (size_t i = 0; i < N; i++) host[i] = (float)sample(ncclFloat32, w->rank * STEPS + step, i);
        bad |= cudaMemcpyAsync(gradient, host, N * 4, cudaMemcpyHostToDevice, s) != cudaSuccess ||
               ncclAllReduce(gradient, gradient, N, ncclFloat32, ncclAvg, comm, s) != ncclSuccess ||
               cudaMemcpyAsync(host, gradient, N * 4, cudaMemcpyDeviceToHost, s) != cudaSuccess ||
               cudaStreamSynchronize(s) != cudaSuccess;
        for (size_t i = 0; i < N; i++) w->sums[i] += host[i];
    }
    w->failures = bad || ncclCommDestroy(comm) || cudaFree(gradient) || cudaFreeHost(host) || cudaStreamDestroy(s);
    return NULL;
}

static void ranks_as_threads(void **state) {
    (void)state;
    static struct worker w[RANKS];
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    for (int r = 0; r < RANKS; r++) {
        w[r].rank = r;
        w[r].id = id;
        pthread_create(&w[r].thread, NULL, train, &w[r]);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(w[r].thread, NULL);
    for (size_t i = 0; i < N; i++) {
        double want = 0;
        for (int step = 0; step < STEPS; step++)
            for (int r = 0; r < RANKS; r++) want += (float)sample(ncclFloat32, r * STEPS + step, i) / (double)RANKS;
        for (int r = 0; r < RANKS; r++) {
            assert_false(w[r].failures);
            assert_true(fabs(w[r].sums[i] - want) <= STEPS * 0x1p-24 * 2);
        }
    }
}

/* The ranks of one thread are made in a group. */
static void ranks_in_a_group(void **state) {
    (void)state;
    ncclUniqueId id;
    ncclComm_t mine[2];
    int value;
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    for (int r = 0; r < 2; r++) {
        OK(cudaSetDevice(3 - r));
        OK(ncclCommInitRank(&mine[r], 2, id, r));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < 2; r++) {
        OK(ncclCommCount(mine[r], &value));
        assert_int_equal(value, 2);
        OK(ncclCommUserRank(mine[r], &value));
        assert_int_equal(value, r);
        OK(ncclCommCuDevice(mine[r], &value));
        assert_int_equal(value, 3 - r);
    }
    int x[2] = {40, 2}, back;
    void *p[2];
    for (int r = 0; r < 2; r++) p[r] = device_buffer(3 - r, &x[r], 4);
    OK(cudaSetDevice(0)); /* in the communicators' default streams, whatever the current device */
    OK(ncclGroupStart());
    for (int r = 0; r < 2; r++) OK(ncclAllReduce(p[r], p[r], 1, ncclInt32, ncclSum, mine[r], NULL));
    OK(ncclGroupEnd());
    for (int r = 0; r < 2; r++) {
        OK(ncclCommFinalize(mine[r]));
        OK(cudaMemcpy(&back, p[r], 4, cudaMemcpyDeviceToHost));
        assert_int_equal(back, 42);
        OK(cudaFree(p[r]));
        OK(ncclCommDestroy(mine[r]));
    }
}

static void *late(void *arg) {
    usleep(30000);
    return (void *)(intptr_t)ncclAllReduce(arg, arg, 1, ncclInt32, ncclSum, comms[1], streams[1]);
}

/* A rank's stream waits for the others; its host does not. */
static void streams_wait_not_hosts(void **state) {
    (void)state;
    int one = 1, back;
    void *p[RANKS], *result;
    pthread_t t;
    for (int r = 0; r < RANKS; r++) p[r] = device_buffer(r, &one, 4);
    for (int r = 0; r < RANKS; r++)
        if (r != 1) OK(ncclAllReduce(p[r], p[r], 1, ncclInt32, ncclSum, comms[r], streams[r]));
    assert_int_equal(cudaStreamQuery(streams[0]), cudaErrorNotReady);
    pthread_create(&t, NULL, late, p[1]);
    OK(cudaStreamSynchronize(streams[0]));
    OK(cudaMemcpy(&back, p[0], 4, cudaMemcpyDeviceToHost));
    assert_int_equal(back, RANKS);
    pthread_join(t, &result);
    assert_null(result);
    synchronize_all();
    for (int r = 0; r < RANKS; r++) OK(cudaFree(p[r]));
    (void)cudaGetLastError();
}

static void errors(void **state) {
    (void)state;
    ncclUniqueId id;
    ncclComm_t c;
    int twice[2] = {1, 1}, far[1] = {RANKS}, version;
    ncclResult_t async;
    void *p = device_buffer(0, NULL, 64);
    OK(ncclGetVersion(&version));
    assert_int_equal(version / 10000, 2);
    assert_int_equal(ncclCommInitAll(comms, RANKS + 1, NULL), ncclInvalidArgument);
    ncclComm_t two[2];
    assert_int_equal(ncclCommInitAll(two, 2, twice), ncclInvalidUsage);
    assert_int_equal(ncclCommInitAll(two, 1, far), ncclInvalidArgument);
    OK(ncclGetUniqueId(&id));
    assert_int_equal(ncclCommInitRank(&c, 2, id, 2), ncclInvalidArgument);
    assert_int_equal(ncclCommInitRank(NULL, 2, id, 0), ncclInvalidArgument);
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
    assert_int_equal(ncclAllReduce(p, p, 1, ncclNumTypes, ncclSum, comms[0], NULL), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(NULL, p, 1, ncclFloat, ncclSum, comms[0], NULL), ncclInvalidArgument);
    assert_int_equal(ncclBroadcast(p, p, 1, ncclFloat, RANKS, comms[0], NULL), ncclInvalidArgument);
    assert_int_equal(ncclSend(p, 1, ncclFloat, -1, comms[0], NULL), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(p, p, 1, ncclFloat, ncclSum, comms[0], streams[1]), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(p, p, 1, ncclFloat, ncclSum, (ncclComm_t)p, NULL), ncclInvalidArgument);
    OK(ncclGroupStart()); /* an error in a group is its end's */
    assert_int_equal(ncclSend(p, 1, ncclFloat, -1, comms[0], NULL), ncclInvalidArgument);
    assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
    OK(ncclCommGetAsyncError(comms[0], &async));
    assert_int_equal(async, ncclSuccess);
    assert_non_null(ncclGetErrorString(ncclInvalidUsage));
    OK(cudaFree(p));
}

/* Who waits for a rank that gives up goes on. */
static void abort_lets_others_go(void **state) {
    (void)state;
    ncclComm_t two[2];
    ncclResult_t async;
    int devices[2] = {2, 3};
    OK(ncclCommInitAll(two, 2, devices));
    void *p = device_buffer(2, NULL, 64);
    OK(ncclAllReduce(p, p, 1, ncclFloat, ncclSum, two[0], streams[2]));
    assert_int_equal(cudaStreamQuery(streams[2]), cudaErrorNotReady);
    OK(ncclCommAbort(two[1]));
    OK(cudaStreamSynchronize(streams[2]));
    OK(ncclCommGetAsyncError(two[0], &async));
    assert_int_not_equal(async, ncclSuccess);
    OK(ncclCommAbort(two[0]));
    OK(cudaFree(p));
    (void)cudaGetLastError();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_operation),
        cmocka_unit_test(wide_integers),
        cmocka_unit_test(reduce_and_broadcast),
        cmocka_unit_test(gather_and_scatter),
        cmocka_unit_test(ring_of_messages),
        cmocka_unit_test(ranks_as_threads),
        cmocka_unit_test(ranks_in_a_group),
        cmocka_unit_test(streams_wait_not_hosts),
        cmocka_unit_test(errors),
        cmocka_unit_test(abort_lets_others_go),
    };
    setenv("ACCT_VGPU", "cpu:4", 1);
    setenv("ACCT_VGPU_MEMORY", "64M", 1);
    return cmocka_run_group_tests(tests, open_all, close_all);
}
