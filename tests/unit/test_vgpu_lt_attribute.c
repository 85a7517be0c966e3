/* cuBLASLt's descriptors against the vendor's own library, whose descriptors need no device: every attribute's size,
 * default and answers to wrong sizes must be the same. */
#include "tests/unit/vgpu_testing.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

typedef cublasStatus_t (*get_fn)(void *, int, void *, size_t, size_t *);
typedef cublasStatus_t (*set_fn)(void *, int, const void *, size_t);

/* One kind of descriptor in two libraries. */
struct kind {
    const char *name;   /* cublasLt<name>GetAttribute */
    size_t bytes;       /* of the opaque struct */
    const char *create; /* its Init function; NULL: all 0 */
    int arguments;      /* of that, after size: enums or 64-bit numbers */
    bool config;        /* an algorithm: …ConfigGetAttribute */
};

static void *vendor;

static const struct kind kinds[] = {
    {"MatmulDesc", sizeof(cublasLtMatmulDescOpaque_t), "cublasLtMatmulDescInit_internal", 2, false},
    {"MatrixLayout", sizeof(cublasLtMatrixLayoutOpaque_t), "cublasLtMatrixLayoutInit_internal", 4, false},
    {"MatmulPreference", sizeof(cublasLtMatmulPreferenceOpaque_t), "cublasLtMatmulPreferenceInit_internal", 0, false},
    {"MatrixTransformDesc", sizeof(cublasLtMatrixTransformDescOpaque_t), "cublasLtMatrixTransformDescInit_internal", 1,
     false},
    {"EmulationDesc", sizeof(cublasLtEmulationDescOpaque_t), "cublasLtEmulationDescInit_internal", 0, false},
    {"MatmulAlgo", sizeof(cublasLtMatmulAlgo_t), NULL, 0, true},
};

static void *find(void *library, const char *name) {
    void *f = dlsym(library, name);
    if (!f) fail_msg("%s is not there", name);
    return f;
}

static cublasStatus_t init(void *library, const struct kind *k, void *memory, size_t bytes) {
    if (!k->create) {
        memset(memory, 0, k->bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    void *f = find(library, k->create);
    switch (k->arguments) {
    case 0:
        return ((cublasStatus_t(*)(void *, size_t))f)(memory, bytes);
    case 1:
        return ((cublasStatus_t(*)(void *, size_t, int))f)(memory, bytes, CUDA_R_16F);
    case 2:
        return ((cublasStatus_t(*)(void *, size_t, int, int))f)(memory, bytes, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    default:
        return ((cublasStatus_t(*)(void *, size_t, int, uint64_t, uint64_t, int64_t))f)(memory, bytes, CUDA_R_8F_E4M3,
                                                                                        3, 5, 7);
    }
}

/* What a library makes of one attribute, as text. */
static void examine(void *library, const struct kind *k, int number, char *out, size_t room) {
    char name[80], set_name[80];
    unsigned char memory[512], value[64];
    size_t bytes = 99, written = 99;
    snprintf(name, sizeof name, "cublasLt%s%sGetAttribute", k->name, k->config ? "Config" : "");
    snprintf(set_name, sizeof set_name, "cublasLt%s%sSetAttribute", k->name, k->config ? "Config" : "");
    get_fn get = (get_fn)find(library, name);
    set_fn set = (set_fn)find(library, set_name);
    OK(init(library, k, memory, k->bytes));
    int e = (int)get(memory, number, NULL, 0, &bytes), n = snprintf(out, room, "ask %d size %zu", e, bytes);
    if (e) return;
    memset(value, 0x55, sizeof value);
    e = (int)get(memory, number, value, bytes, &written);
    n += snprintf(out + n, room - (size_t)n, " get %d %zu:", e, written);
    for (size_t i = 0; i < bytes + 1; i++) n += snprintf(out + n, room - (size_t)n, " %02x", value[i]);
    n += snprintf(out + n, room - (size_t)n, " small %d large %d no value %d nothing %d",
                  get(memory, number, value, bytes + 8, &written),
                  bytes > 1 ? (int)get(memory, number, value, bytes - 1, &written) : -1,
                  get(memory, number, NULL, bytes, &written), get(memory, number, NULL, 0, NULL));
    if (k->config && number == CUBLASLT_ALGO_CONFIG_ID) return; /* the documentation: read only */
    memset(value, 0x23, sizeof value);
    n += snprintf(out + n, room - (size_t)n, " set small %d large %d none %d", set(memory, number, value, bytes - 1),
                  set(memory, number, value, bytes + 4), set(memory, number, NULL, bytes));
    n += snprintf(out + n, room - (size_t)n, " set %d", set(memory, number, value, bytes));
    memset(value, 0, sizeof value);
    e = (int)get(memory, number, value, bytes, &written);
    n += snprintf(out + n, room - (size_t)n, " back %d:", e);
    for (size_t i = 0; i < bytes; i++) n += snprintf(out + n, room - (size_t)n, " %02x", value[i]);
}

static void attributes_are_the_vendors(void **state) {
    (void)state;
    char ours[1024], theirs[1024];
    if (!vendor) skip();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int number = -2; number < 64; number++) {
            examine(RTLD_DEFAULT, &kinds[i], number, ours, sizeof ours);
            examine(vendor, &kinds[i], number, theirs, sizeof theirs);
            if (strcmp(ours, theirs))
                fail_msg("%s, attribute %d: %s\nthe vendor's: %s", kinds[i].name, number, ours, theirs);
        }
}

/* Memory that is too small for the descriptor is refused, and nothing is written behind it. */
static void initialisation_keeps_to_the_size(void **state) {
    (void)state;
    unsigned char memory[512];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!kinds[i].create) continue;
        memset(memory, 0x77, sizeof memory);
        assert_int_equal(init(RTLD_DEFAULT, &kinds[i], memory, kinds[i].bytes - 8), CUBLAS_STATUS_ALLOC_FAILED);
        OK(init(RTLD_DEFAULT, &kinds[i], memory, kinds[i].bytes));
        for (size_t b = kinds[i].bytes; b < sizeof memory; b++) assert_int_equal(memory[b], 0x77);
    }
}

/* A descriptor made by Create is one made by Init. */
static void created_is_initialised(void **state) {
    (void)state;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulDescOpaque_t in_place;
    OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_64F, CUDA_R_64F));
    OK(cublasLtMatmulDescInit(&in_place, CUBLAS_COMPUTE_64F, CUDA_R_64F));
    assert_memory_equal(desc, &in_place, sizeof in_place);
    OK(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16F, 1 << 20, 2, 1 << 20));
    uint64_t rows = 0;
    size_t written = 0;
    OK(cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows, &written));
    assert_true(rows == 1 << 20 && written == sizeof rows);
    OK(cublasLtMatmulDescDestroy(desc));
    OK(cublasLtMatrixLayoutDestroy(layout));
    assert_int_equal(cublasLtMatmulDescCreate(NULL, CUBLAS_COMPUTE_64F, CUDA_R_64F), CUBLAS_STATUS_INVALID_VALUE);
}

static void version_is_the_vendors(void **state) {
    (void)state;
    int part, theirs;
    if (!vendor) skip();
    assert_true(cublasLtGetVersion() == ((size_t(*)(void))find(vendor, "cublasLtGetVersion"))());
    assert_true(cublasLtGetCudartVersion() == ((size_t(*)(void))find(vendor, "cublasLtGetCudartVersion"))());
    for (int i = 0; i < 3; i++) {
        OK(cublasLtGetProperty((libraryPropertyType)i, &part));
        OK(((cublasStatus_t(*)(int, int *))find(vendor, "cublasLtGetProperty"))(i, &theirs));
        assert_int_equal(part, theirs);
    }
    assert_string_equal(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
}

static void cache_and_log(void **state) {
    (void)state;
    size_t capacity = 0;
    OK(cublasLtHeuristicsCacheSetCapacity(17));
    OK(cublasLtHeuristicsCacheGetCapacity(&capacity));
    assert_int_equal(capacity, 17);
    OK(cublasLtLoggerSetLevel(5));
    assert_int_equal(cublasLtLoggerSetLevel(6), CUBLAS_STATUS_INVALID_VALUE);
    OK(cublasLtLoggerSetMask(0));
}

static int open_vendor(void **state) {
    (void)state;
    vendor = dlopen(VENDOR_LT, RTLD_NOW | RTLD_LOCAL);
    return vendor && dlsym(vendor, "cublasLtGetVersion") == (void *)cublasLtGetVersion; /* it is the stand-in */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attributes_are_the_vendors),
        cmocka_unit_test(initialisation_keeps_to_the_size),
        cmocka_unit_test(created_is_initialised),
        cmocka_unit_test(version_is_the_vendors),
        cmocka_unit_test(cache_and_log),
    };
    return cmocka_run_group_tests(tests, open_vendor, NULL);
}
