/* The account that the program keeps of itself, its memory, and its products. */
#include <stdarg.h>
#include <string.h>
#include "tests/programs/kinds.h"

enum { STEPS = 64 };

struct row {
    std::string name, role;
    void *at;
    size_t bytes, offset;
    int allocation, stretch;
    bool live;
};
static std::vector<row> rows;
static int allocations, stretch;
static phase now = SETUP;

static int step = -1;
static long long flops[STEPS][PHASES], evaluation;
static int micro_batches[STEPS], batch_rows[STEPS];
static std::vector<int> live_at_end[STEPS];

size_t type_bytes(type t) {
    return t == BF16 ? 2 : 4;
}

void enter(phase p) {
    stretch += p != now;
    now = p;
}
phase phase_now() {
    return now;
}

void begin_step() {
    if (++step >= STEPS) exit(2);
}
void begin_micro_batch(int n) {
    micro_batches[step]++;
    batch_rows[step] += n;
}
void drop_step() {
    micro_batches[step] = batch_rows[step] = 0;
    memset(flops[step], 0, sizeof flops[step]);
    step--;
}
void end_step() {
    CHECK(cudaDeviceSynchronize()); /* what is released later, the next step releases */
    for (size_t i = 0; i < rows.size(); i++)
        if (rows[i].live) live_at_end[step].push_back((int)i);
}

void count_product(long long n) {
    if (now == EVALUATION)
        evaluation += n;
    else if (now != SETUP)
        flops[step][now] += n;
}

void tell_account() {
    printf("{\"tensors\": [");
    for (size_t i = 0; i < rows.size(); i++)
        printf("%s\n {\"name\": \"%s\", \"class\": \"%s\", \"allocation\": %d, \"address\": %llu, \"offset\": %zu, "
               "\"bytes\": %zu}",
               i ? "," : "", rows[i].name.c_str(), rows[i].role.c_str(), rows[i].allocation,
               (unsigned long long)(size_t)rows[i].at, rows[i].offset, rows[i].bytes);
    printf("],\n \"steps\": [");
    for (int s = 0; s <= step; s++) {
        printf("%s\n {\"forward\": %lld, \"recompute\": %lld, \"backward\": %lld, \"optimizer\": %lld, "
               "\"micro_batches\": %d, \"rows\": %d, \"live\": [",
               s ? "," : "", flops[s][FORWARD], flops[s][RECOMPUTE], flops[s][BACKWARD], flops[s][OPTIMIZER],
               micro_batches[s], batch_rows[s]);
        for (size_t i = 0; i < live_at_end[s].size(); i++) printf("%s%d", i ? ", " : "", live_at_end[s][i]);
        printf("]}");
    }
    printf("],\n \"evaluation\": %lld}\n", evaluation);
    fflush(stdout);
}

/* ---- memory ---- */
static int note(const char *name, const char *role, void *at, size_t bytes, int allocation, size_t offset) {
    rows.push_back(row{name, role, at, bytes, offset, allocation, stretch, true});
    return (int)rows.size() - 1;
}

static void *allocate(size_t bytes) {
    void *at = NULL;
    CHECK(is("alloc", "async") ? cudaMallocAsync(&at, bytes, 0) : cudaMalloc(&at, bytes));
    allocations++;
    return at;
}

buffer make(const char *name, const char *role, size_t n, type t) {
    buffer b = {allocate(n * type_bytes(t)), n, t, -1};
    b.row = note(name, role, b.at, n * type_bytes(t), allocations - 1, 0);
    return b;
}

void give_back(buffer *b) {
    if (!b->at) return;
    row *r = &rows[(size_t)b->row];
    if (r->stretch == stretch && (r->role == "activation" || now == EVALUATION)) r->role = "temporary";
    r->live = false;
    CHECK(is("alloc", "async") ? cudaFreeAsync(b->at, 0) : cudaFree(b->at));
    b->at = NULL;
}

void rename_role(const buffer &b, const char *role) {
    rows[(size_t)b.row].role = role;
}

slab make_slab(size_t bytes, size_t align) {
    slab s = {(char *)allocate(bytes), 0, bytes, align, 0};
    s.allocation = allocations - 1;
    return s;
}
buffer carve(slab *s, const char *name, const char *role, size_t n, type t) {
    size_t bytes = n * type_bytes(t), at = s->used;
    buffer b = {s->at + at, n, t, -1};
    s->used += (bytes + s->align - 1) / s->align * s->align;
    if (s->used > s->bytes) exit(2);
    b.row = note(name, role, b.at, bytes, s->allocation, at);
    return b;
}

/* ---- working memory ---- */
struct kept {
    std::string name;
    buffer b;
    bool taken;
};
static std::vector<kept> keep; /* alloc=static */

/* The smallest that is free and large enough. */
static kept *find_kept(const char *name, size_t n, type t) {
    kept *best = NULL;
    for (kept &k : keep)
        if (!k.taken && k.name == name && k.b.t == t && k.b.n >= n && (!best || k.b.n < best->b.n)) best = &k;
    return best;
}

buffer work(const char *name, const char *role, size_t n, type t) {
    if (!is("alloc", "static")) return make(name, role, n, t);
    kept *k = find_kept(name, n, t);
    if (!k) {
        keep.push_back(kept{name, make(name, role, n, t), false});
        k = &keep.back();
    }
    k->taken = true;
    buffer b = k->b;
    b.n = n;
    return b;
}
void done(buffer *b) {
    if (!is("alloc", "static")) {
        give_back(b);
        return;
    }
    for (kept &k : keep)
        if (k.b.at == b->at) k.taken = false;
    b->at = NULL;
}

/* ---- products ---- */
cublasHandle_t blas;

void multiply(bool ta, bool tb, int r, int c, int k, const buffer &a, const buffer &b, float beta, const buffer &to,
              int batch, float alpha) {
    static const cudaDataType_t types[] = {CUDA_R_32F, CUDA_R_16BF};
    cublasOperation_t oa = ta ? CUBLAS_OP_T : CUBLAS_OP_N, ob = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    int lda = ta ? r : k, ldb = tb ? k : c; /* row by row is the transposed product, column by column */
    count_product(2LL * r * c * k * batch);
    if (batch == 1 && a.t == F32)
        CHECK(cublasSgemm(blas, ob, oa, c, r, k, &alpha, b.f(), ldb, a.f(), lda, &beta, to.f(), c));
    else
        CHECK(cublasGemmStridedBatchedEx(blas, ob, oa, c, r, k, &alpha, b.at, types[b.t], ldb, (long long)k * c, a.at,
                                         types[a.t], lda, (long long)r * k, &beta, to.at, types[to.t], c,
                                         (long long)r * c, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}
