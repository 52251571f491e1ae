/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of experts: gate and up of all in one phase, down in a second. Work is divided by cost
 * over experts and outputs, so a batch of few large and many small experts is balanced. */
#include "lib/core/internal.h"

#include <string.h>

struct job_range { /* outputs [begin, end) of a job, assigned to a thread */
    uint32_t begin, end;
};

/* The batch is a range of sum(rows * n) products; a thread owns [low, high) of it. Cuts inside a
 * job are at multiples of COLUMN_UNIT outputs; both neighbours compute the same cut. */
static struct job_range range_of(const struct expert_job *job, uint32_t n, uint64_t start,
                                 uint64_t low, uint64_t high)
{
    uint64_t end = start + (uint64_t)job->rows * n;
    if (high <= start || low >= end)
        return (struct job_range){0, 0};
    uint64_t b = low <= start ? 0 : (low - start) / job->rows / COLUMN_UNIT * COLUMN_UNIT;
    uint64_t e = high >= end ? n : (high - start) / job->rows / COLUMN_UNIT * COLUMN_UNIT;
    return (struct job_range){(uint32_t)b, (uint32_t)e};
}

static uint64_t cost_of(const struct core *c, uint32_t n)
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < c->job_count; i++)
        cost += (uint64_t)c->jobs[i].rows * n;
    return cost;
}

/* Copies the rows `first` .. first + rows - 1 of a job's token list next to each other. */
static void gather_rows(struct core *c, const struct form_rows *to, const struct expert_job *job,
                        uint32_t first, uint32_t rows, uint32_t forms)
{
    for (int f = 0; f < FORM__COUNT; f++) {
        if ((forms & (1u << f)) == 0)
            continue;
        size_t stride = c->in.stride[f];
        for (uint32_t r = 0; r < rows; r++) {
            uint32_t token = c->pair_token[job->pair_base + first + r];
            memcpy(to->base[f] + r * stride, c->in.base[f] + token * stride, stride);
        }
    }
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The scale of a matrix of a job's expert, or NULL. */
static const float *scale_of(struct core *c, const struct expert_job *job, enum expert_matrix m)
{
    const float *scales = core_layer_now(c)->expert_scales[m];
    return scales ? scales + job->item->expert : NULL;
}

/* Adds the bias of the outputs [begin, end) of a matrix of n outputs, if it has one. */
static void add_bias(struct core *c, const struct expert_job *job, enum expert_matrix m,
                     struct job_range range, uint32_t n, uint32_t rows, float *y)
{
    const float *bias = core_layer_now(c)->expert_bias[m];
    for (uint32_t r = 0; bias && r < rows; r++)
        c->ops->axpy(1.0f, bias + (size_t)job->item->expert * n + range.begin,
                     range.end - range.begin, y + (size_t)r * n + range.begin);
}

static void gate_up_job(struct core *c, uint32_t part, const struct expert_job *job,
                        struct job_range range)
{
    struct kernel_matrix gate = job->item->matrix[EXPERT_GATE];
    struct kernel_matrix up = job->item->matrix[EXPERT_UP];
    for (uint32_t first = 0; first < job->rows; first += GATHER_ROWS) {
        uint32_t rows = min_u32(job->rows - first, GATHER_ROWS);
        core_alive(c, part);
        const struct form_rows *in = &c->in; /* a chunk of one row needs no gathering */
        if (c->step.rows > 1) {
            in = &c->thread[pool_me()].gather;
            gather_rows(c, in, job, first, rows, form_bit(&gate) | form_bit(&up));
        }
        float *g = c->gate + (size_t)(job->inner_base + first) * gate.n;
        float *u = c->up + (size_t)(job->inner_base + first) * up.n;
        core_product(c, &gate, scale_of(c, job, EXPERT_GATE), range.begin, range.end,
                     form_row(in, gate.type, 0), form_stride(in, gate.type), rows, g, gate.n);
        core_product(c, &up, scale_of(c, job, EXPERT_UP), range.begin, range.end,
                     form_row(in, up.type, 0), form_stride(in, up.type), rows, u, up.n);
        add_bias(c, job, EXPERT_GATE, range, gate.n, rows, g);
        add_bias(c, job, EXPERT_UP, range, up.n, rows, u);
        for (uint32_t r = 0; r < rows; r++) {
            float *at = g + (size_t)r * gate.n + range.begin;
            core_activate(c, at, u + (size_t)r * up.n + range.begin, range.end - range.begin, at);
        }
    }
}

static void gate_up_phase(void *arg, uint32_t part, uint32_t parts)
{
    struct core *c = arg;
    uint32_t n = c->hp.expert_inner;
    uint64_t cost = cost_of(c, n), start = 0;
    for (uint32_t i = 0; i < c->job_count; i++) {
        struct job_range range =
            range_of(&c->jobs[i], n, start, cost * part / parts, cost * (part + 1) / parts);
        if (range.begin < range.end)
            gate_up_job(c, part, &c->jobs[i], range);
        start += (uint64_t)c->jobs[i].rows * n;
    }
}

static void down_job(struct core *c, uint32_t part, const struct expert_job *job,
                     struct job_range range)
{
    struct kernel_matrix down = job->item->matrix[EXPERT_DOWN];
    struct form_rows *inner = &c->thread[pool_me()].inner;
    for (uint32_t first = 0; first < job->rows; first += GATHER_ROWS) {
        uint32_t rows = min_u32(job->rows - first, GATHER_ROWS);
        core_alive(c, part);
        float *g = c->gate + (size_t)(job->inner_base + first) * down.k;
        const void *x = g;
        if (kernel_form_of(down.type) != FORM_F32) {
            struct form_rows made =
                *inner; /* floats in place, blocks in the buffer of the thread */
            made.base[FORM_F32] = (uint8_t *)g;
            for (uint32_t r = 0; r < rows; r++)
                core_make_forms(c, &made, r, form_bit(&down));
            x = form_row(&made, down.type, 0);
        }
        float *y = c->pair_out + (size_t)(job->pair_base + first) * down.n;
        core_product(c, &down, scale_of(c, job, EXPERT_DOWN), range.begin, range.end, x,
                     form_stride(inner, down.type), rows, y, down.n);
        add_bias(c, job, EXPERT_DOWN, range, down.n, rows, y);
    }
}

/* Factor of the weights of a row, to include the share of skipped experts. */
static float skip_scale(const struct core *c, const struct route *routes)
{
    float all = 0, kept = 0;
    for (uint32_t rank = 0; rank < c->hp.experts_used; rank++) {
        all += routes[rank].weight;
        kept += c->items[routes[rank].expert].state == ITEM_SKIPPED ? 0 : routes[rank].weight;
    }
    return kept > 0 && kept < all ? all / kept : 1.0f;
}

/* x[begin..end) += sum over ranks, in rank order, so that the result does not depend on the order
 * of loads. */
static void sum_row(struct core *c, uint32_t row, uint32_t begin, uint32_t end)
{
    uint32_t k = c->hp.experts_used;
    const struct route *routes = c->routes + (size_t)row * k;
    const uint32_t *pair_of = c->pair_of + (size_t)row * k;
    float scale = core_sequence_of(c, row)->renormalise_skips ? skip_scale(c, routes) : 1.0f;
    for (uint32_t rank = 0; rank < k; rank++) {
        if (c->items[routes[rank].expert].state == ITEM_SKIPPED)
            continue;
        c->ops->axpy(routes[rank].weight * scale * c->residual,
                     c->pair_out + (size_t)pair_of[rank] * c->hp.hidden + begin, end - begin,
                     core_x(c, row) + begin);
    }
}

static void down_phase(void *arg, uint32_t part, uint32_t parts)
{
    struct core *c = arg;
    uint32_t n = c->hp.hidden;
    uint64_t cost = cost_of(c, n), start = 0;
    struct job_range own = {0, 0};
    if (c->sum_in_down) {
        pool_share(n, COLUMN_UNIT, part, parts, &own.begin, &own.end);
        if (own.begin == own.end)
            return;
    }
    for (uint32_t i = 0; i < c->job_count; i++) {
        struct job_range range = own;
        if (!c->sum_in_down)
            range = range_of(&c->jobs[i], n, start, cost * part / parts, cost * (part + 1) / parts);
        if (range.begin < range.end)
            down_job(c, part, &c->jobs[i], range);
        start += (uint64_t)c->jobs[i].rows * n;
    }
    if (c->sum_in_down)
        sum_row(c, 0, own.begin, own.end);
}

void core_compute_jobs(struct core *c)
{
    uint64_t one = cost_of(c, c->hp.expert_inner) * c->hp.hidden; /* one matrix of every job */
    pool_run_parts(c->pool, pool_parts(c->pool, 2 * one), gate_up_phase, c);
    pool_run_parts(c->pool, pool_parts(c->pool, one), down_phase, c);
}

static void sum_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        sum_row(c, r, 0, c->hp.hidden);
}

void core_sum_ranks(struct core *c)
{
    core_run_rows(c, c->step.rows, sum_rows);
}
