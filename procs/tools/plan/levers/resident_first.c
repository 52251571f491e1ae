/* SPDX-License-Identifier: Apache-2.0 */
/* Cache-aware routing (lib/policy/access/resident_first.h): the most nats whose loss is at most P
 * at each of several resident shares. The loss depends on what is resident, so the text is decoded
 * token by token with a simulated cache, without prefetch; what counts is the worst share.
 *
 * The loss grows with nats: a bisection over a few values finds the largest one whose loss on a
 * quarter of the text is at most P. So little text has a wide bound; the bound that P is compared
 * with is that of what is held out, for these nats and then for the next smaller ones. */
#include <math.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/offline/measure/clocked.h"
#include "lib/policy/presets/presets.h"
#include "procs/tools/plan/planning.h"

#define POLICY "eviction=learned,prediction=none,prefetch=none,preload=none,routing=resident-first,"

static const double nats_tried[] = {0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.6};
static const double shares_tried[] = {0.125, 0.25, 0.5};

struct place {
    double nats, share;
};

/* False: the capacity is below the experts of a layer. */
static bool config_of(const struct planning *p, struct place at, struct sim_config *config)
{
    struct knobs k;
    struct error error;
    char settings[160];
    uint64_t capacity = (uint64_t)(at.share * (double)p->native_bytes);
    snprintf(settings, sizeof settings, POLICY "nats=%.9g", at.nats);
    if (knobs_resolve("default", NULL, settings, &k, &error) != 0)
        sl_panic("resident-first: %s", error.text);
    clocked_config(p->model, &k, NULL, p->method, capacity, config);
    return capacity / config->top_k >= config->precision_bytes[PRECISION_NATIVE];
}

/* Measured now, or by an earlier run. losses->nll: for the caller to free. */
static int losses_at(struct planning *p, const struct offline_text *text, struct place at,
                     struct offline_losses *losses, struct error *error)
{
    static const struct measured_range range = {0, 9007199254740992.0};
    static const char name[] = "resident-first, losses";
    struct { /* without padding */
        char name[32];
        double nats, share, dense, kv_type;
    } what = {.nats = at.nats, .share = at.share, .dense = p->dense, .kv_type = p->kv_type};
    uint8_t key[MEASURED_KEY_BYTES];
    struct sim_config config;
    struct sim_stats stats;
    _Static_assert(sizeof name <= sizeof what.name && sizeof what == 64, "a key");
    memcpy(what.name, name, sizeof name);
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

/* The largest of all shares, each end of the interval, too. ERR_NO_PLAN: no share holds the experts
 * of a layer. */
static int worst(struct planning *p, const struct offline_text *text,
                 const struct offline_losses *native, double nats, struct offline_interval *out,
                 double *least, struct error *error)
{
    struct sim_config config;
    *out = (struct offline_interval){-INFINITY, -INFINITY, -INFINITY};
    *least = (double)NAN;
    for (size_t i = 0; i < ARRAY_LEN(shares_tried); i++) {
        const struct place at = {nats, shares_tried[i]};
        struct held_domain domain[HELD_DOMAINS_MAX];
        struct offline_interval loss;
        struct offline_losses losses;
        uint32_t of;
        char line[64];
        if (!config_of(p, at, &config))
            continue;
        if (losses_at(p, text, at, &losses, error) != 0)
            return -1;
        planning_bound(p, text, native, &losses, domain, &of, &loss);
        offline_losses_free(&losses);
        planning_note(p, "  %g nats, %.1f %% resident%s: loss %s", nats, 100 * at.share,
                      text == &p->held ? ", held out" : "", planning_loss(&loss, line));
        *least = isnan(*least) ? at.share : *least;
        out->value = fmax(out->value, loss.value);
        out->low = fmax(out->low, loss.low);
        out->high = fmax(out->high, loss.high);
    }
    if (isnan(*least))
        return error_set(error, ERR_NO_PLAN, "half of the experts are fewer than a layer needs");
    return 0;
}

/* How many of the values have a loss of at most P on a quarter of the text. */
static int search(struct planning *p, size_t *good, struct error *error)
{
    size_t bad = ARRAY_LEN(nats_tried) + 1;
    *good = 0;
    while (bad - *good > 1) {
        struct offline_interval loss;
        double least;
        size_t now = (*good + bad) / 2;
        if (worst(p, &p->some, &p->native_some, nats_tried[now - 1], &loss, &least, error) != 0)
            return -1;
        *(loss.value <= p->max_loss ? good : &bad) = now;
    }
    return 0;
}

static void store(struct planning *p, double nats, const struct offline_interval *loss,
                  double least)
{
    double *s = p->plan->scalar;
    char line[64];
    s[PLAN_reroute_nats] = nats;
    s[PLAN_reroute_loss] = loss->value;
    s[PLAN_reroute_loss_low] = loss->low;
    s[PLAN_reroute_loss_high] = loss->high;
    s[PLAN_reroute_share] = least;
    s[PLAN_reroute_dense] = p->dense;
    s[PLAN_reroute_kv_type] = p->kv_type;
    planning_note(p, "resident-first: %g nats, from %.1f %% resident on: expected loss %s", nats,
                  100 * least, planning_loss(loss, line));
    json_object_set_new(p->report, "resident-first",
                        json_pack("{s:f, s:f, s:f, s:f, s:f}", "nats", nats, "least_share", least,
                                  "loss", loss->value, "loss_low", loss->low, "loss_high",
                                  loss->high));
}

int plan_resident_first(struct planning *p, struct error *error)
{
    size_t good;
    if (search(p, &good, error) != 0)
        return -1;
    for (; good > 0; good--) {
        struct offline_interval loss;
        double least, nats = nats_tried[good - 1];
        if (worst(p, &p->held, &p->native_held, nats, &loss, &least, error) != 0)
            return -1;
        if (loss.high > p->max_loss)
            continue;
        store(p, nats, &loss, least);
        return 0;
    }
    return error_set(error, ERR_NO_PLAN, "no nats keep the loss below %.3g %%", 100 * p->max_loss);
}
