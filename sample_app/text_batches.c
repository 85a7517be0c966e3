#include "sample_app/text_batches.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sample_app/checked_call.h"
#include "sample_app/counter_rng.h"

struct text text_open(const char *path, size_t window, const char *option) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) die(EXIT_RUN_TIME, "cannot read the text %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) die(EXIT_RUN_TIME, "the text %s is not a regular file; give one with --data", path);
    if ((size_t)st.st_size < window)
        die(EXIT_RUN_TIME,
            "the text %s has %lld bytes, a window needs %zu; give a longer one with --data or take a smaller %s", path,
            (long long)st.st_size, window, option);
    struct text text = {.size = (size_t)st.st_size};
    text.bytes = mmap(NULL, text.size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text.bytes == MAP_FAILED) die(EXIT_RUN_TIME, "cannot map the text %s: %s", path, strerror(errno));
    close(fd);
    return text;
}

void text_batches_create(struct text_batches *b, struct text text, struct batch_form form, uint64_t seed) {
    *b = (struct text_batches){.text = text, .form = form, .key = rng_bits(seed, RNG_WINDOWS)};
    CALL(cudaMallocHost((void **)&b->staging, 2 * form.slot_bytes));
    for (int slot = 0; slot < 2; slot++) CHECK(cudaEventCreateWithFlags(&b->copied[slot], cudaEventDisableTiming));
}

static unsigned char *slot_of(const struct text_batches *b, int64_t index) {
    return b->staging + (size_t)(index % 2) * b->form.slot_bytes;
}

void text_batches_stage(struct text_batches *b, int64_t index) {
    CHECK(cudaEventSynchronize(b->copied[index % 2]));
    uint64_t offsets = b->text.size - b->form.window + 1; /* the remainder's bias is below offsets / 2^64 */
    for (int i = 0; i < b->form.B; i++) {
        uint64_t window = (uint64_t)index * b->form.B + i;
        b->form.encode(slot_of(b, index), &b->form, i, b->text.bytes + rng_bits(b->key, window) % offsets);
    }
}

const void *text_batches_slot(const struct text_batches *b, int64_t index) {
    return slot_of(b, index);
}

void text_batches_copied(struct text_batches *b, int64_t index, cudaStream_t stream) {
    CHECK(cudaEventRecord(b->copied[index % 2], stream));
}

void text_batches_destroy(struct text_batches *b) {
    for (int slot = 0; slot < 2; slot++) CHECK(cudaEventDestroy(b->copied[slot]));
    CALL(cudaFreeHost(b->staging));
    munmap((void *)b->text.bytes, b->text.size);
}
