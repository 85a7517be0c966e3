/* train's batches with a device that is far behind the host, or copies that are: nothing but text_batches.c keeps the
 * slots in order.
 *
 *   batch_order TEXT VOCABULARY B WINDOW BATCHES SEED OUT device|copies
 *
 * device: each batch is read by the device after a slow copy on the compute stream. copies: it is read at once, but its
 * slot is free only after a slow copy on another stream, so that the batch after the next comes late. The host never
 * waits for either. OUT gets the tokens that the device saw, int32 (BATCHES, B, WINDOW). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample_app/checked_call.h"
#include "sample_app/text_batches.h"
#include "sample_app/train_options.h"

enum { SLOW_BYTES = 64 << 20 };

static void encode(void *slot, const struct batch_form *form, int i, const struct text *text, uint64_t at) {
    int *tokens = (int *)slot + i * form->window;
    for (int t = 0; t < form->window; t++) tokens[t] = text_token(text, at + (uint64_t)t);
}

int main(int argc, char **argv) {
    if (argc != 9) die(EXIT_USAGE, "usage: batch_order TEXT VOCABULARY B WINDOW BATCHES SEED OUT device|copies");
    bool late_copies = !strcmp(argv[8], "copies");
    int B = atoi(argv[3]), window = atoi(argv[4]), count = atoi(argv[5]);
    struct batch_form form = {B, window, (size_t)B * (size_t)window * sizeof(int), encode};
    struct text text = text_open(argv[1], atoi(argv[2]), (size_t)window, "WINDOW");
    struct text_batches *b =
        text_batches_create(&text, form, strtoull(argv[6], NULL, 10), false, /* alloc */ ALLOC_TENSOR);
    cudaStream_t compute, after;
    cudaEvent_t read;
    char *seen, *slow;
    CHECK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&after, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&read, cudaEventDisableTiming));
    CALL(cudaMallocHost((void **)&seen, (size_t)count * form.slot_bytes));
    CALL(cudaMalloc((void **)&slow, 2 * (size_t)SLOW_BYTES));
    CALL(cudaMemset(slow, 0, 2 * (size_t)SLOW_BYTES));

    text_batches_stage(b, BATCH_TRAINING, 0);
    for (int i = 0; i < count; i++) {
        const void *slot = text_batches_take(b, compute);
        if (!late_copies) CALL(cudaMemcpyAsync(slow, slow + SLOW_BYTES, SLOW_BYTES, cudaMemcpyDeviceToDevice, compute));
        CALL(cudaMemcpyAsync(seen + (size_t)i * form.slot_bytes, slot, form.slot_bytes, cudaMemcpyDeviceToHost,
                             compute));
        CHECK(cudaEventRecord(read, compute));
        CHECK(cudaStreamWaitEvent(after, read, 0));
        if (late_copies) CALL(cudaMemcpyAsync(slow, slow + SLOW_BYTES, SLOW_BYTES, cudaMemcpyDeviceToDevice, after));
        text_batches_used(b, after);
        if (i + 1 < count) text_batches_stage(b, BATCH_TRAINING, i + 1);
    }
    CHECK(cudaStreamSynchronize(compute));
    CHECK(cudaStreamSynchronize(after));

    FILE *out = fopen(argv[7], "wb");
    if (!out || fwrite(seen, form.slot_bytes, (size_t)count, out) != (size_t)count || fclose(out))
        die(EXIT_RUN_TIME, "cannot write %s", argv[7]);
    CALL(cudaFree(slow));
    CALL(cudaFreeHost(seen));
    text_batches_destroy(b);
    CHECK(cudaEventDestroy(read));
    CHECK(cudaStreamDestroy(after));
    CHECK(cudaStreamDestroy(compute));
    text_close(&text);
    return 0;
}
