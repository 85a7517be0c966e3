/* Which names of ranges mean a step or a phase. */
#include "analyzer/attr_marks.h"

#include <ctype.h>
#include <string.h>

static const struct phrase {
    const char *words;
    enum named named;
} phrases[] = {
    {"step", NAMED_STEP},
    {"train step", NAMED_STEP},
    {"training step", NAMED_STEP},
    {"global step", NAMED_STEP},
    {"profiler step", NAMED_STEP}, /* torch.profiler: ProfilerStep#N */
    {"profilerstep", NAMED_STEP},
    {"iter", NAMED_STEP},
    {"iteration", NAMED_STEP},
    {"train iter", NAMED_STEP},
    {"train iteration", NAMED_STEP},
    {"training iteration", NAMED_STEP},
    {"forward", NAMED_FORWARD},
    {"fwd", NAMED_FORWARD},
    {"model forward", NAMED_FORWARD},
    {"forward step", NAMED_FORWARD}, /* Megatron-LM: forward_step */
    {"backward", NAMED_BACKWARD},
    {"bwd", NAMED_BACKWARD},
    {"backprop", NAMED_BACKWARD},
    {"backpropagation", NAMED_BACKWARD},
    {"loss backward", NAMED_BACKWARD},
    {"model backward", NAMED_BACKWARD},
    {"backward step", NAMED_BACKWARD},
    {"optimizer", NAMED_OPTIMIZER},
    {"optimiser", NAMED_OPTIMIZER},
    {"optim", NAMED_OPTIMIZER},
    {"opt", NAMED_OPTIMIZER},
    {"update", NAMED_OPTIMIZER},
    {"weight update", NAMED_OPTIMIZER},
    {"weights update", NAMED_OPTIMIZER},
    {"update weights", NAMED_OPTIMIZER},
    {"parameter update", NAMED_OPTIMIZER},
    {"update parameters", NAMED_OPTIMIZER},
    {"update params", NAMED_OPTIMIZER},
    {"eval", NAMED_EVALUATION},
    {"evaluate", NAMED_EVALUATION},
    {"evaluation", NAMED_EVALUATION},
    {"eval step", NAMED_EVALUATION},
    {"eval loop", NAMED_EVALUATION},
    {"evaluation step", NAMED_EVALUATION},
    {"evaluation loop", NAMED_EVALUATION},
    {"val", NAMED_EVALUATION},
    {"val step", NAMED_EVALUATION},
    {"validate", NAMED_EVALUATION},
    {"validation", NAMED_EVALUATION},
    {"validation step", NAMED_EVALUATION},
    {"validation loop", NAMED_EVALUATION},
    {"recompute", NAMED_RECOMPUTE},
    {"recomputation", NAMED_RECOMPUTE},
    {"recompute forward", NAMED_RECOMPUTE},
    {"forward recompute", NAMED_RECOMPUTE},
    {"activation recompute", NAMED_RECOMPUTE},
    {"remat", NAMED_RECOMPUTE},
};

#define WORDS_ROOM 96

/* The name's words in lower case with a blank between; numbers are none, and a capital after a small letter begins one.
 * 0: too long for any of the phrases. */
static int words_of(const char *name, char out[WORDS_ROOM]) {
    size_t n = 0;
    int in_word = 0;
    for (const char *p = name; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (!isalpha(c)) {
            in_word = 0;
            continue;
        }
        if (in_word && isupper(c) && islower((unsigned char)p[-1])) in_word = 0;
        if (n + 3 >= WORDS_ROOM) return 0;
        if (!in_word && n) out[n++] = ' ';
        out[n++] = (char)tolower(c);
        in_word = 1;
    }
    out[n] = 0;
    return n > 0;
}

static int ends_with(const char *words, const char *end) {
    size_t n = strlen(words), m = strlen(end);
    return n > m && !strcmp(words + n - m, end);
}

/* `forward pass`, `backward micro-batch 3`: what a phase is divided into. */
static void strip(char *words) {
    static const char *const ends[] = {" pass", " microbatch", " micro batch", " mb"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(words, ends[i])) words[strlen(words) - strlen(ends[i])] = 0;
}

enum named mark_named(const char *name, int *plain) {
    char words[WORDS_ROOM];
    static const char *const optimizers[] = {"optimizer step", "optimiser step", "optim step", "opt step"};
    if (plain) *plain = 0;
    if (!name || !words_of(name, words)) return NAMED_NOTHING;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) { /* torch: Optimizer.step#AdamW.step */
        size_t n = strlen(optimizers[i]);
        if (!strncmp(words, optimizers[i], n) && (!words[n] || (words[n] == ' ' && strchr(name, '#'))))
            return NAMED_OPTIMIZER;
    }
    strip(words);
    if (plain) *plain = !strcmp(words, "step");
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
        if (!strcmp(words, phrases[i].words)) return phrases[i].named;
    return NAMED_NOTHING;
}

void mark_general_name(const char *name, char *out, size_t room) {
    size_t n = 0;
    const char *p = name;
    for (; *p && n + 1 < room; p++) {
        unsigned char c = (unsigned char)*p;
        if (isdigit(c)) {
            if (n && out[n - 1] == 'N' && isdigit((unsigned char)p[-1])) continue;
            out[n++] = 'N';
        } else {
            out[n++] = c < ' ' || c == 127 ? '?' : (char)c;
        }
    }
    while (n && ((unsigned char)*p & 0xc0) == 0x80) n--, p--; /* no half of a character */
    out[n] = 0;
}
