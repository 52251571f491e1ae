/* SPDX-License-Identifier: Apache-2.0 */
/* The tunings of models: which plan, store and preset serve a model within a loss and a budget, as
 * `sluice tune` measured it.
 *
 * $XDG_CACHE_HOME/sluice/HASH/tuning-LOSS-BUDGET-PATH.json, else below ~/.cache; HASH is
 * tunings_hash of the model file, PATH a hash of its path: the stores of two copies need the one
 * that they were made of. A record is written under a temporary name, synced and renamed; its time
 * of modification is its last use. Records are untrusted when they are read. */
#ifndef SLUICE_TUNINGS_TUNINGS_H
#define SLUICE_TUNINGS_TUNINGS_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/error.h"

#define TUNINGS_HASH_BYTES   16
#define TUNINGS_RECORD_BYTES 16384 /* maximum of a record */
#define TUNINGS_OF_A_MODEL                                                                         \
    32 /* maximum number of records; the one not used for longest goes first */
#define TUNINGS_MODELS_MAX   4096 /* directories that are listed */
#define TUNINGS_PRESET_BYTES 32
#define TUNINGS_CPU_BYTES    64
#define TUNINGS_DOMAIN_BYTES 256 /* of the name of a file */

struct tuning {
    char model[PATH_MAX]; /* absolute, as it was when it was tuned */
    uint64_t model_bytes;
    double max_loss; /* per cent, above 0, at most 100 */
    uint64_t budget; /* bytes; 0: the engine's default */
    char plan
        [PATH_MAX]; /* absolute; "": the lossless engine was fastest, or no plan keeps the loss */
    char store[PATH_MAX];              /* absolute; "" exactly if plan is */
    char preset[TUNINGS_PRESET_BYTES]; /* lower-case letters, digits, '-' */
    uint64_t store_bytes;
    double loss_high;            /* bound on held-out text, per cent; 0 without a plan */
    double tokens_per_s;         /* decode, measured with this tuning; 0: not measured */
    double lossless_per_s;       /* and without it */
    double read_bytes_per_s;     /* of the model's device; 0: not measured */
    char cpu[TUNINGS_CPU_BYTES]; /* tunings_cpu of the machine that measured; "": unknown */
    /* The only text that it was tuned for, in printable ASCII: the loss holds for such text; "":
     * for all domains of the calibration text. */
    char domain[TUNINGS_DOMAIN_BYTES];
    int64_t created, used; /* seconds since 1970; `used` is not part of the file */
};

/* A record in the bytes of a file. 0, or -1 with ERR_BAD_INPUT: every value is checked. */
int tuning_parse(const char *text, size_t bytes, struct tuning *t, struct error *error);
/* The text of a record, with a newline at its end. The caller frees it. NULL with ERR_BAD_INPUT (a
 * value that tuning_parse rejects) or ERR_NO_MEMORY. */
char *tuning_format(const struct tuning *t, struct error *error);

/* Identifies a model file: XXH3-128 of its size, its first MiB (the header, or its beginning) and
 * 32 samples of 64 KiB spread over the file, for each part of a split one. Reads some MiB. A
 * directory is ERR_BAD_INPUT. `path` of any part. */
int tunings_hash(const char *path, uint8_t hash[TUNINGS_HASH_BYTES], struct error *error);

/* The name of this machine's CPU, in printable ASCII; "": unknown. */
void tunings_cpu(char name[TUNINGS_CPU_BYTES]);

/* tunings_cpu from a file like /proc/cpuinfo. ARM has no names there: "ARM 0x41 0xd0b" is
 * implementer and part of the first CPU. */
void tunings_cpu_of(FILE *f, char name[TUNINGS_CPU_BYTES]);

/* The directory of a model's tunings, made if it is not there (warm_directory). */
int tunings_directory(const uint8_t hash[TUNINGS_HASH_BYTES], char path[PATH_MAX],
                      struct error *error);

/* Writes or replaces the record of t->model, t->max_loss and t->budget in that directory, and
 * removes one of these with a model that is gone; the record not used for longest is removed beyond
 * TUNINGS_OF_A_MODEL. -1 with ERR_IO, ERR_BAD_INPUT or ERR_NO_MEMORY. */
int tunings_write(const char *directory, const struct tuning *t, struct error *error);

/* A record that cannot be used is reported to `say` (may be NULL) with one line. */
typedef void tunings_say(void *arg, const char *line);

/* The tuning that serves this loss and budget: one of this file before one of a copy, the largest
 * loss that is not above max_loss, then the nearest budget of those from 3/4 to 4/3 of it (0 with 0
 * only). Its last use becomes now. 1: found, 0: none, -1 with *error: the file or the directory
 * cannot be read. A record whose plan or store is gone, or whose model is no longer where it was,
 * is not used. */
int tunings_find(const char *model, double max_loss, uint64_t budget, tunings_say *say, void *arg,
                 struct tuning *t, struct error *error);

/* All records, of all models. Calls visit with the model's hash in hex and the record's path. */
typedef void tunings_visit(void *arg, const char *hash, const char *path, const struct tuning *t);
int tunings_each(tunings_visit *visit, tunings_say *say, void *arg, struct error *error);

/* Visits the records in the directory of a model. False: there are, or may be, others that cannot
 * be read. */
typedef void tunings_record(void *arg, const char *path, const struct tuning *t);
bool tunings_of(const char *directory, tunings_record *visit, void *visit_arg, tunings_say *say,
                void *arg);

/* ---- stores ---- */

enum tuning_use {
    TUNING_STORE_UNUSED, /* by no record of the model */
    TUNING_STORE_USED,
    TUNING_STORE_UNKNOWN /* a record of the model cannot be read, and none of the others uses it */
};

/* A store is noted before anything of it exists, so that what an interrupted or replaced tuning
 * leaves is found. */
struct tuning_store {
    const char *hash; /* of the model, in hex */
    const char *path; /* MODEL.tuned-HASH */
    size_t files;     /* of the store that are there */
    uint64_t bytes;   /* of them */
    enum tuning_use use;
};

/* Whether the file of an absolute path is not there, although its directory is: a device that is
 * missing may come back. */
bool tunings_is_gone(const char *path);

/* -1 with ERR_IO, or ERR_BAD_INPUT: a path that is no name of a tuned store. */
int tunings_store_note(const char *directory, const char *store, struct error *error);

/* Visit the stores noted in the directory of a model, and of all models. */
typedef void tunings_store_visit(void *arg, const struct tuning_store *s);
void tunings_stores(const char *directory, tunings_store_visit *visit, void *arg);
int tunings_each_store(tunings_store_visit *visit, void *arg, struct error *error);

/* Removes the files of a store, and its note when none is left. *bytes: what was freed. -1: files
 * are left. */
int tunings_store_drop(const char *directory, const char *store, uint64_t *bytes);

/* Removes the stores of a model that no record uses, but `keep` (NULL: none); a line for each, and
 * for each that is kept since a record cannot be read. */
void tunings_prune(const char *directory, const char *keep, tunings_say *say, void *arg);

/* ---- lock ---- */

/* Held by a tuning of a model, and while its tunings are removed; it ends with its holder. The
 * programs that a tuning runs inherit the second descriptor. */
struct tunings_lock {
    int own, stages; /* -1: not held */
};
#define TUNINGS_UNLOCKED                                                                           \
    {                                                                                              \
        .own = -1, .stages = -1                                                                    \
    }

/* -1 with ERR_BUSY, at once if another process holds it, after 10 s if programs of a tuning that
 * was killed do not end; with ERR_CANCELLED when *stop (may be NULL) becomes true meanwhile; with
 * ERR_IO. */
int tunings_lock(const char *directory, const volatile sig_atomic_t *stop,
                 struct tunings_lock *lock, struct error *error);
void tunings_unlock(struct tunings_lock *lock);

/* ---- start of an engine ---- */

struct tuning_start {
    const char *command; /* for messages: "run" */
    const char *model;
    double max_loss;
    uint64_t budget;
    bool ask; /* standard input and standard error are a terminal, and a question may be put to the
              * user */
    tunings_say *say; /* lines for the user's log */
    void *arg;
};

/* Finds the tuning for a start with a loss above 0. Without one, and with `ask`, runs `sluice-tune`
 * of the directory of this program, which states the cost and asks; else reports which command
 * tunes. 1: *t is to be used; 0: serve losslessly; -1 with ERR_CANCELLED: interrupted. */
int tuning_offer(const struct tuning_start *start, struct tuning *t, struct error *error);

#endif
