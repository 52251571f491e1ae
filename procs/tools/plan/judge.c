/* SPDX-License-Identifier: Apache-2.0 */
/* Judges a plan on the text that is held out, by domain. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/tools/plan/planning.h"

/* Of both halves: so many are needed for a variance. */
#define WINDOWS_MIN 2
#define SAMPLED     4 /* windows of a domain, at most, that show whether the model can read it */
/* Of the nats per token of a guess, log(vocabulary): text with more is not read. Trained models are
 * below a half on what they were trained on. */
#define UNREADABLE (2.0 / 3)

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

/* `--domain NAME`: the name of a text, with or without its suffix. */
static bool is_named(const struct planning *p, uint32_t domain, const char *name)
{
    const char *own = domain_name(p, domain), *dot = strrchr(own, '.');
    size_t n = strlen(name);
    return strcmp(own, name) == 0 || (dot && n == (size_t)(dot - own) && !strncmp(own, name, n));
}

static int take_named(struct planning *p, struct error *error)
{
    for (uint32_t d = 0; d < p->texts; d++)
        p->counts[d] = p->domains > 0 ? DOMAIN_OTHER : DOMAIN_COUNTS;
    for (size_t i = 0; i < p->domains; i++) {
        bool found = false;
        for (uint32_t d = 0; d < p->texts; d++)
            if (is_named(p, d, p->domain[i])) {
                p->counts[d] = DOMAIN_COUNTS;
                found = true;
            }
        if (!found)
            return error_set(error, ERR_BAD_INPUT, "--domain: no --text is named '%.80s'",
                             p->domain[i]);
    }
    return 0;
}

/* Windows of all domains that are sampled: of each no more than --tokens has of it, but one. */
static uint32_t sampled_windows(const struct planning *p)
{
    uint64_t each = (uint64_t)p->tokens_max / (uint64_t)p->window / p->texts;
    each = each < 1 ? 1 : each;
    return (uint32_t)((each < SAMPLED ? each : SAMPLED) * p->texts);
}

/* Nats per token of the lossless model, of each domain of a few windows; NAN: it has none. */
static int sample_domains(struct planning *p, const struct offline_text *all, double *nats,
                          struct error *error)
{
    uint8_t *role = calloc(all->windows, sizeof *role);
    uint32_t count[HELD_DOMAINS_MAX] = {0};
    struct offline_losses losses;
    struct serving_report unused;
    if (!role)
        return error_set(error, ERR_NO_MEMORY, "out of memory (windows of a text)");
    held_divide(all->path, all->windows, sampled_windows(p), role);
    for (uint32_t w = 0; w < all->windows; w++)
        role[w] = role[w] != HELD_UNUSED;
    struct offline_text some = offline_text_chosen(all, role, true);
    free(role);
    p->stage = (struct planning_stage){.name = "texts", .whole = 1, .started_ns = clock_now_ns()};
    int status = planning_losses(p, &some, NULL, &losses, &unused, error);
    for (uint32_t d = 0; d < p->texts; d++)
        nats[d] = 0;
    for (uint32_t w = 0; status == 0 && w < some.windows; w++) {
        nats[some.path[w]] += losses.nll[w] / losses.scored;
        count[some.path[w]]++;
    }
    for (uint32_t d = 0; d < p->texts; d++)
        nats[d] = count[d] > 0 ? nats[d] / count[d] : (double)NAN;
    if (status == 0)
        offline_losses_free(&losses);
    offline_text_free(&some);
    return status;
}

/* A loss is compared where the model has something to lose. */
static int leave_unreadable(struct planning *p, const struct offline_text *all, struct error *error)
{
    double nats[HELD_DOMAINS_MAX], limit = log(offline_index(p->model)->hparams.vocab) * UNREADABLE;
    bool readable = false;
    if (p->texts < 2 || p->domains > 0)
        return 0;
    if (sample_domains(p, all, nats, error) != 0)
        return -1;
    for (uint32_t d = 0; d < p->texts; d++)
        readable |= nats[d] <= limit;
    for (uint32_t d = 0; d < p->texts && readable; d++) {
        if (isnan(nats[d]) || nats[d] <= limit)
            continue;
        p->counts[d] = DOMAIN_UNREADABLE;
        planning_note(p,
                      "%s does not count: the model cannot read it (lossless perplexity %.0f of a "
                      "vocabulary of %u); --domain %s plans for it",
                      domain_name(p, d), exp(nats[d]), offline_index(p->model)->hparams.vocab,
                      domain_name(p, d));
    }
    return 0;
}

/* The windows of `all` whose domain counts, or does not. No windows: there are none. */
static struct offline_text counted(const struct planning *p, const struct offline_text *all,
                                   bool counts)
{
    uint8_t *role = calloc(all->windows, sizeof *role);
    uint32_t windows = 0;
    if (!role)
        log_fatal(1, "out of memory (windows of a text)");
    for (uint32_t w = 0; w < all->windows; w++) {
        role[w] = (p->counts[all->path[w]] == DOMAIN_COUNTS) == counts;
        windows += role[w];
    }
    struct offline_text chosen = {0};
    if (windows > 0)
        chosen = offline_text_chosen(all, role, true);
    free(role);
    return chosen;
}

/* At most `wanted` windows, one half of them to plan on (out NULL: not needed), one held out. */
static int divide(const struct offline_text *all, uint32_t wanted, struct offline_text *planned,
                  struct offline_text *out, struct error *error)
{
    uint8_t *role = calloc(all->windows, sizeof *role);
    uint32_t count[HELD_OUT + 1] = {0};
    if (!role)
        return error_set(error, ERR_NO_MEMORY, "out of memory (windows of a text)");
    held_divide(all->path, all->windows, wanted > 0 ? wanted : 1, role);
    for (uint32_t w = 0; w < all->windows; w++)
        count[role[w]]++;
    int status = 0;
    if (planned && (count[HELD_PLANNED] < WINDOWS_MIN || count[HELD_OUT] < WINDOWS_MIN))
        status =
            error_set(error, ERR_BAD_INPUT,
                      "%u windows of %u tokens to plan on and %u held out: at least %u of each are "
                      "needed; use longer texts",
                      count[HELD_PLANNED], all->window, count[HELD_OUT], WINDOWS_MIN);
    if (status == 0 && planned)
        *planned = offline_text_chosen(all, role, HELD_PLANNED);
    if (status == 0 && count[HELD_OUT] > 0)
        *out = offline_text_chosen(all, role, HELD_OUT);
    free(role);
    return status;
}

/* What does not count has as many windows of a domain as what does, or fewer. */
static int divide_all(struct planning *p, const struct offline_text *all, struct error *error)
{
    struct offline_text counts = counted(p, all, true), other = counted(p, all, false);
    uint32_t wanted = (uint32_t)(p->tokens_max / p->window), domains = 0;
    int status = counts.windows > 0
                     ? divide(&counts, wanted, &p->text, &p->held, error)
                     : error_set(error, ERR_BAD_INPUT, "the texts of --domain have no window");
    for (uint32_t d = 0; d < p->texts; d++)
        domains += p->counts[d] == DOMAIN_COUNTS;
    if (status == 0 && other.windows > 0)
        status = divide(&other, wanted / domains * (uint32_t)(p->texts - domains), NULL, &p->other,
                        error);
    if (status == 0) {
        p->some_every = p->text.windows >= 16 ? 4 : 1;
        p->some = offline_text_some(&p->text, 0, p->some_every);
    }
    offline_text_free(&counts);
    offline_text_free(&other);
    return status;
}

int planning_divide_text(struct planning *p, struct error *error)
{
    struct offline_text all;
    if (take_named(p, error) != 0 ||
        offline_text_load(offline_index(p->model), p->text_path, p->texts, (uint32_t)p->window, 0,
                          &all, error) != 0)
        return -1;
    warn_of_short_files(p, &all);
    int status = leave_unreadable(p, &all, error);
    if (status == 0)
        status = divide_all(p, &all, error);
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

static int compare_windows(struct planning *p, const struct offline_text *text,
                           const struct serving *s, double *kld, double *same, struct error *error)
{
    struct offline_losses losses;
    if (planning_evaluate(p, text, s, true, &losses, NULL, error) != 0)
        return -1;
    p->stage.done++;
    sum_windows(&losses, kld, same);
    offline_losses_free(&losses);
    return 0;
}

/* The sums of each domain of a text. What is kept is of windows: the same text may be divided into
 * other domains. */
static int compare(struct planning *p, const struct offline_text *text, const struct serving *s,
                   struct compared *out, struct error *error)
{
    static const struct measured_range sums = {0, 1e15};
    uint8_t key[MEASURED_KEY_BYTES];
    size_t n = text->windows;
    int status = 0;
    *out = (struct compared){{0}, {0}};
    double *value = calloc(2 * n, sizeof *value);
    if (!value)
        return error_set(error, ERR_NO_MEMORY, "out of memory (comparison)");
    planning_serving_key(p, text, s, "compared windows", key);
    if (!measured_find(p->measured, key, sums, value, 2 * n)) {
        status = compare_windows(p, text, s, value, value + n, error);
        if (status == 0)
            status = measured_add(p->measured, key, value, 2 * n, error);
    }
    for (size_t w = 0; w < n; w++) {
        out->kld[text->path[w]] += value[w];
        out->same[text->path[w]] += value[n + w];
    }
    free(value);
    return status;
}

/* A row per domain of the text; without a bound if that is NAN. */
static int report_rows(struct planning *p, const struct offline_text *text, const struct serving *s,
                       const struct held_domain *domain, json_t *rows, struct error *error)
{
    struct compared c;
    if (compare(p, text, s, &c, error) != 0)
        return -1;
    for (uint32_t d = 0; d < p->texts; d++) {
        const struct held_domain *h = &domain[d];
        double tokens = (double)h->windows * (p->held.window - 1);
        bool counts = p->counts[d] == DOMAIN_COUNTS, bounded = !isnan(h->high);
        char bound[16] = "-  ";
        if (h->windows == 0)
            continue;
        if (bounded)
            snprintf(bound, sizeof bound, "%.2f %%", 100 * h->high);
        planning_note(p, "  %-20.20s %6.0f %6.2f %% %8s       %.5f        %6.2f %%%s",
                      domain_name(p, d), tokens, 100 * h->loss, bound, c.kld[d] / tokens,
                      100 * c.same[d] / tokens, counts ? "" : "  does not count");
        json_t *high = bounded ? json_real(h->high) : json_null();
        json_array_append_new(rows, json_pack("{s:s, s:b, s:f, s:f, s:o, s:f, s:f}", "text",
                                              domain_name(p, d), "counts", counts, "tokens", tokens,
                                              "loss", h->loss, "bound", high, "kld",
                                              c.kld[d] / tokens, "top1_same", c.same[d] / tokens));
    }
    return 0;
}

/* What the domains lose that do not count. */
static int report_other(struct planning *p, const struct serving *s, json_t *rows,
                        struct error *error)
{
    struct offline_losses native, losses;
    struct serving_report unused;
    struct held_domain domain[HELD_DOMAINS_MAX] = {{0}};
    struct offline_interval loss;
    uint32_t worst;
    if (planning_losses(p, &p->other, NULL, &native, &unused, error) != 0)
        return -1;
    int status = planning_losses(p, &p->other, s, &losses, &unused, error);
    if (status == 0) {
        if (!planning_bound(p, &p->other, &native, &losses, domain, &worst, &loss))
            domain[p->other.path[0]] = (struct held_domain){1, loss.value, (double)NAN};
        offline_losses_free(&losses);
        status = report_rows(p, &p->other, s, domain, rows, error);
    }
    offline_losses_free(&native);
    return status;
}

int planning_report(struct planning *p, const char *preset, const struct serving *s,
                    const struct judged *judged, struct error *error)
{
    json_t *rows = json_array();
    planning_note(p,
                  "  held-out text        tokens    loss    bound  KL divergence  same best token");
    int status = report_rows(p, &p->held, s, judged->domain, rows, error);
    if (status == 0 && p->other.windows > 0)
        status = report_other(p, s, rows, error);
    json_t *held = json_object_get(p->report, "held_out");
    if (!held) {
        held = json_object();
        json_object_set_new(p->report, "held_out", held);
    }
    json_object_set_new(held, preset, rows);
    return status;
}
