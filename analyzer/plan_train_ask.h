/* What `acct plan train` was asked: its options, read and checked, the equations solved. One thread. */
#ifndef ACCT_ANALYZER_PLAN_TRAIN_ASK_H
#define ACCT_ANALYZER_PLAN_TRAIN_ASK_H

#include "acct/device_table.h"
#include "analyzer/plan_sheet.h"
#include "plan/plan_convention.h"
#include "plan/plan_training.h"

enum {
    TRAIN_PARAMS = SHEET_OPTIONS,
    TRAIN_MODEL,
    TRAIN_TOKENS,
    TRAIN_FLOPS,
    TRAIN_BATCH_TOKENS,
    TRAIN_CONVENTION,
    TRAIN_RECOMPUTE,
    TRAIN_GPUS,
    TRAIN_DEVICE,
    TRAIN_DTYPE,
    TRAIN_PEAK,
    TRAIN_MFU,
    TRAIN_TIME,
    TRAIN_DAYS,
    TRAIN_STEP_TIME,
    TRAIN_RATE,
    TRAIN_PRICE,
    TRAIN_BUDGET,
    TRAIN_OPTIONS
};

/* FLOPs in one number format, of a step that mixes them. */
struct train_part {
    int format; /* enum acct_format */
    double flops, peak;
    int peak_given;
};

struct train_ask {
    const struct arguments *args;
    struct plan_training t;
    int64_t params, tokens, step_tokens, gpus; /* 0: not given */
    int has_model, step_from_model, gpus_default;
    struct plan_model model;
    struct plan_parameters parameters;
    enum plan_convention convention;
    __int128 attention;        /* A a token; 0 without a model */
    __int128 per_token, flops; /* exact; 0: not known so */
    int has_device, format, format_default;
    struct acct_device device;
    struct train_part parts[ACCT_FORMATS];
    int n_parts;                   /* 0: not mixed */
    enum plan_quantity solved_for; /* PLAN_QUANTITIES: nothing but FLOPs was asked */
};

/* 0, or the exit code after one line. */
int train_ask_read(const struct arguments *args, struct train_ask *a);

/* The question is about FLOPs given, not about a model's training. */
int train_ask_is_op(const struct train_ask *a);

#endif
