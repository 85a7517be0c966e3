/* The trainer: a network, and a loop with what loops have between their steps.
 *   model   mlp, gpt, bn (batchnorm), conv (a convolution, then one linear layer)
 *   frozen  so many lower layers are not trained (and what is below them); frozen_head; lora: rank of adapters, all
 *           else frozen; tied: the head is the embedding; twice: each layer's weight is used twice */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include "tests/programs/kinds.h"

struct layer {
    param norm_w, norm_b, fc, fc_b, proj, proj_b, q, k, v, o;
    param fc_up, fc_down, proj_up, proj_down; /* adapters */
    buffer run_mean, run_var;
};

struct network {
    int L, C, V, B, T, rows;
    params all;
    param table, places, last_w, last_b, head, head_b, conv;
    std::vector<layer> layers;
};

static buffer x[2], targets[2], eval_x, eval_targets;
static cudaStream_t copies;
static cudaEvent_t ready[2], used[2];
static int batches;

static bool has_tokens() {
    return is("model", "gpt");
}

/* ---- the network ---- */
static void ask_layer(network *n, layer *l, bool trained) {
    int C = n->C, F = has_tokens() ? 4 * C : C, r = number("lora");
    params *all = &n->all;
    if (has_tokens() || number("norm") || is("model", "bn")) {
        l->norm_w = ask_param(all, "norm_w", C, 1, trained, 0);
        l->norm_b = ask_param(all, "norm_b", C, 1, trained);
    }
    if (number("attention")) {
        l->q = ask_param(all, "q", C, C, trained);
        l->k = ask_param(all, "k", C, C, trained);
        l->v = ask_param(all, "v", C, C, trained);
        l->o = ask_param(all, "o", C, C, trained);
    }
    l->fc = ask_param(all, "fc", F, C, trained);
    l->fc_b = ask_param(all, "fc_b", F, 1, trained);
    if (has_tokens()) {
        l->proj = ask_param(all, "proj", C, F, trained);
        l->proj_b = ask_param(all, "proj_b", C, 1, trained);
    }
    if (!r) return;
    l->fc_down = ask_param(all, "fc_down", r, C);
    l->fc_up = ask_param(all, "fc_up", F, r);
    l->proj_down = ask_param(all, "proj_down", r, F);
    l->proj_up = ask_param(all, "proj_up", C, r);
}

static network make_network() {
    network n = {};
    n.L = number("layers"), n.C = number("dim"), n.V = number("vocab"), n.B = number("batch"), n.T = number("seq");
    n.rows = n.B * n.T;
    bool base = !number("lora"), lowest = base && !number("frozen");
    if (has_tokens()) {
        n.table = ask_param(&n.all, "table", n.V, n.C, lowest);
        n.places = ask_param(&n.all, "places", n.T * number("positions"), n.C, lowest);
    }
    if (is("model", "conv")) n.conv = ask_param(&n.all, "conv", 4, 2 * 9);
    n.layers.resize(is("model", "conv") ? 0 : (size_t)n.L);
    for (int i = 0; i < (int)n.layers.size(); i++) ask_layer(&n, &n.layers[(size_t)i], base && i >= number("frozen"));
    if (has_tokens()) {
        n.last_w = ask_param(&n.all, "last_w", n.C, 1, base, 0);
        n.last_b = ask_param(&n.all, "last_b", n.C, 1, base);
    }
    int in = is("model", "conv") ? 4 * 64 : n.C;
    n.head = number("tied") ? n.table : ask_param(&n.all, "head", n.V, in, base && !number("frozen_head"));
    if (!has_tokens()) n.head_b = ask_param(&n.all, "head_b", n.V, 1, base && !number("frozen_head"));
    build_params(&n.all);
    for (layer &l : n.layers) {
        if (!is("model", "bn")) break;
        l.run_mean = make("run_mean", "other", (size_t)n.C);
        l.run_var = make("run_var", "other", (size_t)n.C);
        k_fill(l.run_mean, 0);
        k_fill(l.run_var, 1);
    }
    return n;
}

static tensor feed_forward(layer *l, tensor h) {
    tensor f = linear(h, l->fc, l->fc_b);
    if (l->fc_up) f = low_rank(h, f, l->fc_down, l->fc_up);
    if (number("twice")) f = linear(gelu(f), l->fc, NULL);
    if (!l->proj) return gelu(f);
    if (is("recompute", "gelu")) return gelu_linear(f, l->proj, l->proj_b);
    tensor g = gelu(f), y = linear(g, l->proj, l->proj_b);
    return l->proj_up ? low_rank(g, y, l->proj_down, l->proj_up) : y;
}

static tensor block(layer *l, tensor h, int sequences, int seq) {
    if (has_tokens()) {
        tensor a = layernorm(h, l->norm_w, l->norm_b);
        if (l->q) {
            tensor y = attention(linear(a, l->q, NULL), linear(a, l->k, NULL), linear(a, l->v, NULL), sequences, seq);
            h = add(h, linear(y, l->o, NULL));
            a = layernorm(h, l->norm_w, l->norm_b);
        }
        return add(h, feed_forward(l, a));
    }
    if (l->run_mean.at) return batchnorm(feed_forward(l, h), l->norm_w, l->norm_b, l->run_mean, l->run_var);
    if (l->norm_w) h = layernorm(h, l->norm_w, l->norm_b);
    return feed_forward(l, h);
}

static tensor forward(network *n, const buffer &in, int rows, int seq) {
    if (is("model", "conv")) {
        tensor h = gelu(convolution(input_tensor(in, rows, 2 * 64), n->conv, rows, 2, 4, 8));
        return linear(h, n->head, n->head_b);
    }
    tensor h = has_tokens() ? embed(in, n->table, n->places, rows, seq) : input_tensor(in, rows, n->C);
    for (layer &l : n->layers) {
        layer *at = &l;
        auto run = [=](tensor t) { return block(at, t, rows / seq, seq); };
        h = is("recompute", "block") ? recomputed(h, run) : run(h);
    }
    if (has_tokens()) h = layernorm(h, n->last_w, n->last_b);
    return linear(h, n->head, n->head_b);
}

/* ---- batches ---- */
static size_t input_size(const network &n) {
    return has_tokens() ? (size_t)n.rows : (size_t)n.rows * (is("model", "conv") ? 2 * 64 : (size_t)n.C);
}

static void fill_batch(const network &n, const buffer &in, const buffer &out, unsigned seed) {
    if (has_tokens())
        upload_tokens(in, n.V, seed);
    else
        upload(in, 1, seed);
    upload_tokens(out, n.V, seed + 7);
}

static void make_batches(const network &n) {
    for (int i = 0; i < (is("data", "double") ? 2 : 1); i++) {
        x[i] = make("x", "input", input_size(n), has_tokens() ? I32 : F32);
        targets[i] = make("targets", "input", (size_t)n.rows, I32);
        CHECK(cudaEventCreate(&ready[i]));
        CHECK(cudaEventCreate(&used[i]));
    }
    CHECK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
}

/* From pinned memory, on the stream of copies, when the pass that had the memory before is done with it. */
static void fetch(const network &n, int slot) {
    static void *host[2];
    CHECK(cudaEventSynchronize(used[slot]));
    if (!host[slot]) CHECK(cudaMallocHost(&host[slot], (input_size(n) + (size_t)n.rows) * 4));
    float *f = (float *)host[slot];
    int *t = (int *)host[slot];
    for (size_t i = 0; i < input_size(n); i++) {
        if (has_tokens())
            t[i] = rand() % n.V;
        else
            f[i] = (float)(rand() % 200 - 100) / 100;
    }
    int *to = t + input_size(n);
    for (int i = 0; i < n.rows; i++) to[i] = rand() % n.V;
    CHECK(cudaMemcpyAsync(x[slot].at, f, input_size(n) * 4, cudaMemcpyHostToDevice, copies));
    CHECK(cudaMemcpyAsync(targets[slot].at, to, (size_t)n.rows * 4, cudaMemcpyHostToDevice, copies));
    CHECK(cudaEventRecord(ready[slot], copies));
}

static int next_batch(const network &n) {
    int slot = 0;
    if (is("data", "double")) {
        slot = batches % 2;
        if (!batches) fetch(n, slot);
        fetch(n, 1 - slot);
        CHECK(cudaStreamWaitEvent(0, ready[slot], 0));
    } else if (!batches || !is("data", "fixed")) {
        fill_batch(n, x[0], targets[0], (unsigned)batches);
    }
    batches++;
    return slot;
}

/* ---- the loop ---- */
static void evaluate(network *n, int batches_of_it) {
    tape off = {{}, false};
    enter(EVALUATION);
    pass = &off;
    bool own = !is("alloc", "static") || number("eval_apart");
    if (own && !eval_x.at) {
        eval_x = make("eval_x", "input", input_size(*n), has_tokens() ? I32 : F32);
        eval_targets = make("eval_targets", "input", (size_t)n->rows, I32);
    }
    buffer in = own ? eval_x : x[0], out = own ? eval_targets : targets[0];
    if (is("eval_with", "swap")) swap_average(n->all, true);
    use_average(is("eval_with", "ema"));
    for (int i = 0; i < batches_of_it; i++) {
        fill_batch(*n, in, out, 1000 + (unsigned)i);
        cross_entropy(forward(n, in, n->rows, n->T), out, 1);
        drop_casts(n->all);
    }
    use_average(false);
    if (is("eval_with", "swap")) swap_average(n->all, false);
    pass = NULL;
}

/* A text of half the length, a token a pass. */
static void sample(network *n) {
    tape off = {{}, false};
    enter(EVALUATION);
    pass = &off;
    for (int i = 0; i < 3; i++) {
        fill_batch(*n, x[0], targets[0], 2000 + (unsigned)i);
        tensor logits = forward(n, x[0], n->T / 2, n->T / 2);
        read_host(logits->data, n->V);
    }
    pass = NULL;
}

/* Multiplies memory of its own that nobody uses later. */
static void warm_up() {
    int d = 48;
    buffer a = make("warm_a", "other", (size_t)d * d), b = make("warm_b", "other", (size_t)d * d),
           c = make("warm_c", "other", (size_t)d * d);
    k_fill(a, 1);
    k_fill(b, 1);
    for (int i = 0; i < 3; i++) multiply(false, false, d, d, d, a, b, 0, c);
}

static void micro_batch(network *n, int step, int k, bool cut) {
    tape t = {{}, true};
    int slot = next_batch(*n);
    float scale = 1 / (float)number("accum");
    begin_micro_batch(n->rows);
    enter(FORWARD);
    pass = &t;
    tensor logits = forward(n, x[slot], n->rows, n->T);
    if (cut && (is("cut", "forward") || (is("cut", "second") && k == 1))) cut_off();
    cross_entropy(logits, targets[slot], is("skip", "") ? scale : 64 * scale);
    logits = NULL;
    enter(BACKWARD);
    size_t half = t.back.size() / 2;
    run_backward([&]() {
        if (cut && is("cut", "backward") && t.back.size() <= half) cut_off();
        if (!number("in_backward")) return;
        for (const param &p : n->all) {
            if (!p->g.at) continue;
            enter(OPTIMIZER);
            optimize_one(p, step + 1);
            give_back(&p->g);
        }
        enter(BACKWARD);
    });
    drop_casts(n->all);
    pass = NULL;
    CHECK(cudaEventRecord(used[slot], 0));
}

static bool skips(int s) {
    for (const char *p = text("skip"); *p; p++)
        if (*p == '0' + s) return true;
    return false;
}

static void train_step(network *n, int s, bool cut) {
    begin_step();
    enter(FORWARD);
    clear_gradients(n->all);
    if (number("decay")) {
        enter(OPTIMIZER);
        decay(n->all);
    }
    for (int k = 0; k < number("accum"); k++) micro_batch(n, s, k, cut);
    enter(OPTIMIZER);
    bool over = !is("skip", "") && overflows(n->all, skips(s));
    if (!over && number("clip")) clip(n->all);
    if (!over && !number("in_backward")) optimize(n->all, s + 1);
    end_step();
    enter(SETUP);
}

static bool divides(int every, int s) {
    return every && s % every == 0;
}

void train_network() {
    if (number("warm")) warm_up();
    if (number("unused")) make("unused", "unknown", 5000);
    network n = make_network();
    make_batches(n);
    if (is("eval", "first")) evaluate(&n, 2);
    int steps = number("steps"), cut = !is("cut", "none");
    for (int s = 0; s < steps + cut; s++) {
        if (s && divides(number("eval_every"), s)) evaluate(&n, 1);
        if (s && divides(number("sample"), s)) sample(&n);
        train_step(&n, s, s == steps);
        if (divides(number("checkpoint"), s + 1)) save(n.all);
    }
    if (number("last_eval")) evaluate(&n, number("last_eval"));
}
