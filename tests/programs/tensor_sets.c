/* Sets of tensors of train (sample_app/device_tensors.h): `class` prints bytes and offset of each tensor that lies
 * together with others; `enough`, `short` and `inside` check a pointer as a debug build does. */
#include <stdio.h>
#include <string.h>

#include "sample_app/checked_call.h"
#include "sample_app/device_tensors.h"
#include "sample_app/train_options.h"

static void print_layout(void) {
    const struct tensor_spec specs[] = {{"one", 1, 1, FORMAT_FP32},      {"odd", 2, 3, FORMAT_BF16},
                                        {"large", 2, 1024, FORMAT_BF16}, {"byte", 1, 5, FORMAT_BYTE},
                                        {"some", 3, 12, FORMAT_FP32},    {"wide", 1, 77, FORMAT_FP16},
                                        {"long", 1, 333, FORMAT_FP32}};
    struct tensors t = tensors_create("class", "", specs, (int)(sizeof specs / sizeof *specs), ALLOC_CLASS, false);
    const char *block = t.at[0];
    for (int i = 1; i < t.count; i++)
        if ((const char *)t.at[i] < block) block = t.at[i];
    for (int i = 0; i < t.count; i++) printf("%zu %zd\n", tensor_bytes(&t, i), (const char *)t.at[i] - block);
    tensors_destroy(&t);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "class")) {
        print_layout();
        return 0;
    }
    struct tensors t =
        tensors_create("param", "", &(struct tensor_spec){"w", 1, 8, FORMAT_FP32}, 1, ALLOC_TENSOR, false);
    const float *w = t.at[0];
    if (!strcmp(what, "enough")) EXPECT_ELEMENTS(w, 8);
    if (!strcmp(what, "short")) EXPECT_ELEMENTS(w, 9);
    if (!strcmp(what, "inside")) EXPECT_ELEMENTS(w + 1, 1);
    if (!strcmp(what, "gone")) {
        tensors_destroy(&t);
        EXPECT_ELEMENTS(w, 1);
    }
    puts("right");
    return 0;
}
