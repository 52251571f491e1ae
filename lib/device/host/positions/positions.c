/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the positions that attention is over: queries and keys of an indexer, scores,
 * lists. */
#include <math.h>
#include <string.h>

#include "lib/device/host/internal.h"
#include "lib/kernels/choose.h"

#define SCORE_QUERIES 64 /* queries that read a key together, if they are of one sequence */

/* ---- heads of the indexer ---- */

void host_turn(const struct host *h, const struct device_turn *turn, float *head,
               const float *cos_sin)
{
    if (turn->dims > 0 && turn->kind == ROPE_PAIRS)
        kernel_rope_pairs(head + turn->first, turn->dims, cos_sin);
    else if (turn->dims > 0)
        h->kernels->rope(head + turn->first, turn->dims, cos_sin);
}

static void turn_head(const struct host_run *run, float *head, const float *cos_sin)
{
    const struct op_index_heads *a = run->a;
    if (a->weight.address)
        run->h->kernels->rms_norm(head, device_floats(a->weight), a->size, a->eps, head);
    host_turn(run->h, &a->turn, head, cos_sin);
    host_note(run->h, head, a->size);
}

static void head_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_index_heads *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t i = begin * a->heads; i < end * a->heads; i++)
        turn_head(run, device_floats(a->y) + (size_t)i * a->size,
                  device_floats(a->angles) + i / a->heads * a->angle_stride);
}

void host_op_index_heads(struct device *d, const struct op_index_heads *a)
{
    sl_assert(a->turn.first + a->turn.dims <= a->size);
    host_run_rows(host_of(d), a->rows, head_rows, a);
}

/* ---- keys ---- */

void host_store_index(struct host *h, const struct device_sequence *s, uint32_t size,
                      uint32_t number, const float *k)
{
    const bool half = s->index_type == KV_TYPE_F16;
    const size_t bytes = size * (half ? sizeof(uint16_t) : sizeof(float));
    void *to = device_pointer(device_offset(s->index, number * bytes));
    sl_assert(half || s->index_type == KV_TYPE_F32);
    host_note(h, k, size);
    if (half)
        h->kernels->to_f16(k, size, to);
    else
        memcpy(to, k, bytes);
}

void host_op_index_store(struct device *d, const struct op_index_store *a)
{
    const uint32_t size = a->shape.size;
    sl_assert(a->shape.unit == 1);
    for (uint32_t r = 0; r < a->rows; r++)
        host_store_index(host_of(d), &a->sequence[a->row[r].sequence], size, a->row[r].position,
                         device_floats(a->k) + (size_t)r * size);
}

/* ---- scores ---- */

/* Of the rows [row, row + rows), consecutive positions of a sequence, this part's share of what the
 * last of them sees. */
static void score_run(const struct host_run *run, uint32_t row, uint32_t rows, uint32_t part,
                      uint32_t parts)
{
    const struct op_index_scores *a = run->a;
    const struct device_index *m = &a->shape;
    const struct device_sequence *s = &a->sequence[a->row[row].sequence];
    uint32_t begin, end, lines = row * device_index_lists(m);
    struct kernel_index index = {
        .form = m->form,
        .q = device_floats(a->q) + (size_t)row * m->heads * m->size,
        .weights = device_floats(device_floats_at(a->weights, (uint64_t)row * m->heads)),
        .keys = device_pointer(s->index),
        .type = s->index_type,
        .rows = rows,
        .heads = m->heads,
        .size = m->size,
        .score = device_floats(a->score) + lines * a->stride,
        .stride = a->stride};
    uint32_t seen = device_index_seen(m, a->row[row + rows - 1].position);
    uint32_t step = host_step_rows(run->h, (uint64_t)rows * m->heads * m->size) / 64 * 64 + 64;
    sl_assert(seen <= a->stride);
    pool_share(seen, 64, part, parts, &begin, &end);
    for (uint32_t at = begin, stop; at < end; at = stop) {
        stop = end - at < step ? end : at + step;
        kernel_index_scores(run->h->kernels, &index, at, stop);
        host_attended(run->h, a->rows, (uint64_t)(stop - at) * rows * m->heads * m->size);
    }
}

static void score_part(void *arg, uint32_t part, uint32_t parts)
{
    const struct host_run *run = arg;
    const struct op_index_scores *a = run->a;
    uint32_t together = a->shape.heads < SCORE_QUERIES ? SCORE_QUERIES / a->shape.heads : 1;
    for (uint32_t r = 0, n; r < a->rows; r += n) {
        n = device_run_of(a->row + r, smaller(together, a->rows - r));
        score_run(run, r, n, part, parts);
    }
}

void host_op_index_scores(struct device *d, const struct op_index_scores *a)
{
    struct host *h = host_of(d);
    uint64_t work = 0;
    for (uint32_t r = 0; r < a->rows; r++)
        work += (uint64_t)device_index_seen(&a->shape, a->row[r].position) * a->shape.heads *
                a->shape.size;
    if (work < SERIAL_WORK)
        score_part(&(struct host_run){h, a}, 0, 1);
    else
        host_run_parts(h, pool_parts(h->pool, work), score_part, a);
}

/* ---- lists ---- */

/* The largest scores of blocks take the place of the scores. */
static uint32_t blocks_of(float *score, uint32_t n, uint32_t block)
{
    uint32_t blocks = (n + block - 1) / block;
    for (uint32_t b = 0; b < blocks && block > 1; b++) {
        uint32_t end = smaller((b + 1) * block, n);
        float most = score[b * block];
        for (uint32_t i = b * block + 1; i < end; i++)
            most = score[i] > most ? score[i] : most;
        score[b] = most;
    }
    return blocks;
}

/* The numbers of blocks become positions; `positions`: of the row that are in units. Blocks ascend,
 * so a number is read before what is written takes its place. */
static uint32_t spread(uint32_t *at, uint32_t count, uint32_t each, uint32_t positions)
{
    if (count == 0)
        return 0;
    uint32_t last = smaller(each, positions - at[count - 1] * each);
    for (uint32_t i = count; i-- > 0;) {
        uint32_t first = at[i] * each, n = i + 1 == count ? last : each;
        for (uint32_t j = n; j-- > 0;)
            at[i * each + j] = first + j;
    }
    return (count - 1) * each + last;
}

/* Line `line` of the rows. */
static uint32_t choose(const struct op_choose_positions *a, uint32_t line, uint32_t *at)
{
    const struct device_choice *c = &a->choice;
    const uint32_t position = a->row[line / device_index_lists(&a->shape)].position;
    const uint32_t seen = device_index_seen(&a->shape, position), unit = a->shape.unit;
    float *score = device_floats(a->score) + line * a->stride;
    uint32_t most = smaller(device_choice_most(&a->shape, c), position + 1), count = 0;
    sl_assert(seen <= a->stride && most <= a->list_stride && c->local <= c->k);
    if ((seen + c->block - 1) / c->block > c->k) {
        uint32_t blocks = blocks_of(score, seen, c->block);
        for (uint32_t i = 0; i < c->local; i++)
            score[blocks - 1 - i] = INFINITY;
        count = kernel_choose(score, blocks, c->k, at);
        count = spread(at, count, c->block * unit, seen * unit);
    } else {
        for (; count < seen * unit; count++)
            at[count] = count;
    }
    for (uint32_t p = seen * unit; p <= position; p++)
        at[count++] = p;
    return count;
}

static void choose_lines(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_choose_positions *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows * device_index_lists(&a->shape), 1, thread, threads, &begin, &end);
    for (uint32_t line = begin; line < end; line++) {
        uint32_t *at = (uint32_t *)device_pointer(a->at) + (size_t)line * a->list_stride;
        ((uint32_t *)device_pointer(a->count))[line] = choose(a, line, at);
        host_alive(run->h, a->rows);
    }
}

void host_op_choose_positions(struct device *d, const struct op_choose_positions *a)
{
    struct host *h = host_of(d);
    uint32_t lines = a->rows * device_index_lists(&a->shape);
    if (lines == 1)
        choose_lines(&(struct host_run){h, a}, 0, 1);
    else
        host_run_parts(h, h->threads, choose_lines, a);
}
