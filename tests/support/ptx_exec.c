/* Runs every entry of a PTX file on one block of N threads: ptx_exec PTX IN OUT N. Each entry takes two pointers: to
 * all of IN, and to as many bytes that become OUT. Built a second time with the compiler of the virtual GPU
 * (PTX_EXEC_JIT), which must answer the same. */
#include "ptx/ptx_interp.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef PTX_EXEC_JIT
#include "vgpu/vgpu_kernel.h"
#endif

static void die(const char *what, const char *why) {
    fprintf(stderr, "ptx_exec: %s: %s\n", what, why);
    exit(1);
}

static unsigned char *read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) die(path, "cannot be read");
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    unsigned char *p = malloc(*bytes + 1);
    if (!p || fread(p, 1, *bytes, f) != *bytes) die(path, "cannot be read");
    fclose(f);
    p[*bytes] = 0;
    return p;
}

#ifdef PTX_EXEC_JIT
static void execute(const struct ptx_module *m, const struct ptx_function *f, void **params, unsigned threads) {
    struct vgpu_code code;
    char err[256];
    if (vgpu_jit(m, f, &code, err, sizeof err)) die(f->name, err);
    static _Alignas(64) unsigned char shared[64], local[64], copy[64];
    memcpy(copy, params, 16);
    struct vgpu_frame frame = {.params = copy,
                               .shared = shared,
                               .local = local,
                               .grid = {1, 1, 1},
                               .block = {threads, 1, 1},
                               .threads = threads,
                               .warps = (threads + 31) / 32};
    if (code.block) code.block(&frame);
    for (uint32_t w = 0; !code.block && w < frame.warps; w++) code.warp(&frame, w); /* no barriers here */
}
#else
static void execute(const struct ptx_module *m, const struct ptx_function *f, void **params, unsigned threads) {
    struct ptx_fault fault;
    struct ptx_run run = {.module = m, .entry = f, .grid = {1, 1, 1}, .block = {threads, 1, 1}, .params = params};
    if (ptx_interpret(&run, &fault)) die(f->name, fault.text);
}
#endif

int main(int argc, char **argv) {
    if (argc != 5) die("usage", "ptx_exec PTX IN OUT N");
    size_t text_bytes, in_bytes;
    unsigned char *text = read_file(argv[1], &text_bytes), *in = read_file(argv[2], &in_bytes);
    unsigned n = (unsigned)atoi(argv[4]);
    struct ptx_module *m;
    struct ptx_error e;
    if (ptx_parse((char *)text, text_bytes, &m, &e)) {
        fprintf(stderr, "%d:%d: ", e.line, e.column);
        die(argv[1], e.text);
    }
    FILE *out = fopen(argv[3], "wb");
    unsigned char *result = calloc(1, in_bytes + 1);
    if (!out || !result) die(argv[3], "cannot be written");
    void *params[2] = {in, result};
    for (int32_t k = 0; k < m->function_count; k++) {
        if (m->functions[k].error) die(m->functions[k].name, m->functions[k].error);
        execute(m, &m->functions[k], params, n);
    }
    fwrite(result, 1, in_bytes, out);
    if (fclose(out)) die(argv[3], "cannot be written");
    ptx_free(m);
    return 0;
}
