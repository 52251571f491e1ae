/* SPDX-License-Identifier: Apache-2.0 */
/* The levers whose loss depends on what is resident, one at a time: cache-aware routing
 * (lib/policy/access/resident_first.h) with the most nats, and precision drop
 * (lib/policy/access/precision.h) with the smallest T2, whose loss is at most P at each of several
 * resident shares. The text is decoded token by token with a simulated cache, without prefetch;
 * what counts is the worst share.
 *
 * The loss grows with nats, and as T2 falls: a bisection over a few values finds the last one whose
 * loss on a quarter of the text is at most P. So little text has a wide bound; the bound that P is
 * compared with is that of what is held out, for this value and then for the ones before it. */
#include <math.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/offline/measure/clocked.h"
#include "lib/policy/presets/presets.h"
#include "procs/tools/plan/planning.h"

#define POLICY "eviction=learned,prediction=none,prefetch=none,preload=none,"

static const double nats_tried[] = {0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.6};
static const double t2_tried[] = {0.97, 0.94, 0.91, 0.88, 0.86, 0.84,
                                  0.82, 0.8,  0.77, 0.74, 0.7,  0.65};
static const double shares_tried[] = {0.125, 0.25, 0.5};

struct lever {
    const char *name; /* of the preset that is planned */
    const char *settings;
    const char *parameter; /* that the settings end with */
    const double *tried;   /* in ascending order of the loss */
    size_t count;
    /* of the plan; the loss has its ends after it */
    enum plan_scalar value, loss, share, dense, kv_type;
};

static const struct lever resident_first = {.name = "resident-first",
                                            .settings = POLICY "routing=resident-first,nats=",
                                            .parameter = "nats",
                                            .tried = nats_tried,
                                            .count = ARRAY_LEN(nats_tried),
                                            .value = PLAN_reroute_nats,
                                            .loss = PLAN_reroute_loss,
                                            .share = PLAN_reroute_share,
                                            .dense = PLAN_reroute_dense,
                                            .kv_type = PLAN_reroute_kv_type};

static const struct lever drop = {.name = "drop",
                                  .settings = POLICY "precision=drop,t2=",
                                  .parameter = "t2",
                                  .tried = t2_tried,
                                  .count = ARRAY_LEN(t2_tried),
                                  .value = PLAN_drop_t2,
                                  .loss = PLAN_drop_loss,
                                  .share = PLAN_drop_share,
                                  .dense = PLAN_drop_dense,
                                  .kv_type = PLAN_drop_kv_type};

struct place {
    const struct lever *lever;
    double value, share;
};

static const char *value_text(const struct lever *lever, double value, char text[32])
{
    if (lever == &drop)
        snprintf(text, 32, "T2 %g", value);
    else
        snprintf(text, 32, "%g nats", value);
    return text;
}

/* False: the capacity is below the experts of a layer. */
static bool config_of(const struct planning *p, struct place at, struct sim_config *config)
{
    struct knobs k;
    struct error error;
    char settings[160];
    uint64_t capacity = (uint64_t)(at.share * (double)p->native_bytes);
    snprintf(settings, sizeof settings, "%s%.9g", at.lever->settings, at.value);
    if (knobs_resolve("default", NULL, settings, &k, &error) != 0)
        sl_panic("%s: %s", at.lever->name, error.text);
    clocked_config(p->model, &k, NULL, p->method, capacity, config);
    return capacity / config->top_k >= config->precision_bytes[PRECISION_NATIVE];
}

/* Measured now, or by an earlier run. losses->nll: for the caller to free. */
static int losses_at(struct planning *p, const struct offline_text *text, struct place at,
                     struct offline_losses *losses, struct error *error)
{
    static const struct measured_range range = {0, 9007199254740992.0};
    struct { /* without padding */
        char name[32];
        double value, share, dense, kv_type;
    } what = {.value = at.value, .share = at.share, .dense = p->dense, .kv_type = p->kv_type};
    uint8_t key[MEASURED_KEY_BYTES];
    struct sim_config config;
    struct sim_stats stats;
    _Static_assert(sizeof what == 64, "a key");
    snprintf(what.name, sizeof what.name, "%s, segments of %d", at.lever->name, CLOCKED_SEGMENT);
    planning_key(p, text, &what, sizeof what, key);
    *losses = (struct offline_losses){.windows = text->windows, .scored = text->window - 1};
    losses->nll = calloc(text->windows, sizeof *losses->nll);
    if (losses->nll && measured_find(p->measured, key, range, losses->nll, text->windows))
        return 0;
    offline_losses_free(losses);
    struct offline_evaluation e = planning_evaluation(p, text);
    bool fits = config_of(p, at, &config);
    sl_assert(fits);
    if (clocked_evaluate(&e, &config, p->method, losses, &stats, error) != 0)
        return -1;
    p->stage.done++;
    if (measured_add(p->measured, key, losses->nll, text->windows, error) == 0)
        return 0;
    offline_losses_free(losses);
    return -1;
}

/* The loss that is compared with P: the mean of a quarter of the text, the bound of what is held
 * out. */
static bool exceeds(const struct planning *p, const struct offline_text *text,
                    const struct offline_interval *loss)
{
    return (text == &p->held ? loss->high : loss->value) > p->max_loss;
}

/* The largest of all shares, each end of the interval, too; the shares after one whose loss exceeds
 * P are not measured. ERR_NO_PLAN: no share holds the experts of a layer. */
static int worst(struct planning *p, const struct offline_text *text, const struct lever *lever,
                 double value, struct offline_interval *out, double *least, struct error *error)
{
    const struct offline_losses *native = text == &p->held ? &p->native_held : &p->native_some;
    struct sim_config config;
    *out = (struct offline_interval){-INFINITY, -INFINITY, -INFINITY};
    *least = (double)NAN;
    for (size_t i = 0; i < ARRAY_LEN(shares_tried); i++) {
        const struct place at = {lever, value, shares_tried[i]};
        struct held_domain domain[HELD_DOMAINS_MAX];
        struct offline_interval loss;
        struct offline_losses losses;
        uint32_t of;
        char line[64], what[32];
        if (!config_of(p, at, &config))
            continue;
        if (losses_at(p, text, at, &losses, error) != 0)
            return -1;
        planning_bound(p, text, native, &losses, domain, &of, &loss);
        offline_losses_free(&losses);
        planning_note(p, "  %s, %.1f %% resident%s: loss %s", value_text(lever, value, what),
                      100 * at.share, text == &p->held ? ", held out" : "",
                      planning_loss(&loss, line));
        *least = isnan(*least) ? at.share : *least;
        out->value = fmax(out->value, loss.value);
        out->low = fmax(out->low, loss.low);
        out->high = fmax(out->high, loss.high);
        if (exceeds(p, text, out))
            break;
    }
    if (isnan(*least))
        return error_set(error, ERR_NO_PLAN, "half of the experts are fewer than a layer needs");
    return 0;
}

/* How many of the values have a loss of at most P on a quarter of the text. */
static int search(struct planning *p, const struct lever *lever, size_t *good, struct error *error)
{
    size_t bad = lever->count + 1;
    *good = 0;
    while (bad - *good > 1) {
        struct offline_interval loss;
        double least;
        size_t now = (*good + bad) / 2;
        if (worst(p, &p->some, lever, lever->tried[now - 1], &loss, &least, error) != 0)
            return -1;
        *(exceeds(p, &p->some, &loss) ? &bad : good) = now;
    }
    return 0;
}

static void store(struct planning *p, const struct lever *lever, double value,
                  const struct offline_interval *loss, double least)
{
    double *s = p->plan->scalar;
    char line[64], what[32];
    s[lever->value] = value;
    s[lever->loss] = loss->value;
    s[lever->loss + 1] = loss->low;
    s[lever->loss + 2] = loss->high;
    s[lever->share] = least;
    s[lever->dense] = p->dense;
    s[lever->kv_type] = p->kv_type;
    planning_note(p, "%s: %s, from %.1f %% resident on: expected loss %s", lever->name,
                  value_text(lever, value, what), 100 * least, planning_loss(loss, line));
    json_object_set_new(p->report, lever->name,
                        json_pack("{s:f, s:f, s:f, s:f, s:f}", lever->parameter, value,
                                  "least_share", least, "loss", loss->value, "loss_low", loss->low,
                                  "loss_high", loss->high));
}

static int plan_lever(struct planning *p, const struct lever *lever, struct error *error)
{
    size_t good;
    if (search(p, lever, &good, error) != 0)
        return -1;
    for (; good > 0; good--) {
        struct offline_interval loss;
        double least, value = lever->tried[good - 1];
        if (worst(p, &p->held, lever, value, &loss, &least, error) != 0)
            return -1;
        if (exceeds(p, &p->held, &loss))
            continue;
        store(p, lever, value, &loss, least);
        return 0;
    }
    return error_set(error, ERR_NO_PLAN, "no %s keep%s the loss below %.3g %%", lever->parameter,
                     lever == &drop ? "s" : "", 100 * p->max_loss);
}

int plan_resident_first(struct planning *p, struct error *error)
{
    return plan_lever(p, &resident_first, error);
}

int plan_drop(struct planning *p, struct error *error)
{
    return plan_lever(p, &drop, error);
}
