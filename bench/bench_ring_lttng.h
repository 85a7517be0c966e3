/* The alloc event as a tracepoint of LTTng-UST, with the fields of trace/events.def. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER acct_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "bench/bench_ring_lttng.h"
#if !defined(BENCH_RING_LTTNG_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define BENCH_RING_LTTNG_H
#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(
    acct_bench, alloc,
    LTTNG_UST_TP_ARGS(uint32_t, api, int32_t, status, int32_t, device, uint64_t, start_ns, uint64_t, end_ns, uint64_t,
                      stream, uint64_t, address, int64_t, bytes, uint32_t, memory),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint32_t, api, api) lttng_ust_field_integer(int32_t, status, status)
                            lttng_ust_field_integer(int32_t, device, device)
                                lttng_ust_field_integer(uint64_t, start_ns, start_ns)
                                    lttng_ust_field_integer(uint64_t, end_ns, end_ns)
                                        lttng_ust_field_integer(uint64_t, stream, stream)
                                            lttng_ust_field_integer_hex(uint64_t, address, address)
                                                lttng_ust_field_integer(int64_t, bytes, bytes)
                                                    lttng_ust_field_integer(uint32_t, memory, memory)))

#endif
#include <lttng/tracepoint-event.h>
