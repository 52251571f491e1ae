/* SPDX-License-Identifier: Apache-2.0 */
/* Rates and ratios between two samples of an engine. Pure functions. */
#ifndef SLUICE_CLIENTS_TOP_RATES_H
#define SLUICE_CLIENTS_TOP_RATES_H

#include "lib/limit/limit.h"
#include "procs/clients/top/sample.h"

enum sort {
#define SORT(name, key) SORT_##name,
#include "procs/clients/top/sorts.tbl.h"
    SORT__COUNT
};

struct process_rates {
    const json_t *row; /* borrowed from the newer sample */
    char name[32];
    double order, cpu /* percent of one core */, memory, reserved, messages /* per s */, restarts;
    bool ready;
};

struct storage_rates {
    const json_t *row;
    uint64_t number, in_flight, p99_us, throttle;
    double bytes_per_s, busy /* 0..1 */, read_ms /* mean per read */;
};

struct gpu_rates {
    bool on, lost;
    double hit /* of its uses of experts, 0..1 */, uploads_per_s, evictions_per_s;
    double to_bytes_per_s, from_bytes_per_s;
    double busy;  /* 0..1; 0: not counted */
    double ahead; /* of experts copied ahead, used; 0..1 */
};

struct rates {
    double seconds;                      /* between the samples */
    double tokens_per_s;                 /* generated tokens per second of wall time */
    double prefill_tps, decode_tps;      /* 0: no tokens in that time */
    double hit, inflight, miss, skipped; /* shares of the accesses; all 0: no accesses */
    double accesses_per_s, stall /* share of compute time */, recall, prefetch_used,
        evictions_per_s;
    /* Of a table on storage: rows read, pages read from storage, share of compute time. */
    double table_rows_per_s, table_pages_per_s, table_wait;
    double passes_per_s, rows /* of a pass */, experts /* of a pass */, rows_per_expert;
    double gap_us; /* between two tokens of a sequence; 0: no tokens */
    struct limit_facts limit;
    struct gpu_rates gpu;
    uint32_t processes, storages;
    struct process_rates process[SERVICE_PROCESSES_MAX];
    struct storage_rates storage[SERVICE_LOADERS_MAX];
};

/* Without a snapshot in `before`, rates are averages since the engine's start. */
void rates_make(const struct sample *before, const struct sample *now, enum sort sort,
                struct rates *f);

const char *sort_name(enum sort sort);

#endif
