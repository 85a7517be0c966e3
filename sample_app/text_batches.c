#include "sample_app/text_batches.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sample_app/checked_call.h"
#include "sample_app/counter_rng.h"

enum { SLOTS = 2, BYTE_VOCABULARY = 256 };

/* ---- the text -------------------------------------------------------------------------------------------- */

struct text text_open(const char *path, int vocabulary, size_t window, const char *option) {
    struct text text = {.vocabulary = vocabulary, .token_bytes = vocabulary > BYTE_VOCABULARY ? 2 : 1, .path = path};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused below, not waited for */
    if (fd < 0 || fstat(fd, &st)) die(EXIT_RUN_TIME, "cannot read the text %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) die(EXIT_RUN_TIME, "the text %s is not a regular file; give one with --data", path);
    if (st.st_size % text.token_bytes)
        die(EXIT_RUN_TIME, "the text %s has %lld bytes, an odd number; a token of --vocab %d has two bytes", path,
            (long long)st.st_size, vocabulary);
    text.size = (size_t)st.st_size / text.token_bytes;
    if (text.size < window)
        die(EXIT_RUN_TIME,
            "the text %s has %zu %s, a window needs %zu; give a longer one with --data or take a smaller %s", path,
            text.size, text.token_bytes == 1 ? "bytes" : "tokens", window, option);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) die(EXIT_RUN_TIME, "cannot map the text %s: %s", path, strerror(errno));
    close(fd);
    /* Windows lie anywhere: reading ahead would fill memory with what is not asked for. Advice only. */
    (void)madvise(map, (size_t)st.st_size, MADV_RANDOM);
    text.bytes = map;
    return text;
}

int text_token(const struct text *text, uint64_t i) {
    const unsigned char *at = text->bytes + i * (uint64_t)text->token_bytes;
    int token = text->token_bytes == 1 ? at[0] : at[0] | at[1] << 8;
    if (token >= text->vocabulary)
        die(EXIT_RUN_TIME, "the text %s has token %d at byte %" PRIu64 "; with --vocab %d the last one is %d",
            text->path, token, i * (uint64_t)text->token_bytes, text->vocabulary, text->vocabulary - 1);
    return token;
}

uint64_t text_training_tokens(const struct text *text, bool evaluation) {
    return evaluation ? text->size - text->size / 10 : text->size;
}

void text_close(struct text *text) {
    munmap((void *)text->bytes, text->size * (size_t)text->token_bytes);
    *text = (struct text){0};
}

/* ---- batches --------------------------------------------------------------------------------------------- */

/* Windows of one purpose: they begin at tokens first … first + count - 1. */
struct windows {
    uint64_t key, first, count;
};

struct text_batches {
    const struct text *text;
    struct batch_form form;
    struct windows windows[2];    /* by enum batch_purpose */
    struct tensors slots;         /* [SLOTS] of slot_bytes, on the device */
    unsigned char *staging;       /* [SLOTS] of slot_bytes, page-locked */
    cudaStream_t copies;          /* carries nothing but these */
    cudaEvent_t copied[SLOTS];    /* the slot's copy is done: the device may read it, the host refill what was copied */
    cudaEvent_t used[SLOTS];      /* what read the slot is done: a copy may overwrite it */
    int64_t staged, taken, freed; /* batches so far; batch i goes through slot i % SLOTS */
};

/* Windows within `tokens` tokens of the text from `first` on. `(bits % count)` prefers the first ones by less than
 * count / 2^64. */
static struct windows windows_within(const struct text *text, const struct batch_form *form, uint64_t key,
                                     uint64_t first, uint64_t tokens) {
    if (tokens < (uint64_t)form->window)
        die(EXIT_RUN_TIME,
            "the text %s is too short for --eval-every, which sets its last tenth apart: a window needs %d tokens of "
            "%" PRIu64 "; give a longer one with --data",
            text->path, form->window, tokens);
    return (struct windows){key, first, tokens - (uint64_t)form->window + 1};
}

struct tensors text_batches_slots(struct batch_form form, int64_t alloc) {
    struct tensor_spec spec = {"input", SLOTS, form.slot_bytes, FORMAT_BYTE};
    return tensors_create("input", "", &spec, 1, alloc, false);
}

struct text_batches *text_batches_create(const struct text *text, struct batch_form form, uint64_t seed,
                                         bool evaluation, int64_t alloc) {
    struct text_batches *b = malloc(sizeof *b);
    if (!b) die(EXIT_RUN_TIME, "out of host memory");
    *b = (struct text_batches){.text = text, .form = form};

    uint64_t training = text_training_tokens(text, evaluation);
    b->windows[BATCH_TRAINING] = windows_within(text, &form, rng_bits(seed, RNG_WINDOWS), 0, training);
    if (evaluation)
        b->windows[BATCH_EVALUATION] =
            windows_within(text, &form, rng_bits(seed, RNG_EVALUATION), training, text->size - training);

    b->slots = text_batches_slots(form, alloc);
    CALL(cudaMallocHost((void **)&b->staging, SLOTS * form.slot_bytes));
    CHECK(cudaStreamCreateWithFlags(&b->copies, cudaStreamNonBlocking));
    for (int slot = 0; slot < SLOTS; slot++) {
        CHECK(cudaEventCreateWithFlags(&b->copied[slot], cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&b->used[slot], cudaEventDisableTiming));
    }
    return b;
}

/* An event that was never recorded counts as done, so that the first rounds wait for nothing. */
void text_batches_stage(struct text_batches *b, enum batch_purpose purpose, int64_t index) {
    int slot = (int)(b->staged % SLOTS);
    const struct windows *from = &b->windows[purpose];
    unsigned char *host = b->staging + (size_t)slot * b->form.slot_bytes;
    if (b->staged - b->freed >= SLOTS) die(EXIT_RUN_TIME, "a batch was staged while both slots are in use");
    if (!from->count) die(EXIT_RUN_TIME, "a batch of evaluation was staged without --eval-every");

    CHECK(cudaEventSynchronize(b->copied[slot])); /* the batch that was here has left for the device */
    for (int i = 0; i < b->form.B; i++) {
        uint64_t window = (uint64_t)index * (uint64_t)b->form.B + (uint64_t)i;
        b->form.encode(host, &b->form, i, b->text, from->first + rng_bits(from->key, window) % from->count);
    }
    CHECK(cudaStreamWaitEvent(b->copies, b->used[slot], 0));
    CALL(cudaMemcpyAsync(b->slots.at[slot], host, b->form.slot_bytes, cudaMemcpyHostToDevice, b->copies));
    CHECK(cudaEventRecord(b->copied[slot], b->copies));
    b->staged++;
}

const void *text_batches_take(struct text_batches *b, cudaStream_t stream) {
    if (b->taken != b->freed || b->taken == b->staged) die(EXIT_RUN_TIME, "a batch was taken that is not staged");
    int slot = (int)(b->taken++ % SLOTS);
    CHECK(cudaStreamWaitEvent(stream, b->copied[slot], 0));
    return b->slots.at[slot];
}

void text_batches_used(struct text_batches *b, cudaStream_t stream) {
    CHECK(cudaEventRecord(b->used[b->freed++ % SLOTS], stream));
}

void text_batches_destroy(struct text_batches *b) {
    CHECK(cudaStreamSynchronize(b->copies));
    for (int slot = 0; slot < SLOTS; slot++) {
        CHECK(cudaEventDestroy(b->copied[slot]));
        CHECK(cudaEventDestroy(b->used[slot]));
    }
    CHECK(cudaStreamDestroy(b->copies));
    CALL(cudaFreeHost(b->staging));
    tensors_destroy(&b->slots);
    free(b);
}
