/* What a model will do on this machine, as arithmetic over what was measured: an estimate, and
 * called one wherever it is shown. docs/doctor.md says how it is made and how far it was off. Pure,
 * so that tests reach it. */
#ifndef SLUICE_TOOLS_DOCTOR_ESTIMATE_H
#define SLUICE_TOOLS_DOCTOR_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#define ESTIMATE_DEPTHS 5 /* 1, 2, 4, 8, 16 reads at once */

struct model_facts {
    uint64_t layers, experts_used, expert_count;
    uint64_t dense_read_bytes; /* of a token */
    uint64_t expert_bytes;     /* all experts */
    uint64_t floor;            /* budgets: the ledger's */
    uint64_t budget_25, budget_50, budget_75, budget_100;
};

struct machine_facts {
    double kernel_bytes_per_s;                /* weights, all threads, one token */
    double layer_s;                           /* of a layer beside its weights */
    double read_bytes_per_s[ESTIMATE_DEPTHS]; /* all devices together, chunks of chunk_bytes */
    uint64_t chunk_bytes;
    uint64_t available, shm_free;
    bool swap, io_uring, vector_kernels, scratch, limited; /* limited: by a cgroup */
    bool freed_pages; /* many may be in lists without order, and the machine is virtual */
};

struct estimate {
    double share;   /* of the experts that are resident, 0 to 1 */
    double missing; /* of the uses */
    double compute_s, read_s;
    double low, high; /* tokens/s: one after the other; wholly overlapped */
};

/* Reads that are under way at once when so many experts of a layer are missing. */
double estimate_depth(const struct model_facts *m, const struct machine_facts *a, double experts);

struct estimate estimate_make(const struct model_facts *m, const struct machine_facts *a,
                              double share);

/* The budget that is worth giving: everything resident when that fits into four fifths of what is
 * available, else the largest known share that does, else the floor; 0 when even that does not fit.
 */
uint64_t estimate_budget(const struct model_facts *m, const struct machine_facts *a, double *share);

/* ---- advice ---- */

enum advice {
#define ADVICE(NAME, text) ADVICE_##NAME,
#include "procs/tools/doctor/advice.tbl.h"
    ADVICE__COUNT
};

/* Bit of every advice that applies. */
uint32_t advise(const struct model_facts *m, const struct machine_facts *a);

const char *advice_word(enum advice advice);
const char *advice_text(enum advice advice);

#endif
