/* Theoretical occupancy against the vendor's own calculator, cuda_occupancy.h, for blocks, registers and shared memory
 * of many sizes on each compute capability of the table of devices. */
#include "analyzer/kernels_rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <cuda_occupancy.h>
#pragma GCC diagnostic pop

#include "acct/device_table.h"

static double vendors(const struct acct_sm *sm, int threads, int registers, size_t shared, size_t dynamic) {
    cudaOccDeviceProp device = {.computeMajor = (int)sm->sm / 10,
                                .computeMinor = (int)sm->sm % 10,
                                .maxThreadsPerBlock = 1024,
                                .maxThreadsPerMultiprocessor = sm->threads,
                                .regsPerBlock = 65536,
                                .regsPerMultiprocessor = sm->registers,
                                .warpSize = 32,
                                .sharedMemPerBlock = 48 << 10,
                                .sharedMemPerMultiprocessor = sm->shared_bytes,
                                .numSms = 1,
                                .sharedMemPerBlockOptin = sm->shared_optin_bytes,
                                .reservedSharedMemPerBlock = sm->shared_reserved_bytes};
    cudaOccFuncAttributes kernel = {.maxThreadsPerBlock = 1024,
                                    .numRegs = registers,
                                    .sharedSizeBytes = shared,
                                    .partitionedGCConfig = PARTITIONED_GC_OFF,
                                    .shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN,
                                    .maxDynamicSharedSizeBytes = sm->shared_optin_bytes - shared,
                                    .numBlockBarriers = 1};
    cudaOccDeviceState state = {.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED};
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, dynamic)) return NAN;
    return (double)result.activeBlocksPerMultiprocessor * ((threads + 31) / 32) / (sm->threads / 32);
}

static void agrees_with_the_vendors_calculator(void **unused) {
    static const unsigned capabilities[] = {75, 80, 86, 89, 90, 100, 120};
    long compared = 0, unknown = 0;
    (void)unused;
    for (size_t c = 0; c < sizeof capabilities / sizeof *capabilities; c++) {
        const struct acct_sm *sm = acct_sm_find(capabilities[c]);
        assert_non_null(sm);
        srand(1);
        for (int i = 0; i < 20000; i++) {
            int threads = 1 + rand() % 1024, registers = 1 + rand() % 255;
            size_t shared = (size_t)(rand() % 4 ? rand() % 8192 : 0), dynamic = (size_t)rand() % (48 << 10);
            if (rand() % 2) dynamic = 0;
            if (shared + dynamic > sm->shared_optin_bytes) continue;
            double want = vendors(sm, threads, registers, shared, dynamic);
            if (isnan(want)) {
                unknown++;
                continue;
            }
            double got = kernels_occupancy(sm->sm, threads, registers, (int64_t)shared, (int64_t)dynamic);
            if (got != want)
                print_error("sm_%u, %d threads, %d registers, %zu + %zu bytes: %g, the calculator says %g\n", sm->sm,
                            threads, registers, shared, dynamic, got, want);
            assert_true(got == want);
            compared++;
        }
    }
    assert_true(compared > 50000);
    print_message("%ld compared, %ld not known to the calculator\n", compared, unknown);
}

static void what_is_not_known(void **unused) {
    (void)unused;
    assert_true(isnan(kernels_occupancy(-1, 256, 32, 0, 0)));
    assert_true(isnan(kernels_occupancy(10, 256, 32, 0, 0)));
    assert_true(isnan(kernels_occupancy(90, 256, -1, 0, 0)));
    assert_true(isnan(kernels_occupancy(90, 256, 32, -1, 0)));
    assert_true(isnan(kernels_occupancy(90, 256, 32, 0, -1)));
    assert_true(isnan(kernels_occupancy(90, 0, 32, 0, 0)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_vendors_calculator),
        cmocka_unit_test(what_is_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
