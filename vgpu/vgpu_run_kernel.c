/* What a launch needs to know of a kernel: where pointers may lie among its parameters, how much a thread does, whether
 * its blocks may run side by side; and its compiled code. Once a kernel, under vgpu_run_lock. */
#include "ptx/ptx_access.h"
#include "ptx/ptx_cost.h"
#include "vgpu/vgpu_run.h"

#include <stdlib.h>
#include <string.h>

/* A loop's body counts this often: only a scale, to tell a kernel worth waking other threads for. */
enum { LOOP_TURNS = 16, MAX_FUNCTIONS_DEEP = 16 };

static bool has_loop(const struct ptx_function *f) {
    for (int32_t i = 0; i < f->block_count; i++)
        for (int32_t k = 0; k < f->blocks[i].succs && k < 2; k++)
            if (f->blocks[f->blocks[i].succ[k]].rank <= f->blocks[i].rank) return true;
    return false;
}

static uint64_t work_of(const struct ptx_function *f) {
    return (uint64_t)f->instr_count * (has_loop(f) ? LOOP_TURNS : 1);
}

/* Does f, or a function that it calls, call `name`? Functions through pointers: any might. */
static bool calls(const struct ptx_module *m, const struct ptx_function *f, const char *name, int depth) {
    if (depth == MAX_FUNCTIONS_DEEP) return true;
    for (int32_t i = 0; i < f->instr_count; i++) {
        const struct ptx_instr *in = &f->instrs[i];
        if (in->op != PTX_OP_CALL) continue;
        if (in->callee < 0) return true;
        const struct ptx_function *g = &m->functions[in->callee];
        if (g == f) continue;
        if (!strcmp(g->name, name) || calls(m, g, name, depth + 1)) return true;
    }
    return false;
}

static int by_offset(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Every aligned word of eight bytes could be an address. */
static void all_words(struct vgpu_kernel *k) {
    for (int32_t i = 0; i < k->f->params; i++) {
        const struct ptx_var *v = &k->f->vars[i];
        uint64_t first = (v->offset + 7) / 8 * 8;
        for (uint64_t at = first; at + 8 <= v->offset + v->bytes; at += 8)
            k->pointers[k->pointer_count++] = (uint32_t)at;
    }
}

static void followed(struct vgpu_kernel *k, const struct ptx_accesses *a) {
    k->followed = true;
    for (int32_t i = 0; i < a->slots; i++)
        if (a->slot[i].param >= 0 && a->slot[i].offset + 8 <= k->f->param_bytes)
            k->pointers[k->pointer_count++] = a->slot[i].offset;
    qsort(k->pointers, k->pointer_count, sizeof *k->pointers, by_offset);
}

static void find_uses(struct vgpu_kernel *k, const struct ptx_module *m) {
    k->uses = malloc(k->f->param_bytes + 1);
    if (!k->uses || !ptx_cost_uses(m, k->f, k->uses)) return;
    free(k->uses);
    k->uses = NULL;
}

static cudaError_t find_pointers(struct vgpu_kernel *k, const struct ptx_module *m) {
    struct ptx_accesses a;
    k->pointers = malloc((k->f->param_bytes / 8 + 1) * sizeof *k->pointers);
    if (!k->pointers) return cudaErrorMemoryAllocation;
    if (ptx_access_static(m, k->f, &a)) {
        all_words(k);
        return cudaSuccess;
    }
    if (a.unknown || a.slots > (int32_t)(k->f->param_bytes / 8))
        all_words(k);
    else
        followed(k, &a);
    ptx_access_free(&a);
    return cudaSuccess;
}

/* Where the compiler refuses a kernel, it says why, and the interpreter has it. */
static void compile(struct vgpu_kernel *k, const struct ptx_module *m) {
    char why[256] = "";
    if (vgpu_execute_way() != VGPU_COMPILED || vgpu_profile()->dry) return;
    k->compiled = !vgpu_jit(m, k->f, &k->code, why, sizeof why);
    if (k->compiled)
        k->local_bytes = k->code.local_bytes;
    else
        vgpu_say("kernel %s is interpreted, not compiled (slow): %.*s", k->name, (int)strcspn(why, "\n"), why);
}

cudaError_t vgpu_kernel_study(struct vgpu_kernel *k, const struct ptx_module *m) {
    cudaError_t e = find_pointers(k, m);
    if (e) return e;
    find_uses(k, m);
    k->local_bytes = k->f->local_bytes;
    k->work = work_of(k->f);
    k->registers = vgpu_registers(m, k->f);
    compile(k, m);
    k->serial = calls(m, k->f, "vprintf", 0);
    return cudaSuccess;
}
