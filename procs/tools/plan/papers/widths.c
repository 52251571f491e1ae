/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds of experts are the two uniform precisions whose losses enclose P; a bisection finds
 * the maximum number of experts that can have the lower one. The caller allows less than the user
 * does, because the loss of other text differs. */
#include "procs/tools/plan/papers/widths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"

/* A bisection ends when this share of the experts is undecided. */
#define UNDECIDED 256

static void *allocated(size_t count, size_t bytes)
{
    void *at = calloc(count, bytes);
    if (!at)
        log_fatal(1, "out of memory (search for precisions)");
    return at;
}

static bool met(const struct width_search *s, const struct offline_interval *loss)
{
    return loss->high <= s->max_loss;
}

/* `wanted`, or what it would replace if it is not smaller. */
static enum precision smaller(const struct width_search *s, uint64_t cell, enum precision now,
                              enum precision wanted)
{
    return s->cell_bytes(s->arg, cell, wanted) < s->cell_bytes(s->arg, cell, now) ? wanted : now;
}

static void set_precisions(const struct width_search *s, struct widths *w, const uint64_t *order,
                           uint64_t low_count)
{
    for (uint64_t i = 0; i < s->cells; i++) {
        uint64_t cell = order ? order[i] : i;
        enum precision high = smaller(s, cell, PRECISION_NATIVE, w->high);
        w->precision[cell] = (uint8_t)(i < low_count ? smaller(s, cell, high, w->low) : high);
    }
}

static uint64_t bytes_of(const struct width_search *s, const uint8_t *precision)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < s->cells; i++)
        bytes += s->cell_bytes(s->arg, i, (enum precision)precision[i]);
    return bytes;
}

static uint64_t uniform_bytes(const struct width_search *s, enum precision precision)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < s->cells; i++)
        bytes += s->cell_bytes(s->arg, i, precision);
    return bytes;
}

/* Dense weights alone. */
static int measure_dense(const struct width_search *s, struct widths *w, struct error *error)
{
    memset(w->precision, PRECISION_NATIVE, s->cells);
    w->dense_bytes = s->dense_bytes(s->arg, w->dense);
    if (w->dense == PRECISION_NATIVE)
        return 0; /* the lossless model */
    return s->measure(s->arg, "native experts", w->dense, w->precision, &w->dense_loss, error);
}

/* Measures uniform precisions until one does not keep to P. */
static int find_bounds(const struct width_search *s, struct widths *w, struct error *error)
{
    char what[64];
    w->high = w->low = PRECISION_NATIVE;
    w->loss = w->dense_loss;
    for (enum precision t = PRECISION_INT8; t < PRECISION__COUNT; t++) {
        if (uniform_bytes(s, t) >= uniform_bytes(s, w->high))
            continue;
        memset(w->precision, t, s->cells);
        snprintf(what, sizeof what, "uniform %s", precision_name(t));
        if (s->measure(s->arg, what, w->dense, w->precision, &w->uniform[t], error) != 0)
            return -1;
        w->uniform_mask |= 1u << t;
        w->low = t;
        if (!met(s, &w->uniform[t]))
            return 0;
        w->high = t;
        w->loss = w->uniform[t];
    }
    return 0;
}

static int bisect(const struct width_search *s, struct widths *w, const uint64_t *order,
                  struct error *error)
{
    uint64_t bad = s->cells;
    while (bad - w->low_count > (s->cells + UNDECIDED - 1) / UNDECIDED) {
        struct offline_interval loss;
        uint64_t middle = (w->low_count + bad) / 2;
        char what[64];
        set_precisions(s, w, order, middle);
        snprintf(what, sizeof what, "%llu of %llu experts at %s", (unsigned long long)middle,
                 (unsigned long long)s->cells, precision_name(w->low));
        if (s->measure(s->arg, what, w->dense, w->precision, &loss, error) != 0)
            return -1;
        if (met(s, &loss)) {
            w->low_count = middle;
            w->loss = loss;
        } else {
            bad = middle;
        }
    }
    return 0;
}

/* The experts' precisions with w->dense. */
static int search_experts(const struct width_search *s, struct widths *w, struct error *error)
{
    if (find_bounds(s, w, error) != 0)
        return -1;
    set_precisions(s, w, NULL, 0);
    if (w->low != w->high) {
        uint64_t *order = allocated(s->cells, sizeof *order);
        s->order(s->arg, w->high, w->low, order);
        int status = bisect(s, w, order, error);
        set_precisions(s, w, order, w->low_count);
        free(order);
        if (status != 0)
            return -1;
    }
    w->low_count = 0;
    for (uint64_t i = 0; w->low != w->high && i < s->cells; i++)
        w->low_count += w->precision[i] == w->low;
    w->expert_bytes = bytes_of(s, w->precision);
    return 0;
}

static bool fewer_bytes(const struct widths *a, const struct widths *b)
{
    return a->dense_bytes + a->expert_bytes < b->dense_bytes + b->expert_bytes;
}

int widths_search(const struct width_search *s, struct widths *best, struct error *error)
{
    struct widths w = {.precision = allocated(s->cells, 1)};
    uint8_t *into = best->precision, *own = w.precision;
    int status = 0;
    bool found = false;
    sl_assert(s->dense && !(s->dense & ~PRECISION_DENSE));
    for (enum precision d = PRECISION_NATIVE; d < PRECISION__COUNT && status == 0; d++) {
        if (!(s->dense >> d & 1))
            continue;
        w = (struct widths){.dense = d, .precision = own};
        status = measure_dense(s, &w, error);
        if (status != 0 || (d != PRECISION_NATIVE && !met(s, &w.dense_loss)))
            continue;
        status = search_experts(s, &w, error);
        if (status == 0 && (!found || fewer_bytes(&w, best))) {
            memcpy(into, own, s->cells);
            *best = w;
            best->precision = into;
            found = true;
        }
    }
    free(own);
    if (status == 0 && !found)
        return error_set(error, ERR_NO_PLAN,
                         "dense weights at %s alone lose %.2f %% (at most %.2f %%): more than "
                         "--max-loss",
                         precision_name(w.dense), 100 * w.dense_loss.value,
                         100 * w.dense_loss.high);
    return status;
}
