/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates the speed of a model on this machine from measurements; docs/doctor.md gives the
 * formula and its error. Pure, so that it can be unit tested. */
#ifndef SLUICE_TOOLS_DOCTOR_ESTIMATE_H
#define SLUICE_TOOLS_DOCTOR_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#define ESTIMATE_DEPTHS 5 /* 1, 2, 4, 8, 16 reads in flight */

struct model_facts {
    uint64_t layers, experts_used;
    uint64_t expert_layers, expert_count; /* layers that have experts, and experts of all of them */
    uint64_t dense_read_bytes;            /* per token */
    uint64_t expert_bytes;                /* all experts */
    uint64_t min_budget;                  /* budgets are those of the ledger */
    uint64_t budget_25, budget_50, budget_75, budget_100;
};

struct host_facts {
    double decode_s, prefill_s;               /* per token, everything resident; 0: unknown */
    uint64_t chunk_tokens;                    /* tokens per pass of prefill */
    double stream_bytes_per_s;                /* memory, all threads */
    double read_bytes_per_s[ESTIMATE_DEPTHS]; /* all devices together, reads of chunk_bytes */
    uint64_t chunk_bytes;
    uint64_t available, shm_free;
    bool swap, io_uring, vector_kernels, scratch, limited; /* limited: by a cgroup */
    bool freed_pages; /* large lists of freed pages, and a virtual machine */
};

struct estimate {
    double share;                     /* of the experts resident, 0 to 1 */
    double missing;                   /* share of the accesses of decode that are read */
    double compute_s, read_s, wait_s; /* per token of decode */
    double decode_tps, prefill_tps;   /* tokens per second; 0: unknown */
};

/* Number of reads in flight when `experts` experts of a layer are missing. */
double estimate_depth(const struct model_facts *m, const struct host_facts *a, double experts);

/* Read bandwidth for the missing experts of a layer in decode; 0: unknown. */
double estimate_read_rate(const struct model_facts *m, const struct host_facts *a, double share);

/* Bytes of weights that one token of decode touches. */
double estimate_token_bytes(const struct model_facts *m);

struct estimate estimate_make(const struct model_facts *m, const struct host_facts *a,
                              double share);

/* The recommended budget: the one with all experts resident if it is at most 4/5 of the available
 * memory, else that of the largest share (75, 50, 25 %) that is, else the minimum budget; 0 if that
 * is not available. */
uint64_t estimate_budget(const struct model_facts *m, const struct host_facts *a, double *share);

/* ---- advice ---- */

enum advice {
#define ADVICE(NAME, text) ADVICE_##NAME,
#include "procs/tools/doctor/advice.tbl.h"
    ADVICE__COUNT
};

/* A bit per advice that applies. */
uint32_t advise(const struct model_facts *m, const struct host_facts *a);

const char *advice_name(enum advice advice);
const char *advice_text(enum advice advice);

#endif
