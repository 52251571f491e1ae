/* Systems and their knobs: which policies are combined, and how they are set. A system is a preset;
 * what a plan found comes over it, and what the user says by name over that. Names are checked
 * here, once; what comes out of knobs_resolve can be used without further checks. */
#ifndef SLUICE_POLICY_PRESETS_PRESETS_H
#define SLUICE_POLICY_PRESETS_PRESETS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/error.h"
#include "lib/policy/access/precision.h"
#include "lib/policy/access/prefill.h"
#include "lib/policy/access/routing.h"
#include "lib/policy/prediction/prediction.h"
#include "lib/policy/prediction/prefetch.h"
#include "lib/policy/residency/residency.h"
#include "lib/tensor/precision.h"

#define KNOB_NAME_BYTES 24

/* Copied by value; holds no pointers. Choices are words of their lists, NUL-terminated. */
struct knobs {
    uint32_t preset; /* its number in presets.tbl.h */
#define KNOB_CHOICE(name, def, choices, help) char name[KNOB_NAME_BYTES];
#define KNOB_F64(name, def, min, max, help)   double name;
#define KNOB_U64(name, def, min, max, help)   uint64_t name;
#define KNOB_BOOL(name, def, help)            bool name;
#include "lib/policy/presets/knobs.tbl.h"
};

struct preset {
    const char *name, *settings, *doc;
};

uint32_t preset_count(void);
const struct preset *preset_at(uint32_t number); /* number < preset_count() */
uint32_t preset_find(const char *name);          /* POLICY_NONE when unknown */
const char *preset_names(void);                  /* "default|lod-nocache|..." */

/* One knob from its text. -1 with ERR_BAD_INPUT and one line when there is no such knob or it has
 * no such value; *k is unchanged then. */
int knobs_set(struct knobs *k, const char *name, const char *value, struct error *error);

/* "eviction=arc,t1=0.5": comma-separated, blanks around a pair are passed over, "" changes nothing.
 * *k is unchanged on an error. */
int knobs_apply(struct knobs *k, const char *settings, struct error *error);

/* Defaults, then the preset, then `planned`, then `overrides` (either may be NULL), then the checks
 * that concern several knobs: t1 <= t2, the hobbit weights scaled to sum 1, masked routing and a
 * mask go together. 0, or -1 with ERR_BAD_INPUT. */
int knobs_resolve(const char *preset, const char *planned, const char *overrides, struct knobs *k,
                  struct error *error);

/* Whether it may change the text: precision or routing is not the model's own. */
bool knobs_lossy(const struct knobs *k);

/* Whether something in it rests on a plan: paths, widths, norms, frequencies. What a plan may
 * improve but is not needed for (shares, thresholds, boundary) does not count. */
bool knobs_need_plan(const struct knobs *k);

/* The precision object, with high and low made from the tiers that are there: present is a mask of
 * 1 << enum tier, bytes the mean slot bytes of each. auto: high is the best tier present, low the
 * one nearest to a quarter of its bytes (HOBBIT: f16 -> int4, int8 -> int2). -1 with ERR_BAD_INPUT
 * when a tier that is needed is not there; the line says which. */
int knobs_precision_policy(const struct knobs *k, uint32_t present,
                           const uint64_t bytes[PRECISION__COUNT], struct precision_policy *out,
                           struct error *error);

/* Every policy field of the residency config, high_precision and low_precision among them: p is what
 * knobs_precision_policy made for the tiers of `present`. The caller has set layers to slot_bytes, and
 * adds the plan's arrays. */
void knobs_residency(const struct knobs *k, const struct precision_policy *p, uint32_t present,
                     struct residency_config *config);

/* All knobs as "name=value" separated by commas, in the table's order; cut to `bytes`. Returns buf.
 */
const char *knobs_text(const struct knobs *k, char *buf, size_t bytes);

/* Lists for help texts. */
void presets_help(FILE *out);
void knobs_help(FILE *out);

#endif
