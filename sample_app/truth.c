#include "sample_app/truth.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"
#include "sample_app/train_options.h"

struct buffer {
    char name[32];
    const char *class;
    const void *address;
    size_t bytes;
    int64_t from_call, to_call; /* to_call 0: not released yet */
};

struct span {
    int64_t from_call, to_call, flops;
    enum truth_phase phase;
    int64_t micro_batch;
};

struct step {
    int64_t from_call, to_call;
    size_t first_phase, phases; /* in account.phases */
    int64_t micro_batches, recompute_flops;
    float loss;
    bool skipped;
};

static struct {
    int64_t calls;
    int64_t last_work, work_before; /* the last call that was no allocation and no release; the one before it */
    struct buffer *buffers;
    struct step *steps;
    struct span *phases, *evaluations;
    size_t buffer_count, step_count, phase_count, evaluation_count, loss_count;
    struct span *phase; /* the one that runs, or NULL; the last of `phases` */
    int64_t *flops;     /* of what runs now; NULL between phases */
    bool forgets;       /* no buffers, and no steps but the one that runs */
} account;

static const char *const phase_names[TRUTH_PHASES] = {"forward", "backward", "optimizer"};

/* Room for one element more; the capacity is the next power of two, so it need not be kept. */
static void *grow(void *array, size_t count, size_t element_bytes) {
    if (count & (count - 1)) return array;
    void *larger = realloc(array, (count ? 2 * count : 1) * element_bytes);
    if (!larger) die(EXIT_RUN_TIME, "out of host memory for the account that --truth writes");
    return larger;
}

void truth_count_call(void) {
    account.calls++;
    account.work_before = account.last_work;
    account.last_work = account.calls;
}

void truth_forget(void) {
    account.forgets = true;
}

/* ---- buffers --------------------------------------------------------------------------------------------- */

/* The call just counted allocates or releases: no phase begins or ends with it. */
static void no_work(void) {
    account.last_work = account.work_before;
    if (account.phase && account.phase->from_call == account.calls) account.phase->from_call++;
}

static void add_buffer(const char *name, const char *class, const void *address, size_t bytes, int64_t from_call) {
    if (account.forgets) return;
    account.buffers = grow(account.buffers, account.buffer_count, sizeof *account.buffers);
    struct buffer *b = &account.buffers[account.buffer_count++];
    *b = (struct buffer){.class = class, .address = address, .bytes = bytes, .from_call = from_call};
    snprintf(b->name, sizeof b->name, "%s", name);
}

void truth_allocated(const char *name, const char *class, const void *address, size_t bytes) {
    no_work();
    add_buffer(name, class, address, bytes, account.calls);
}

void truth_piece_taken(const char *name, const char *class, const void *address, size_t bytes) {
    add_buffer(name, class, address, bytes, account.calls + 1);
}

void truth_piece_given(const void *address) {
    for (size_t i = account.buffer_count; i-- > 0;) {
        struct buffer *b = &account.buffers[i];
        if (b->address != address || b->to_call) continue;
        b->to_call = account.calls;
        return;
    }
}

void truth_released(const void *address) {
    no_work();
    truth_piece_given(address);
}

/* ---- steps ----------------------------------------------------------------------------------------------- */

static struct step *this_step(void) {
    return &account.steps[account.step_count - 1];
}

void truth_step_begin(void) {
    if (account.forgets) account.step_count = account.phase_count = account.evaluation_count = 0;
    account.steps = grow(account.steps, account.step_count, sizeof *account.steps);
    account.steps[account.step_count++] =
        (struct step){.from_call = account.calls + 1, .first_phase = account.phase_count};
}

void truth_step_end(int skipped) {
    this_step()->to_call = account.calls;
    this_step()->skipped = skipped;
}

void truth_loss(float loss) {
    if (!account.forgets) account.steps[account.loss_count++].loss = loss;
}

void truth_phase_begin(enum truth_phase phase) {
    struct step *s = this_step();
    account.phases = grow(account.phases, account.phase_count, sizeof *account.phases);
    struct span *p = &account.phases[account.phase_count++];
    s->phases++;
    if (phase == TRUTH_FORWARD) s->micro_batches++;
    *p = (struct span){.from_call = account.calls + 1,
                       .phase = phase,
                       .micro_batch = phase == TRUTH_OPTIMIZER ? 0 : s->micro_batches - 1};
    account.phase = p;
    account.flops = &p->flops;
}

void truth_phase_end(void) {
    account.phase->to_call = account.last_work;
    account.phase = NULL;
    account.flops = NULL;
}

void truth_recompute_begin(void) {
    account.flops = &this_step()->recompute_flops;
}

void truth_recompute_end(void) {
    account.flops = &account.phase->flops;
}

void truth_evaluation_begin(void) {
    account.evaluations = grow(account.evaluations, account.evaluation_count, sizeof *account.evaluations);
    struct span *e = &account.evaluations[account.evaluation_count++];
    *e = (struct span){.from_call = account.calls + 1};
    account.flops = &e->flops;
}

void truth_evaluation_end(void) {
    account.evaluations[account.evaluation_count - 1].to_call = account.calls;
    account.flops = NULL;
}

void truth_flops(int64_t flops) {
    *account.flops += flops;
}

/* ---- writing --------------------------------------------------------------------------------------------- */

static void write_buffers(FILE *file) {
    const char *comma = "";
    fputs("{\"buffers\":[", file);
    for (size_t i = 0; i < account.buffer_count; i++) {
        const struct buffer *b = &account.buffers[i];
        if (b->to_call && b->to_call < b->from_call) continue; /* a piece that no call could use */
        fprintf(file,
                "%s\n {\"name\":\"%s\",\"class\":\"%s\",\"address\":%" PRIuPTR ",\"bytes\":%zu,\"from_call\":%" PRId64,
                comma, b->name, b->class, (uintptr_t)b->address, b->bytes, b->from_call);
        comma = ",";
        if (b->to_call)
            fprintf(file, ",\"to_call\":%" PRId64 "}", b->to_call);
        else
            fputs(",\"to_call\":null}", file);
    }
    fputs("],\n", file);
}

/* Nine digits give a float back bit for bit. JSON has no infinity and no NaN. */
static void write_losses(FILE *file) {
    fputs("\"losses\":[", file);
    for (size_t i = 0; i < account.step_count; i++) {
        const char *comma = i ? "," : "";
        if (isfinite(account.steps[i].loss))
            fprintf(file, "%s%.9g", comma, account.steps[i].loss);
        else
            fprintf(file, "%snull", comma);
    }
    fputs("],\n", file);
}

static void write_step(FILE *file, const struct step *s) {
    int64_t flops[TRUTH_PHASES] = {0};
    fprintf(file,
            " {\"from_call\":%" PRId64 ",\"to_call\":%" PRId64 ",\"micro_batches\":%" PRId64
            ",\"skipped\":%s,\"phases\":[",
            s->from_call, s->to_call, s->micro_batches, s->skipped ? "true" : "false");
    for (size_t i = 0; i < s->phases; i++) {
        const struct span *p = &account.phases[s->first_phase + i];
        fprintf(file,
                "%s{\"name\":\"%s\",\"micro_batch\":%" PRId64 ",\"from_call\":%" PRId64 ",\"to_call\":%" PRId64 "}",
                i ? "," : "", phase_names[p->phase], p->micro_batch, p->from_call, p->to_call);
        flops[p->phase] += p->flops;
    }
    fputs("],\"flops\":{", file);
    for (int p = 0; p < TRUTH_PHASES; p++) fprintf(file, "\"%s\":%" PRId64 ",", phase_names[p], flops[p]);
    fprintf(file, "\"recompute\":%" PRId64 "}}", s->recompute_flops);
}

static void write_evaluations(FILE *file) {
    fputs("\"evaluations\":[", file);
    for (size_t i = 0; i < account.evaluation_count; i++) {
        const struct span *e = &account.evaluations[i];
        fprintf(file, "%s\n {\"from_call\":%" PRId64 ",\"to_call\":%" PRId64 ",\"flops\":%" PRId64 "}", i ? "," : "",
                e->from_call, e->to_call, e->flops);
    }
    fputs("],\n", file);
}

int truth_write(FILE *file, const struct train_options *o, int64_t parameters, int64_t flops_per_step,
                int64_t first_step) {
    write_buffers(file);
    fputs("\"options\":", file);
    train_options_write(file, o);
    fprintf(file, ",\n\"parameters\":%" PRId64 ",\n\"flops_per_step\":%" PRId64 ",\n\"first_step\":%" PRId64 ",\n",
            parameters, flops_per_step, first_step);
    write_losses(file);
    write_evaluations(file);
    fputs("\"steps\":[\n", file);
    for (size_t i = 0; i < account.step_count; i++) {
        if (i) fputs(",\n", file);
        write_step(file, &account.steps[i]);
    }
    fputs("]}\n", file);
    return fflush(file) || ferror(file) ? -1 : 0;
}
