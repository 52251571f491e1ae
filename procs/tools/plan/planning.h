/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan: state and functions shared by the planners. */
#ifndef SLUICE_TOOLS_PLAN_PLANNING_H
#define SLUICE_TOOLS_PLAN_PLANNING_H

#include <jansson.h>

#include "lib/base/bytes.h"
#include "lib/offline/measure/serving.h"
#include "lib/sim/options.h"
#include "lib/tensor/kv_type.h"
#include "lib/tensor/quant_method.h"
#include "procs/tools/plan/held.h"
#include "procs/tools/plan/measured.h"
#include "procs/tools/plan/shares.h"

#define PLANNING_CHUNK                                                                             \
    256 /* tokens per pass of a measurement; an engine with the plan takes no more by default */

#define PLANNING_TEXTS_MAX HELD_DOMAINS_MAX

/* The preset that is planned, for messages. */
struct planning_stage {
    const char *name;
    uint32_t whole, some; /* measurements of the whole text and of a quarter of it, at most */
    uint32_t done;        /* of both, so far, without those that were known */
    bool announced;       /* what a measurement reads was stated */
    uint64_t started_ns;
};

/* Whether the loss of a domain decides. */
enum planning_domain {
    DOMAIN_COUNTS,
    DOMAIN_OTHER,      /* --domain names others */
    DOMAIN_UNREADABLE, /* the lossless model cannot read it */
};

/* Measurements token by token with a simulated cache: its parameters, and its bytes for experts. */
struct planning_clock {
    struct knobs knobs;
    uint64_t capacity; /* 0: none; nothing is resident */
};

struct planning {
    /* options */
    const char *model_path, *profile_path, *out_path, *preset;
    const char *trace_path; /* for fitting hobbit's eviction; NULL: the routing of the text */
    const char *text_path[PLANNING_TEXTS_MAX];
    size_t texts;
    const char *domain[PLANNING_TEXTS_MAX]; /* --domain: the texts that count; none: all */
    size_t domains;
    uint64_t budget_bytes;  /* 0: not given */
    uint64_t memory;        /* maximum of this program; 0: not given */
    double experts_percent; /* 0: not given */
    double max_loss;        /* 0.01: 1 % increase of perplexity */
    int64_t window, tokens_max, threads, configurations, generations, seed;
    bool json, curve;
    enum quant_method method; /* of the lower precisions; recorded with each loss */
    enum kv_type kv_type;     /* of the measured model; the lossless one has f16 */
    enum precision dense;     /* of dense matrices; `auto`: what edgemoe chose, else native */
    bool dense_given;         /* --dense is not auto */
    struct shares shares;     /* --shares, with `forced` */
    bool forced;
    bool curve_only;            /* hobbit: measure the curve, plan nothing */
    bool eviction_only;         /* hobbit: keep the thresholds of the profile */
    bool at_capacity;           /* --thresholds capacity */
    struct sim_gpu_options gpu; /* auto */
    bool plain;                 /* --shares, auto: no comparison with the lossless model */

    struct offline_model *model;
    struct offline_text text, some; /* what is planned on; 1/4 of its windows, for searches */
    uint32_t some_every;            /* window i of `some` is window i * some_every of `text` */
    struct offline_text held;       /* what is held out (held.h); domains are text_path */
    struct offline_text other; /* of domains that do not count; no windows: all of them count */
    enum planning_domain counts[PLANNING_TEXTS_MAX];
    struct plan *plan; /* the profile, extended to the plan */
    struct offline_losses native, native_some, native_held;
    uint64_t native_bytes; /* payload of all experts */
    struct planning_clock clock;
    struct measured_file *measured;
    struct planning_stage stage;
    uint64_t progress_ns, whole_ns,
        some_ns;    /* of the last line; time of a measurement, 0: not known */
    json_t *report; /* the JSON output; text is printed at once */
};

/* progress.c: begins a preset: states what it measures at most, and how long that takes. */
void planning_begin(struct planning *p, const char *name, uint32_t whole, uint32_t some);

/* judge.c: loads the text, and divides it into p->text and p->held. A domain that the lossless
 * model cannot read does not count, unless --domain names it or the model can read none: what is
 * lost there says nothing. -1 with *error: also ERR_BAD_INPUT for a --domain that is no text. */
int planning_divide_text(struct planning *p, struct error *error);

/* A comparison with the lossless model over `text` (p->text or p->some). */
struct measured {
    struct offline_interval loss; /* of planning_bound */
    struct serving_report report;
};
struct offline_evaluation planning_evaluation(struct planning *p, const struct offline_text *text);
int planning_measure(struct planning *p, const struct offline_text *text, const struct serving *s,
                     struct measured *out, struct error *error);

/* The share of the experts' bytes that is resident with p->clock. */
static inline double planning_clock_share(const struct planning *p)
{
    return (double)p->clock.capacity / (double)p->native_bytes;
}

/* Evaluates what is served over a text, with p->clock where it is set; compare: also with the
 * lossless model. report: may be NULL. With the clock, its bytes are those that were read, and need
 * counts accesses at the best precision, and at others. */
int planning_evaluate(struct planning *p, const struct offline_text *text, const struct serving *s,
                      bool compare, struct offline_losses *losses, struct serving_report *report,
                      struct error *error);

/* Losses over a text, measured now or by an earlier run; s NULL: the lossless model. losses->nll:
 * for the caller to free. */
int planning_losses(struct planning *p, const struct offline_text *text, const struct serving *s,
                    struct offline_losses *losses, struct serving_report *report,
                    struct error *error);

/* The loss over all of a text; high: the bound of the worst domain for a new text (held.h).
 * domain[HELD_DOMAINS_MAX]. false: there are too few windows for a bound; high is that of the
 * interval. */
bool planning_bound(const struct planning *p, const struct offline_text *text,
                    const struct offline_losses *native, const struct offline_losses *losses,
                    struct held_domain *domain, uint32_t *worst, struct offline_interval *loss);

/* On what is held out. */
struct judged {
    struct offline_interval loss; /* of planning_bound */
    struct held_domain domain[HELD_DOMAINS_MAX];
    uint32_t worst;
    struct serving_report report;
};
int planning_judge(struct planning *p, const struct serving *s, struct judged *out,
                   struct error *error);
/* Reports what was judged, with KL divergence and share of equal best tokens, by domain. */
int planning_report(struct planning *p, const char *preset, const struct serving *s,
                    const struct judged *judged, struct error *error);

/* With --dense auto: dense weights as edgemoe's precisions in the profile have them, if it is a
 * plan (a store has one precision of them), else native. */
void planning_take_dense(struct planning *p);

/* Prints a line of text to stdout, with --output json to stderr. */
void planning_note(const struct planning *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void planning_progress(struct planning *p, const char *what, uint64_t done, uint64_t of);

/* "1.23 % (1.10 .. 1.36)" */
const char *planning_loss(const struct offline_interval *loss, char buf[64]);

/* Adds arrays to the plan. */
int planning_add(struct planning *p, uint64_t arrays, struct error *error);
/* Writes the plan. */
int planning_write(struct planning *p, struct error *error);

/* The lossless model over all three texts. */
int planning_measure_native(struct planning *p, struct error *error);

/* The key of something that was measured with this model: `bytes` of what it depends on, in
 * addition to model, text (NULL: none) and the kernels. */
void planning_key(const struct planning *p, const struct offline_text *text, const void *what,
                  size_t bytes, uint8_t key[MEASURED_KEY_BYTES]);

/* The key of a serving, with p->clock; what: which of several values. */
void planning_serving_key(const struct planning *p, const struct offline_text *text,
                          const struct serving *s, const char *what,
                          uint8_t key[MEASURED_KEY_BYTES]);

/* Opens the model, within --memory or the default bound. */
int planning_open(struct planning *p, struct error *error);

/* How many experts the model has; and the place of one of them in arrays per layer and expert,
 * which also have places for layers without experts. */
static inline uint64_t planning_experts(const struct planning *p)
{
    return (uint64_t)hparams_expert_layers(&offline_index(p->model)->hparams) * p->plan->experts;
}

static inline uint64_t planning_place(const struct planning *p, uint64_t number)
{
    uint32_t experts = p->plan->experts;
    const struct model_hparams *h = &offline_index(p->model)->hparams;
    return (uint64_t)hparams_expert_layer_at(h, (uint32_t)(number / experts)) * experts +
           number % experts;
}

/* Puts a precision of each expert into such an array. */
void planning_spread(const struct planning *p, const uint8_t *precision, uint8_t *all);

/* Bytes of an expert of the first layer that has experts. */
uint64_t planning_one_expert(const struct planning *p, enum precision precision);

/* Whether an expert of some layer has fewer bytes at this precision than in the model; else no
 * store has it. */
bool planning_is_smaller(const struct planning *p, enum precision precision);

/* Payload bytes for experts from --budget or --resident-experts. 0 with an error if neither was
 * given or the budget is too small. */
uint64_t planning_expert_bytes(const struct planning *p, struct error *error);

/* Importances, shrunk towards the means of their groups of `group` neighbours: out [layers *
 * experts]. Returns the share of an expert's distance from its group mean that was kept, 0..1. */
double importance_shrunk(const float *x, const uint8_t *measured, uint32_t layers, uint32_t experts,
                         uint32_t group, double *out);

int plan_edgemoe(struct planning *p, struct error *error);
int plan_hobbit(struct planning *p, struct error *error);
int plan_hobbit_eviction(struct planning *p, struct error *error);
/* base: precisions and quantisation method. */
int plan_hobbit_curve(struct planning *p, const struct serving *base, struct error *error);
int plan_fate(struct planning *p, struct error *error);
int plan_mixed(struct planning *p, struct error *error);
/* The numbers of all experts (see planning_place) in ascending order of the loss per byte that the
 * lower precision saves, by the importance that the plan has. */
void plan_edgemoe_order(struct planning *p, enum precision high, enum precision low,
                        uint64_t *order);
int plan_swapmoe(struct planning *p, struct error *error);
int plan_resident_first(struct planning *p, struct error *error);
int plan_drop(struct planning *p, struct error *error);
/* mixed-two and resident-first together. */
int plan_joint(struct planning *p, struct error *error);

/* Predicted token times for the preset auto, from the decisions in the plan so far (auto.c). */
int plan_auto(struct planning *p, struct error *error);

/* Opens model, profile and text (synthetic if none is given) without measuring losses. */
int planning_start_plain(struct planning *p, struct error *error);

/* A run with --shares (forced.c). */
int plan_forced(struct planning *p, struct error *error);

#endif
