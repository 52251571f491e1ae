/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the conditions of a measured loss with what would be served. */
#include "lib/policy/presets/loss.h"

#include <math.h>
#include <stdio.h>

#include "lib/base/assert.h"
#include "lib/policy/access/swap.h"
#include "lib/policy/presets/planned.h"
#include "lib/tensor/quant_method.h"

/* Tokens of a chunk of plans that do not record it. */
#define CHUNK_NOT_RECORDED 256
/* Payload counts differ by rounding to whole experts. */
#define SHARE_TOLERANCE 0.01
/* Values pass through text with nine digits. */
#define VALUE_TOLERANCE 1e-6

/* ---- what the files can serve ---------------------------------------------------------------- */

/* The first of these precisions [layers * experts] that the model lacks; PRECISION__COUNT: none. */
static enum precision lacking(const uint8_t *width, const struct model_index *m)
{
    for (uint32_t l = 0; l < m->hparams.layers; l++)
        for (uint32_t e = 0; e < m->hparams.experts && model_layer_has_experts(m, l); e++) {
            enum precision p = (enum precision)width[(size_t)l * m->hparams.experts + e];
            if (model_entry_expert_precision(m, l, e, p) == ENTRY_NONE)
                return p;
        }
    return PRECISION__COUNT;
}

/* An expert that the model does not have at its planned precision would be served at another
 * one. */
static int planned_precisions_present(const struct plan *plan, const struct knobs *k,
                                      const struct model_index *m, struct error *error)
{
    const char *name = k->precision == PRECISION_RULE_EDGEMOE ? "edgemoe"
                       : k->routing == ROUTING_RESIDENT_FIRST ? "mixed-two-resident-first"
                                                              : "mixed-two";
    const uint8_t *width = planned_widths(plan, k).high;
    if (!width)
        return error_set(error, ERR_BAD_INPUT,
                         "precision=%s needs a plan with a precision per expert; create one "
                         "with 'sluice plan --preset %s'",
                         knobs_choice(k, "precision"), name);
    enum precision p = lacking(width, m);
    if (p == PRECISION__COUNT)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "the plan has experts at %s and the model has not; create a store "
                     "with them with 'sluice pack --precisions ...,%s'",
                     precision_name(p), precision_name(p));
}

bool preset_low_present(const struct knobs *k, const struct plan *plan,
                        const struct model_index *model)
{
    const uint8_t *low = precision_by_plan(k->precision) ? planned_widths(plan, k).low : NULL;
    return !low || lacking(low, model) == PRECISION__COUNT;
}

int preset_servable(const struct knobs *k, const struct plan *plan, const struct model_index *model,
                    struct precision_policy *policy, struct error *error)
{
    uint64_t bytes[PRECISION__COUNT];
    for (int t = 0; t < PRECISION__COUNT; t++)
        bytes[t] = model->precision_entries[t]
                       ? model->precision_slot_bytes[t] / model->precision_entries[t]
                       : 0;
    if (knobs_precision_policy(k, model->precision_mask, bytes, policy, error) != 0)
        return -1;
    if (precision_by_plan(policy->rule))
        return planned_precisions_present(plan, k, model, error);
    return 0;
}

/* ---- measured losses ------------------------------------------------------------------------- */

enum { /* which losses a row of conditions.tbl.h is about */
       LOSS_DENSE = 1,
       LOSS_UNIFORM = 2,
       LOSS_EDGEMOE = 4,
       LOSS_HOBBIT = 8,
       LOSS_FATE = 16,
       LOSS_SWAP = 32,
       LOSS_REROUTE = 64,
       LOSS_MIXED = 128,
       LOSS_JOINT = 256,
       LOSS_DROP = 512,
       LOSS_ALL = 1023
};
#define FIXED PLAN_SCALAR__COUNT

/* A measured loss: its bound, the method of its precisions (PLAN_SCALAR__COUNT: none), the
 * precision of the dense weights, and the type of the KV cache. */
struct measurement {
    unsigned loss;      /* LOSS_* */
    const char *preset; /* that `sluice plan --preset` measures it for */
    enum plan_scalar loss_high, method, dense, kv_type;
};

static struct measurement uniform(enum plan_scalar loss_high)
{
    return (struct measurement){LOSS_UNIFORM,        "edgemoe",          loss_high,
                                PLAN_uniform_method, PLAN_uniform_dense, PLAN_uniform_kv_type};
}

static struct measurement measurement_of(const struct knobs *k, enum precision_rule rule)
{
    if (k->routing == ROUTING_MASKED)
        return (struct measurement){LOSS_SWAP,          "swapmoe",       PLAN_swap_loss_high,
                                    PLAN_SCALAR__COUNT, PLAN_swap_dense, PLAN_swap_kv_type};
    if (k->routing == ROUTING_RESIDENT_FIRST && rule == PRECISION_RULE_MIXED_TWO)
        return (struct measurement){LOSS_JOINT,           "mixed-two-resident-first",
                                    PLAN_joint_loss_high, PLAN_joint_method,
                                    PLAN_joint_dense,     PLAN_joint_kv_type};
    if (k->routing == ROUTING_RESIDENT_FIRST)
        return (struct measurement){LOSS_REROUTE,       "resident-first",   PLAN_reroute_loss_high,
                                    PLAN_SCALAR__COUNT, PLAN_reroute_dense, PLAN_reroute_kv_type};
    switch (rule) {
    case PRECISION_RULE_UNIFORM_INT8: return uniform(PLAN_uniform_int8_loss_high);
    case PRECISION_RULE_UNIFORM_INT4: return uniform(PLAN_uniform_int4_loss_high);
    case PRECISION_RULE_UNIFORM_INT2: return uniform(PLAN_uniform_int2_loss_high);
    case PRECISION_RULE_EDGEMOE:
        return (struct measurement){LOSS_EDGEMOE,        "edgemoe",          PLAN_edgemoe_loss_high,
                                    PLAN_edgemoe_method, PLAN_edgemoe_dense, PLAN_edgemoe_kv_type};
    case PRECISION_RULE_HOBBIT:
        return (struct measurement){LOSS_HOBBIT,        "hobbit",          PLAN_hobbit_loss_high,
                                    PLAN_hobbit_method, PLAN_hobbit_dense, PLAN_hobbit_kv_type};
    case PRECISION_RULE_FATE:
        return (struct measurement){LOSS_FATE,        "fate",          PLAN_fate_loss_high,
                                    PLAN_fate_method, PLAN_fate_dense, PLAN_fate_kv_type};
    case PRECISION_RULE_MIXED_TWO:
        return (struct measurement){LOSS_MIXED,        "mixed-two",      PLAN_mixed_loss_high,
                                    PLAN_mixed_method, PLAN_mixed_dense, PLAN_mixed_kv_type};
    case PRECISION_RULE_DROP:
        return (struct measurement){LOSS_DROP,          "drop",          PLAN_drop_loss_high,
                                    PLAN_SCALAR__COUNT, PLAN_drop_dense, PLAN_drop_kv_type};
    case PRECISION_RULE_LOSSLESS: break;
    }
    sl_panic("precision rule %d", (int)rule);
}

/* Every expert must have the precisions that may be requested or the model's own, which loses less,
 * by the method of the measurement; int8 has one method only. Of a plan's precisions
 * preset_servable has checked the higher one, which also serves where there is no lower one. */
static int same_method(const struct served *s, const struct measurement *m, struct error *error)
{
    const struct model_index *model = s->model;
    uint32_t mask = precision_policy_mask(s->policy, model->precision_mask);
    uint32_t experts = hparams_expert_layers(&model->hparams) * model->hparams.experts;
    enum quant_method planned = (enum quant_method)s->plan->scalar[m->method];
    for (uint32_t t = 0; t < PRECISION__COUNT; t++) {
        enum quant_method wanted = quant_method_of((enum precision)t, planned);
        if (!(mask >> t & 1))
            continue;
        if (!precision_by_plan(s->policy->rule) && model->precision_entries[t] != experts &&
            model->precision_entries[PRECISION_NATIVE] != experts)
            return error_set(error, ERR_BAD_INPUT,
                             "its loss was measured with all %u experts at %s, and the store has "
                             "%u of them",
                             experts, precision_name((enum precision)t),
                             model->precision_entries[t]);
        if (model->precision_method[t] == wanted)
            continue;
        return error_set(error, ERR_BAD_INPUT,
                         "its loss was measured with %s by method %s, and the store has %s",
                         precision_name((enum precision)t), quant_method_name(wanted),
                         quant_method_name((enum quant_method)model->precision_method[t]));
    }
    return 0;
}

/* Plans without the record were measured with native dense weights. */
static enum precision measured_dense(const struct plan *plan, enum plan_scalar dense)
{
    return plan && plan_knows(plan, dense) ? (enum precision)plan->scalar[dense] : PRECISION_NATIVE;
}

enum precision preset_planned_dense(const struct knobs *k, const struct plan *plan)
{
    bool own = knobs_lossy(k);
    return measured_dense(plan, own ? measurement_of(k, k->precision).dense : PLAN_uniform_dense);
}

double preset_measured_chunk(const struct plan *plan, enum plan_scalar chunk)
{
    return plan_knows(plan, chunk) ? plan->scalar[chunk] : CHUNK_NOT_RECORDED;
}

/* ---- conditions ------------------------------------------------------------------------------ */

/* Experts that the storage device reads while a token is computed, each in `read_ns`. */
static double pace(const struct plan *plan, double read_ns)
{
    double token_ns = plan ? plan->scalar[PLAN_token_ns] : (double)NAN;
    return token_ns > 0 && read_ns > 0 ? token_ns / read_ns : INFINITY; /* not known: no limit */
}

static double measured_pace(const struct plan *plan)
{
    return pace(plan, plan ? plan->scalar[PLAN_expert_read_ns] : (double)NAN);
}

/* Mean bytes of an expert at the best precision that the files have of it; not less where some
 * experts have several. */
static double best_bytes(const struct model_index *m)
{
    uint32_t all = hparams_expert_layers(&m->hparams) * m->hparams.experts, left = all;
    double bytes = 0;
    for (int t = 0; t < PRECISION__COUNT && left > 0; t++) {
        uint32_t has = m->precision_entries[t], n = has < left ? has : left;
        bytes += has > 0 ? (double)m->precision_slot_bytes[t] / has * n : 0;
        left -= n;
    }
    return left < all ? bytes / (all - left) : 0;
}

/* The same with the engine's limit of the bandwidth. */
static double served_pace(const struct served *s)
{
    double at_once = measured_pace(s->plan);
    if (s->read_bytes_per_s <= 0)
        return at_once;
    return fmin(at_once, pace(s->plan, best_bytes(s->model) * 1e9 / s->read_bytes_per_s));
}

/* Without times in the plan, nothing says how many experts a limited storage device reads while a
 * token is computed. */
static int times_known(const struct served *s, const struct measurement *m, struct error *error)
{
    bool known = s->plan->scalar[PLAN_token_ns] > 0; /* not NaN */
    if (!(m->loss & LOSS_SWAP) || s->read_bytes_per_s <= 0 || known)
        return 0;
    return error_set(
        error, ERR_BAD_INPUT,
        "its loss depends on the experts that the storage device reads while a token is "
        "computed, and the plan has no times to compare a throttle with; run 'sluice "
        "profile' and 'sluice plan --preset %s' again, or remove the throttle",
        m->preset);
}

/* Tokens that are routed together. */
static double swap_chunk(const struct served *s)
{
    uint32_t most = swap_rows_max(s->knobs->interval);
    return s->prefill_chunk < most ? (double)s->prefill_chunk : most;
}

/* What a loss at a capacity depends on, in addition: what is resident there. Where the plan's is
 * the loss with every access a miss, whatever is served with holds: `served`. */
static double at_capacity(const struct served *s, enum plan_scalar share, double measured,
                          double served)
{
    return s->plan && plan_knows(s->plan, share) ? measured : served;
}

enum compare { SAME, AT_MOST, AT_LEAST, NO_COARSER };
enum unit { NUMBER, SWITCH, SHARE, PRECISION, KV_TYPE, RULE, PRELOAD, PREFETCH, EVICT, DIVIDE };

struct condition {
    unsigned losses;
    enum compare compare;
    enum unit unit;
    const char *before, *after, *advice;
    double served;
    enum plan_scalar measured;
    double unknown;
};

static double bits_of(double kv_type)
{
    const struct kv_type_info *info = kv_type_info((uint32_t)kv_type);
    return info ? (double)info->block_bytes / info->block : 0;
}

static bool holds(const struct condition *c, double measured)
{
    double near = c->unit == SHARE ? SHARE_TOLERANCE : VALUE_TOLERANCE * fabs(measured);
    switch (c->compare) {
    case SAME: return fabs(c->served - measured) <= fmax(near, VALUE_TOLERANCE);
    case AT_MOST: return c->served <= measured;
    case AT_LEAST: return c->served == measured || c->served >= measured - near;
    case NO_COARSER: return bits_of(c->served) >= bits_of(measured);
    }
    return false;
}

static const char *value_text(enum unit unit, double value, char text[32])
{
    static const char *const rules[] = {PRECISION_RULE_LIST(CHOICE_NAME)};
    static const char *const preloads[] = {PRELOAD_LIST(CHOICE_NAME)};
    static const char *const prefetches[] = {PREFETCH_LIST(CHOICE_NAME)};
    static const char *const evictions[] = {EVICTION_LIST(CHOICE_NAME)};
    static const char *const allocations[] = {ALLOCATION_LIST(CHOICE_NAME)};
    switch (unit) {
    case NUMBER: snprintf(text, 32, "%.6g", value); return text;
    case SHARE: snprintf(text, 32, "%.1f %%", 100 * value); return text;
    case SWITCH: return value != 0 ? "on" : "off";
    case PRECISION: return precision_name((enum precision)value);
    case KV_TYPE: return kv_type_info((uint32_t)value)->name;
    case RULE: return rules[(int)value];
    case PRELOAD: return preloads[(int)value];
    case PREFETCH: return prefetches[(int)value];
    case EVICT: return evictions[(int)value];
    case DIVIDE: return allocations[(int)value];
    }
    return "?";
}

static int differs(const struct condition *c, double measured, struct error *error)
{
    char is[32], was[32];
    const char *value = value_text(c->unit, measured, was);
    return error_set(error, ERR_BAD_INPUT, "its loss was measured with %s%s%s, not %s%s%s",
                     c->before, value, c->after, value_text(c->unit, c->served, is),
                     c->advice ? c->advice : "", c->advice ? value : "");
}

static int not_recorded(const struct measurement *m, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT,
                     "the plan does not record how its loss was measured; run 'sluice plan "
                     "--preset %s' again",
                     m->preset);
}

static int same_conditions(const struct served *s, const struct measurement *m, struct error *error)
{
    const struct knobs *k = s->knobs;
    const struct condition all[] = {
#define CONDITION(id, losses, compare, unit, before, after, advice, served, measured, unknown)     \
    {losses, compare, unit, before, after, advice, (double)(served), measured, (double)(unknown)},
#include "lib/policy/presets/conditions.tbl.h"
    };
    if (m->method != PLAN_SCALAR__COUNT && !plan_knows(s->plan, m->method))
        return not_recorded(m, error);
    if (m->method != PLAN_SCALAR__COUNT && same_method(s, m, error) != 0)
        return -1;
    if (times_known(s, m, error) != 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const struct condition *c = &all[i];
        bool known = c->measured != FIXED && plan_knows(s->plan, c->measured);
        double measured = known ? s->plan->scalar[c->measured] : c->unknown;
        if (!(c->losses & m->loss))
            continue;
        if (isnan(measured))
            return not_recorded(m, error);
        if (!holds(c, measured))
            return differs(c, measured, error);
    }
    return 0;
}

/* Lossless presets serve the experts as they are, but the model's dense weights, and a KV cache
 * that may have fewer bits than the lossless engine. */
static int dense_loss(const struct served *s, double *loss, struct error *error)
{
    const struct measurement m = {LOSS_DENSE,         "edgemoe",          PLAN_dense_loss_high,
                                  PLAN_SCALAR__COUNT, PLAN_uniform_dense, PLAN_uniform_kv_type};
    const char *dense = precision_name(model_dense_precision(s->model));
    const char *kv = kv_type_info(s->kv_type)->name;
    if (model_dense_precision(s->model) == PRECISION_NATIVE &&
        bits_of(s->kv_type) >= bits_of(KV_TYPE_F16))
        return 0;
    if (!s->plan || !plan_knows(s->plan, m.loss_high))
        return error_set(error, ERR_BAD_INPUT,
                         "the loss of dense weights at %s with --kv-type %s is not measured; "
                         "measure it with 'sluice plan --preset edgemoe --dense %s --kv-type %s' "
                         "and use --plan",
                         dense, kv, dense, kv);
    if (same_conditions(s, &m, error) != 0)
        return -1;
    *loss = s->plan->scalar[m.loss_high];
    return 0;
}

int preset_loss(const struct served *s, double *loss, struct error *error)
{
    *loss = 0;
    if (!knobs_lossy(s->knobs))
        return dense_loss(s, loss, error);
    if (s->knobs->routing == ROUTING_MASKED && s->knobs->mask != MASK_SWAP)
        return error_set(error, ERR_BAD_INPUT, "no plan measures the loss of mask=%s",
                         knobs_choice(s->knobs, "mask"));
    const struct measurement m = measurement_of(s->knobs, s->policy->rule);
    if (!s->plan || !plan_knows(s->plan, m.loss_high))
        return error_set(
            error, ERR_BAD_INPUT, "%s; measure it with 'sluice plan --preset %s' and use --plan",
            s->plan ? "the plan has no loss for it" : "its loss is not measured", m.preset);
    if (same_conditions(s, &m, error) != 0)
        return -1;
    *loss = s->plan->scalar[m.loss_high];
    return 0;
}
