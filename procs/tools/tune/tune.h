/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tune: what its files share.
 *
 * Files in the cache directory of the model (lib/tunings): `tune.lock`, held by the program and its stages;
 * `job-KEY.json`, measured rates and the sizes chosen from them; `profile-KEY`; `plan-KEY-LOSS`. KEY is a hash of the
 * calibration text and of the options that change the profile. Whatever exists under its final name is complete, but for the
 * profile, which `sluice profile` continues. */
#ifndef SLUICE_TOOLS_TUNE_H
#define SLUICE_TOOLS_TUNE_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "lib/base/error.h"
#include "lib/tunings/tunings.h"

#define TUNE_TEXTS_MAX   32
#define TUNE_WINDOWS_MIN 8 /* of calibration text */

/* Measured once per job, and the sizes chosen from it: an interrupted tuning uses the same. */
struct job {
    double fixed_s;            /* of a pass over text: reading, quantising */
    double token_s;            /* and per token */
    double read_bytes_per_s;   /* of the model */
    double encode_bytes_per_s; /* of an expert at int2, in its own bytes */
    double expert_bytes;       /* of the model */
    double profile_tokens, plan_tokens, importance_tokens, importance_experts;
    double groups; /* of experts, measured together */
};

struct stage_times { /* expected seconds */
    double profile, plan, pack, confirm;
};

struct tune {
    const char *model_path;
    char model[PATH_MAX]; /* absolute */
    struct stat model_stat;
    const char *text[TUNE_TEXTS_MAX];
    size_t texts;
    const char *store_dir;
    uint64_t budget, memory, store_limit;
    double max_loss;
    int64_t minutes, tokens, window;
    bool yes, json;

    uint8_t hash[TUNINGS_HASH_BYTES];
    char directory[PATH_MAX], programs[PATH_MAX];
    char job_path[PATH_MAX + 64], profile[PATH_MAX + 64], plan[PATH_MAX + 64], store[PATH_MAX];
    int lock_fd;
    struct job job;
    struct stage_times left;
    struct tuning result;
};

/* A signal that ends the program has arrived (SIGINT, SIGTERM, SIGHUP). */
extern volatile sig_atomic_t tune_stop;

/* calibration.c: the text shipped with sluice, if no --text is given; 0, or -1. */
int calibration_find(struct tune *t, struct error *error);
/* A hash of the texts' bytes and of the options that change the profile. */
int calibration_key(const struct tune *t, uint64_t *key, struct error *error);

/* probe.c: measures the machine with this model and text. */
int probe_run(struct tune *t, struct error *error);

/* job.c: sizes that fit into t->minutes; the file of a job. */
void job_choose(struct tune *t, uint64_t tokens);
void job_times(const struct tune *t, struct stage_times *times);
bool job_read(struct tune *t); /* false: there is none, or it is damaged */
int job_write(const struct tune *t, struct error *error);

/* run.c: runs sluice-NAME with these arguments, and waits. out: its stdout, NUL-terminated, the caller frees; NULL: stdout
 * goes to stderr. *status: the exit status. -1 with ERR_CANCELLED after a signal, or ERR_FAILED. */
int run_program(const struct tune *t, const char *name, const char *const argv[], char **out,
                int *status, struct error *error);

/* ERR_MODEL_CHANGED when the file is not the one that was hashed. */
int model_unchanged(const struct tune *t, struct error *error);

/* stages.c, confirm.c. stage_plan: 1: a plan, 0: none keeps the loss. */
int stage_profile(struct tune *t, struct error *error);
bool plan_is_done(struct tune *t);
int stage_plan(struct tune *t, struct error *error);
int stage_pack(struct tune *t, struct error *error);
int stage_confirm(struct tune *t, bool has_plan, struct error *error);
uint64_t directory_bytes(const char *path);

#endif
