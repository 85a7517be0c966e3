#include "sample_app/truth.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"

struct buffer {
    char name[24];
    const char *class;
    const void *address;
    size_t bytes;
    int64_t from_call, to_call; /* to_call 0: not released yet */
};

struct phase {
    int64_t from_call, to_call, flops;
};

struct step {
    int64_t from_call, to_call;
    float loss;
    struct phase phases[TRUTH_PHASES];
};

static struct {
    int64_t calls;
    struct buffer *buffers;
    size_t buffer_count;
    struct step *steps;
    size_t step_count;
    struct phase *phase; /* the one that runs, or NULL */
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
}

void truth_allocated(const char *name, const char *class, const void *address, size_t bytes) {
    account.buffers = grow(account.buffers, account.buffer_count, sizeof *account.buffers);
    struct buffer *b = &account.buffers[account.buffer_count++];
    *b = (struct buffer){.class = class, .address = address, .bytes = bytes, .from_call = account.calls};
    snprintf(b->name, sizeof b->name, "%s", name);
}

void truth_released(const void *address) {
    for (size_t i = account.buffer_count; i-- > 0;) {
        struct buffer *b = &account.buffers[i];
        if (b->address != address || b->to_call) continue;
        b->to_call = account.calls;
        return;
    }
}

void truth_step_begin(void) {
    account.steps = grow(account.steps, account.step_count, sizeof *account.steps);
    account.steps[account.step_count++] = (struct step){.from_call = account.calls + 1};
}

void truth_step_end(float loss) {
    struct step *s = &account.steps[account.step_count - 1];
    s->to_call = account.calls;
    s->loss = loss;
}

void truth_phase_begin(enum truth_phase phase) {
    account.phase = &account.steps[account.step_count - 1].phases[phase];
    account.phase->from_call = account.calls + 1;
}

void truth_phase_end(void) {
    account.phase->to_call = account.calls;
    account.phase = NULL;
}

void truth_flops(int64_t flops) {
    account.phase->flops += flops;
}

static void write_buffers(FILE *file) {
    fputs("{\"buffers\":[", file);
    for (size_t i = 0; i < account.buffer_count; i++) {
        const struct buffer *b = &account.buffers[i];
        fprintf(file,
                "%s\n {\"name\":\"%s\",\"class\":\"%s\",\"address\":%" PRIuPTR ",\"bytes\":%zu,\"from_call\":%" PRId64,
                i ? "," : "", b->name, b->class, (uintptr_t)b->address, b->bytes, b->from_call);
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
    fprintf(file, " {\"from_call\":%" PRId64 ",\"to_call\":%" PRId64 ",\"micro_batches\":1,\"phases\":[", s->from_call,
            s->to_call);
    for (int p = 0; p < TRUTH_PHASES; p++)
        fprintf(file, "%s{\"name\":\"%s\",\"micro_batch\":0,\"from_call\":%" PRId64 ",\"to_call\":%" PRId64 "}",
                p ? "," : "", phase_names[p], s->phases[p].from_call, s->phases[p].to_call);
    fputs("],\"flops\":{", file);
    for (int p = 0; p < TRUTH_PHASES; p++) fprintf(file, "\"%s\":%" PRId64 ",", phase_names[p], s->phases[p].flops);
    fputs("\"recompute\":0}}", file); /* nothing here is computed twice */
}

int truth_write(FILE *file, int64_t parameters, int64_t flops_per_step) {
    write_buffers(file);
    fprintf(file, "\"parameters\":%" PRId64 ",\n\"flops_per_step\":%" PRId64 ",\n", parameters, flops_per_step);
    write_losses(file);
    fputs("\"steps\":[\n", file);
    for (size_t i = 0; i < account.step_count; i++) {
        if (i) fputs(",\n", file);
        write_step(file, &account.steps[i]);
    }
    fputs("]}\n", file);
    return fflush(file) || ferror(file) ? -1 : 0;
}
