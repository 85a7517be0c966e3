/* The sentences of an explanation. Every one states what was counted; a conclusion follows only from what was. */
#include "analyzer/explain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct speaker {
    explain_say *say;
    void *to;
};

static void tell(const struct speaker *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(const struct speaker *s, const char *format, ...) {
    char *text;
    va_list ap;
    va_start(ap, format);
    int n = vasprintf(&text, format, ap);
    va_end(ap);
    if (n < 0) return;
    s->say(s->to, text);
    free(text);
}

static const char *plural(int64_t n, const char *one, const char *many) {
    return n == 1 ? one : many;
}

/* `op 812, cublasSgemm_v2, step 0, forward`. */
static const char *op_words(const struct explain_op *o, char out[160]) {
    int n = snprintf(out, 160, "op %lld, %s", (long long)o->op, o->name);
    if (o->step != REPORT_UNKNOWN && n > 0 && n < 160)
        n += snprintf(out + n, 160 - (size_t)n, ", step %lld", (long long)o->step);
    if (o->phase < PHASE_NONE && n > 0 && n < 160)
        snprintf(out + n, 160 - (size_t)n, ", %s", explain_phase_name(o->phase));
    return out;
}

static const char *where_words(int phase, int64_t steps, char out[64]) {
    static const char *const in[EXPLAIN_PHASES] = {
        [PHASE_FORWARD] = "in forward",         [PHASE_BACKWARD] = "in backward",
        [PHASE_OPTIMIZER] = "in the optimizer", [PHASE_RECOMPUTE] = "in recomputation",
        [PHASE_EVALUATION] = "in evaluation",   [PHASE_NONE] = "in no phase",
        [EXPLAIN_OUTSIDE] = "outside of steps"};
    if (steps)
        snprintf(out, 64, "%s of %lld step%s", in[phase], (long long)steps, steps == 1 ? "" : "s");
    else
        snprintf(out, 64, "%s", in[phase]);
    return out;
}

/* ---- where it was allocated ---- */

static void call_words(const struct explained *x, const struct speaker *s) {
    char size[64], life[96] = "it was never released";
    emit_human_bytes(size, sizeof size, x->bytes);
    if (x->free_ns != REPORT_UNKNOWN && x->alloc_ns != REPORT_UNKNOWN)
        snprintf(life, sizeof life, "released after %.3f ms", (double)(x->free_ns - x->alloc_ns) / 1e6);
    char step[64] = "in no step";
    if (x->step != REPORT_UNKNOWN) snprintf(step, sizeof step, "in step %lld", (long long)x->step);
    tell(s, "Allocation %lld: %s of %s memory, number %lld of the run, made by %s (%s) %s; %s.", (long long)x->id, size,
         x->memory ? x->memory : "unknown", (long long)x->order, x->api ? x->api : "an unknown function",
         x->library ? x->library : "library not known", step, life);
}

void explain_place_words(const struct explained *x, explain_say *say, void *to) {
    struct speaker s = {say, to};
    call_words(x, &s);
    if (x->insides)
        tell(&s, "It was made in the range '%s'%s.", x->inside[x->insides - 1],
             x->insides > 1 ? ", within others" : "");
    for (int64_t i = 0; i < x->tags && i < 4; i++) tell(&s, "The program tagged it %s.", x->tag[i]);
    if (x->tags > 4) tell(&s, "… and %lld more tags.", (long long)x->tags - 4);
    if (!x->frames) tell(&s, "Its call stack was not recorded.");
    for (int64_t i = 0; i < x->frames && i < 8; i++)
        tell(&s, "%s %s", i ? "    called by" : "Called from", x->frame[i]);
    if (x->frames > 8) tell(&s, "    … and %lld frames more", (long long)x->frames - 8);
    if (x->all_ranges > 1)
        tell(&s, "It has %lld parts (of its bytes or its time) with a class of their own%s.", (long long)x->all_ranges,
             x->all_ranges > x->ranges ? "; the first 64 are explained" : "");
    if (!x->touches) tell(&s, "No op that was recorded touches it.");
}

/* ---- who uses it ---- */

static void use_words(const struct speaker *s, const struct explain_range *g) {
    static const struct {
        const char *verb, *one, *many;
    } acts[EXPLAIN_ACTS] = {
        [ACT_FACTOR] = {"Read as a factor by", "product", "products"},
        [ACT_RESULT] = {"Overwritten with the result of", "product", "products"},
        [ACT_ADD_RESULT] = {"Added to by", "product", "products"},
        [ACT_READ] = {"Read by", "call", "calls"},
        [ACT_WRITE] = {"Overwritten by", "call", "calls"},
        [ACT_MODIFY] = {"Modified in place by", "call", "calls"},
        [ACT_MAYBE] = {"Handed to", "call that may write it", "calls that may write it"},
        [ACT_CLEAR] = {"Cleared by", "memset", "memsets"},
        [ACT_FROM_HOST] = {"Filled by", "copy from the host", "copies from the host"},
        [ACT_TO_HOST] = {"Copied to the host by", "call", "calls"},
        [ACT_FROM_DEVICE] = {"Overwritten by", "copy on the device", "copies on the device"},
        [ACT_TO_DEVICE] = {"Read by", "copy on the device", "copies on the device"},
        [ACT_SEND] = {"Sent by", "collective", "collectives"},
        [ACT_RECEIVE] = {"Received into by", "collective", "collectives"},
        [ACT_EXCHANGE] = {"Exchanged in place by", "collective", "collectives"},
        [ACT_WORKSPACE] = {"Handed as workspace to a library by", "call", "calls"},
    };
    static const int8_t order[EXPLAIN_PHASES] = {EXPLAIN_OUTSIDE, PHASE_NONE,      PHASE_FORWARD,   PHASE_RECOMPUTE,
                                                 PHASE_BACKWARD,  PHASE_OPTIMIZER, PHASE_EVALUATION};
    char op[160], where[64];
    for (int i = 0; i < EXPLAIN_PHASES; i++)
        for (int a = 0; a < EXPLAIN_ACTS; a++) {
            const struct explain_use *u = &g->use[a][order[i]];
            if (!u->ops) continue;
            tell(s, "%s %lld %s %s (first: %s; operand %s).", acts[a].verb, (long long)u->ops,
                 plural(u->ops, acts[a].one, acts[a].many), where_words(order[i], u->steps, where),
                 op_words(&u->first, op), u->first.slot);
        }
}

static void ends_words(const struct speaker *s, const struct explain_range *g) {
    char w[160], r[160], l[160];
    if (g->first_write.op && g->first_read.op)
        tell(s, "First written by %s; first read by %s; last used by %s.", op_words(&g->first_write, w),
             op_words(&g->first_read, r), op_words(&g->last_use, l));
    else if (g->first_read.op)
        tell(s, "Nothing that was recorded writes it; first read by %s; last used by %s.", op_words(&g->first_read, r),
             op_words(&g->last_use, l));
    else if (g->first_write.op)
        tell(s, "First written by %s; nothing reads it; last used by %s.", op_words(&g->first_write, w),
             op_words(&g->last_use, l));
    if (g->first_read.op && !g->overwritten_after_read && !explain_count(g, ACT_MAYBE, NULL))
        tell(s, "Once read it is never overwritten.");
    else if (g->overwritten_after_read)
        tell(s, "It, or a part of it, is overwritten %lld time%s after it was first read.",
             (long long)g->overwritten_after_read, g->overwritten_after_read == 1 ? "" : "s");
}

/* ---- what follows ---- */

static int decided_outside(const struct explain_range *g) {
    return !strncmp(g->rule, "by the user's rules", 19) || !strcmp(g->rule, "tagged by the program");
}

static void conclude(const struct speaker *s, const struct explain_range *g) {
    static const struct {
        const char *class, *words;
    } so[] = {
        {"param", "what forward reads and nothing but the optimizer changes is a parameter"},
        {"optimizer", "what only the optimizer reads and changes, from step to step, is its state"},
        {"grad", "what backward writes for an update of parameters is a gradient"},
        {"activation", "what forward writes and keeps is an activation"},
        {"activation_grad",
         "what is made from the gradient of the loss, and goes to no update, is the gradient of an activation"},
        {"input", "what the host fills and a pass reads is input"},
        {"workspace", "what is a library's own is workspace"},
        {"temporary", "what does not outlive the phase that made it is temporary"},
        {"other", "what serves none of these is other"},
        {"unknown", "nothing shows what it is for"},
    };
    if (!strncmp(g->rule, "by the user's rules", 19)) {
        tell(s, "So it is %s by the user's own rule, whatever the ops say.", g->class);
        return;
    }
    if (decided_outside(g)) {
        tell(s, "So it is %s: the program said so (acct_tag), whatever the ops say.", g->class);
        return;
    }
    for (size_t i = 0; i < sizeof so / sizeof *so; i++)
        if (!strcmp(so[i].class, g->class)) tell(s, "So it is %s: %s.", g->class, so[i].words);
}

/* Why not the class that comes next, as far as the counts tell. */
static void why_not(const struct speaker *s, const struct explain_range *g) {
    int64_t forward = explain_reads(g, PHASE_FORWARD) + explain_reads(g, PHASE_RECOMPUTE);
    int64_t backward = explain_reads(g, PHASE_BACKWARD), optimizer = explain_in_phase(g, PHASE_OPTIMIZER);
    int64_t made_forward = explain_writes(g, PHASE_FORWARD) + explain_writes(g, PHASE_RECOMPUTE);
    int64_t made_backward = explain_writes(g, PHASE_BACKWARD), host = explain_count(g, ACT_FROM_HOST, NULL);
    const char *c = g->class;
    if (!strcmp(c, "param") && forward && explain_writes(g, PHASE_OPTIMIZER))
        tell(s, "Not optimizer state: forward reads it %lld time%s.", (long long)forward, forward == 1 ? "" : "s");
    else if (!strcmp(c, "param") && forward && !explain_writes(g, PHASE_OPTIMIZER))
        tell(s, "Not input: nothing fills it again between the steps; no update changes it, as of a frozen parameter.");
    else if (!strcmp(c, "optimizer") && optimizer && !forward)
        tell(s, "Not a parameter: no forward reads it.");
    else if (!strcmp(c, "optimizer") && optimizer)
        tell(s, "Forward reads it %lld times all the same: it may be a parameter.", (long long)forward);
    else if (!strcmp(c, "grad") && optimizer)
        tell(s, "Not the gradient of an activation: the optimizer uses it %lld time%s.", (long long)optimizer,
             optimizer == 1 ? "" : "s");
    else if (!strcmp(c, "activation_grad") && made_backward && !optimizer)
        tell(s, "Not the gradient of a parameter: no op of the optimizer touches it.");
    else if (!strcmp(c, "activation") && made_forward && backward)
        tell(s, "Not temporary: backward reads it %lld time%s.", (long long)backward, backward == 1 ? "" : "s");
    else if (!strcmp(c, "activation") && made_forward)
        tell(s, "Backward does not read it; it is no temporary since it outlives the forward pass.");
    else if (!strcmp(c, "input") && host)
        tell(s, "Not an activation: what is in it comes from the host (%lld cop%s).", (long long)host,
             host == 1 ? "y" : "ies");
    else if (!strcmp(c, "temporary") && made_forward && !backward)
        tell(s, "Not an activation: no backward reads it.");
}

/* What is not known, and could make it another class. */
static void doubts(const struct speaker *s, const struct explained *x, const struct explain_range *g) {
    struct explain_op first;
    char op[160];
    int64_t maybe = explain_count(g, ACT_MAYBE, &first), steps = x->r->n_steps;
    if (decided_outside(g)) return;
    if (maybe)
        tell(s,
             "Of %lld access%s (first: %s, argument %s) it is not known whether they write: the kernel's code was not "
             "there. If "
             "they only read, or overwrite, the class may be another.",
             (long long)maybe, maybe == 1 ? "" : "es", op_words(&first, op), first.slot);
    if (g->unknown_extent)
        tell(s, "Of %lld access%s only the beginning is known, not how far they reach.", (long long)g->unknown_extent,
             g->unknown_extent == 1 ? "" : "es");
    if (x->beyond)
        tell(s, "%lld launch%s of the run write where nobody knows (pointers that lie in memory), perhaps here.",
             (long long)x->beyond, x->beyond == 1 ? "" : "es");
    if (steps == 1 && g->confidence < 0.9)
        tell(s, "Only one step was recorded: nothing shows what lasts from one to the next. Record two or more.");
    if (!steps) tell(s, "No step was found, so that nothing shows what lasts and what is made anew.");
}

void explain_words(const struct explained *x, const struct explain_range *g, explain_say *say, void *to) {
    struct speaker s = {say, to};
    char size[64], part[160] = "The whole allocation", time[96] = "";
    emit_human_bytes(size, sizeof size, g->bytes);
    char *exact = strstr(size, " ("); /* the digits are said by the bytes from and to */
    if (exact) *exact = 0;
    if (g->offset || g->bytes != x->bytes)
        snprintf(part, sizeof part, "Bytes %lld to %lld, %.20s", (long long)g->offset,
                 (long long)(g->offset + g->bytes - 1), size);
    if (g->from_ns != REPORT_UNKNOWN || g->until_ns != REPORT_UNKNOWN) {
        double from = g->from_ns == REPORT_UNKNOWN ? 0 : (double)(g->from_ns - x->alloc_ns) / 1e6;
        if (g->until_ns == REPORT_UNKNOWN)
            snprintf(time, sizeof time, ", from %.3f ms after its allocation on", from);
        else
            snprintf(time, sizeof time, ", from %.3f to %.3f ms after its allocation", from,
                     (double)(g->until_ns - x->alloc_ns) / 1e6);
    }
    tell(&s, "%s%s: %s, confidence %.2f, by the rule \"%s\".", part, time, g->class, g->confidence, g->rule);
    use_words(&s, g);
    ends_words(&s, g);
    conclude(&s, g);
    if (!decided_outside(g)) why_not(&s, g);
    doubts(&s, x, g);
}
