/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of sluice pack: job, workers, journal. One struct pack per process, shared by the
 * workers; the fields that they change are atomic or protected by its lock. */
#ifndef SLUICE_TOOLS_PACK_PACK_H
#define SLUICE_TOOLS_PACK_PACK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "lib/model/limits.h"
#include "lib/model/store/write.h"
#include "lib/tensor/precision.h"
#include "procs/tools/pack/source.h"

#define PACK_THREADS_MAX 64
#define PACK_FILES_MAX   (2 * MODEL_STRIPES_MAX)

struct pack_options {
    const char *model, *dir;
    const char *url, *stage; /* of a store on a server, and --stage; NULL: none */
    const char *named;       /* what -o says: of a store that is staged, the URL */
    const char *staged;      /* a directory instead of the URL, of which the journal stays */
    const char *plan;        /* NULL: none */
    struct {
        bool precisions, method, dense; /* options that win over the plan */
    } given;
    bool precision_wanted[PRECISION__COUNT];
    enum quant_method method; /* of int4 and int2 */
    enum precision dense;     /* of dense matrices; channel-wise */
    const char *stripes;      /* "PATH,PATH", or NULL */
    const char *mirrors;      /* likewise: a second copy of each stripe */
    enum store_layout layout;
    uint32_t fp8_type;    /* of a source's FP8 weights */
    unsigned threads;     /* at most; 0: from the number of CPUs */
    uint64_t memory;      /* bytes of this program; UINT64_MAX: not known */
    uint64_t bytes_per_s; /* read and written together; 0: no limit */
    bool verify, quiet, json, check;
    bool delta;       /* native experts stay in the model file */
    bool widths_only; /* of a plan: the precisions of edgemoe */
};

/* Measured by the workers; times are sums over all of them. */
struct pack_meters {
    _Atomic uint64_t bytes_read, bytes_written;
    _Atomic uint64_t storage_ns;   /* in read and write calls */
    _Atomic uint64_t quantiser_ns; /* everything else: converting, quantising, checksums */
    _Atomic uint32_t experts_done; /* by this and previous runs */
};

struct pack {
    struct pack_options options;
    char dir[MODEL_PATH_BYTES]; /* absolute */
    int dir_fd;
    struct source source;
    struct store_manifest manifest;
    char *file_path[PACK_FILES_MAX]; /* absolute: the stripes, then their mirrors in order */
    uint32_t file_count;             /* stripe_count, twice that with mirrors */
    uint8_t *chosen; /* by layer, expert: the precision of options.plan; NULL: none */
    void *table;
    uint32_t expert_count; /* of all layers: units of work and of the journal */
    bool *done;            /* by unit */
    uint32_t resumed;      /* units done by previous runs */

    int journal_fd;
    uint64_t journal_bytes; /* of whole records */
    bool model_complete;    /* model.gguf was written by a previous run */

    struct pack_meters meters;
    uint64_t started_ns;
    pthread_mutex_t lock; /* journal, pending, failure */
    uint32_t *pending;    /* units written and not yet in the journal */
    uint32_t pending_count;
    uint64_t pending_bytes, journal_ns; /* bytes since the last sync; its time */
    struct error failure;               /* the first; code ERR_NONE: none */
    _Atomic bool stop;
    _Atomic uint32_t next_unit, workers;
};

/* ---- pack_main.c ---- */

/* Reduces options->threads, each of which takes `each` bytes, to what options->memory allows in
 * addition to what the program has taken. ERR_BUDGET_TOO_SMALL if it allows none. */
int pack_fit_threads(struct pack_options *options, uint64_t each, struct error *error);

/* ---- publish/publish.c: -o URL ---- */

/* Checks the URL, and sets options->dir to the stage. ERR_BAD_INPUT. */
int pack_check_url(struct pack_options *options, struct error *error);
/* Runs the command (argc, argv) again to make the store, if there is a model, and has the store
 * sent. The exit status of what failed and has printed why; -1: *error. */
int pack_publish(const struct pack_options *options, int argc, char **argv, struct error *error);

/* ---- confine.c ---- */

int pack_confine(const struct pack_options *o, struct error *error);

/* ---- planned.c ---- */

/* Takes precisions, method and dense precision from options.plan, except those that are given as
 * options. ERR_BAD_INPUT if it has no precisions of experts, or is of another model. */
int pack_take_plan(struct pack *p, struct error *error);

/* --delta: the path and hash of the model file, for the manifest. After pack_lay_out. */
int pack_base(struct pack *p, struct error *error);

/* ---- store_layout.c: layout of the store ---- */

/* Computes precisions, types, slot layouts and offsets. */
int pack_lay_out(struct pack *p, struct error *error);
/* The paths of the stripe files and of their mirrors, from --stripes and --mirrors. */
int pack_stripe_paths(struct pack *p, struct error *error);
/* Fails if the bytes still to be written exceed the free space of their file systems. */
int pack_check_space(const struct pack *p, struct error *error);

static inline uint32_t pack_layer(const struct pack *p, uint32_t unit)
{
    return hparams_expert_layer_at(&p->source.index->hparams, unit / p->manifest.experts);
}

/* ---- journal.c: record of the finished units ---- */

/* Opens or creates the journal and locks it. Rejects a journal of another model or other options
 * (ERR_BAD_INPUT), and a second pack (ERR_BUSY). */
int journal_open(struct pack *p, struct error *error);
/* Call after pack_model and pack_stripes: reads back all units in the journal and marks the intact
 * ones as done. */
int journal_resume(struct pack *p, struct error *error);
/* A unit was written: its record is added to the journal after the next sync. */
int journal_unit(struct pack *p, uint32_t unit, uint64_t bytes, struct error *error);
/* Syncs and records all pending units. */
int journal_flush(struct pack *p, struct error *error);
/* Reads all units back and compares them with the checksums in the table. */
int journal_verify(const struct pack *p, struct error *error);
/* Records that model.gguf is complete and has the manifest's model_hash. */
int journal_model(struct pack *p, struct error *error);
void journal_remove(struct pack *p);

/* ---- model.c ---- */

/* Writes model.gguf (keys and dense tensors) and sets model_hash. */
int pack_model(struct pack *p, struct error *error);

/* ---- dense.c ---- */

/* The type of a dense tensor in the store. */
uint32_t dense_type(const struct pack *p, uint32_t tensor);
/* Passes its bytes in that type to `sink`, in order. */
int dense_write(const struct pack *p, uint32_t tensor, source_sink *sink, void *arg,
                struct error *error);

/* ---- workers.c ---- */

/* Creates the stripes with their header pages and allocates their space. */
int pack_stripes(struct pack *p, struct error *error);
/* Writes all units that are not done, with a progress line. */
/* The workers that fit in options.memory. Before the first of the following. */
int pack_fit_workers(struct pack *p, struct error *error);
int pack_experts(struct pack *p, struct error *error);

/* ---- quantise.c ---- */

/* Type and method of a precision for rows of a matrix of type `from` (native: the same type). -1 if
 * rows of k elements cannot be stored in it. */
int quantise_type(enum precision precision, enum quant_method wanted, uint32_t from, uint32_t k,
                  uint32_t *type, enum quant_method *method, struct error *error);
/* Quantises n rows of k F32 elements to rows of `type`. ERR_BAD_INPUT for weights that are not
 * finite or too large. */
int quantise_rows(uint32_t type, const float *src, uint32_t k, uint32_t n, void *dst,
                  struct error *error);
/* Converts n rows of any type to F32. */
void quantise_load(uint32_t type, const void *src, uint64_t row_bytes, uint32_t k, uint32_t n,
                   float *dst);

/* ---- progress.c ---- */

struct progress {
    struct pack *pack;
    bool terminal, shown;
    uint64_t next_ns;
};

void progress_start(struct progress *g, struct pack *p);
/* Waits 50 ms and prints a line when one is due. */
void progress_tick(struct progress *g);
void progress_end(struct progress *g);
/* "device" or "quantiser": where the threads spent most of their time. */
const char *pack_bound(const struct pack *p);

/* ---- check.c ---- */

/* Verifies all checksums of a store and lists damaged parts on stdout; ERR_BAD_INPUT if there are
 * any. */
int check_store(struct pack_options *options, struct error *error);

#endif
