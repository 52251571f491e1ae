/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates the speed of a model on this machine: the simulator (lib/sim) replays a synthetic
 * routing with the engine's policies and what was measured here; docs/doctor.md gives what is
 * counted and its error. Pure, so that it can be unit tested. */
#ifndef SLUICE_TOOLS_DOCTOR_ESTIMATE_H
#define SLUICE_TOOLS_DOCTOR_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/policy/gpu/cost.h"
#include "lib/policy/residency/residency.h"

#define ESTIMATE_DEPTHS 5 /* 1, 2, 4, 8, 16 reads in flight */
#define ESTIMATE_SHARES 4 /* 25, 50, 75 and 100 % of the experts resident */

struct model_facts {
    uint64_t layers, experts_used;
    uint64_t expert_layers, expert_count; /* layers that have experts, and experts of all of them */
    uint64_t table_layers;     /* first layers in which a table names the experts of a token */
    uint64_t dense_read_bytes; /* per token */
    uint64_t expert_bytes;     /* all experts */
    const uint64_t *layer_expert_bytes; /* [layers]: of one expert, 0: the layer has none; borrowed;
                                           NULL: all alike */
    uint64_t min_budget;                /* budgets are those of the ledger */
    uint64_t budget_25, budget_50, budget_75, budget_100;
};

struct host_facts {
    double decode_s, prefill_s; /* per token, everything resident; 0: unknown */
    double experts_s, output_s; /* of decode_s: all experts, and logits */
    double context_s;           /* in addition to decode_s, with the whole context; see model.c */
    uint64_t context_measured;  /* tokens of context that it was measured with; 0: unknown */
    bool spare_cpu;             /* more CPUs than threads of compute */
    uint64_t chunk_tokens;      /* tokens per pass of prefill */
    double stream_bytes_per_s;  /* memory, all threads */
    double read_bytes_per_s[ESTIMATE_DEPTHS]; /* all devices together, reads of chunk_bytes */
    uint64_t chunk_bytes;
    double slowdown, busy_bytes_per_s; /* while the devices are read: doctor.h */
    uint64_t available, shm_free;
    bool swap, io_uring, vector_kernels, scratch, limited; /* limited: by a cgroup */
    bool freed_pages; /* large lists of freed pages, and a virtual machine */
};

struct estimate {
    double share;                     /* of the experts resident, 0 to 1 */
    double missing;                   /* bytes read in decode, of those of all accesses */
    double reads, read_bytes, read_s; /* per token of decode; the device alone takes read_s */
    /* Per token of decode: computing; waiting for experts; work of other processes on CPUs that
     * compute. */
    double compute_s, stall_s, load_s;
    double decode_tps, prefill_tps; /* tokens per second; 0: unknown */
};

/* Layers on GPUs, and on the CPU. */
#define ESTIMATE_PARTS_MAX 17
struct gpu_facts {
    const struct cost_model *model; /* its policy: GPU_POLICY__COUNT is auto */
    struct cost_cpu cpu;
    struct cost_part part[ESTIMATE_PARTS_MAX]; /* all layers, those of the CPU last */
    uint32_t parts;
    uint64_t slots; /* of all */
    enum eviction eviction;
};

struct gpu_estimate {
    struct estimate with;   /* stall_s: waiting for storage and copies */
    double copy_s;          /* of it, for copies to the GPU alone */
    double hits;            /* of the uses of experts, 0 to 1 */
    enum gpu_policy policy; /* the given one; auto: the fastest */
};

/* Read bandwidth with that many bytes requested at a time; 0: unknown. */
double estimate_read_rate(const struct host_facts *a, double bytes);

/* Bytes of weights that one token of decode touches. */
double estimate_token_bytes(const struct model_facts *m);

/* Takes about a second for a large model. -1 with ERR_NO_MEMORY. */
int estimate_make(const struct model_facts *m, const struct host_facts *a,
                  struct estimate out[ESTIMATE_SHARES], struct error *error);

/* The bytes that the CPU reads per second, as measured with the model; 0: unknown. */
struct cost_cpu estimate_cpu(const struct model_facts *m, const struct host_facts *a);

/* estimate_make with GPUs, whose layers take the times of cost.h. */
int estimate_gpu(const struct model_facts *m, const struct host_facts *a, const struct gpu_facts *g,
                 struct gpu_estimate out[ESTIMATE_SHARES], struct error *error);

/* The recommended budget: the one with all experts resident if it is at most 4/5 of the available
 * memory, else that of the largest share (75, 50, 25 %) that is, else the minimum budget; 0 if that
 * is not available. */
uint64_t estimate_budget(const struct model_facts *m, const struct host_facts *a, double *share);

/* Tokens per second of decode where each token takes context_s more. 0: unknown. */
double estimate_in_context(const struct host_facts *a, const struct estimate *one);

/* ---- several sequences ---- */

/* Experts of a layer that so many rows access, if each row chooses its own at random: of different
 * texts more are the same. */
double estimate_union(double experts, double used, uint32_t rows);

/* Tokens per second of all of so many sequences that decode together, from the estimate of one: by
 * the bound of a pass (lib/rates) with the rate that one row reaches, and with as many reads as
 * further experts need. 0: unknown. */
double estimate_together(const struct model_facts *m, const struct host_facts *a,
                         const struct estimate *one, uint32_t sequences);

/* ---- advice ---- */

enum advice {
#define ADVICE(NAME, text) ADVICE_##NAME,
#include "procs/tools/doctor/advice.tbl.h"
    ADVICE__COUNT
};

/* A bit per advice that applies. */
uint32_t advise(const struct model_facts *m, const struct host_facts *a,
                const struct estimate estimates[ESTIMATE_SHARES]);

const char *advice_name(enum advice advice);
const char *advice_text(enum advice advice);

#endif
