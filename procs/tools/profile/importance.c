/* SPDX-License-Identifier: Apache-2.0 */
/* Importance of experts (EdgeMoE §III-B1): the increase of the loss with one expert at int2 and all
 * others at int4. Groups of experts of a layer are measured first, so that every expert has an
 * early value; then single experts, in descending importance of their groups, until all or
 * --importance-experts are done, or --importance-seconds have passed. Values measured for single
 * experts are marked.
 *
 * Layers before the changed one compute the same in every measurement. So measurements are in order
 * of layers: the residual stream at the entry of a layer, with all experts at int4, is kept in a
 * file without a name, and moved from layer to layer. A measurement begins there, with the same
 * result as from the first layer. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/tensor/precision.h"
#include "procs/tools/profile/profile.h"

#define SAVE_EVERY (20 * NS_PER_S)
#define SOME       32 /* experts measured in order of layers, if the time is limited */

struct measuring {
    struct profile *p;
    struct offline_text text;
    uint8_t *precision; /* [L * E], int4 between measurements */
    struct offline_part
        part; /* first: the layer at whose entry the stream is; fd -1: always the first one */
    uint64_t started, saved, done, of;
    uint64_t first; /* of this run: `done` before it */
    uint64_t groups_left;
    bool announced;
};

static double text_tokens(const struct measuring *m)
{
    return (double)m->text.windows * (m->text.window - 1);
}

/* Once: all of them read the same. */
static void announce(void *arg, const struct offline_estimate *estimate)
{
    struct measuring *m = arg;
    char what[64];
    if (m->announced)
        return;
    m->announced = true;
    snprintf(what, sizeof what, "importance: %" PRIu64 " measurements, each", m->of - m->done + 1);
    profile_announce(m->p, what, estimate);
}

static int evaluate(struct measuring *m, struct offline_losses *losses, struct error *error)
{
    struct offline_evaluation run = {.model = m->p->model,
                                     .text = &m->text,
                                     .threads = (uint32_t)m->p->threads,
                                     .method = QUANT_METHOD_DEFAULT,
                                     .precision = m->precision,
                                     .part = &m->part,
                                     .announce = announce,
                                     .arg = m};
    return offline_evaluate(&run, losses, error);
}

/* From the layer of the stream. */
static int nats(struct measuring *m, double *out, struct error *error)
{
    struct offline_losses losses;
    if (evaluate(m, &losses, error) != 0)
        return -1;
    *out = offline_mean_nll(&losses);
    offline_losses_free(&losses);
    return 0;
}

/* Takes the stream to the entry of a layer; from the first layer again if it is after it. */
static int enter(struct measuring *m, uint32_t layer, struct error *error)
{
    struct offline_losses none;
    if (m->part.fd < 0 || layer == m->part.first)
        return 0;
    if (layer < m->part.first)
        m->part.first = 0;
    if (layer == 0)
        return 0;
    m->part.end = layer;
    int status = evaluate(m, &none, error);
    m->part.end = 0;
    if (status != 0)
        return -1;
    offline_losses_free(&none);
    m->part.first = layer;
    return 0;
}

/* The increase with experts first .. first + count - 1 of a layer at int2. */
static int rise(struct measuring *m, uint64_t first, uint32_t count, double *out,
                struct error *error)
{
    if (enter(m, (uint32_t)(first / m->p->plan->experts), error) != 0)
        return -1;
    memset(m->precision + first, PRECISION_INT2, count);
    int status = nats(m, out, error);
    memset(m->precision + first, PRECISION_INT4, count);
    *out -= m->p->plan->scalar[PLAN_importance_base];
    return status;
}

static bool time_is_up(const struct measuring *m)
{
    return m->p->importance_seconds > 0 &&
           clock_now_ns() - m->started > (uint64_t)m->p->importance_seconds * NS_PER_S;
}

static int note(struct measuring *m, struct error *error)
{
    m->done++;
    uint64_t now = clock_now_ns(), limit = UINT64_MAX;
    if (m->p->importance_seconds > 0) {
        uint64_t end = m->started + (uint64_t)m->p->importance_seconds * NS_PER_S;
        limit = end > now ? end - now : 0;
    }
    double step_ns = (double)(now - m->started) / (double)(m->done - m->first);
    struct offline_progress progress = {
        .done = m->done,
        .of = m->of,
        .left_ns = offline_left_ns(step_ns, m->groups_left, m->of - m->done, limit),
        .read_bytes = offline_read_bytes(m->p->model)};
    profile_progress(m->p, "importance", &progress);
    if (clock_now_ns() - m->saved < SAVE_EVERY)
        return 0;
    m->saved = clock_now_ns();
    return profile_save(m->p, error);
}

/* Experts of a layer that are measured together; the last of them may be fewer. */
static uint32_t group_step(const struct profile *p)
{
    return (uint32_t)p->plan->scalar[PLAN_importance_group];
}

static uint32_t group_size(const struct profile *p, uint32_t first)
{
    uint32_t left = p->plan->experts - first, step = group_step(p);
    return left < step ? left : step;
}

static uint64_t groups(const struct measuring *m)
{
    const struct model_hparams *hp = &offline_index(m->p->model)->hparams;
    uint32_t step = group_step(m->p);
    return (uint64_t)hparams_expert_layers(hp) * ((hp->experts + step - 1) / step);
}

static int measure_groups(struct measuring *m, struct error *error)
{
    struct plan *plan = m->p->plan;
    const struct model_hparams *hp = &offline_index(m->p->model)->hparams;
    for (uint32_t l = hparams_next_experts(hp, 0); l < hp->layers;
         l = hparams_next_experts(hp, l + 1))
        for (uint32_t e = 0; e < plan->experts; e += group_step(m->p)) {
            uint64_t at = profile_at(m->p, l, e);
            uint32_t n = group_size(m->p, e);
            double r;
            if (!isnan(plan_importance(plan)[at]))
                continue;
            if (rise(m, at, n, &r, error) != 0)
                return -1;
            for (uint32_t i = 0; i < n; i++)
                plan_importance(plan)[at + i] = (float)(r / n);
            m->groups_left--;
            if (note(m, error) != 0)
                return -1;
        }
    return 0;
}

struct order { /* an expert and the importance of its group */
    uint64_t at;
    float importance;
};

static int by_importance(const void *a, const void *b)
{
    const struct order *x = a, *y = b;
    if (x->importance != y->importance)
        return (x->importance < y->importance) - (x->importance > y->importance);
    return (x->at > y->at) - (x->at < y->at);
}

static int by_place(const void *a, const void *b)
{
    const struct order *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* How many of the `left` experts, of `all`, are still to be measured alone: the choice does not
 * depend on how often the program was interrupted, because the order of the others is that of their
 * groups. */
static uint64_t single_experts(const struct measuring *m, uint64_t all, uint64_t left)
{
    uint64_t limit = m->p->importance_experts < 0 ? all : (uint64_t)m->p->importance_experts;
    uint64_t done = all - left;
    return limit <= done ? 0 : limit - done < left ? limit - done : left;
}

/* In order of layers. */
static int measure_some(struct measuring *m, const struct order *order, uint64_t n,
                        struct error *error)
{
    struct plan *plan = m->p->plan;
    for (uint64_t i = 0; i < n && !time_is_up(m); i++) {
        double r;
        if (rise(m, order[i].at, 1, &r, error) != 0)
            return -1;
        plan_importance(plan)[order[i].at] = (float)r;
        plan_importance_measured(plan)[order[i].at] = 1;
        if (note(m, error) != 0)
            return -1;
    }
    return 0;
}

static int measure_experts(struct measuring *m, struct error *error)
{
    struct plan *plan = m->p->plan;
    uint64_t cells = (uint64_t)plan->layers * plan->experts, n = 0;
    struct order *order = calloc(cells, sizeof *order);
    if (!order)
        return error_set(error, ERR_NO_MEMORY, "out of memory (order of experts)");
    for (uint64_t i = 0; i < cells; i++)
        if (profile_has(m->p, i) && !plan_importance_measured(plan)[i])
            order[n++] = (struct order){.at = i, .importance = plan_importance(plan)[i]};
    qsort(order, n, sizeof *order, by_importance);
    uint64_t wanted = single_experts(m, profile_experts(m->p), n);
    uint64_t some = m->p->importance_seconds > 0 ? SOME : wanted;
    int status = 0;
    for (uint64_t i = 0, of; status == 0 && i < wanted && !time_is_up(m); i += of) {
        of = wanted - i < some ? wanted - i : some;
        qsort(order + i, of, sizeof *order, by_place);
        status = measure_some(m, order + i, of, error);
    }
    free(order);
    return status;
}

/* Whether an earlier run measured on this text. */
static bool continues(const struct measuring *m)
{
    const struct plan *plan = m->p->plan;
    return plan_knows(plan, PLAN_importance_base) &&
           plan->scalar[PLAN_importance_tokens] == text_tokens(m);
}

/* The groups of what is continued stay as they are: another size is an error. */
static int take_group(const struct measuring *m, struct error *error)
{
    struct profile *p = m->p;
    double *group = &p->plan->scalar[PLAN_importance_group], experts = p->plan->experts;
    double given = (double)(p->importance_group ? p->importance_group : OFFLINE_IMPORTANCE_GROUP);
    given = given < experts ? given : experts;
    if (!continues(m)) {
        *group = given;
        return 0;
    }
    if (isnan(*group)) /* of a file that does not state it */
        *group = OFFLINE_IMPORTANCE_GROUP < experts ? OFFLINE_IMPORTANCE_GROUP : experts;
    if (p->importance_group == 0 || *group == given)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "%.200s has importance by groups of %.0f experts: use --importance-group "
                     "%.0f, or another file",
                     p->out_path, *group, *group);
}

static int measure(struct measuring *m, struct error *error)
{
    struct plan *plan = m->p->plan;
    if (!continues(m)) {
        for (uint64_t i = 0; i < (uint64_t)plan->layers * plan->experts; i++) {
            plan_importance(plan)[i] = NAN; /* measured on other text: not comparable */
            plan_importance_measured(plan)[i] = 0;
        }
        m->done = m->first = 0;
        m->groups_left = groups(m);
        m->part.first = 0;
        if (nats(m, &plan->scalar[PLAN_importance_base], error) != 0)
            return -1;
        plan->scalar[PLAN_importance_tokens] = text_tokens(m);
    }
    if (measure_groups(m, error) != 0 || measure_experts(m, error) != 0)
        return -1;
    return profile_save(m->p, error);
}

static int open_stream(const struct measuring *m)
{
    struct error why;
    int fd = offline_part_open(m->p->out_path, offline_part_bytes(m->p->model, &m->text), &why);
    if (fd < 0)
        fprintf(stderr,
                "sluice profile: importance: every measurement begins at the first layer, and "
                "takes longer: %s\n",
                why.text);
    return fd;
}

/* What is to be measured, and what earlier runs did of it. */
static void count(struct measuring *m)
{
    const struct profile *p = m->p;
    const struct model_hparams *hp = &offline_index(p->model)->hparams;
    uint64_t cells = (uint64_t)p->plan->layers * p->plan->experts;
    uint64_t single = profile_experts(p);
    uint32_t step = group_step(p);
    if (p->importance_experts >= 0 && (uint64_t)p->importance_experts < single)
        single = (uint64_t)p->importance_experts;
    m->of = single + groups(m);
    for (uint64_t i = 0; i < cells; i++)
        m->done += plan_importance_measured(p->plan)[i];
    for (uint32_t l = hparams_next_experts(hp, 0); l < hp->layers;
         l = hparams_next_experts(hp, l + 1))
        for (uint32_t e = 0; e < hp->experts; e += step)
            if (isnan(plan_importance(p->plan)[profile_at(p, l, e)]))
                m->groups_left++;
            else
                m->done++;
    m->first = m->done;
}

int profile_importance(struct profile *p, struct error *error)
{
    if (p->importance_tokens == 0)
        return 0;
    uint64_t cells = (uint64_t)p->plan->layers * p->plan->experts;
    uint64_t wanted = (uint64_t)p->importance_tokens / p->text.window;
    uint32_t step =
        wanted > 0 && wanted < p->text.windows ? (uint32_t)(p->text.windows / wanted) : 1;
    struct measuring m = {.p = p,
                          .text = offline_text_some(&p->text, 0, step),
                          .precision = malloc(cells),
                          .part = {.fd = -1},
                          .started = clock_now_ns(),
                          .saved = clock_now_ns()};
    sl_assert(m.precision);
    memset(m.precision, PRECISION_INT4, cells);
    int status = take_group(&m, error);
    if (status == 0) {
        count(&m);
        m.part.fd = open_stream(&m);
        status = measure(&m, error);
    }
    if (m.part.fd >= 0)
        close(m.part.fd);
    offline_text_free(&m.text);
    free(m.precision);
    return status;
}
