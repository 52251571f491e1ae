/* SPDX-License-Identifier: Apache-2.0 */
/* Presets and their parameters ("knobs"): which policies are combined, and their settings.
 * Precedence: explicit settings of the user, then values of a plan, then the preset. Names are
 * checked here, once; the result of knobs_resolve needs no further checks. */
#ifndef SLUICE_POLICY_PRESETS_PRESETS_H
#define SLUICE_POLICY_PRESETS_PRESETS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/error.h"
#include "lib/policy/access/precision.h"
#include "lib/policy/access/prefill.h"
#include "lib/policy/access/resident_first.h"
#include "lib/policy/access/routing.h"
#include "lib/policy/choice.h"
#include "lib/policy/prediction/prediction.h"
#include "lib/policy/prediction/prefetch.h"
#include "lib/policy/residency/residency.h"
#include "lib/tensor/precision.h"

/* Choices of parameters that belong to no policy object. */
#define PRELOAD_LIST(X)                                                                            \
    X(PRELOAD_NONE, "none")                                                                        \
    X(PRELOAD_FREQUENCY, "frequency")                                                              \
    X(PRELOAD_MOST, "most")                                                                        \
    X(PRELOAD_ALL, "all")
#define PRECISION_SETTING_LIST(X)                                                                  \
    X(PRECISION_SETTING_AUTO, "auto")                                                              \
    X(PRECISION_SETTING_NATIVE, "native")                                                          \
    X(PRECISION_SETTING_INT8, "int8")                                                              \
    X(PRECISION_SETTING_INT4, "int4")                                                              \
    X(PRECISION_SETTING_INT2, "int2")
#define RECORDS_LIST(X)                                                                            \
    X(RECORDS_SEQUENCE, "sequence")                                                                \
    X(RECORDS_MODEL, "model")
#define FREQUENCY_LIST(X)                                                                          \
    X(FREQUENCY_ONLINE, "online")                                                                  \
    X(FREQUENCY_PROFILE, "profile")

enum preload { PRELOAD_LIST(CHOICE_ID) };
enum precision_setting { PRECISION_SETTING_LIST(CHOICE_ID) };
enum records { RECORDS_LIST(CHOICE_ID) };
enum frequency_source { FREQUENCY_LIST(CHOICE_ID) };

/* Copied by value; holds no pointers. */
struct knobs {
    uint32_t preset; /* number in presets.tbl.h */
#define KNOB_CHOICE(name, def, type, LIST, help) type name;
#define KNOB_F64(name, def, min, max, help)      double name;
#define KNOB_U64(name, def, min, max, help)      uint64_t name;
#define KNOB_BOOL(name, def, help)               bool name;
#include "lib/policy/presets/knobs.tbl.h"
};

struct preset {
    const char *name, *settings, *doc;
};

uint32_t preset_count(void);
/* The preset of that number, which is below preset_count(). */
const struct preset *preset_at(uint32_t number);
/* The number of the preset of that name; POLICY_NONE: there is none. */
uint32_t preset_find(const char *name);
/* The names of all presets: "default|lod-nocache|...". */
const char *preset_names(void);

/* Sets one parameter from text. -1 with ERR_BAD_INPUT when the name or the value is invalid; *k is
 * unchanged then. */
int knobs_set(struct knobs *k, const char *name, const char *value, struct error *error);

/* Sets several parameters from a text such as "eviction=arc,t1=0.5". Blanks around a pair are
 * ignored, and "" changes nothing. -1 with ERR_BAD_INPUT; *k is unchanged then. */
int knobs_apply(struct knobs *k, const char *settings, struct error *error);

/* Applies the defaults, the preset, `planned`, then `overrides` (either may be NULL), and checks
 * parameters that depend on each other: t1 <= t2, the hobbit weights scaled to sum 1, masked
 * routing and a mask only together, and resident-first with neither a mask nor
 * allocation=transient. 0, or -1 with ERR_BAD_INPUT. */
int knobs_resolve(const char *preset, const char *planned, const char *overrides, struct knobs *k,
                  struct error *error);

/* The rule of routing=resident-first. */
struct resident_first knobs_resident_first(const struct knobs *k);

/* Whether output may differ from the model's: precision not lossless, or routing not exact. */
bool knobs_lossy(const struct knobs *k);

/* Whether a plan is required: for paths, precisions per expert, norms or frequencies. What a plan
 * only improves (shares, thresholds, boundary) does not count. */
bool knobs_need_plan(const struct knobs *k);

/* Makes the precision policy, with high and low resolved against the model's precisions: present is
 * a mask of 1 << enum precision, bytes has the mean slot bytes of each. With auto, high is the
 * highest precision present, low the one nearest to a quarter of its bytes (HOBBIT: f16 -> int4,
 * int8 -> int2). -1 with ERR_BAD_INPUT naming the precision when a required one is absent. */
int knobs_precision_policy(const struct knobs *k, uint32_t present,
                           const uint64_t bytes[PRECISION__COUNT], struct precision_policy *out,
                           struct error *error);

/* Fills every policy field of the residency config, high_precision and low_precision included: p is
 * the result of knobs_precision_policy for the same `present`. The caller has set layers to
 * slot_bytes, and adds the plan's arrays. */
void knobs_residency(const struct knobs *k, const struct precision_policy *p, uint32_t present,
                     struct residency_config *config);

/* The chosen value of a parameter that is a choice, as a name such as "lru"; it is static. */
const char *knobs_choice(const struct knobs *k, const char *name);

/* The precision that a setting (high or low) names; `automatic` when it is auto. */
enum precision knobs_precision(enum precision_setting setting, enum precision automatic);

/* Writes all parameters to buf as "name=value,...", in the order of the table, cut to `bytes`.
 * Returns buf. */
const char *knobs_text(const struct knobs *k, char *buf, size_t bytes);

/* Write the lists of presets and of parameters for help texts. */
void presets_help(FILE *out);
void knobs_help(FILE *out);

#endif
