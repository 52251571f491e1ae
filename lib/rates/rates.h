/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the measured rates of this machine in $XDG_CACHE_HOME/sluice/rates.json, else below
 * ~/.cache. The file is written under a temporary name and renamed. It is untrusted when it is
 * read: wrong values cost time, and change no text.
 *
 * A CPU's rates hold for its name (tunings_cpu), the number of threads, and the experts and kernels
 * that were measured (rates_key). A GPU's rates hold for its number, its name and the interface of
 * the module. */
#ifndef SLUICE_RATES_RATES_H
#define SLUICE_RATES_RATES_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/index/model_index.h"
#include "lib/policy/gpu/cost.h"
#include "lib/tensor/kv_type.h"

#define RATES_BYTES_MAX  65536 /* of a file */
#define RATES_CPUS_MAX   16    /* the oldest one goes first */
#define RATES_GPUS_MAX   16
#define RATES_NAME_BYTES 128
#define RATES_TYPE_BYTES 64

/* Bytes per second; 0: unknown. */
struct rates_machine {
    double memory;     /* read from memory by all threads, of an amount as large as the weights */
    double storage;    /* read from the model's storage */
    double arithmetic; /* weights times the rows that they are multiplied with, in a prompt */
};

struct rates_cpu {
    char name[RATES_NAME_BYTES];
    uint32_t threads;
    char type[RATES_TYPE_BYTES]; /* rates_key */
    struct cost_cpu rate;
    struct rates_machine machine;
};

struct rates_gpu {
    char name[RATES_NAME_BYTES];
    uint32_t number, interface;
    struct cost_gpu rate;
};

struct rates {
    uint32_t cpus, gpus;
    struct rates_cpu cpu[RATES_CPUS_MAX];
    struct rates_gpu gpu[RATES_GPUS_MAX];
};

/* ---- record.c ---- */

/* The bytes of a file. 0, or -1 with ERR_BAD_INPUT: every value is checked, and rates are known. */
int rates_parse(const char *text, size_t bytes, struct rates *r, struct error *error);
/* The text of a file, for free(). NULL with ERR_BAD_INPUT (a value that rates_parse rejects) or
 * ERR_NO_MEMORY. */
char *rates_format(const struct rates *r, struct error *error);

/* Replaces those of the same CPU or GPU, or the oldest ones if there are too many. */
void rates_set_cpu(struct rates *r, const struct rates_cpu *cpu);
void rates_set_gpu(struct rates *r, const struct rates_gpu *gpu);
/* NULL: not measured. Only the names that identify are read. */
const struct rates_cpu *rates_find_cpu(const struct rates *r, const struct rates_cpu *cpu);
const struct cost_gpu *rates_find_gpu(const struct rates *r, const struct rates_gpu *gpu);

/* ---- file.c ---- */

/* Without a file there are none. 0, or -1 with ERR_IO or ERR_BAD_INPUT and no rates. */
int rates_read(struct rates *r, struct error *error);
/* Replaces the file. 0, or -1 with *error. */
int rates_write(const struct rates *r, struct error *error);

/* ---- model.c ---- */

/* A model's bytes, and the hits of its experts. For rates_model_free. */
struct rates_model {
    struct cost_model cost;
    struct cost_layer *layer;
    double *hits;
};

/* context, ring: positions whose keys and values an operation reads: half of the context is
 * assumed, of a window its positions (ring 0) or those of a ring, and where an indexer chooses
 * positions these and all of its keys. hits: `experts` + 1 values (lib/sim/routing.h), copied. -1
 * with ERR_NO_MEMORY. */
int rates_model(const struct model_index *m, enum kv_type type, uint32_t context, uint32_t ring,
                const double *hits, struct rates_model *out, struct error *error);
void rates_model_free(struct rates_model *r);

/* Makes the key that a CPU's rates depend on: type and shape of the experts, and the instruction
 * set (--isa). */
void rates_key(const struct model_index *m, const char *isa, char key[RATES_TYPE_BYTES]);

/* ---- bound.c ---- */

/* What a pass cannot do without, however well it is computed. */
struct rates_pass {
    double memory_bytes;  /* dense weights, experts, keys and values: each once */
    double storage_bytes; /* of experts that were missing */
    double row_bytes;     /* weights times the rows that they are multiplied with */
};

struct rates_bound {
    double memory_s, storage_s, arithmetic_s;
    double pass_s;     /* the longest of these; 0: nothing is known */
    const char *limit; /* which one it is; "unknown" */
};

/* Reading memory, reading storage and computing may all overlap: the longest of them is the least
 * time of the pass. What is unknown does not count. Pure. */
struct rates_bound rates_bound(const struct rates_machine *m, const struct rates_pass *pass);

/* Means of passes. */
struct rates_counts {
    double rows;        /* tokens of all sequences */
    double experts;     /* of all layers, each once */
    double expert_rows; /* rows that they were computed for */
    double bytes_read;  /* from storage */
};

/* The bytes of a pass: dense weights once, the output for all rows, and the keys and values of each
 * row. Pure. */
struct rates_pass rates_pass_of(const struct cost_model *m, const struct rates_counts *n);

#endif
