/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/policy/presets/loss.h"

#include <math.h>

#include "lib/base/assert.h"
#include "lib/tensor/quant_method.h"

/* Tokens of a chunk of plans that do not record it. */
#define CHUNK_NOT_RECORDED 256
/* Payload counts differ by rounding to whole experts. */
#define SHARE_TOLERANCE 0.01
/* Values pass through text with nine digits. */
#define VALUE_TOLERANCE 1e-6

/* ---- what the files can serve ---------------------------------------------------------------- */

/* An expert that the model does not have at its planned precision would be served at another one. */
static int planned_precisions_present(const struct plan *plan, const struct model_index *m,
                                      struct error *error)
{
    const uint8_t *width = plan ? plan_width(plan) : NULL;
    if (!width)
        return error_set(error, ERR_BAD_INPUT,
                         "precision=edgemoe needs a plan with a precision per expert; create one "
                         "with 'sluice plan --preset edgemoe'");
    for (uint32_t l = m->hparams.dense_layers; l < m->hparams.layers; l++)
        for (uint32_t e = 0; e < m->hparams.experts; e++) {
            enum precision p = (enum precision)width[(size_t)l * m->hparams.experts + e];
            if (model_entry_expert_precision(m, l, e, p) == ENTRY_NONE)
                return error_set(error, ERR_BAD_INPUT,
                                 "the plan has experts at %s and the model has not; create a store "
                                 "with them with 'sluice pack --precisions ...,%s'",
                                 precision_name(p), precision_name(p));
        }
    return 0;
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
    if (policy->rule == PRECISION_RULE_EDGEMOE)
        return planned_precisions_present(plan, model, error);
    return 0;
}

/* ---- measured losses ------------------------------------------------------------------------- */

/* A measured loss: its bound, the method of its precisions (PLAN_SCALAR__COUNT: none), and the
 * precision of the dense weights. */
struct measurement {
    const char *preset; /* that `sluice plan --preset` measures it for */
    enum plan_scalar loss_high, method, dense;
};

static struct measurement measurement_of(const struct knobs *k, enum precision_rule rule)
{
    if (k->routing != ROUTING_EXACT)
        return (struct measurement){"swapmoe", PLAN_swap_loss_high, PLAN_SCALAR__COUNT,
                                    PLAN_swap_dense};
    switch (rule) {
    case PRECISION_RULE_UNIFORM_INT8:
        return (struct measurement){"edgemoe", PLAN_uniform_int8_loss_high, PLAN_uniform_method,
                                    PLAN_uniform_dense};
    case PRECISION_RULE_UNIFORM_INT4:
        return (struct measurement){"edgemoe", PLAN_uniform_int4_loss_high, PLAN_uniform_method,
                                    PLAN_uniform_dense};
    case PRECISION_RULE_UNIFORM_INT2:
        return (struct measurement){"edgemoe", PLAN_uniform_int2_loss_high, PLAN_uniform_method,
                                    PLAN_uniform_dense};
    case PRECISION_RULE_EDGEMOE:
        return (struct measurement){"edgemoe", PLAN_edgemoe_loss_high, PLAN_edgemoe_method,
                                    PLAN_edgemoe_dense};
    case PRECISION_RULE_HOBBIT:
        return (struct measurement){"hobbit", PLAN_hobbit_loss_high, PLAN_hobbit_method,
                                    PLAN_hobbit_dense};
    case PRECISION_RULE_FATE:
        return (struct measurement){"fate", PLAN_fate_loss_high, PLAN_fate_method, PLAN_fate_dense};
    case PRECISION_RULE_LOSSLESS: break;
    }
    sl_panic("precision rule %d", (int)rule);
}

/* Every expert must have the precisions that may be requested (with edgemoe: preset_servable has
 * checked it) or the model's own, which loses less, by the method of the measurement; int8 has one
 * method only. */
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
        if (s->policy->rule != PRECISION_RULE_EDGEMOE && model->precision_entries[t] != experts &&
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
    return measured_dense(plan, knobs_lossy(k) ? measurement_of(k, k->precision).dense
                                               : PLAN_uniform_dense);
}

static int same_dense(const struct served *s, const struct measurement *m, struct error *error)
{
    enum precision has = model_dense_precision(s->model);
    enum precision measured = measured_dense(s->plan, m->dense);
    if (has == measured)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "its loss was measured with dense weights at %s, and the model has %s; use "
                     "'sluice pack --dense %s'",
                     precision_name(measured), precision_name(has), precision_name(measured));
}

/* A value that must be that of the measurement; NaN in the plan differs from everything. */
static int same_value(const struct served *s, const char *name, double value,
                      enum plan_scalar planned, struct error *error)
{
    double measured = s->plan->scalar[planned];
    if (fabs(value - measured) <= VALUE_TOLERANCE)
        return 0;
    return error_set(error, ERR_BAD_INPUT, "its loss was measured with %s=%.6g, not %.6g", name,
                     measured, value);
}

static int same_precision(const struct served *s, const char *name, enum precision value,
                          enum plan_scalar planned, struct error *error)
{
    double measured = s->plan->scalar[planned];
    if ((double)value == measured)
        return 0;
    return error_set(error, ERR_BAD_INPUT, "its loss was measured with %s=%s, not %s", name,
                     precision_name((enum precision)measured), precision_name(value));
}

static int same_hobbit(const struct served *s, struct error *error)
{
    const struct knobs *k = s->knobs;
    if (same_value(s, "t1", k->t1, PLAN_hobbit_t1, error) != 0 ||
        same_value(s, "t2", k->t2, PLAN_hobbit_t2, error) != 0 ||
        same_value(s, "skip_renormalise", k->skip_renormalise, PLAN_hobbit_skip_renormalise,
                   error) != 0 ||
        same_precision(s, "high", s->policy->high, PLAN_hobbit_high, error) != 0)
        return -1;
    return same_precision(s, "low", s->policy->low, PLAN_hobbit_low, error);
}

double preset_measured_chunk(const struct plan *plan, enum plan_scalar chunk)
{
    return plan_knows(plan, chunk) ? plan->scalar[chunk] : CHUNK_NOT_RECORDED;
}

/* A larger chunk has other least popular experts, and masks that change later. */
static int same_chunk(const struct served *s, enum plan_scalar chunk, struct error *error)
{
    double measured = preset_measured_chunk(s->plan, chunk);
    if (s->prefill_chunk <= measured)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "its loss was measured with chunks of %.0f tokens; use --prefill-chunk %.0f",
                     measured, measured);
}

static int same_fate(const struct served *s, struct error *error)
{
    const struct knobs *k = s->knobs;
    if (k->slow_device)
        return error_set(error, ERR_BAD_INPUT, "its loss was measured with slow_device=off");
    if (same_chunk(s, PLAN_fate_chunk, error) != 0 ||
        same_value(s, "low_fraction", k->low_fraction, PLAN_fate_prefill_int2, error) != 0 ||
        same_precision(s, "high", s->policy->high, PLAN_fate_high, error) != 0)
        return -1;
    return same_precision(s, "low", s->policy->low, PLAN_fate_low, error);
}

static int same_swap(const struct served *s, struct error *error)
{
    const struct knobs *k = s->knobs;
    double share = s->plan->scalar[PLAN_swap_share];
    if (same_value(s, "interval", (double)k->interval, PLAN_swap_interval, error) != 0 ||
        same_value(s, "margin", k->margin, PLAN_swap_margin, error) != 0)
        return -1;
    if (same_chunk(s, PLAN_swap_chunk, error) != 0)
        return -1;
    if (s->resident_share < share - SHARE_TOLERANCE)
        return error_set(error, ERR_BAD_INPUT,
                         "its loss was measured with %.1f %% of the experts resident, and only "
                         "%.1f %% fit",
                         100 * share, 100 * s->resident_share);
    return 0;
}

/* Combinations of masked routing that no plan measures. */
static int measurable(const struct served *s, struct error *error)
{
    const struct knobs *k = s->knobs;
    if (k->routing == ROUTING_EXACT)
        return 0;
    if (k->mask != MASK_SWAP)
        return error_set(error, ERR_BAD_INPUT, "no plan measures the loss of mask=%s",
                         knobs_choice(k, "mask"));
    if (k->precision != PRECISION_RULE_LOSSLESS || !k->amortise || k->count_only)
        return error_set(error, ERR_BAD_INPUT,
                         "its loss was measured with precision=lossless, amortise=on and "
                         "count_only=off");
    return 0;
}

/* What the plan must record for a loss to count. */
static bool recorded(const struct plan *plan, const struct measurement *m)
{
    if (m->method != PLAN_SCALAR__COUNT)
        return plan_knows(plan, m->method);
    return plan_knows(plan, PLAN_swap_share) && plan_knows(plan, PLAN_swap_chunk);
}

static int same_conditions(const struct served *s, const struct measurement *m, struct error *error)
{
    if (m->method != PLAN_SCALAR__COUNT && same_method(s, m, error) != 0)
        return -1;
    if (same_dense(s, m, error) != 0)
        return -1;
    if (s->knobs->routing != ROUTING_EXACT)
        return same_swap(s, error);
    if (s->policy->rule == PRECISION_RULE_HOBBIT)
        return same_hobbit(s, error);
    return s->policy->rule == PRECISION_RULE_FATE ? same_fate(s, error) : 0;
}

/* Lossless presets serve the experts as they are, but the model's dense weights. */
static int dense_loss(const struct served *s, double *loss, struct error *error)
{
    const struct measurement m = {"edgemoe", PLAN_dense_loss_high, PLAN_SCALAR__COUNT,
                                  PLAN_uniform_dense};
    if (model_dense_precision(s->model) == PRECISION_NATIVE)
        return 0;
    if (!s->plan || !plan_knows(s->plan, m.loss_high))
        return error_set(error, ERR_BAD_INPUT,
                         "the loss of the model's dense weights at %s is not measured; measure it "
                         "with 'sluice plan --preset edgemoe --dense %s' and use --plan",
                         precision_name(model_dense_precision(s->model)),
                         precision_name(model_dense_precision(s->model)));
    if (same_dense(s, &m, error) != 0)
        return -1;
    *loss = s->plan->scalar[m.loss_high];
    return 0;
}

int preset_loss(const struct served *s, double *loss, struct error *error)
{
    *loss = 0;
    if (!knobs_lossy(s->knobs))
        return dense_loss(s, loss, error);
    if (measurable(s, error) != 0)
        return -1;
    const struct measurement m = measurement_of(s->knobs, s->policy->rule);
    if (!s->plan || !plan_knows(s->plan, m.loss_high))
        return error_set(
            error, ERR_BAD_INPUT, "%s; measure it with 'sluice plan --preset %s' and use --plan",
            s->plan ? "the plan has no loss for it" : "its loss is not measured", m.preset);
    if (!recorded(s->plan, &m))
        return error_set(error, ERR_BAD_INPUT,
                         "the plan does not record how its loss was measured; run 'sluice plan "
                         "--preset %s' again",
                         m.preset);
    if (same_conditions(s, &m, error) != 0)
        return -1;
    *loss = s->plan->scalar[m.loss_high];
    return 0;
}
