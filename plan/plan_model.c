#include "plan/plan_model.h"

#include "plan/plan_number.h"

#include <stdio.h>
#include <string.h>

#define MOST INT64_C(1000000000000)

/* ---- reading ---- */

/* What has been given: a word given twice is refused, and a linear model refuses what only a transformer has. */
struct reading {
    struct plan_model *m;
    unsigned given;
};

static const struct {
    const char *name;
    size_t at;  /* of an int64_t */
    int linear; /* a linear model has it too */
    int needed; /* of a transformer; those of `linear` by both */
} counts[] = {
    {"layers", offsetof(struct plan_model, layers), 1, 1}, {"dim", offsetof(struct plan_model, dim), 1, 1},
    {"heads", offsetof(struct plan_model, heads), 0, 1},   {"seq", offsetof(struct plan_model, seq), 0, 1},
    {"vocab", offsetof(struct plan_model, vocab), 0, 1},   {"batch", offsetof(struct plan_model, batch), 1, 0},
    {"ff", offsetof(struct plan_model, ff), 0, 0},         {"kv_heads", offsetof(struct plan_model, kv_heads), 0, 0},
    {"head", offsetof(struct plan_model, head), 0, 0},
};
#define COUNTS (sizeof counts / sizeof *counts)

static const char *const yes_or_no[] = {"no", "yes", NULL}, *const norms[] = {"layer", "rms", NULL},
                         *const positions[] = {"learned", "rotary", "none", NULL},
                         *const kinds[] = {"gpt", "linear", NULL};
static const struct {
    const char *name;
    size_t at; /* of an int or an enum */
    const char *const *values;
} choices[] = {
    {"tied", offsetof(struct plan_model, tied), yes_or_no},
    {"bias", offsetof(struct plan_model, bias), yes_or_no},
    {"gated", offsetof(struct plan_model, gated), yes_or_no},
    {"norm", offsetof(struct plan_model, rms), norms},
    {"position", offsetof(struct plan_model, position), positions},
    {"kind", offsetof(struct plan_model, kind), kinds},
};
#define CHOICES (sizeof choices / sizeof *choices)
_Static_assert(sizeof(enum plan_position) == sizeof(int) && sizeof(enum plan_model_kind) == sizeof(int),
               "choices are written as int");

static int64_t *count_of(struct plan_model *m, size_t i) {
    return (int64_t *)((char *)m + counts[i].at);
}

static int choose(struct plan_model *m, size_t i, const char *value, char *err, size_t err_len) {
    size_t n = 0;
    char all[80];
    for (int v = 0; choices[i].values[v]; v++) {
        if (!strcmp(choices[i].values[v], value)) {
            memcpy((char *)m + choices[i].at, &v, sizeof v);
            return 0;
        }
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", v ? ", " : "", choices[i].values[v]);
    }
    snprintf(err, err_len, "%s=%.40s: is none of %s", choices[i].name, value, all);
    return -1;
}

static int once(struct reading *r, size_t place, const char *name, char *err, size_t err_len) {
    unsigned bit = 1u << place;
    if (r->given & bit) {
        snprintf(err, err_len, "%s= is given twice", name);
        return -1;
    }
    r->given |= bit;
    return 0;
}

static int take(const char *name, const char *value, void *context, char *err, size_t err_len) {
    struct reading *r = context;
    char why[160];
    for (size_t i = 0; i < COUNTS; i++) {
        if (strcmp(counts[i].name, name)) continue;
        if (once(r, i, name, err, err_len)) return -1;
        if (!plan_whole(value, PLAN_COUNT, PLAN_POSITIVE, MOST, count_of(r->m, i), why, sizeof why)) return 0;
        snprintf(err, err_len, "%s=%s", name, why);
        return -1;
    }
    for (size_t i = 0; i < CHOICES; i++)
        if (!strcmp(choices[i].name, name))
            return once(r, COUNTS + i, name, err, err_len) ? -1 : choose(r->m, i, value, err, err_len);
    snprintf(
        err, err_len,
        "'%.40s' is no word of a model; there are layers, dim, heads, seq, vocab, batch, ff, kv_heads, head, tied, "
        "bias, gated, norm, position, kind",
        name);
    return -1;
}

static int refuse(char *err, size_t err_len, const char *name, const char *what) {
    snprintf(err, err_len, "%s= %s", name, what);
    return -1;
}

static int check_words(const struct reading *r, char *err, size_t err_len) {
    int linear = r->m->kind == PLAN_LINEAR;
    for (size_t i = 0; i < COUNTS; i++) {
        int given = r->given >> i & 1;
        if (linear && given && !counts[i].linear)
            return refuse(err, err_len, counts[i].name, "is not of a linear model");
        if (!given && counts[i].needed && (!linear || counts[i].linear))
            return refuse(err, err_len, counts[i].name, "is missing");
    }
    for (size_t i = 0; i < CHOICES; i++)
        if (linear && r->given >> (COUNTS + i) & 1 && choices[i].values != kinds)
            return refuse(err, err_len, choices[i].name, "is not of a linear model");
    return 0;
}

/* What the text leaves out, of a transformer. */
static int complete(struct plan_model *m, char *err, size_t err_len) {
    if (!m->head) {
        if (m->dim % m->heads) return refuse(err, err_len, "heads", "does not divide dim=; give head= as well");
        m->head = m->dim / m->heads;
    }
    if (m->head > MOST / m->heads) return refuse(err, err_len, "head", "times heads= is more than 1e12");
    if (!m->kv_heads) m->kv_heads = m->heads;
    if (m->heads % m->kv_heads) return refuse(err, err_len, "kv_heads", "does not divide heads=");
    if (!m->ff) m->ff = 4 * m->dim;
    return 0;
}

int plan_model_read(const char *text, struct plan_model *out, char *err, size_t err_len) {
    struct plan_model m = {.tied = 1, .bias = 1};
    struct reading r = {&m, 0};
    if (plan_pairs(text, take, &r, err, err_len) || check_words(&r, err, err_len)) return -1;
    if (m.kind == PLAN_LINEAR)
        m.bias = m.tied = 0, m.position = PLAN_NO_POSITION;
    else if (complete(&m, err, err_len))
        return -1;
    *out = m;
    return 0;
}

/* ---- weights ---- */

struct list {
    struct plan_weight *out;
    int n;
};

static void add(struct list *l, const char *name, int64_t tensors, int64_t rows, int64_t columns,
                enum plan_weight_use use) {
    l->out[l->n++] = (struct plan_weight){name, tensors, rows, columns, use};
}

static void add_norm(struct list *l, const struct plan_model *m, const char *weight, const char *bias,
                     int64_t tensors) {
    add(l, weight, tensors, 1, m->dim, PLAN_ADDS);
    if (m->bias && !m->rms) add(l, bias, tensors, 1, m->dim, PLAN_ADDS);
}

static void add_matrix(struct list *l, const struct plan_model *m, const char *weight, const char *bias, int64_t rows,
                       int64_t columns) {
    add(l, weight, m->layers, rows, columns, PLAN_MULTIPLIES);
    if (m->bias) add(l, bias, m->layers, 1, rows, PLAN_ADDS);
}

int plan_model_weights(const struct plan_model *m, struct plan_weight *out) {
    struct list l = {out, 0};
    int64_t joined;
    if (m->kind == PLAN_LINEAR) {
        add(&l, "W", m->layers, m->dim, m->dim, PLAN_MULTIPLIES);
        return l.n;
    }
    joined = m->heads * m->head;
    add(&l, "wte", 1, m->vocab, m->dim, m->tied ? PLAN_MULTIPLIES : PLAN_LOOKED_UP);
    if (m->position == PLAN_LEARNED) add(&l, "wpe", 1, m->seq, m->dim, PLAN_BY_POSITION);
    add_norm(&l, m, "ln1w", "ln1b", m->layers);
    add_matrix(&l, m, "qkvw", "qkvb", joined + 2 * m->kv_heads * m->head, m->dim);
    add_matrix(&l, m, "projw", "projb", m->dim, joined);
    add_norm(&l, m, "ln2w", "ln2b", m->layers);
    if (m->gated) add_matrix(&l, m, "gatew", "gateb", m->ff, m->dim);
    add_matrix(&l, m, "fcw", "fcb", m->ff, m->dim);
    add_matrix(&l, m, "outw", "outb", m->dim, m->ff);
    add_norm(&l, m, "lnfw", "lnfb", 1);
    if (!m->tied) add(&l, "head", 1, m->vocab, m->dim, PLAN_MULTIPLIES);
    return l.n;
}

int plan_model_parameters(const struct plan_model *m, struct plan_parameters *out, char *err, size_t err_len) {
    struct plan_weight w[PLAN_MODEL_WEIGHTS];
    int n = plan_model_weights(m, w);
    memset(out, 0, sizeof *out);
    for (int i = 0; i < n; i++) {
        __int128 count = w[i].tensors, all = 0;
        if (plan_multiply(count, w[i].rows, &count) || plan_multiply(count, w[i].columns, &count) ||
            plan_add(out->all, count, &all) || all > INT64_MAX) {
            snprintf(err, err_len, "%s has more parameters than 9.2e18", w[i].name);
            return -1;
        }
        out->all = (int64_t)all;
        out->of[w[i].use] += (int64_t)count;
    }
    return 0;
}
