#include "plan/plan_memory.h"

#include "plan/plan_number.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- exact arithmetic that remembers an overflow ---- */

struct exact {
    int over;
};

static __int128 times(struct exact *x, __int128 a, __int128 b) {
    __int128 out = 0;
    x->over |= plan_multiply(a, b, &out) != 0;
    return out;
}
static __int128 plus(struct exact *x, __int128 a, __int128 b) {
    __int128 out = 0;
    x->over |= plan_add(a, b, &out) != 0;
    return out;
}
static __int128 up(__int128 a, __int128 by) { /* a / by, rounded up; both positive */
    return a / by + (a % by != 0);
}

static const char *digits(char out[44], __int128 n) {
    char *d = out + 43;
    *d = 0;
    do *--d = (char)('0' + (int)(n % 10)), n /= 10;
    while (n);
    return d;
}
#define D(n) digits((char[44]){0}, n)

/* A whole number as people write it in a formula: 70000000000 → 7e10. */
static const char *shown(char out[44], __int128 n) {
    const char *all = digits(out, n);
    size_t length = strlen(all), zeros = 0;
    while (zeros + 1 < length && all[length - 1 - zeros] == '0') zeros++;
    if (zeros < 6 || length - zeros > 6) return all;
    char text[44];
    int kept = (int)(length - zeros);
    snprintf(text, sizeof text, "%.1s%s%.*se%zu", all, kept > 1 ? "." : "", kept - 1, all + 1, length - 1);
    return strcpy(out, text);
}
#define S(n) shown((char[44]){0}, n)

static void add_term(struct plan_memory *m, struct exact *x, const char *key, const char *label, __int128 bytes,
                     const char *format, ...) __attribute__((format(printf, 6, 7)));
static void add_term(struct plan_memory *m, struct exact *x, const char *key, const char *label, __int128 bytes,
                     const char *format, ...) {
    struct plan_memory_term *t = &m->term[m->n++];
    va_list ap;
    *t = (struct plan_memory_term){.key = key, .label = label, .bytes = bytes};
    va_start(ap, format);
    vsnprintf(t->formula, sizeof t->formula, format, ap);
    va_end(ap);
    m->total = plus(x, m->total, bytes);
}

/* ---- parameters of the GPU that holds most ---- */

/* Heads of keys and values of a tensor-parallel GPU: where there are more GPUs than heads, each has a whole one. */
static int64_t kv_heads_of(const struct plan_model *m, int64_t tensor) {
    return (int64_t)up(m->kv_heads, tensor);
}

/* Outputs of qkv on a tensor-parallel GPU; heads are divided evenly. */
static int64_t qkv_rows(const struct plan_model *m, int64_t tensor) {
    return (m->heads / tensor + 2 * kv_heads_of(m, tensor)) * m->head;
}

/* What a tensor-parallel GPU has of a weight. By rows (outputs): qkv, fc and gate with their biases and the
 * vocabulary's tables; by columns (inputs): proj and out, whose biases are whole, as norms and the position table are.
 */
static __int128 weight_of(struct exact *x, const struct plan_model *m, const struct plan_weight *w, int64_t tensor) {
    __int128 rows = w->rows, columns = w->columns;
    int heads = !strncmp(w->name, "qkv", 3), bias = w->use == PLAN_ADDS;
    if (tensor == 1 || w->use == PLAN_BY_POSITION)
        ;
    else if (heads)
        *(bias ? &columns : &rows) = qkv_rows(m, tensor); /* a bias is a row */
    else if (bias)
        columns = !strcmp(w->name, "fcb") || !strcmp(w->name, "gateb") ? up(columns, tensor) : columns;
    else if (!strcmp(w->name, "projw") || !strcmp(w->name, "outw"))
        columns = up(columns, tensor);
    else
        rows = up(rows, tensor);
    return times(x, rows, columns);
}

/* Of a model, of the first stage of the pipeline or the last (of a single stage: both are all). */
static __int128 stage_parameters(struct exact *x, const struct plan_model *m, const struct plan_spread *s, int last) {
    struct plan_weight w[PLAN_MODEL_WEIGHTS];
    int n = plan_model_weights(m, w), one = s->pipeline == 1;
    __int128 sum = 0;
    for (int i = 0; i < n; i++) {
        int layers = w[i].tensors == m->layers && strcmp(w[i].name, "wte") && strcmp(w[i].name, "wpe") &&
                     strncmp(w[i].name, "lnf", 3) && strcmp(w[i].name, "head");
        int at_end = !strncmp(w[i].name, "lnf", 3) || !strcmp(w[i].name, "head");
        int shared = !strcmp(w[i].name, "wte") && m->tied; /* the head's too */
        if (!layers && !one && !shared && at_end != last) continue;
        __int128 all = times(x, weight_of(x, m, &w[i], s->tensor), layers ? up(m->layers, s->pipeline) : 1);
        sum = plus(x, sum, all);
    }
    return sum;
}

/* ---- activations of a transformer ---- */

/* Bytes a layer keeps for each token of a micro-batch. */
struct layer {
    __int128 whole;  /* tensor parallel alone leaves it on every rank */
    __int128 split;  /* it divides it */
    __int128 scores; /* softmax's output, its dropout's mask and output; divided too */
    int64_t value;   /* bytes of an element */
    int64_t masks;   /* bytes of a dropout mask's element; 0: none is kept */
    int64_t copies;  /* of the scores: before and after dropout */
};

static struct layer layer_of(struct exact *x, const struct plan_model *m, int64_t tensor, int64_t value, int64_t masks,
                             int64_t copies) {
    struct layer l = {.value = value, .masks = masks, .copies = copies};
    /* Times the GPUs: what is divided by them again. */
    __int128 joined = times(x, m->heads, m->head), kv = times(x, times(x, kv_heads_of(m, tensor), tensor), m->head),
             ff = times(x, up(m->ff, tensor), tensor);
    __int128 split = plus(x, plus(x, 2 * joined, 2 * kv), times(x, m->gated ? 3 : 2, ff));
    l.whole = times(x, 4 * value + 2 * masks, m->dim);
    l.split = times(x, value, split);
    l.scores = times(x, times(x, m->heads, m->seq), copies * value + masks);
    return l;
}

int64_t plan_transformer_bytes(int64_t layers, int64_t s, int64_t b, int64_t h, int64_t a, int64_t bytes, int dropout) {
    struct plan_model m = {.dim = h, .heads = a, .head = h / a, .kv_heads = a, .ff = 4 * h, .seq = s};
    struct exact x = {0};
    struct layer l = layer_of(&x, &m, 1, bytes, dropout, dropout ? 2 : 1);
    __int128 each = plus(&x, plus(&x, l.whole, l.split), l.scores);
    __int128 all = times(&x, times(&x, times(&x, s, b), layers), each);
    return x.over || all > INT64_MAX ? -1 : (int64_t)all;
}

/* Of one layer and one micro-batch. */
static __int128 layer_bytes(struct exact *x, const struct layer *l, const struct plan_spread *s, __int128 tokens,
                            int scores) {
    __int128 divided = plus(x, l->split, scores ? l->scores : 0), whole = l->whole;
    if (s->sequence) divided = plus(x, divided, whole), whole = 0;
    return plus(x, times(x, tokens, whole), up(times(x, tokens, divided), s->tensor));
}

/* Has the shape of the paper's formula: (34 + 5 a s / h) s b h. */
static int is_plain(const struct plan_model *m) {
    return m->heads * m->head == m->dim && m->kv_heads == m->heads && m->ff == 4 * m->dim && !m->gated;
}

/* `(34 x 768 + 5 x 12 x 1024)`, bytes a token of a layer. */
static void write_layer(char *out, size_t room, const struct layer *l, const struct plan_model *m,
                        const struct plan_spread *s, int scores) {
    char whole[64], split[64], core[80] = "";
    int plain = is_plain(m), apart = s->tensor > 1 && !s->sequence;
    int64_t w = 4 * l->value + 2 * l->masks, d = 12 * l->value;
    if (scores)
        snprintf(core, sizeof core, " + %lld x %lld x %lld", (long long)(l->copies * l->value + l->masks),
                 (long long)m->heads, (long long)m->seq);
    if (plain) {
        snprintf(whole, sizeof whole, "%lld x %lld", (long long)(apart ? w : w + d), (long long)m->dim);
        snprintf(split, sizeof split, "%lld x %lld", (long long)d, (long long)m->dim);
    } else {
        snprintf(whole, sizeof whole, "%s", D(apart ? l->whole : l->whole + l->split));
        snprintf(split, sizeof split, "%s", D(l->split));
    }
    if (apart)
        snprintf(out, room, "(%s + (%s%s) / %lld)", whole, split, core, (long long)s->tensor);
    else if (s->tensor > 1)
        snprintf(out, room, "(%s%s) / %lld", whole, core, (long long)s->tensor);
    else
        snprintf(out, room, "(%s%s)", whole, core);
}

/* Micro-batches whose activations a stage keeps, and layers of a stage. */
static int64_t in_flight(const struct plan_spread *s, int last) {
    return last ? 1 : s->pipeline;
}

static void add_layers(struct plan_memory *out, struct exact *x, const struct plan_memory_question *q, int last) {
    const struct plan_model *m = q->model;
    const struct plan_spread *s = &q->spread;
    int64_t flight = in_flight(s, last), e = q->recipe->value_bytes;
    __int128 tokens = times(x, m->seq, m->batch), layers = times(x, flight, up(m->layers, s->pipeline));
    struct layer l = layer_of(x, m, s->tensor, e, !q->no_dropout, q->no_dropout ? 1 : 2);
    char each[240], many[96];
    int at = flight > 1 ? snprintf(many, sizeof many, "%lld micro-batches x ", (long long)flight) : 0;
    snprintf(many + at, sizeof many - (size_t)at, "%lld layers", (long long)up(m->layers, s->pipeline));
    if (q->recompute == PLAN_RECOMPUTE_FULL) {
        int64_t by = s->sequence ? s->tensor : 1;
        __int128 input = up(times(x, times(x, tokens, m->dim), e), by);
        add_term(out, x, "activations", "activations", times(x, layers, input),
                 "%s x %lld x %lld x %lld x %lld bytes%s%s: each layer's input", many, (long long)m->seq,
                 (long long)m->batch, (long long)m->dim, (long long)e, by > 1 ? " / " : "", by > 1 ? D(by) : "");
        write_layer(each, sizeof each, &l, m, s, 1);
        add_term(out, x, "recomputed_layer", "one layer, recomputed", layer_bytes(x, &l, s, tokens, 1),
                 "%lld x %lld x %s: while its backward runs", (long long)m->seq, (long long)m->batch, each);
        return;
    }
    int scores = q->recompute == PLAN_RECOMPUTE_NONE;
    write_layer(each, sizeof each, &l, m, s, scores);
    add_term(out, x, "activations", "activations", times(x, layers, layer_bytes(x, &l, s, tokens, scores)),
             "%s x %lld x %lld x %s", many, (long long)m->seq, (long long)m->batch, each);
    if (scores) return;
    add_term(out, x, "recomputed_layer", "one layer's scores, recomputed", up(times(x, tokens, l.scores), s->tensor),
             "%lld x %lld x %lld x %lld x %lld%s%s: while its backward runs", (long long)m->seq, (long long)m->batch,
             (long long)(l.copies * l.value + l.masks), (long long)m->heads, (long long)m->seq,
             s->tensor > 1 ? " / " : "", s->tensor > 1 ? D(s->tensor) : "");
}

/* What the first stage and the last keep beside their layers: the mask of the embedding's dropout; the inputs of the
 * last norm and of the head; the logits in fp32 (Korthikanti et al., section 4.3). */
static void add_ends(struct plan_memory *out, struct exact *x, const struct plan_memory_question *q, int last) {
    const struct plan_model *m = q->model;
    const struct plan_spread *s = &q->spread;
    int64_t e = q->recipe->value_bytes, by = s->sequence ? s->tensor : 1;
    int64_t masks = last && s->pipeline > 1 ? 0 : q->no_dropout ? 0 : in_flight(s, last);
    int64_t values = last ? 2 * e : 0;
    __int128 tokens = times(x, m->seq, m->batch), width = times(x, tokens, m->dim);
    add_term(out, x, "ends", "embedding's mask, inputs of last norm and head", up(times(x, width, masks + values), by),
             "%lld x %lld x %lld x (%lld + %lld)%s%s", (long long)m->seq, (long long)m->batch, (long long)m->dim,
             (long long)masks, (long long)values, by > 1 ? " / " : "", by > 1 ? D(by) : "");
    if (!last) return;
    add_term(out, x, "logits", "logits in fp32", up(times(x, times(x, tokens, m->vocab), 4), s->tensor),
             "4 bytes x %lld x %lld x %lld%s%s", (long long)m->seq, (long long)m->batch, (long long)m->vocab,
             s->tensor > 1 ? " / " : "", s->tensor > 1 ? D(s->tensor) : "");
}

static void add_linear(struct plan_memory *out, struct exact *x, const struct plan_memory_question *q, int last) {
    const struct plan_model *m = q->model;
    int64_t layers = (int64_t)up(m->layers, q->spread.pipeline) * in_flight(&q->spread, last),
            e = q->recipe->value_bytes;
    add_term(out, x, "activations", "activations", times(x, times(x, times(x, layers, m->batch), m->dim), e),
             "%lld bytes x %lld layers x %lld x %lld", (long long)e, (long long)layers, (long long)m->batch,
             (long long)m->dim);
}

/* ---- the cache of inference ---- */

static void add_cache(struct plan_memory *out, struct exact *x, const struct plan_memory_question *q) {
    const struct plan_model *m = q->model;
    int64_t context = q->context ? q->context : m->seq;
    int bits = q->cache_bits ? q->cache_bits : 8 * q->recipe->value_bytes;
    int64_t layers = (int64_t)up(m->layers, q->spread.pipeline), heads = kv_heads_of(m, q->spread.tensor);
    __int128 values = times(x, times(x, 2 * (__int128)layers, times(x, heads, m->head)), times(x, context, m->batch));
    add_term(out, x, "kv_cache", "cache of keys and values", up(times(x, values, bits), 8),
             "2 x %lld layers x %lld heads x %lld x %lld tokens x %lld sequences x %g bytes", (long long)layers,
             (long long)heads, (long long)m->head, (long long)context, (long long)m->batch, bits / 8.0);
}

/* ---- the whole ---- */

/* By how many ranks ZeRO divides a part. */
static int64_t shards(const struct plan_memory_question *q, int part, int64_t data) {
    static const int from[PLAN_PARTS] = {[PLAN_WEIGHTS] = 3, [PLAN_GRADS] = 2, [PLAN_MASTER] = 1, [PLAN_MOMENTS] = 1};
    int zero = q->recipe->distributed && q->spread.zero < 1 ? 1 : q->spread.zero;
    return zero >= from[part] ? data : 1;
}

static void add_parts(struct plan_memory *out, struct exact *x, const struct plan_memory_question *q) {
    static const char *const keys[] = {"weights", "gradients", "master", "moments"}, *const labels[] = {
                                                                                         "weights", "gradients",
                                                                                         "master copy", "moments"};
    size_t at = 0;
    out->per_formula[0] = 0;
    for (int p = 0; p < (q->recipe->inference ? 1 : PLAN_PARTS); p++) {
        int bits = q->recipe->bits[p];
        int64_t by = shards(q, p, out->data);
        __int128 bytes = up(times(x, up(out->rank_parameters, by), bits), 8);
        char over[40] = "";
        if (by > 1) snprintf(over, sizeof over, " / %lld", (long long)by);
        add_term(out, x, keys[p], labels[p], bytes, bits ? "%g bytes x %s%s%s" : "the recipe has none", bits / 8.0,
                 S(out->rank_parameters), over, by > 1 ? " (ZeRO)" : "");
        if (!bits) continue;
        out->per_parameter += bits / 8.0 / (double)by;
        if (at < sizeof out->per_formula)
            at += (size_t)snprintf(out->per_formula + at, sizeof out->per_formula - at, "%s%g%s", at ? " + " : "",
                                   bits / 8.0, over);
    }
}

/* `6 layers, embeddings, head` of a single stage; `3 layers, head: the last of 2 stages; tensors / 4`. */
static void write_stage(struct plan_memory *out, const struct plan_memory_question *q, int last) {
    const struct plan_spread *s = &q->spread;
    char stage[64] = "", tensor[48] = "";
    const char *ends = q->model->kind == PLAN_LINEAR ? ""
                       : s->pipeline == 1            ? ", embeddings, head"
                       : last                        ? ", head"
                                                     : ", embeddings";
    if (s->pipeline > 1)
        snprintf(stage, sizeof stage, ": the %s of %lld stages", last ? "last" : "first", (long long)s->pipeline);
    if (s->tensor > 1) snprintf(tensor, sizeof tensor, "; tensors / %lld", (long long)s->tensor);
    snprintf(out->rank_formula, sizeof out->rank_formula, "%lld layers%s%s%s",
             (long long)up(q->model->layers, s->pipeline), ends, stage, tensor);
}

/* Of one stage of the pipeline. */
static int add_stage(struct plan_memory *out, const struct plan_memory_question *q, int last, char *err,
                     size_t err_len) {
    struct exact x = {0};
    const struct plan_spread *s = &q->spread;
    int64_t divisor = s->tensor * s->pipeline;
    __int128 n = !q->parameters ? stage_parameters(&x, q->model, s, last) : up(q->parameters, divisor);
    if (x.over || n > INT64_MAX) {
        snprintf(err, err_len, "there are more parameters than 9.2e18");
        return -1;
    }
    out->rank_parameters = (int64_t)n;
    out->last_stage = last && s->pipeline > 1;
    if (q->parameters)
        snprintf(out->rank_formula, sizeof out->rank_formula, divisor > 1 ? "%s / (%lld tensor x %lld pipeline)" : "%s",
                 S(q->parameters), (long long)s->tensor, (long long)s->pipeline);
    else
        write_stage(out, q, last);
    add_parts(out, &x, q);
    if (q->recipe->inference) {
        if (q->model && q->model->batch && q->model->kind != PLAN_LINEAR) add_cache(out, &x, q);
    } else if (q->model && q->model->batch && q->model->kind == PLAN_LINEAR) {
        add_linear(out, &x, q, last);
    } else if (q->model && q->model->batch) {
        add_layers(out, &x, q, last);
        add_ends(out, &x, q, last);
    }
    if (!x.over) return 0;
    snprintf(err, err_len, "the bytes are more than 1.7e38");
    return -1;
}

static int check(const struct plan_memory_question *q, char *err, size_t err_len) {
    const struct plan_spread *s = &q->spread;
    const struct plan_model *m = q->model;
    long long t = s->tensor, p = s->pipeline;
    int bad = 1;
    if (s->gpus % ((__int128)t * p))
        snprintf(err, err_len, "%lld tensor-parallel GPUs x %lld stages do not divide %lld GPUs", t, p,
                 (long long)s->gpus);
    else if (m && m->kind == PLAN_GPT && m->heads % t)
        snprintf(err, err_len, "%lld tensor-parallel GPUs do not divide heads=%lld", t, (long long)m->heads);
    else if (m && m->kind == PLAN_LINEAR && m->dim % t)
        snprintf(err, err_len, "%lld tensor-parallel GPUs do not divide dim=%lld", t, (long long)m->dim);
    else if (s->sequence && t == 1)
        snprintf(err, err_len, "sequence parallel needs more than 1 tensor-parallel GPU");
    else if (m && m->layers < p)
        snprintf(err, err_len, "a pipeline of %lld stages is more than layers=%lld", p, (long long)m->layers);
    else
        bad = 0;
    return bad ? -1 : 0;
}

int plan_memory(const struct plan_memory_question *q, struct plan_memory *out, char *err, size_t err_len) {
    struct plan_memory first = {0}, last;
    struct plan_parameters all = {.all = q->parameters};
    if (check(q, err, err_len)) return -1;
    if (!q->parameters && plan_model_parameters(q->model, &all, err, err_len)) return -1;
    first.parameters = all.all;
    first.data = q->spread.gpus / (q->spread.tensor * q->spread.pipeline);
    last = first;
    if (add_stage(&last, q, 1, err, err_len)) return -1;
    *out = last;
    if (q->spread.pipeline == 1) return 0;
    if (add_stage(&first, q, 0, err, err_len)) return -1;
    if (first.total >= last.total) *out = first;
    return 0;
}

int plan_memory_fit(const struct plan_memory_question *q, int64_t *count, int64_t most, __int128 capacity,
                    int64_t *largest, char *err, size_t err_len) {
    int64_t before = *count, fits = 0, not = most + 1;
    struct plan_memory m;
    int bad = 0;
    /* The least count that can be asked about; an error there is the question's own. */
    *count = count == (q->model ? &q->model->layers : NULL) ? q->spread.pipeline : 1;
    bad = plan_memory(q, &m, err, err_len);
    if (!bad) fits = m.total <= capacity ? *count : 0;
    while (!bad && fits && not -fits > 1) {
        char why[200];
        *count = fits + (not -fits) / 2;
        /* Beyond what can be counted is beyond the capacity. */
        if (!plan_memory(q, &m, why, sizeof why) && m.total <= capacity)
            fits = *count;
        else
            not = *count;
    }
    *count = before;
    *largest = fits;
    return bad ? -1 : 0;
}
