/* sluice plan: what the files of this program share. */
#ifndef SLUICE_TOOLS_PLAN_PLANNING_H
#define SLUICE_TOOLS_PLAN_PLANNING_H

#include <jansson.h>

#include "lib/base/bytes.h"
#include "lib/offline/measure/serving.h"
#include "procs/tools/plan/shares.h"

#define PLANNING_TEXTS_MAX 64

struct planning {
    /* options */
    const char *model_path, *profile_path, *out_path, *preset;
    const char *trace_path; /* what hobbit's eviction is fitted on; NULL: the text's routing */
    const char *text_path[PLANNING_TEXTS_MAX];
    size_t texts;
    uint64_t budget_bytes;  /* 0: none given */
    double experts_percent; /* 0: none given */
    double max_loss;        /* 0.01: one per cent */
    double margin;          /* share of max_loss that is kept back */
    int64_t window, tokens_max, threads, configurations, generations, seed;
    bool json, curve;
    struct shares shares; /* --shares, with `forced` */
    bool forced;
    bool curve_only;    /* hobbit: nothing is planned */
    bool eviction_only; /* hobbit: the thresholds are planned already */
    bool plain;         /* nothing is measured against the lossless model: --shares, auto */

    struct offline_model *model;
    struct offline_text text, some; /* all of it; a quarter of the windows, for searches */
    struct plan *plan;              /* the profile, growing into the plan */
    struct offline_losses native, native_some;
    uint64_t native_bytes; /* payload of all experts */
    uint64_t progress_ns;
    json_t *report; /* what goes to stdout as JSON; as text it is printed as found */
};

/* A measurement against the lossless model over `text` (one of the two). */
struct measured {
    struct offline_interval loss;
    struct serving_report report;
};
struct offline_evaluation planning_evaluation(struct planning *p, const struct offline_text *text);
int planning_measure(struct planning *p, const struct offline_text *text, const struct serving *s,
                     struct measured *out, struct error *error);

/* A line for a person on stdout (text) or stderr (json). */
void planning_note(const struct planning *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void planning_progress(struct planning *p, const char *what, uint64_t done, uint64_t of);

/* "1.23 % (1.10 .. 1.36)" */
const char *planning_loss(const struct offline_interval *loss, char buf[64]);

/* Grows the plan by arrays. */
int planning_add(struct planning *p, uint64_t arrays, struct error *error);

/* Experts that fit: payload bytes of the budget or the share that was asked for. 0 with *error when
 * neither was given or nothing fits. */
uint64_t planning_expert_bytes(const struct planning *p, struct error *error);

/* Importances drawn towards their groups' means: out [layers * experts]. Returns how much of an
 * expert's distance from its group was kept, 0..1. */
double importance_shrunk(const float *x, const uint8_t *measured, uint32_t layers, uint32_t experts,
                         double *out);

int plan_edgemoe(struct planning *p, struct error *error);
int plan_hobbit(struct planning *p, struct error *error);
int plan_hobbit_eviction(struct planning *p, struct error *error);
/* base: tiers and method. */
int plan_hobbit_curve(struct planning *p, const struct serving *base, struct error *error);
int plan_fate(struct planning *p, struct error *error);
int plan_swapmoe(struct planning *p, struct error *error);

/* Predictions for the engine's system auto, of what the plan holds by then (auto.c). */
int plan_auto(struct planning *p, struct error *error);

/* Model, profile and text (made up when none is given), without measuring what the model loses. */
int planning_start_plain(struct planning *p, struct error *error);

/* All of a run with --shares (forced.c). */
int plan_forced(struct planning *p, struct error *error);

#endif
