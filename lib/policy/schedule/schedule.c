/* SPDX-License-Identifier: Apache-2.0 */
/* The order of sequences, and how many rows each of them has in a pass. */
#include "lib/policy/schedule/schedule.h"

#include <math.h>
#include <string.h>

#include "lib/base/assert.h"

/* ---- pace ------------------------------------------------------------------------------------ */

void schedule_pace_add(struct schedule_pace *p, uint32_t rows, uint64_t ns)
{
    double x = rows, y = (double)ns;
    p->weight = p->weight * SCHEDULE_PACE_KEEP + 1;
    p->rows = p->rows * SCHEDULE_PACE_KEEP + x;
    p->ns = p->ns * SCHEDULE_PACE_KEEP + y;
    p->rows_rows = p->rows_rows * SCHEDULE_PACE_KEEP + x * x;
    p->rows_ns = p->rows_ns * SCHEDULE_PACE_KEEP + x * y;
}

/* Time of a pass without rows, and of each row. */
static void line_of(const struct schedule_pace *p, double *pass_ns, double *row_ns)
{
    double spread = p->weight * p->rows_rows - p->rows * p->rows;
    double slope = (p->weight * p->rows_ns - p->rows * p->ns) / spread;
    double start = (p->ns - slope * p->rows) / p->weight;
    bool is_line = spread > 1e-6 * p->rows * p->rows && slope > 0 && start >= 0;
    *pass_ns = is_line ? start : 0;
    *row_ns = is_line ? slope : p->ns / p->rows;
}

uint32_t schedule_pace_rows(const struct schedule_pace *p, uint64_t ns, uint32_t rows_max)
{
    if (!(p->rows > 0))
        return 0;
    double pass_ns, row_ns;
    line_of(p, &pass_ns, &row_ns);
    double rows = floor(((double)ns - pass_ns) / row_ns);
    return rows >= rows_max ? rows_max : rows > 0 ? (uint32_t)rows : 0;
}

double schedule_pace_pass_rows(const struct schedule_pace *p)
{
    double pass_ns, row_ns;
    if (!(p->rows > 0))
        return 0;
    line_of(p, &pass_ns, &row_ns);
    return ceil(pass_ns / row_ns);
}

uint64_t schedule_gap_ns(const struct schedule_pace *streams)
{
    if (!(streams->weight > 0))
        return SCHEDULE_GAP_MAX_NS;
    double gap = SCHEDULE_GAP_PASSES * streams->ns / streams->weight;
    return gap < SCHEDULE_GAP_MIN_NS   ? SCHEDULE_GAP_MIN_NS
           : gap > SCHEDULE_GAP_MAX_NS ? SCHEDULE_GAP_MAX_NS
                                       : (uint64_t)gap;
}

/* ---- order ----------------------------------------------------------------------------------- */

uint64_t schedule_turn(uint64_t arrival, bool side)
{
    return 2 * (arrival + (side ? SCHEDULE_SIDE_REQUESTS : 0)) + side;
}

bool schedule_has_place(uint32_t places, uint32_t sides, bool side)
{
    return !side || places == 1 || sides + 1 < places;
}

enum place { STREAM, PROMPT, SIDE_PROMPT };

static uint64_t waits_since(const struct schedule_sequence *s)
{
    return s->served > s->since ? s->served : s->since;
}

static enum place place_of(const struct schedule_sequence *s, uint64_t pass)
{
    if (s->missing == 1)
        return STREAM;
    return s->side && pass - waits_since(s) <= SCHEDULE_SIDE_PASSES ? SIDE_PROMPT : PROMPT;
}

static bool is_before(const struct schedule_sequence *a, const struct schedule_sequence *b,
                      uint64_t pass, bool by_place)
{
    if (by_place && place_of(a, pass) != place_of(b, pass))
        return place_of(a, pass) < place_of(b, pass);
    if (waits_since(a) != waits_since(b))
        return waits_since(a) < waits_since(b);
    return a->arrival < b->arrival;
}

/* Numbers of the sequences with work, the first to serve first. */
static uint32_t sort(const struct schedule_sequence *sequences, uint32_t count, uint64_t pass,
                     bool by_place, uint32_t *order)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (sequences[i].missing == 0)
            continue;
        uint32_t at = n++;
        while (at > 0 && is_before(&sequences[i], &sequences[order[at - 1]], pass, by_place)) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    return n;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t count_streams(const struct schedule_sequence *sequences, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += sequences[i].missing == 1;
    return n;
}

/* Rows of a pass with so many streams. */
static uint32_t rows_of_pass(const struct schedule_limits *limits, const struct schedule_pace *pace,
                             uint32_t streams)
{
    if (streams == 0 || limits->gap_ns == 0)
        return limits->rows;
    uint32_t in_time = schedule_pace_rows(pace, limits->gap_ns, limits->rows);
    uint32_t least = streams + SCHEDULE_PROMPT_ROWS_MIN;
    return smaller(limits->rows, in_time > least ? in_time : least);
}

uint32_t schedule_pass(const struct schedule_sequence *sequences, uint32_t count,
                       const struct schedule_limits *limits, const struct schedule_pace *pace,
                       uint32_t *rows)
{
    sl_assert(count <= SCHEDULE_SEQUENCES_MAX && limits->rows > 0);
    uint32_t order[SCHEDULE_SEQUENCES_MAX], streams = count_streams(sequences, count);
    uint32_t n = sort(sequences, count, limits->pass, streams < limits->rows, order);
    uint32_t all = rows_of_pass(limits, pace, streams), taken = 0;
    memset(rows, 0, count * sizeof *rows);
    for (uint32_t i = 0; i < n && taken < all; i++) {
        const struct schedule_sequence *s = &sequences[order[i]];
        sl_assert(s->rows_max > 0);
        rows[order[i]] = smaller(all - taken, smaller(s->missing, s->rows_max));
        taken += rows[order[i]];
    }
    return taken;
}
