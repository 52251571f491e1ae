/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up presets and their parameters, and resolves settings to values. */
#include "lib/policy/presets/presets.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/tensor/precision.h"

#define SETTING_BYTES 96

static const struct preset presets[] = {
#define PRESET(name, settings, doc) {name, settings, doc},
#include "lib/policy/presets/presets.tbl.h"
};

uint32_t preset_count(void)
{
    return ARRAY_LEN(presets);
}

const struct preset *preset_at(uint32_t number)
{
    sl_assert(number < preset_count());
    return &presets[number];
}

uint32_t preset_find(const char *name)
{
    for (uint32_t i = 0; i < preset_count(); i++)
        if (strcmp(presets[i].name, name) == 0)
            return i;
    return POLICY_NONE;
}

const char *preset_names(void)
{
    static const char names[] =
#define PRESET(name, settings, doc) "|" name
#include "lib/policy/presets/presets.tbl.h"
        ;
    return names + 1;
}

/* ---- one parameter -------------------------------------------------------------------------- */

enum kind { CHOICE, F64, U64, BOOL };

struct knob {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *choices, *help;
    const char *const *names; /* choice: [count], by number */
    uint32_t count;
    double f_min, f_max;
    uint64_t u_min, u_max;
};

#define KNOB_CHOICE(n, def, type, LIST, h)                                                         \
    static const char *const n##_names[] = {LIST(CHOICE_NAME)};                                    \
    _Static_assert(sizeof(type) == sizeof(uint32_t), "a choice is stored in 32 bits");
#include "lib/policy/presets/knobs.tbl.h"

static const struct knob knobs[] = {
#define KNOB_CHOICE(n, def, type, LIST, h)                                                         \
    {.name = #n,                                                                                   \
     .kind = CHOICE,                                                                               \
     .offset = offsetof(struct knobs, n),                                                          \
     .choices = CHOICE_NAMES(LIST),                                                                \
     .names = n##_names,                                                                           \
     .count = ARRAY_LEN(n##_names),                                                                \
     .help = h},
#define KNOB_F64(n, def, l, m, h)                                                                  \
    {.name = #n,                                                                                   \
     .kind = F64,                                                                                  \
     .offset = offsetof(struct knobs, n),                                                          \
     .help = h,                                                                                    \
     .f_min = l,                                                                                   \
     .f_max = m},
#define KNOB_U64(n, def, l, m, h)                                                                  \
    {.name = #n,                                                                                   \
     .kind = U64,                                                                                  \
     .offset = offsetof(struct knobs, n),                                                          \
     .help = h,                                                                                    \
     .u_min = l,                                                                                   \
     .u_max = m},
#define KNOB_BOOL(n, def, h)                                                                       \
    {.name = #n, .kind = BOOL, .offset = offsetof(struct knobs, n), .help = h},
#include "lib/policy/presets/knobs.tbl.h"
};

static const struct knobs defaults = {
#define KNOB_CHOICE(n, def, type, LIST, h) .n = def,
#define KNOB_F64(n, def, l, m, h)          .n = def,
#define KNOB_U64(n, def, l, m, h)          .n = def,
#define KNOB_BOOL(n, def, h)               .n = def,
#include "lib/policy/presets/knobs.tbl.h"
};

static int set_choice(const struct knob *knob, const char *value, void *field, struct error *error)
{
    uint32_t n = 0;
    while (n < knob->count && strcmp(knob->names[n], value) != 0)
        n++;
    if (n == knob->count)
        return error_set(error, ERR_BAD_INPUT, "%s: '%.60s' is not one of %s", knob->name, value,
                         knob->choices);
    memcpy(field, &n, sizeof n);
    return 0;
}

static const char *choice_name(const struct knobs *k, const struct knob *knob)
{
    uint32_t n;
    memcpy(&n, (const char *)k + knob->offset, sizeof n);
    sl_assert(n < knob->count);
    return knob->names[n];
}

const char *knobs_choice(const struct knobs *k, const char *name)
{
    size_t i = 0;
    while (i < ARRAY_LEN(knobs) && strcmp(knobs[i].name, name) != 0)
        i++;
    sl_assert(i < ARRAY_LEN(knobs) && knobs[i].kind == CHOICE);
    return choice_name(k, &knobs[i]);
}

static int set_f64(const struct knob *knob, const char *value, double *field, struct error *error)
{
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || !(x >= knob->f_min && x <= knob->f_max))
        return error_set(error, ERR_BAD_INPUT, "%s: '%.60s' is not a number from %g to %g",
                         knob->name, value, knob->f_min, knob->f_max);
    *field = x;
    return 0;
}

static int set_u64(const struct knob *knob, const char *value, uint64_t *field, struct error *error)
{
    char *end;
    errno = 0;
    unsigned long long x = isdigit((unsigned char)*value) ? strtoull(value, &end, 10) : 0;
    if (!isdigit((unsigned char)*value) || *end || errno != 0 || x < knob->u_min || x > knob->u_max)
        return error_set(error, ERR_BAD_INPUT,
                         "%s: '%.60s' is not a whole number from %" PRIu64 " to %" PRIu64,
                         knob->name, value, knob->u_min, knob->u_max);
    *field = x;
    return 0;
}

static int set_bool(const struct knob *knob, const char *value, bool *field, struct error *error)
{
    bool on = strcmp(value, "on") == 0;
    if (!on && strcmp(value, "off") != 0)
        return error_set(error, ERR_BAD_INPUT, "%s: '%.60s' is not one of on|off", knob->name,
                         value);
    *field = on;
    return 0;
}

int knobs_set(struct knobs *k, const char *name, const char *value, struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(knobs); i++) {
        if (strcmp(knobs[i].name, name) != 0)
            continue;
        void *field = (char *)k + knobs[i].offset;
        switch (knobs[i].kind) {
        case CHOICE: return set_choice(&knobs[i], value, field, error);
        case F64: return set_f64(&knobs[i], value, field, error);
        case U64: return set_u64(&knobs[i], value, field, error);
        case BOOL: return set_bool(&knobs[i], value, field, error);
        }
    }
    return error_set(error, ERR_BAD_INPUT,
                     "unknown policy parameter '%.60s' (see 'sluice sim --help')", name);
}

static int apply_one(struct knobs *k, const char *from, size_t bytes, struct error *error)
{
    char pair[SETTING_BYTES];
    if (bytes >= sizeof pair)
        return error_set(error, ERR_BAD_INPUT, "policy parameter '%.60s...' is too long", from);
    memcpy(pair, from, bytes);
    pair[bytes] = 0;
    char *value = strchr(pair, '=');
    if (!value)
        return error_set(error, ERR_BAD_INPUT, "policy parameter '%.60s' is not name=value", pair);
    *value++ = 0;
    return knobs_set(k, pair, value, error);
}

int knobs_apply(struct knobs *k, const char *settings, struct error *error)
{
    struct knobs changed = *k;
    for (const char *at = settings; *at;) {
        size_t all = strcspn(at, ","), bytes = all;
        const char *from = at;
        at += all + (at[all] == ',');
        for (; bytes > 0 && isspace((unsigned char)*from); bytes--)
            from++;
        while (bytes > 0 && isspace((unsigned char)from[bytes - 1]))
            bytes--;
        if (bytes > 0 && apply_one(&changed, from, bytes, error) != 0)
            return -1;
    }
    *k = changed;
    return 0;
}

/* ---- all parameters ------------------------------------------------------------------------- */

static int check_resident_first(const struct knobs *k, struct error *error)
{
    if (k->mask != MASK_NONE)
        return error_set(error, ERR_BAD_INPUT,
                         "routing=resident-first does not go with mask=%s: within a fixed set of "
                         "experts none is missing",
                         knobs_choice(k, "mask"));
    if (k->allocation == ALLOCATE_TRANSIENT)
        return error_set(error, ERR_BAD_INPUT,
                         "routing=resident-first does not go with allocation=transient: no expert "
                         "stays resident until it could take the place of another one");
    return 0;
}

static int check(struct knobs *k, struct error *error)
{
    double sum = k->w_lru + k->w_lfu + k->w_lhu + k->w_fld;
    if (k->t1 > k->t2 && k->precision != PRECISION_RULE_DROP)
        return error_set(error, ERR_BAD_INPUT, "t1 = %g is above t2 = %g; t1 must be at most t2",
                         k->t1, k->t2);
    if (!(sum > 0))
        return error_set(error, ERR_BAD_INPUT,
                         "w_lru, w_lfu, w_lhu and w_fld are all 0; set at least one");
    if (k->routing == ROUTING_RESIDENT_FIRST && check_resident_first(k, error) != 0)
        return -1;
    if ((k->routing == ROUTING_MASKED) == (k->mask == MASK_NONE))
        return error_set(
            error, ERR_BAD_INPUT,
            "routing=%s does not go with mask=%s: masked routing and a mask need each other",
            knobs_choice(k, "routing"), knobs_choice(k, "mask"));
    if (k->precision == PRECISION_RULE_MIXED_TWO && k->allocation == ALLOCATE_PRECISIONS)
        return error_set(error, ERR_BAD_INPUT,
                         "allocation=precisions does not go with precision=mixed-two: it divides "
                         "the capacity between two precisions, and each expert has its own two");
    k->w_lru /= sum;
    k->w_lfu /= sum;
    k->w_lhu /= sum;
    k->w_fld /= sum;
    return 0;
}

int knobs_resolve(const char *preset, const char *planned, const char *overrides, struct knobs *k,
                  struct error *error)
{
    uint32_t number = preset_find(preset);
    if (number == POLICY_NONE)
        return error_set(error, ERR_BAD_INPUT, "unknown preset '%.60s'; expected one of %s", preset,
                         preset_names());
    *k = defaults;
    k->preset = number;
    if (knobs_apply(k, presets[number].settings, error) != 0)
        sl_panic("preset %s: %s", preset, error->text);
    if ((planned && knobs_apply(k, planned, error) != 0) ||
        (overrides && knobs_apply(k, overrides, error) != 0))
        return -1;
    return check(k, error);
}

struct resident_first knobs_resident_first(const struct knobs *k)
{
    return (struct resident_first){.nats = (float)k->nats, .exact_ranks = (uint32_t)k->exact_ranks};
}

bool knobs_lossy(const struct knobs *k)
{
    return k->precision != PRECISION_RULE_LOSSLESS || k->routing != ROUTING_EXACT;
}

bool knobs_need_plan(const struct knobs *k)
{
    bool by_frequency = k->eviction == EVICTION_EDGEMOE || k->eviction == EVICTION_EDGEMOE_PRINTED;
    return k->prediction == PREDICTION_PATH1 || k->prediction == PREDICTION_PATH2 ||
           k->prediction == PREDICTION_FREQUENCY || precision_by_plan(k->precision) ||
           k->mask != MASK_NONE || (k->frequency == FREQUENCY_PROFILE && by_frequency);
}

/* ---- policy objects from parameters --------------------------------------------------------- */

static int need_precisions(uint32_t wanted, uint32_t present, const char *rule, struct error *error)
{
    for (uint32_t t = 0; t < PRECISION__COUNT; t++)
        if ((wanted & ~present) >> t & 1)
            return error_set(
                error, ERR_BAD_INPUT,
                "precision=%s needs experts at %s and the model has none; create them with "
                "'sluice pack'",
                rule, precision_name((enum precision)t));
    return 0;
}

enum precision knobs_precision(enum precision_setting setting, enum precision automatic)
{
    _Static_assert(PRECISION_SETTING_NATIVE == PRECISION_NATIVE + 1 &&
                       PRECISION_SETTING_INT2 == PRECISION_INT2 + 1,
                   "settings follow enum precision");
    return setting == PRECISION_SETTING_AUTO ? automatic
                                             : (enum precision)(setting - PRECISION_SETTING_NATIVE);
}

/* Distance is a ratio: half a quarter is as far as twice a quarter. */
static enum precision quarter_of(enum precision high, uint32_t present,
                                 const uint64_t bytes[PRECISION__COUNT])
{
    enum precision best = high;
    double best_distance = INFINITY;
    for (uint32_t t = high + 1u; t < PRECISION__COUNT; t++) {
        if (!(present >> t & 1) || bytes[t] == 0 || bytes[high] == 0)
            continue;
        double distance = fabs(log2(4.0 * (double)bytes[t] / (double)bytes[high]));
        if (distance < best_distance) {
            best_distance = distance;
            best = (enum precision)t;
        }
    }
    return best;
}

int knobs_precision_policy(const struct knobs *k, uint32_t present,
                           const uint64_t bytes[PRECISION__COUNT], struct precision_policy *out,
                           struct error *error)
{
    enum precision best = PRECISION_NATIVE;
    while (best + 1 < PRECISION__COUNT && !(present >> best & 1))
        best++;
    *out = (struct precision_policy){.rule = k->precision,
                                     .t1 = (float)k->t1,
                                     .t2 = (float)k->t2,
                                     .low_fraction = (float)k->low_fraction,
                                     .slow_device = k->slow_device};
    out->high = knobs_precision(k->high, best);
    out->low = knobs_precision(k->low, quarter_of(out->high, present, bytes));
    if (out->low < out->high)
        return error_set(error, ERR_BAD_INPUT, "low=%s is a higher precision than high=%s",
                         precision_name(out->low), precision_name(out->high));
    if (out->rule == PRECISION_RULE_HOBBIT && out->low == out->high)
        return error_set(
            error, ERR_BAD_INPUT,
            "precision=hobbit needs two precisions and the model has one; create another with "
            "'sluice pack'");
    return need_precisions(precision_policy_mask(out, present), present,
                           knobs_choice(k, "precision"), error);
}

/* The usual precision of an expert under the rule. */
static enum precision usual_precision(const struct precision_policy *p)
{
    switch (p->rule) {
    case PRECISION_RULE_UNIFORM_INT8: return PRECISION_INT8;
    case PRECISION_RULE_UNIFORM_INT4: return PRECISION_INT4;
    case PRECISION_RULE_UNIFORM_INT2: return PRECISION_INT2;
    case PRECISION_RULE_HOBBIT:
    case PRECISION_RULE_FATE: return p->high;
    case PRECISION_RULE_LOSSLESS:
    case PRECISION_RULE_DROP:
    case PRECISION_RULE_EDGEMOE:
    case PRECISION_RULE_MIXED_TWO: break;
    }
    return PRECISION_NATIVE;
}

static uint32_t precision_index(enum precision precision, uint32_t present)
{
    return (uint32_t)__builtin_popcount(present & ((1u << precision) - 1));
}

void knobs_residency(const struct knobs *k, const struct precision_policy *p, uint32_t present,
                     struct residency_config *config)
{
    bool two = p->rule == PRECISION_RULE_HOBBIT || p->rule == PRECISION_RULE_FATE;
    config->high_precision = precision_index(usual_precision(p), present);
    config->low_precision = two ? precision_index(p->low, present) : config->high_precision;
    config->eviction = k->eviction;
    config->allocation = k->allocation;
    config->seed = k->seed;
    config->share_high = k->share_high;
    config->boundary = k->boundary > 0 ? (uint32_t)k->boundary : 1;
    config->w_lru = (float)k->w_lru;
    config->w_lfu = (float)k->w_lfu;
    config->w_lhu = (float)k->w_lhu;
    config->w_fld = (float)k->w_fld;
    config->fld_next = k->fld_next;
    config->records_model = k->records == RECORDS_MODEL;
}

/* ---- text ----------------------------------------------------------------------------------- */

static int value_text(const struct knobs *k, const struct knob *knob, char *buf, size_t bytes)
{
    const void *field = (const char *)k + knob->offset;
    switch (knob->kind) {
    case CHOICE: return snprintf(buf, bytes, "%s", choice_name(k, knob));
    case F64: return snprintf(buf, bytes, "%g", *(const double *)field);
    case U64: return snprintf(buf, bytes, "%" PRIu64, *(const uint64_t *)field);
    case BOOL: return snprintf(buf, bytes, "%s", *(const bool *)field ? "on" : "off");
    }
    return 0;
}

const char *knobs_text(const struct knobs *k, char *buf, size_t bytes)
{
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(knobs); i++) {
        char value[48];
        value_text(k, &knobs[i], value, sizeof value);
        int n = snprintf(buf + at, bytes - at, "%s%s=%s", i ? "," : "", knobs[i].name, value);
        if (n < 0 || at + (size_t)n >= bytes)
            break;
        at += (size_t)n;
    }
    return buf;
}

void presets_help(FILE *out)
{
    for (uint32_t i = 0; i < preset_count(); i++)
        fprintf(out, "  %-21s %s\n", presets[i].name, presets[i].doc);
}

void knobs_help(FILE *out)
{
    for (size_t i = 0; i < ARRAY_LEN(knobs); i++) {
        char value[48];
        value_text(&defaults, &knobs[i], value, sizeof value);
        fprintf(out, "  %-16s %s", knobs[i].name, knobs[i].help);
        if (knobs[i].kind == CHOICE)
            fprintf(out, "\n  %-16s %s", "", knobs[i].choices);
        fprintf(out, " [%s]\n", value);
    }
}
