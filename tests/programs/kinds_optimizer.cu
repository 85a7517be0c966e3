/* Parameters: their memory, gradients, optimizers.
 *   opt      sgd momentum adamw; block: adamw, a launch over all; foreach: a launch for each operation over lists of
 *            tensors; list: adamw over lists; master: bf16 weights, fp32 master, in one kernel; master_copy: in two;
 * muon zero     gradients begin anew: none (memory of each step's own), memset, beta (the first product overwrites) sum
 * a further micro-batch's gradient: beta (products add), add (by a kernel, from memory of its own) lazy     1: state is
 * made at the first update        slabs   1: tensors lie in blocks, with room between them */
#include <stdlib.h>
#include "tests/programs/kinds.h"

static bool averages;
static buffer norm_sum, flag;

static bool half_weights() {
    return is("opt", "master") || is("opt", "master_copy");
}
static bool in_blocks() {
    return is("opt", "block") || number("slabs");
}
static int moments() {
    if (is("opt", "sgd")) return 0;
    return is("opt", "momentum") || is("opt", "muon") ? 1 : 2;
}

param ask_param(params *all, const char *name, int rows, int cols, bool trained, float scale) {
    param p = std::make_shared<parameter>();
    *p = parameter{};
    p->name = name, p->rows = rows, p->cols = cols, p->trained = trained, p->scale = scale;
    all->push_back(p);
    return p;
}

/* ---- memory ---- */
typedef buffer parameter::*member;

/* The same member of all of them: each in an allocation of its own, or in one block. */
static void build(const params &all, member which, const char *role, type t, bool trained_only) {
    size_t align = is("opt", "block") ? 4 : 256, bytes = 0;
    for (const param &p : all)
        if (p->trained || !trained_only) bytes += (p->n() * type_bytes(t) + align - 1) / align * align;
    if (!bytes) return;
    slab s = {};
    if (in_blocks()) s = make_slab(bytes, align);
    for (const param &p : all)
        if (p->trained || !trained_only)
            p.get()->*which = in_blocks() ? carve(&s, p->name, role, p->n(), t) : make(p->name, role, p->n(), t);
}

static void clear(const buffer &b) {
    CHECK(cudaMemsetAsync(b.at, 0, b.n * type_bytes(b.t), 0));
}

static void build_state(const params &all) {
    if (moments() > 0) build(all, &parameter::m, "optimizer", F32, true);
    if (moments() > 1) build(all, &parameter::v, "optimizer", F32, true);
    for (const param &p : all) {
        if (p->m.at) clear(p->m);
        if (p->v.at) clear(p->v);
    }
}

void build_params(params *all) {
    type t = half_weights() ? BF16 : F32;
    build(*all, &parameter::w, "param", t, false);
    if (half_weights()) build(*all, &parameter::master, "optimizer", F32, true);
    for (size_t i = 0; i < all->size(); i++) {
        param p = (*all)[i];
        if (p->master.at) {
            upload(p->master, p->scale, (unsigned)i);
            k_cast(p->w, p->master);
        } else {
            upload(p->w, p->scale, (unsigned)i);
        }
    }
    if (!number("train")) return;
    if (!is("zero", "none")) build(*all, &parameter::g, "grad", t, true);
    if (!number("lazy")) build_state(*all);
    if (number("ema")) build(*all, &parameter::average, "optimizer", F32, true);
    if (is("eval_with", "swap")) build(*all, &parameter::backup, "temporary", F32, true);
    for (const param &p : *all)
        if (p->average.at) CHECK(cudaMemcpy(p->average.at, p->w.at, p->n() * 4, cudaMemcpyDeviceToDevice));
    if (number("clip") && !norm_sum.at) norm_sum = make("norm", "temporary", 1);
    if (!is("skip", "") && !flag.at) flag = make("flag", "temporary", 1);
}

void release_params(params *all) {
    for (const param &p : *all)
        for (member b : {&parameter::w, &parameter::g, &parameter::master, &parameter::m, &parameter::v,
                         &parameter::average, &parameter::backup})
            give_back(&(p.get()->*b));
    all->clear();
}

/* ---- gradients ---- */
/* Per parameter and step: has backward written its gradient already? */
buffer gradient_of(param p, bool *fresh) {
    *fresh = is("zero", "none") ? !p->g.at : is("zero", "beta") && !p->begun;
    if (!p->g.at) p->g = make(p->name, "grad", p->n(), p->w.t);
    p->begun = true;
    return p->g;
}

void add_gradient(param p, std::function<void(const buffer &, bool)> write) {
    bool fresh, cast = is("dtype", "autocast");
    if (cast && !p->cast.at) cast = false; /* read as it is: no product */
    buffer g = gradient_of(p, &fresh);
    if (!cast && (fresh || is("sum", "beta") || is("zero", "memset"))) {
        write(g, fresh);
        return;
    }
    buffer part = work("part", is("alloc", "static") ? "grad|temporary" : "temporary", p->n(), cast ? BF16 : g.t);
    write(part, true);
    if (fresh)
        k_cast(g, part);
    else
        k_add_into(g, part);
    done(&part);
}

void clear_gradients(const params &all) {
    for (const param &p : all) {
        p->begun = false;
        if (!p->g.at) continue;
        if (is("zero", "none")) give_back(&p->g);
        if (is("zero", "memset")) clear(p->g);
    }
}

/* ---- what is read ---- */
void use_average(bool so) {
    averages = so;
}
const buffer &plain(param p) {
    return averages && p->average.at ? p->average : p->w;
}
const buffer &operand(param p) {
    if (!is("dtype", "autocast")) return plain(p);
    if (!p->cast.at) {
        p->cast = work("cast", "activation", p->n(), BF16);
        k_cast(p->cast, plain(p));
    }
    return p->cast;
}
void drop_casts(const params &all) {
    for (const param &p : all)
        if (p->cast.at) done(&p->cast);
}

static void copy(const buffer &to, const buffer &from) {
    CHECK(cudaMemcpyAsync(to.at, from.at, to.n * type_bytes(to.t), cudaMemcpyDeviceToDevice, 0));
}
void swap_average(const params &all, bool in) {
    for (const param &p : all) {
        if (!p->average.at) continue;
        if (in) copy(p->backup, p->w);
        copy(p->w, in ? p->average : p->backup);
    }
}

void save(const params &all) {
    for (const param &p : all) {
        void *host = malloc(p->n() * 4);
        CHECK(cudaMemcpy(host, p->w.at, p->n() * type_bytes(p->w.t), cudaMemcpyDeviceToHost));
        free(host);
    }
}

/* ---- optimizers ---- */
static const float RATE = 0.01f;

void decay(const params &all) {
    for (const param &p : all)
        if (p->trained) k_scale(p->w, 0.999f);
}

bool overflows(const params &all, bool so) {
    clear(flag);
    for (const param &p : all)
        if (p->g.at) k_unscale(p->g, flag, 1 / 64.f);
    read_host(flag, 1);
    return so;
}

void clip(const params &all) {
    clear(norm_sum);
    for (const param &p : all)
        if (p->g.at) k_square_norm(norm_sum, p->g);
    for (const param &p : all)
        if (p->g.at) k_clip(p->g, norm_sum, 1);
}

/* Newton–Schulz: the momentum, made orthogonal by products. */
static void muon(param p) {
    k_mix(p->m, 0.9f, p->m, 1, p->g);
    if (p->cols == 1) {
        k_sgd(p->w, p->m, RATE);
        return;
    }
    int r = p->rows, c = p->cols;
    buffer x = work("muon_x", "temporary", p->n()), y = work("muon_y", "temporary", p->n());
    buffer a = work("muon_a", "temporary", (size_t)r * r), b = work("muon_b", "temporary", (size_t)r * r);
    if (number("nesterov"))
        k_mix(x, 0.1125f, p->m, 0.0125f, p->g);
    else
        k_mix(x, 0.125f, p->m, 0, p->m);
    for (int i = 0; i < 2; i++) {
        multiply(false, true, r, r, c, x, x, 0, a);
        multiply(false, false, r, r, r, a, a, 0, b);
        k_mix(b, -4.775f, a, 2.0315f, b);
        multiply(false, false, r, c, r, b, x, 0, y);
        k_mix(x, 3.4445f, x, 1, y);
    }
    k_sgd(p->w, x, RATE);
    for (buffer *t : {&x, &y, &a, &b}) done(t);
}

void optimize_one(param p, int step) {
    if (!p->g.at) return;
    if (is("opt", "sgd")) k_sgd(p->w, p->g, RATE);
    if (is("opt", "momentum")) k_momentum(p->w, p->g, p->m, RATE);
    if (is("opt", "adamw")) k_adamw(p->w, p->g, p->m, p->v, RATE, step);
    if (is("opt", "master")) k_adamw_master(p->w, p->master, p->g, p->m, p->v, RATE, step);
    if (is("opt", "master_copy")) {
        k_adamw_master(buffer{}, p->master, p->g, p->m, p->v, RATE, step);
        k_cast(p->w, p->master);
    }
    if (is("opt", "muon")) muon(p);
}

typedef std::vector<buffer> buffers;
static buffers list_of(const params &all, member which) {
    buffers out;
    for (const param &p : all)
        if (p->g.at) out.push_back(p.get()->*which);
    return out;
}

static void foreach_adam(const params &all) {
    buffers w = list_of(all, &parameter::w), g = list_of(all, &parameter::g), m = list_of(all, &parameter::m),
            v = list_of(all, &parameter::v), root;
    k_list(LIST_LERP, m, g, buffers{}, 0.1f);
    k_list(LIST_SQUARES, v, g, buffers{}, 0.999f);
    for (const buffer &b : v) root.push_back(work("root", "temporary", b.n));
    k_list(LIST_ROOT, root, v, buffers{}, 1e-8f);
    k_list(LIST_QUOTIENT, w, m, root, RATE);
    for (buffer &b : root) done(&b);
}

static void update_block(const params &all, int step) {
    const parameter &first = *all.front(), &last = *all.back();
    size_t n = (size_t)(last.w.f() - first.w.f()) + last.n();
    k_adamw(first.w, first.g, first.m, first.v, RATE, step, n);
}

void optimize(const params &all, int step) {
    bool lists = is("opt", "foreach") || is("opt", "list");
    if (number("lazy") && moments()) {
        bool made = false;
        for (const param &p : all) made |= p->m.at != NULL;
        if (!made) build_state(all);
    }
    if (is("opt", "foreach")) foreach_adam(all);
    if (is("opt", "list"))
        k_list_adamw(list_of(all, &parameter::w), list_of(all, &parameter::g), list_of(all, &parameter::m),
                     list_of(all, &parameter::v), RATE, step);
    if (is("opt", "block")) update_block(all, step);
    for (const param &p : all) {
        if (!lists && !is("opt", "block")) optimize_one(p, step);
        if (p->average.at) k_ema(p->average, p->w, 0.9f);
    }
}
