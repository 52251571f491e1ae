/* sluice pack, inside: the job, its workers, its journal. One struct pack per process; the workers
 * share it, and what they change in it is atomic or under its lock. */
#ifndef SLUICE_TOOLS_PACK_PACK_H
#define SLUICE_TOOLS_PACK_PACK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "lib/model/limits.h"
#include "lib/model/store/write.h"
#include "lib/tensor/tier.h"
#include "procs/tools/pack/source.h"

#define PACK_THREADS_MAX  64
#define PACK_JOURNAL_FILE "pack.journal"
#define PACK_FILES_MAX    (2 * MODEL_STRIPES_MAX)

struct pack_options {
    const char *model, *dir;
    bool tier_wanted[TIER__COUNT];
    bool hqq;            /* method of int4 and int2 */
    enum tier dense;     /* of dense matrices; channel-wise */
    const char *stripes; /* "PATH,PATH", or NULL */
    const char *mirrors; /* likewise: a second copy of each stripe */
    enum store_layout layout;
    unsigned threads;     /* 0: by the machine */
    uint64_t bytes_per_s; /* read and written together; 0: no limit */
    bool verify, quiet, json, check;
};

/* What workers measure. Times are of all of them together. */
struct pack_meters {
    _Atomic uint64_t bytes_read, bytes_written;
    _Atomic uint64_t drive_ns;     /* in read and write calls */
    _Atomic uint64_t quantiser_ns; /* everything else: converting, quantising, checksums */
    _Atomic uint32_t experts_done; /* this run and before */
};

struct pack {
    struct pack_options options;
    char dir[MODEL_PATH_BYTES]; /* absolute */
    int dir_fd;
    struct source source;
    struct store_manifest manifest;
    char *file_path[PACK_FILES_MAX]; /* absolute: the stripes, then their mirrors in order */
    uint32_t file_count;             /* once or twice as many as stripes */
    void *table;
    uint32_t expert_count; /* layers * experts: units of work and of the journal */
    bool *done;            /* by unit */
    uint32_t resumed;      /* units that were there */

    int journal_fd;
    uint64_t journal_bytes; /* of whole records */
    bool model_there;       /* model.gguf was written by a run before, and is right */

    struct pack_meters meters;
    uint64_t started_ns;
    pthread_mutex_t lock; /* journal, pending, failure */
    uint32_t *pending;    /* units written and not yet in the journal */
    uint32_t pending_count;
    uint64_t pending_bytes, journal_ns; /* since the last sync, and when that was */
    struct error failure;               /* the first; code ERR_NONE while there is none */
    _Atomic bool stop;
    _Atomic uint32_t next_unit, workers;
};

/* ---- plan.c: what will be written ---- */

/* Tiers, types, stripes, offsets, and whether there is room for it. */
int pack_plan(struct pack *p, struct error *error);
/* The paths of the stripe files and of their mirrors, from --stripes and --mirrors. */
int pack_stripe_paths(struct pack *p, struct error *error);
/* Bytes still to be written fit on their file systems. */
int pack_room(const struct pack *p, struct error *error);

/* ---- journal.c: what was written ---- */

/* Opens or begins the journal and takes its lock: what belongs to another model or to other options
 * is refused. */
int journal_open(struct pack *p, struct error *error);
/* After the model and the stripes' heads are there: reads back every unit the journal knows, and
 * marks those that are right as done. */
int journal_resume(struct pack *p, struct error *error);
/* A unit is written: it enters the journal when its bytes are on the drive. */
int journal_unit(struct pack *p, uint32_t unit, uint64_t bytes, struct error *error);
/* Everything pending. */
int journal_flush(struct pack *p, struct error *error);
/* Reads everything back and compares it with the table. */
int journal_verify(const struct pack *p, struct error *error);
/* model.gguf is there, with the manifest's model_hash. */
int journal_model(struct pack *p, struct error *error);
void journal_remove(struct pack *p);

/* ---- model.c ---- */

/* Writes model.gguf (keys and dense tensors) and sets model_hash. */
int pack_model(struct pack *p, struct error *error);

/* ---- dense.c ---- */

/* The type a dense tensor has in the store. */
uint32_t dense_type(const struct pack *p, uint32_t tensor);
/* Hands its bytes as that type to `sink`, in order. */
int dense_write(const struct pack *p, uint32_t tensor, source_sink *sink, void *arg,
                struct error *error);

/* ---- workers.c ---- */

/* Creates the stripes with their heads. */
int pack_stripes(struct pack *p, struct error *error);
/* Writes all units that are not done, with a progress line. */
int pack_experts(struct pack *p, struct error *error);

/* ---- quantise.c ---- */

/* How a tier of this method is made: its type for rows of a matrix of this type (native: the same).
 * 0, or -1 when rows of k elements cannot be stored so. */
int quantise_type(enum tier tier, bool hqq, uint32_t from, uint32_t k, uint32_t *type,
                  enum store_method *method, struct error *error);
/* n rows of F32, k elements each, to rows of `type`. ERR_BAD_INPUT for weights that cannot be. */
int quantise_rows(uint32_t type, const float *src, uint32_t k, uint32_t n, void *dst,
                  struct error *error);
/* n rows of any type as F32. */
void quantise_load(uint32_t type, const void *src, uint64_t row_bytes, uint32_t k, uint32_t n,
                   float *dst);

/* ---- progress.c ---- */

struct progress {
    struct pack *pack;
    bool terminal, shown;
    uint64_t next_ns;
};

void progress_begin(struct progress *g, struct pack *p);
/* Shows a line when it is time. */
void progress_tick(struct progress *g);
void progress_end(struct progress *g);
/* "drive" or "quantiser": what the threads spent most of their time with. */
const char *pack_bound(const struct pack *p);

/* ---- check.c ---- */

/* Verifies every checksum of a store; parts that are wrong are listed on stdout. ERR_BAD_INPUT when
 * there are any. */
int check_store(const struct pack_options *options, struct error *error);

#endif
