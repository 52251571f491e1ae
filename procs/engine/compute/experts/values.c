/* SPDX-License-Identifier: Apache-2.0 */
/* Values of routers in the access log, for the recorder alone: logits with --trace-logits, gate
 * inputs with --trace-inputs, of rows that decode; and with --trace-rows rows of a table on
 * storage. A trace has them as lib/trace/trace.h says. */
#include "procs/engine/compute/experts/experts.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/tensor/half.h"
#include "lib/trace/trace.h"

/* A trace has finite values only. */
static float recordable(float x)
{
    return x >= -FLT_MAX ? (x <= FLT_MAX ? x : FLT_MAX) : -FLT_MAX;
}

static void append(struct experts *e, enum trace_kind kind, uint32_t layer,
                   const struct expert_row *row, uint32_t at, uint32_t count,
                   const uint8_t values[TRACE_VALUES])
{
    struct access_record record = {.sequence = row->sequence,
                                   .position = row->position,
                                   .layer = (uint16_t)layer,
                                   .expert = (uint16_t)at,
                                   .kind = (uint8_t)kind,
                                   .rank = (uint8_t)count};
    memcpy(record.values, values, ACCESS_VALUES_HALF);
    memcpy(record.more_values, values + ACCESS_VALUES_HALF, ACCESS_VALUES_HALF);
    access_log_append(&e->child->access_log, &record);
}

static void log_floats(struct experts *e, enum trace_kind kind, uint32_t layer,
                       const struct expert_row *row, const float *x, uint32_t n)
{
    for (uint32_t at = 0; at < n; at += TRACE_FLOATS) {
        float value[TRACE_FLOATS] = {0};
        uint8_t bytes[TRACE_VALUES];
        uint32_t count = n - at < TRACE_FLOATS ? n - at : TRACE_FLOATS;
        for (uint32_t i = 0; i < count; i++)
            value[i] = recordable(x[at + i]);
        memcpy(bytes, value, sizeof bytes);
        append(e, kind, layer, row, at, count, bytes);
    }
}

static void log_halves(struct experts *e, uint32_t layer, const struct expert_row *row,
                       const float *x, uint32_t n)
{
    for (uint32_t at = 0; at < n; at += TRACE_HALVES) {
        uint16_t value[TRACE_HALVES] = {0};
        uint8_t bytes[TRACE_VALUES];
        uint32_t count = n - at < TRACE_HALVES ? n - at : TRACE_HALVES;
        for (uint32_t i = 0; i < count; i++)
            value[i] = f32_to_f16(x[at + i]);
        memcpy(bytes, value, sizeof bytes);
        append(e, TRACE_INPUT, layer, row, at / TRACE_HALVES, count, bytes);
    }
}

void experts_log_router(struct experts *e, const struct expert_step *step, const float *logits,
                        const struct model_router *rule)
{
    const struct params *p = e->child->params;
    uint32_t layer = step->layer;
    for (uint32_t r = 0; r < step->rows && p->trace[0] && p->trace_logits; r++) {
        if (step->row[r].prefill)
            continue;
        sl_assert(layer < MODEL_LAYERS_MAX);
        if (rule->bias && !e->bias_logged[layer])
            log_floats(e, TRACE_BIAS, layer, &step->row[r], rule->bias, rule->experts);
        e->bias_logged[layer] = true;
        log_floats(e, TRACE_ROUTER, layer, &step->row[r], logits + (size_t)r * rule->experts,
                   rule->experts);
    }
}

void experts_log_table(void *self, const struct expert_step *step, const uint32_t *row,
                       uint32_t rows_of_token)
{
    struct experts *e = self;
    const struct params *p = e->child->params;
    for (uint32_t r = 0; r < step->rows && p->trace[0] && p->trace_rows; r++)
        for (uint32_t at = 0; at < rows_of_token; at += TRACE_FLOATS) {
            uint32_t value[TRACE_FLOATS] = {0}, left = rows_of_token - at;
            uint8_t bytes[TRACE_VALUES];
            uint32_t count = left < TRACE_FLOATS ? left : TRACE_FLOATS;
            memcpy(value, row + (size_t)r * rows_of_token + at, count * sizeof *value);
            memcpy(bytes, value, sizeof bytes);
            append(e, TRACE_ROWS, step->layer, &step->row[r], at, count, bytes);
        }
}

void experts_log_inputs(struct experts *e, const struct expert_step *step, const float *x,
                        uint32_t n)
{
    const struct params *p = e->child->params;
    for (uint32_t r = 0; r < step->rows && p->trace[0] && p->trace_inputs; r++)
        if (!step->row[r].prefill)
            log_halves(e, step->layer, &step->row[r], x + (size_t)r * n, n);
}
