/* SPDX-License-Identifier: Apache-2.0 */
/* sluice profile: state and functions shared by its stages. */
#ifndef SLUICE_TOOLS_PROFILE_PROFILE_H
#define SLUICE_TOOLS_PROFILE_PROFILE_H

#include "lib/base/bytes.h"
#include "lib/offline/measure/evaluate.h"
#include "lib/plan/plan.h"

#define PROFILE_TEXTS_MAX 64

struct profile {
    /* options */
    const char *model_path, *out_path;
    const char *text_path[PROFILE_TEXTS_MAX];
    size_t texts;
    int64_t window, tokens_max, importance_tokens, importance_seconds, importance_experts;
    int64_t importance_group; /* 0: not given */
    int64_t threads, pair_mib;
    uint64_t budget;
    bool json, synthetic;

    struct offline_model *model;
    struct offline_text text;
    struct plan *plan;
    uint64_t progress_ns; /* time of the last progress line */
};

static inline uint64_t profile_at(const struct profile *p, uint32_t layer, uint32_t expert)
{
    return (uint64_t)layer * p->plan->experts + expert;
}

/* Whether the model has the expert at that place. */
static inline bool profile_has(const struct profile *p, uint64_t at)
{
    return model_layer_has_experts(offline_index(p->model), (uint32_t)(at / p->plan->experts));
}

/* How many experts it has. */
static inline uint64_t profile_experts(const struct profile *p)
{
    return (uint64_t)hparams_expert_layers(&offline_index(p->model)->hparams) * p->plan->experts;
}

/* Writes the profile so far; a later run resumes from it. */
int profile_save(struct profile *p, struct error *error);

/* Prints a progress line to stderr, at most one every 2 s; `of` measurements of the same work. */
void profile_progress(struct profile *p, const char *what, const struct offline_progress *progress);
/* Prints the progress of equal steps, of which this run began with `first` at the time
 * started_ns. */
void profile_steps(struct profile *p, const char *what, uint64_t started_ns, uint64_t first,
                   uint64_t done, uint64_t of);
/* Before a stage begins: what it reads. */
void profile_announce(const struct profile *p, const char *what,
                      const struct offline_estimate *estimate);

/* Each fills its part of p->plan, or returns if an earlier run did. */
int profile_statistics(struct profile *p, struct error *error);
int profile_norms(struct profile *p, struct error *error);
int profile_importance(struct profile *p, struct error *error);
int profile_timings(struct profile *p, struct error *error);
int profile_storage(struct profile *p, struct error *error);

#endif
