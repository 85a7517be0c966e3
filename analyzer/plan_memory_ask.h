/* What `acct plan memory` and `acct plan fit` share: the options that say what is asked, and how question and answer
 * stand on the sheet. Bytes. One thread. Errors of the command line are one line; the exit code is returned. */
#ifndef ACCT_ANALYZER_PLAN_MEMORY_ASK_H
#define ACCT_ANALYZER_PLAN_MEMORY_ASK_H

#include "analyzer/plan_sheet.h"

#include "acct/device_table.h"
#include "plan/plan_memory.h"

enum {
    ASK_RECIPE = SHEET_OPTIONS,
    ASK_MODEL,
    ASK_GPUS,
    ASK_ZERO,
    ASK_TENSOR,
    ASK_PIPELINE,
    ASK_SEQUENCE,
    ASK_RECOMPUTE,
    ASK_NO_DROPOUT,
    ASK_CONTEXT,
    ASK_BATCH,
    ASK_CACHE,
    ASK_DEVICE,
    ASK_OPTIONS
};
#define ASK_OPTION_ROWS                                                                                               \
    [ASK_RECIPE] = {"recipe", 0, OPTION_VALUE, "R", "bytes of each parameter by what they are for; see RECIPES"},     \
    [ASK_MODEL] = {"model", 'm', OPTION_VALUE, "SPEC",                                                                \
                   "layers=,dim=,heads=,seq=,vocab=[,batch=,...] or kind=linear,..."},                                \
    [ASK_GPUS] = {"gpus", 'g', OPTION_VALUE, "N", "GPUs in all (1)"},                                                 \
    [ASK_ZERO] = {"zero", 0, OPTION_VALUE, "0-3",                                                                     \
                  "ZeRO stage: optimizer, gradients, weights divided over the data-parallel GPUs"},                   \
    [ASK_TENSOR] = {"tp", 0, OPTION_VALUE, "T", "tensor-parallel GPUs (1)"},                                          \
    [ASK_PIPELINE] = {"pp", 0, OPTION_VALUE, "P", "stages of the pipeline (1)"},                                      \
    [ASK_SEQUENCE] = {"sequence-parallel", 0, OPTION_FLAG, NULL,                                                      \
                      "tensor parallelism divides norms and residuals too"},                                          \
    [ASK_RECOMPUTE] = {"recompute", 0, OPTION_VALUE, "WHAT",                                                          \
                       "none (default), selective (attention's scores) or full"},                                     \
    [ASK_NO_DROPOUT] = {"no-dropout", 0, OPTION_FLAG, NULL, "the transformer has no dropout: no masks, scores once"}, \
    [ASK_CONTEXT] = {"context", 0, OPTION_VALUE, "N",                                                                 \
                     "inference: tokens in the cache of each sequence (the model's seq)"},                            \
    [ASK_BATCH] = {"batch", 0, OPTION_VALUE, "N", "sequences of a replica, a micro-batch in training (the model's)"}, \
    [ASK_CACHE] = {"kv-dtype", 0, OPTION_VALUE, "F", "format of the cache: fp32, fp16, bf16, fp8, int8"},             \
    [ASK_DEVICE] = {"device", 'd', OPTION_VALUE, "D", "name, alias or profile file of a device, for its capacity"}
#define ASK_USAGE                                                                                \
    "--recipe R [--model SPEC] [--gpus N] [--zero 0-3] [--tp T] [--pp P] [--sequence-parallel] " \
    "[--recompute none|selective|full] [--no-dropout] [--context N] [--batch N] [--kv-dtype F] [--device D]"
/* The recipes, as help shows them. */
#define ASK_DETAILS                                                                                              \
    "Recipes of training: fp32-sgd, fp32-momentum, fp32-adagrad, fp32-rmsprop, fp32-lion, adamw-fp32, "          \
    "adamw-autocast,\n"                                                                                          \
    "adamw-bf16-master, megatron, megatron-distributed, mixed-sgd, mixed-momentum, adamw-bf16, adamw-8bit, "     \
    "adamw-8bit-bf16.\n"                                                                                         \
    "Of inference: inference-fp32, -fp16, -bf16, -fp8, -int8, -int4: weights, and with a model and --batch the " \
    "cache.\n"

/* What a model's text leaves open for plan fit. */
enum ask_unknown { ASK_NONE, ASK_PARAMETERS, ASK_LAYERS, ASK_BATCHES, ASK_TOKENS };

struct memory_ask {
    const struct arguments *args;
    struct plan_memory_question q; /* q.model points to `model` below, or is NULL */
    struct plan_model model;
    enum ask_unknown unknown;
    int has_device;
    struct acct_device device;
    double nominal; /* bytes of the device as the vendor names it; NaN: of a profile file, not told */
    int64_t offers; /* what the device has less what context and driver take: an estimate */
};

/* Reads the options. fits: what a model leaves out (layers, batch, seq, or all without a model) is the unknown, at most
 * one; else it is refused. */
int memory_ask_read(const struct arguments *args, struct memory_ask *a, int fits);

void memory_ask_inputs(struct plan_sheet *s, const struct memory_ask *a);
/* Parameters, terms and total of m. */
void memory_ask_terms(struct plan_sheet *s, const struct memory_ask *a, const struct plan_memory *m);
/* With a device: capacity and what is left of it after `total`. */
void memory_ask_room(struct plan_sheet *s, const struct memory_ask *a, __int128 total);
void memory_ask_notes(struct plan_sheet *s, const struct memory_ask *a, const struct plan_memory *m);

#endif
