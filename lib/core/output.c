/* SPDX-License-Identifier: Apache-2.0 */
/* The output follows the last layer: what it reads of the residual, logits and scores. */
#include "lib/core/internal.h"

#include <string.h>

#include "lib/device/host/host.h"

void core_compute_logits(struct core *c, uint32_t row, uint32_t rows)
{
    sl_assert(rows >= 1 && rows <= c->output_rows && row + rows <= c->pass.step.rows);
    const struct core_reading r = {
        .row = row, .rows = rows, .forms = c->output_forms, .y = &c->scratch.last};
    float divisor = c->hp.logit_scale != 0 ? 1.0f / c->hp.logit_scale : c->hp.logit_divisor;
    const struct op_logits logits = {.rows = rows,
                                     .x = c->scratch.last,
                                     .w = c->output,
                                     .scale = c->output_scale,
                                     .bias = c->output_bias,
                                     .divisor = divisor,
                                     .cap = c->hp.logit_cap,
                                     .y = c->scratch.logits.at};
    core_residual_read(c, &c->output_site, &r);
    c->device->ops->logits(c->device, &logits);
}

float *core_output(struct core *c, uint32_t row, uint32_t rows)
{
    OBJ_CHECK(c, CORE_MAGIC);
    device_enter(c->device);
    if (!c->resident.logits_there) {
        core_finite_begin(c); /* what is noted from here on is of these rows */
        core_compute_logits(c, row, rows);
    }
    return device_fetch(c->device, &c->scratch.logits, (size_t)rows * c->hp.vocab * sizeof(float));
}

double core_log_sum(const float *logits, uint32_t vocab)
{
    return host_log_sum_exp(logits, vocab);
}

float core_log_probability(const float *logits, uint32_t vocab, uint32_t token)
{
    return host_log_probability(logits, vocab, token);
}

void core_score(struct core *c, uint32_t row, uint32_t rows, const uint32_t *targets, float *out)
{
    OBJ_CHECK(c, CORE_MAGIC);
    device_enter(c->device);
    core_finite_begin(c);
    for (uint32_t done = 0; done < rows;) {
        uint32_t n = rows - done < c->output_rows ? rows - done : c->output_rows;
        if (c->source.alive) /* slow with a large vocabulary */
            c->source.alive(c->source.self);
        core_compute_logits(c, row + done, n);
        const struct op_score score = {.rows = n,
                                       .vocab = c->hp.vocab,
                                       .logits = c->scratch.logits.at,
                                       .token = targets + done,
                                       .y = c->scratch.scores.at};
        c->device->ops->score(c->device, &score);
        memcpy(out + done, device_fetch(c->device, &c->scratch.scores, n * sizeof *out),
               n * sizeof *out);
        done += n;
    }
}
