// Runs the kernel zoo on a device: zoo [--dump FILE] [CASE…]. A line a case: its name, ok or FAILED, and a hash of what
// it wrote. The file gets the bytes of all results, in order. Exit code 1 if any case failed.
#include "zoo_kernels.cu"
#include "tests/zoo/zoo.h"
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t e = (call);                                                              \
        if (e != cudaSuccess) {                                                              \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e));       \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

static const struct {
    const char *name;
    const void *function;
} kernels[] = {
#define KERNEL(n) {#n, (const void *)n},
#define transpose transpose_tile
    ZOO_REFERENCES(KERNEL)
#undef transpose
    {"transpose_naive", (const void *)transpose_naive},
    {"transpose_tile", (const void *)transpose_tile},
};

static const void *find(const char *name)
{
    for (const auto &k : kernels)
        if (!strcmp(k.name, name))
            return k.function;
    fprintf(stderr, "no kernel %s\n", name);
    exit(1);
}

static uint64_t hash(uint64_t h, const std::vector<char> &bytes) // FNV-1a
{
    for (char b : bytes)
        h = (h ^ (unsigned char)b) * 1099511628211u;
    return h;
}


static bool run(const zoo_case *c, FILE *dump)
{
    void *device[ZOO_ARGS] = {}, *reference[ZOO_ARGS] = {};
    uint64_t address[ZOO_ARGS] = {};
    std::vector<char> want[ZOO_ARGS];
    for (int k = 0; k < c->args; k++) {
        if (c->arg[k].kind != 'b')
            continue;
        want[k].resize(zoo_bytes(&c->arg[k]));
        zoo_fill(c, k, want[k].data());
        reference[k] = want[k].data();
        CHECK(cudaMalloc(&device[k], want[k].size()));
        CHECK(cudaMemcpy(device[k], want[k].data(), want[k].size(), cudaMemcpyHostToDevice));
        address[k] = (uint64_t)(uintptr_t)device[k];
    }
    // Each argument of the kernel: where it begins among the packed ones (a struct's fields follow it).
    unsigned char packed[512];
    size_t offset[ZOO_ARGS];
    zoo_pack(c, address, packed, offset);
    void *args[ZOO_ARGS];
    int n = 0;
    for (int k = 0; k < c->args; k++)
        if (!c->arg[k].field)
            args[n++] = packed + offset[k];
    CHECK(cudaLaunchKernel(find(c->kernel), dim3(c->grid[0], c->grid[1], c->grid[2]), dim3(c->block[0], c->block[1], c->block[2]), args,
                           c->shared, 0));
    CHECK(cudaDeviceSynchronize());
    c->reference(c, reference);
    uint64_t h = 14695981039346656037u;
    bool ok = true;
    for (int k = 0; k < c->args; k++) {
        if (c->arg[k].kind != 'b')
            continue;
        std::vector<char> got(want[k].size());
        CHECK(cudaMemcpy(got.data(), device[k], got.size(), cudaMemcpyDeviceToHost));
        CHECK(cudaFree(device[k]));
        char err[512];
        if (!c->arg[k].out)
            continue;
        if (!zoo_equal(c, k, got.data(), want[k].data(), err, sizeof err)) {
            printf("%s\n", err);
            ok = false;
        }
        h = hash(h, got);
        if (dump)
            fwrite(got.data(), 1, got.size(), dump);
    }
    printf("%s %s %016llx\n", c->name, ok ? "ok" : "FAILED", (unsigned long long)h);
    fflush(stdout);
    return ok;
}

int main(int argc, char **argv)
{
    FILE *dump = nullptr;
    int first = 1;
    if (argc > 2 && !strcmp(argv[1], "--dump")) {
        dump = fopen(argv[2], "wb");
        first = 3;
        if (!dump) {
            perror(argv[2]);
            return 1;
        }
    }
    bool ok = true;
    for (int k = 0; k < zoo_case_count; k++) {
        bool wanted = first == argc;
        for (int a = first; a < argc; a++)
            wanted |= !strcmp(argv[a], zoo_cases[k].name);
        if (wanted)
            ok &= run(&zoo_cases[k], dump);
    }
    if (dump && fclose(dump))
        return 1;
    return ok ? 0 : 1;
}
