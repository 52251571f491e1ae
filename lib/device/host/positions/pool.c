/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of an indexer that stand for several positions: a pool of the rows of a unit, when its last
 * row is there. The rows of a unit that is not complete are in the state of the sequence. */
#include <math.h>
#include <string.h>

#include "lib/device/host/internal.h"
#include "lib/exact/elementary.h"

/* A unit: its rows, and the gates of these, if it has any. */
struct unit {
    float k[DEVICE_UNIT_MAX * DEVICE_INDEX_SIZE_MAX];
    float gate[DEVICE_UNIT_MAX * DEVICE_INDEX_SIZE_MAX];
};

/* Copies the first `rows` rows of a unit from or to a state. */
static void copy_state(const struct op_index_pool *a, struct unit *u, uint32_t rows, float *state,
                       bool load)
{
    const size_t size = a->shape.size, all = (a->shape.unit - 1) * size;
    for (int part = 0; part < (a->gates.address ? 2 : 1); part++, state += all) {
        float *own = part == 0 ? u->k : u->gate;
        if (load)
            memcpy(own, state, rows * size * sizeof *own);
        else
            memcpy(state, own, rows * size * sizeof *own);
        if (!load) /* a state is written completely */
            memset(state + rows * size, 0, (all - rows * size) * sizeof *own);
    }
}

/* The mean of each element. */
static void mean(const struct op_index_pool *a, const struct unit *u, float *y)
{
    const uint32_t n = a->shape.size, unit = a->shape.unit;
    for (uint32_t i = 0; i < n; i++) {
        float sum = 0;
        for (uint32_t j = 0; j < unit; j++)
            sum += u->k[j * n + i];
        y[i] = sum * (1.0f / (float)unit);
    }
}

/* The sum of each element, weighted by the softmax of its gates and biases over the rows. */
static void weighted(const struct op_index_pool *a, const struct unit *u, float *y)
{
    const uint32_t n = a->shape.size, unit = a->shape.unit;
    const float *bias = device_floats(a->gate_bias);
    for (uint32_t i = 0; i < n; i++) {
        float x[DEVICE_UNIT_MAX], top = -INFINITY;
        double sum = 0, all = 0;
        for (uint32_t j = 0; j < unit; j++) {
            x[j] = u->gate[j * n + i] + bias[j * n + i];
            top = x[j] > top ? x[j] : top;
        }
        for (uint32_t j = 0; j < unit; j++) {
            double p = exact_exp((double)(x[j] - top));
            sum += p;
            all += p * (double)u->k[j * n + i];
        }
        y[i] = (float)(all / sum);
    }
}

/* The key of the unit that ends at `position`. */
static void store_unit(struct host *h, const struct op_index_pool *a,
                       const struct device_sequence *s, const struct unit *u, uint32_t position)
{
    const uint32_t size = a->shape.size, number = position / a->shape.unit;
    float y[DEVICE_INDEX_SIZE_MAX], cos_sin[DEVICE_INDEX_SIZE_MAX];
    struct kernel_rope rope = a->rope;
    rope.factors = device_floats(a->factors);
    if (a->gates.address)
        weighted(a, u, y);
    else
        mean(a, u, y);
    if (a->weight.address)
        h->kernels->rms_norm(y, device_floats(a->weight), size, a->eps, y);
    if (a->turn.dims > 0)
        kernel_rope_table(&rope, number * a->shape.unit, cos_sin);
    host_turn(h, &a->turn, y, cos_sin);
    host_store_index(h, s, size, number, y);
}

static void pool_sequence(struct host *h, const struct op_index_pool *a, uint32_t number)
{
    const struct device_sequence *s = &a->sequence[number];
    const struct device_span span = device_span_of(a->row, a->rows, number);
    const uint32_t size = a->shape.size, unit = a->shape.unit;
    struct unit u;
    if (span.end == 0)
        return;
    sl_assert(s->state.address || span.first % unit == 0);
    if (s->state.address)
        copy_state(a, &u, span.first % unit, device_floats(s->state), true);
    for (uint32_t r = 0; r < a->rows; r++) {
        const uint32_t position = a->row[r].position, in = position % unit * size;
        if (a->row[r].sequence != number)
            continue;
        memcpy(u.k + in, device_floats(a->k) + (size_t)r * size, size * sizeof *u.k);
        if (a->gates.address)
            memcpy(u.gate + in, device_floats(a->gates) + (size_t)r * size, size * sizeof *u.k);
        if (position % unit == unit - 1)
            store_unit(h, a, s, &u, position);
    }
    copy_state(a, &u, span.end % unit, device_floats(s->next_state), false);
}

void host_op_index_pool(struct device *d, const struct op_index_pool *a)
{
    sl_assert(a->shape.unit > 1 && a->shape.unit <= DEVICE_UNIT_MAX &&
              a->shape.size <= DEVICE_INDEX_SIZE_MAX && a->turn.dims == a->rope.dims);
    for (uint32_t i = 0; i < a->sequences; i++)
        pool_sequence(host_of(d), a, i);
}
