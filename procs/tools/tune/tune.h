/* SPDX-License-Identifier: Apache-2.0 */
/* All files of sluice tune share these declarations.
 *
 * Files in the cache directory of the model (lib/tunings):
 *
 *   job-KEY.json                       measured rates, and the sizes chosen from them
 *   profile-KEY-ID                     the profile
 *   plan-KEY-LOSS-ID                   the plan for a loss
 *   plan-KEY-LOSS-ID.no-SYSTEM         a system that cannot keep the loss
 *
 * KEY is a hash of the calibration text and of the options that change the profile. ID is the time
 * at which the sizes were chosen, so that files to which a record refers are not replaced. A file
 * that exists under its final name is complete, except the profile, which `sluice profile`
 * continues. */
#ifndef SLUICE_TOOLS_TUNE_H
#define SLUICE_TOOLS_TUNE_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "lib/base/error.h"
#include "lib/model/limits.h"
#include "lib/plan/plan.h"
#include "lib/tunings/tunings.h"

#define TUNE_TEXTS_MAX   32
#define TUNE_WHY_BYTES   128
#define TUNE_CANDIDATES  16 /* presets of planned systems, at most */
#define TUNE_WINDOWS_MIN 8  /* of calibration text */
#define TUNE_WINDOW_MIN  16
#define TUNE_CONFIRM_N   "64" /* tokens of the measured run */

struct machine {
    char cpu[TUNINGS_CPU_BYTES]; /* "": unknown */
    double sample_bytes_per_s;   /* of single reads of the model's device; 0: unknown */
};

/* Measured once per job, and the sizes chosen from it: an interrupted tuning uses the same. */
struct job {
    double fixed_s;            /* of a pass over text: reading, quantising */
    double token_s;            /* and per token */
    double late;               /* share of it of a pass that begins in the middle of the layers */
    double read_bytes_per_s;   /* of the model */
    double encode_bytes_per_s; /* of an expert at int2, in its own bytes */
    double expert_bytes;       /* of the model */
    double forms,
        forms_bytes; /* precisions of all experts that are stored for the measurements: bits of enum
                      * precision */
    double profile_tokens, plan_tokens, importance_tokens, importance_experts;
    double layer_experts, group; /* experts of a layer; those measured together */
    double groups;
    double text_tokens;  /* that there are */
    double plan_seconds; /* 0: as --minutes say; else what was left after the profile */
    double profile_id, plan_id;
    struct machine machine;
};

/* Systems that are planned; each has presets that its plan serves. */
enum tune_system {
#define TUNE_SYSTEM(id, ...) TUNE_##id,
#include "procs/tools/tune/systems.tbl.h"
    TUNE_SYSTEMS
};

struct system {
    bool planned;
    char why[TUNE_WHY_BYTES];          /* not planned, or not measured; "": it was measured */
    double loss_high;                  /* per cent */
    double predicted_per_s;            /* of its fastest preset; 0: no prediction */
    double tokens_per_s;               /* measured; 0: not measured */
    char preset[TUNINGS_PRESET_BYTES]; /* the fastest one */
    bool stored;                       /* the store is for it */
};

/* A preset of a planned system. */
struct candidate {
    enum tune_system system;
    const char *preset;
    double predicted_per_s;
};

struct stage_times { /* expected seconds */
    double forms, profile, plan, pack, confirm;
};

struct tune {
    const char *model_path;
    char model[PATH_MAX]; /* gguf_real_path: absolute, of the first part */
    uint32_t parts;       /* files of the model */
    struct stat part[MODEL_PARTS_MAX];
    uint64_t model_bytes; /* of all of them */
    const char *text[TUNE_TEXTS_MAX];
    size_t texts;
    const char *domain; /* the text that is used, of several; NULL: all */
    const char *store_dir;
    uint64_t budget, memory, store_limit;
    double max_loss;
    int64_t minutes, tokens, window;
    bool yes, json;
    bool quiet; /* of the program that is run: its stderr */

    uint8_t hash[TUNINGS_HASH_BYTES];
    char directory[PATH_MAX], programs[PATH_MAX];
    char measured[PATH_MAX]; /* what profile and plan read: model, or a store of forms.c */
    char job_path[PATH_MAX + 64], profile[PATH_MAX + 64], plan[PATH_MAX + 64], store[PATH_MAX];
    uint64_t key;
    struct tunings_lock lock;
    struct job job;
    struct stage_times left;
    uint64_t started_ns;
    bool no_time[TUNE_SYSTEMS]; /* for planning it */
    struct tuning result;
    struct system system[TUNE_SYSTEMS];
    struct candidate candidate[TUNE_CANDIDATES];
    uint32_t candidates;
};

/* A signal that ends the program has arrived (SIGINT, SIGTERM, SIGHUP). */
extern volatile sig_atomic_t tune_stop;

/* calibration.c: the text shipped with sluice, if no --text is given; of these the one that
 * --domain names. 0, or -1: ERR_NOT_FOUND, or ERR_BAD_INPUT if no text has the name. */
int calibration_find(struct tune *t, struct error *error);
/* The name of the text that --domain names, as a record has it; "": without --domain. */
void calibration_domain(const struct tune *t, char domain[TUNINGS_DOMAIN_BYTES]);
/* A hash of the texts' bytes and of the options that change the profile. */
int calibration_key(const struct tune *t, uint64_t *key, struct error *error);

/* probe.c: measures the machine with this model and text. */
int probe_run(struct tune *t, struct error *error);

/* machine.c: this machine; what differs, or NULL. */
void machine_look(const struct tune *t, struct machine *m);
const char *machine_difference(const struct machine *was, const struct machine *is);
/* The facts that `sluice run --print-memory` reports about an engine with this model or store,
 * t->budget, and the defaults of everything else, as a later start has them. */
struct engine_facts {
    uint64_t min_budget, experts, context; /* 0: unknown, since it cannot start */
    double share;                          /* of the experts that fit */
};
/* -1: a signal. */
int engine_ask(struct tune *t, const char *model, bool with_budget, struct engine_facts *facts,
               struct error *error);
/* ERR_BUDGET_TOO_SMALL if t->budget is less than an engine of the model with a store may need. */
int budget_check(struct tune *t, struct error *error);
/* Whether an engine with the store that was made fits into t->budget: 1 or 0, and what it needs; -1
 * with *error. */
int store_fits(struct tune *t, uint64_t *minimum, struct error *error);

/* The part of t->memory that a program may use which tune starts: tune has some of its own
 * meanwhile. */
uint64_t memory_of_child(const struct tune *t);

/* job.c: sizes that fit into t->minutes; the file of a job. */
void job_choose(struct tune *t, uint64_t tokens);
/* Whether so many tokens of text, as far as a job uses them, have the windows that a plan needs. */
bool job_has_windows(const struct tune *t, uint64_t tokens);
/* Keeps the sizes of the profile as they were, because the profile is kept. */
void job_keep_profile(struct job *j, const struct job *was);
void job_times(const struct tune *t, struct stage_times *times);
/* Whether there is time to plan this system after those before it. */
bool job_plans(const struct tune *t, enum tune_system system);
/* Seconds for importance, however long the measurements take. */
double job_importance_s(const struct tune *t);
/* The profile, which measured so many experts alone, took `took` seconds, and `left` are left: the
 * rates and the size of the plan follow. False: about as expected, nothing changed. */
bool job_replan(struct tune *t, double alone, double took, double left);
/* Whether `next` can be planned in `left` seconds, as long as `was`, which took `took` seconds,
 * suggests. */
bool job_has_time(const struct tune *t, enum tune_system next, enum tune_system was, double took,
                  double left);
/* Seconds, at the minimum, in which swapmoe is planned for one budget with as much text. */
double job_swapmoe_s(const struct tune *t);
enum job_state { JOB_NONE, JOB_DAMAGED, JOB_GOOD };
enum job_state job_read(struct tune *t);
int job_write(const struct tune *t, struct error *error);

/* run.c: runs sluice-NAME with these arguments, and waits. out: its stdout, NUL-terminated, the
 * caller frees; NULL: stdout goes to stderr. *status: the exit status. -1 with ERR_CANCELLED after
 * a signal, or ERR_FAILED. */
int run_program(const struct tune *t, const char *name, const char *const argv[], char **out,
                int *status, struct error *error);

/* model.c: finds the files of t->model_path. ERR_BAD_INPUT also for more than a delta can have. */
int model_take(struct tune *t, struct error *error);
/* The path of a part, from 0; the largest one. */
void model_part(const struct tune *t, uint32_t part, char path[PATH_MAX]);
uint32_t model_largest_part(const struct tune *t);
/* ERR_MODEL_CHANGED when a file is not the one that was hashed. */
int model_unchanged(const struct tune *t, struct error *error);

/* Arguments of a program. */
#define ARGUMENTS_MAX (2 * TUNE_TEXTS_MAX + 40)
struct arguments {
    const char *at[ARGUMENTS_MAX];
    size_t count;
    char value[8][32];
    size_t values;
};
/* stages.c */
void arguments_add(struct arguments *a, const char *option, const char *value);
void arguments_add_number(struct arguments *a, const char *option, double value);
void arguments_add_texts(struct arguments *a, const struct tune *t);

/* stages.c: states the time of a step; runs its program, whose messages go to stderr; silent: what
 * it writes to stdout is dropped. The exit status, 0 or `allowed`; any other is an error. */
void stage_begin(struct tune *t, int number, const char *what, double *seconds);
int stage_run(struct tune *t, const char *name, const char *const argv[], bool silent, int allowed,
              struct error *error);

/* stages.c */
/* The rest of --minutes, counted from the start of this program. */
double seconds_left(const struct tune *t);
int stage_profile(struct tune *t, struct error *error);
/* Removes the files of earlier profiles of this key. */
void profile_forget(const struct tune *t);
/* A damaged profile or plan is made again. */
void forget_damaged(const char *what, const char *path);

struct offline_model;
/* forms.c: bytes of a stored expert; 0: not smaller than in the model, and not stored. */
uint64_t form_bytes(const struct offline_model *m, uint32_t layer, enum precision x);
/* Whether measurements need a store: t->job.forms. */
void forms_choose(struct tune *t, const struct offline_model *m);
/* Makes it, if there is space: t->measured; forms_drop removes it. */
int stage_forms(struct tune *t, struct error *error);
void forms_drop(struct tune *t);

/* systems.c */
const char *system_name(enum tune_system system);
/* The system of a candidate of auto; TUNE_SYSTEMS: it belongs to none that is planned here. */
enum tune_system system_of(uint32_t candidate);
/* The lower precisions that its plan uses, or its store has: bits of enum precision. The plan has
 * it (system_planned). */
uint32_t system_precisions(const struct plan *plan, enum tune_system system);
/* Its plan has one precision for each expert. */
bool system_per_expert(enum tune_system system);
/* Its plan changes edgemoe's precisions, or its store has them. */
bool system_begins_with_edgemoe(enum tune_system system);
/* Whether the plan has it, with a loss of at most max_loss (per cent); its loss, per cent; whether
 * its speed is predicted. */
bool system_planned(const struct plan *plan, enum tune_system system, double max_loss);
double system_loss(const struct plan *plan, enum tune_system system);
bool system_predicted(const struct plan *plan, enum tune_system system);

/* plans.c: t->system as the files of earlier runs say; whether every system was planned or tried,
 * and the speeds predicted. */
bool plans_are_done(struct tune *t);
int stage_plan(struct tune *t, struct error *error);

/* choose.c: which presets are measured, of systems whose speed is predicted to be near that of the
 * best; marks what is stored. */
int stage_choose(struct tune *t, struct error *error);
/* Leaves out the stored system that is predicted to be slowest. False: there is one. */
bool choose_fewer(struct tune *t);
/* The precisions that the store of the chosen systems has of every expert: bits of enum precision;
 * 0: one precision per expert, as edgemoe's plan has them. */
uint32_t choose_precisions(const struct tune *t, const struct plan *plan);

/* report.c: the result. */
int report_result(const struct tune *t, struct error *error);

/* confirm.c: the candidates of stored systems, and the lossless engine. */
int stage_confirm(struct tune *t, struct error *error);
/* store.c: the path of a store of this model with that hash. */
int store_name(const struct tune *t, uint64_t hash, char out[PATH_MAX], struct error *error);
/* Whether there is space for the smallest store of this model. */
int store_space_begin(const struct tune *t, struct error *error);
/* Whether there is space for a store of `whole` bytes, within --store-limit, too. */
int store_space(const struct tune *t, const char *store, uint64_t whole, struct error *error);
/* A store that an earlier run finished, if an engine opens it: 1, else 0. One that it rejects is
 * removed. */
int store_find(const struct tune *t, const char *store, struct error *error);
/* "int4,int2"; "" for none. */
void precisions_list(uint32_t precisions, char *out, size_t bytes);
int stage_pack(struct tune *t, struct error *error);
void report_line(void *arg, const char *line); /* a tunings_say: to stderr */
uint64_t directory_bytes(const char *path);

#endif
