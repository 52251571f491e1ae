/* SPDX-License-Identifier: Apache-2.0 */
/* Judges a plan on the text that is held out, by domain. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "procs/tools/plan/planning.h"

/* Of both halves: so many are needed for a variance. */
#define WINDOWS_MIN 2

static const char *domain_name(const struct planning *p, uint32_t domain)
{
    const char *slash = strrchr(p->text_path[domain], '/');
    return slash ? slash + 1 : p->text_path[domain];
}

/* A file that is not used is most likely a mistake. */
static void warn_of_short_files(const struct planning *p, const struct offline_text *all)
{
    bool has[HELD_DOMAINS_MAX] = {false};
    for (uint32_t w = 0; w < all->windows; w++)
        has[all->path[w]] = true;
    for (size_t d = 0; d < p->texts; d++)
        if (!has[d])
            log_warn("%.200s is not used: it has less than one window of %u tokens",
                     p->text_path[d], all->window);
}

int planning_divide_text(struct planning *p, struct error *error)
{
    struct offline_text all;
    if (offline_text_load(offline_index(p->model), p->text_path, p->texts, (uint32_t)p->window, 0,
                          &all, error) != 0)
        return -1;
    warn_of_short_files(p, &all);
    uint8_t *role = calloc(all.windows, sizeof *role);
    uint32_t count[HELD_OUT + 1] = {0}, wanted = (uint32_t)(p->tokens_max / p->window);
    int status = role ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (windows of a text)");
    if (status == 0)
        held_divide(all.path, all.windows, wanted > 0 ? wanted : 1, role);
    for (uint32_t w = 0; status == 0 && w < all.windows; w++)
        count[role[w]]++;
    if (status == 0 && (count[HELD_PLANNED] < WINDOWS_MIN || count[HELD_OUT] < WINDOWS_MIN))
        status =
            error_set(error, ERR_BAD_INPUT,
                      "%u windows of %u tokens to plan on and %u held out: at least %u of each are "
                      "needed; use longer texts",
                      count[HELD_PLANNED], all.window, count[HELD_OUT], WINDOWS_MIN);
    if (status == 0) {
        p->text = offline_text_chosen(&all, role, HELD_PLANNED);
        p->held = offline_text_chosen(&all, role, HELD_OUT);
        p->some_every = p->text.windows >= 16 ? 4 : 1;
        p->some = offline_text_some(&p->text, 0, p->some_every);
    }
    free(role);
    offline_text_free(&all);
    return status;
}

/* ---- loss ---- */

bool planning_bound(const struct planning *p, const struct offline_text *text,
                    const struct offline_losses *native, const struct offline_losses *losses,
                    struct held_domain *domain, uint32_t *worst, struct offline_interval *loss)
{
    uint32_t window = text->window,
             text_windows = window < HELD_TEXT_TOKENS ? HELD_TEXT_TOKENS / window : 1;
    struct held_domain all;
    double *delta = calloc(losses->windows, sizeof *delta);
    sl_assert(delta);
    for (uint32_t w = 0; w < losses->windows; w++)
        delta[w] = (losses->nll[w] - native->nll[w]) / losses->scored;
    bool known = held_bounds(delta, text->path, losses->windows, text_windows, (uint32_t)p->texts,
                             domain, worst, &all);
    free(delta);
    *loss = offline_loss_interval(native->nll, losses->nll, losses->windows, losses->scored, 0.95);
    if (known)
        loss->high = all.high;
    return known;
}

int planning_judge(struct planning *p, const struct serving *s, struct judged *out,
                   struct error *error)
{
    struct offline_losses losses;
    char text[64];
    *out = (struct judged){0};
    if (planning_losses(p, &p->held, s, &losses, &out->report, error) != 0)
        return -1;
    bool known =
        planning_bound(p, &p->held, &p->native_held, &losses, out->domain, &out->worst, &out->loss);
    offline_losses_free(&losses);
    if (!known)
        return error_set(
            error, ERR_BAD_INPUT,
            "the text has too few windows of %u tokens for %zu files; use a longer one",
            p->held.window, p->texts);
    planning_note(p, "  held out: loss %s, the bound is that of %s",
                  planning_loss(&out->loss, text), domain_name(p, out->worst));
    return 0;
}

/* ---- report ---- */

struct compared {
    double kld[HELD_DOMAINS_MAX], same[HELD_DOMAINS_MAX]; /* of a token: mean; share */
};

/* Of each window: KL divergence, tokens with the same best one. */
static void sum_windows(const struct offline_losses *l, double *kld, double *same)
{
    for (uint32_t w = 0; w < l->windows; w++) {
        same[w] = l->same[w];
        kld[w] = 0;
        for (uint32_t i = 0; i < l->scored; i++)
            kld[w] += (double)l->kld[(size_t)w * l->scored + i];
    }
}

static int compare_windows(struct planning *p, const struct serving *s, double *kld, double *same,
                           struct error *error)
{
    struct offline_losses losses;
    struct offline_evaluation e = planning_evaluation(p, &p->held);
    e.compare = true;
    if (serving_evaluate(&e, s, &losses, NULL, error) != 0)
        return -1;
    p->stage.done++;
    sum_windows(&losses, kld, same);
    offline_losses_free(&losses);
    return 0;
}

/* The sums of each domain. What is kept is of windows: the same text may be divided into other
 * domains. */
static int compare(struct planning *p, const struct serving *s, struct compared *out,
                   struct error *error)
{
    static const struct measured_range sums = {0, 1e15};
    uint8_t key[MEASURED_KEY_BYTES];
    size_t n = p->held.windows;
    int status = 0;
    *out = (struct compared){{0}, {0}};
    double *value = calloc(2 * n, sizeof *value);
    if (!value)
        return error_set(error, ERR_NO_MEMORY, "out of memory (comparison)");
    planning_serving_key(p, &p->held, s, "compared windows", key);
    if (!measured_find(p->measured, key, sums, value, 2 * n)) {
        status = compare_windows(p, s, value, value + n, error);
        if (status == 0)
            status = measured_add(p->measured, key, value, 2 * n, error);
    }
    for (size_t w = 0; w < n; w++) {
        out->kld[p->held.path[w]] += value[w];
        out->same[p->held.path[w]] += value[n + w];
    }
    free(value);
    return status;
}

int planning_report(struct planning *p, const char *preset, const struct serving *s,
                    const struct judged *judged, struct error *error)
{
    struct compared c;
    if (compare(p, s, &c, error) != 0)
        return -1;
    json_t *rows = json_array();
    planning_note(p,
                  "  held-out text        tokens    loss    bound  KL divergence  same best token");
    for (uint32_t d = 0; d < p->texts; d++) {
        const struct held_domain *h = &judged->domain[d];
        double tokens = (double)h->windows * (p->held.window - 1);
        if (h->windows == 0)
            continue;
        planning_note(p, "  %-20.20s %6.0f %6.2f %% %6.2f %%       %.5f        %6.2f %%",
                      domain_name(p, d), tokens, 100 * h->loss, 100 * h->high, c.kld[d] / tokens,
                      100 * c.same[d] / tokens);
        json_array_append_new(rows,
                              json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "text", domain_name(p, d),
                                        "tokens", tokens, "loss", h->loss, "bound", h->high, "kld",
                                        c.kld[d] / tokens, "top1_same", c.same[d] / tokens));
    }
    json_t *held = json_object_get(p->report, "held_out");
    if (!held) {
        held = json_object();
        json_object_set_new(p->report, "held_out", held);
    }
    json_object_set_new(held, preset, rows);
    return 0;
}
