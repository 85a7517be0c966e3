#include "sample_app/gradient_dump.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sample_app/checked_call.h"

static void dump_batch(FILE *file, const void *batch, size_t bytes, cudaStream_t stream) {
    void *host = malloc(bytes);
    if (!host) die(EXIT_RUN_TIME, "out of host memory");
    CALL(cudaMemcpyAsync(host, batch, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    fwrite(host, 1, bytes, file);
    free(host);
}

int gradient_dump(FILE *file, const struct train_options *o, const struct model_kind *kind, const struct model *m,
                  const void *batch, float loss_scale, int64_t step) {
    fprintf(file, "%s %s ", kind->name, dtype_name(o->dtype));
    kind->describe(m, file, "");
    fprintf(file, " step %" PRId64, step);
    if (loss_scale != 1) fprintf(file, " scale %.9g", loss_scale);
    fputc('\n', file);
    dump_batch(file, batch, kind->batch_form(o).slot_bytes, m->stream);
    if (tensors_dump(&m->trained.parameters, file, m->stream)) return -1;
    if (tensors_dump(&m->trained.gradients, file, m->stream)) return -1;
    return fflush(file) ? -1 : 0;
}
