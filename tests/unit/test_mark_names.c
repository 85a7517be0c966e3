/* Which names of ranges mean a step or a phase: spellings of the frameworks and tools that set them, and names that
 * only look like one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "analyzer/attr_marks.h"

static const struct {
    enum named named;
    const char *names[24];
} cases[] = {
    {NAMED_STEP,
     {"step", "Step", "STEP", "step 12", "step_12", "step12", "step/3", "iteration 7", "iter", "iter42", "train_step",
      "TrainStep 4", "trainStep", "training step", "ProfilerStep#9", "train iteration 3", "global_step=5",
      "step pass"}},
    {NAMED_FORWARD,
     {"forward", "Forward", "FWD", "fwd_3", "forward pass", "ForwardPass", "model.forward", "forward_step",
      "forward micro-batch 2", "forward microbatch 1"}},
    {NAMED_BACKWARD,
     {"backward", "bwd", "Backward pass", "loss.backward", "loss.backward()", "backward_step", "backprop"}},
    {NAMED_OPTIMIZER,
     {"optimizer", "optimizer.step", "optimizer_step", "OptimizerStep", "optimizer.step()", "opt.step",
      "Optimizer.step#AdamW.step", "optim step 3", "update", "weight update", "update_params"}},
    {NAMED_EVALUATION,
     {"eval", "evaluation", "validate", "Validation 3", "val", "eval_step 12", "validation loop", "EvalStep"}},
    {NAMED_RECOMPUTE, {"recompute", "Recompute forward", "activation_recompute", "remat"}},
    {NAMED_NOTHING,
     {"", "12", "#", "steps", "stepper", "layer3.forward", "forward_backward", "Optimizer.zero_grad#Adam.zero_grad",
      "optimizer.zero_grad", "epoch 3", "data step loader", "backward_hook", "MLP forward", "update rate", "iterations",
      "pr\xc3\xa9paration step x", "\xff\xfe", "optimizer step state dict"}},
};

static void test_names(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 24 && cases[i].names[k]; k++)
            if (mark_named(cases[i].names[k], NULL) != cases[i].named) fail_msg("%s", cases[i].names[k]);
}

static void test_long_and_null(void **state) {
    char name[5000];
    (void)state;
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(mark_named(name, NULL), NAMED_NOTHING);
    memset(name, '.', sizeof name - 1);
    memcpy(name + 2000, "step", 4);
    assert_int_equal(mark_named(name, NULL), NAMED_STEP); /* its only word */
    assert_int_equal(mark_named(NULL, NULL), NAMED_NOTHING);
}

static void test_plain(void **state) {
    int plain;
    (void)state;
    mark_named("step 7", &plain);
    assert_int_equal(plain, 1);
    mark_named("train step", &plain);
    assert_int_equal(plain, 0);
}

static void test_general_names(void **state) {
    static const char *const names[][2] = {
        {"ProfilerStep#12", "ProfilerStep#N"}, {"step 1.25", "step N.N"}, {"a\nb", "a?b"}, {"N9", "NN"}, {"", ""}};
    char out[64], small[4];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mark_general_name(names[i][0], out, sizeof out);
        assert_string_equal(out, names[i][1]);
    }
    mark_general_name("ab\xc3\xa9", small, sizeof small); /* half of a character does not stay */
    assert_string_equal(small, "ab");
    mark_general_name("abcdef", small, sizeof small);
    assert_string_equal(small, "abc");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_long_and_null),
                                       cmocka_unit_test(test_plain), cmocka_unit_test(test_general_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
