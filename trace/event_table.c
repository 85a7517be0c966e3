#include "trace/event_table.h"

/* A value past this does not fit enum_text: the initializer would not compile. */
#define ENUM_VALUES 32

static const char *const enum_text[EVENT_TYPES][ENUM_VALUES] = {
#define ENUM(e, N, v, text) [EVENT_T_e_##e][v] = text,
#include "trace/events.def"
};

/* FIELD knows the event's large name, the struct has the small one: a typedef bridges them. */
#define EVENT(N, n, c, doc_) typedef struct acct_ev_##n record_##N;
#include "trace/events.def"

/* Fields, an array an event. The entry in front keeps that of an event without fields from being empty. */
#define EVENT(N, n, c, doc_) static const struct event_field fields_##N[] = {{0},
#define FIELD(N, t, f, doc_) {#f, EVENT_T_##t, (uint32_t)offsetof(record_##N, f), doc_},
#define END(N) \
    }          \
    ;
#include "trace/events.def"

#define EVENT(N, n_, c, doc_)                                                   \
    [ACCT_EV_##N] = {.name = #n_,                                               \
                     .class = EVENT_CLASS_##c,                                  \
                     .bytes = sizeof(record_##N),                               \
                     .field_count = sizeof fields_##N / sizeof *fields_##N - 1, \
                     .fields = fields_##N + 1,                                  \
                     .doc = doc_},
const struct event_info event_table[ACCT_EV_COUNT] = {
#include "trace/events.def"
};

int event_has_table(enum acct_event event) {
    switch (event) {
    case ACCT_EV_COPY:
    case ACCT_EV_MEMSET:
    case ACCT_EV_GEMM:
    case ACCT_EV_BLAS:
    case ACCT_EV_WORKSPACE:
    case ACCT_EV_LAUNCH:
        return 1;
    default:
        return 0;
    }
}

const char *event_enum_text(enum event_type type, uint32_t value) {
    return value < ENUM_VALUES ? enum_text[type][value] : NULL;
}

int event_enum_known(enum event_type type, uint32_t value) {
    return value == 0 || event_enum_text(type, value) != NULL;
}
