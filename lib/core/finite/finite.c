/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are not finite. The host notes them (device.not_finite) before an operation that
 * hides them, and a text would be made of what it makes of them: rows of integers, which products
 * read, cannot hold them; clamps, ReLU and sigmoids turn an infinity into a finite number. It also
 * checks the rows after each layer. Of another device only the logits are checked, or what the next
 * part of a chain, on the host, notes in the rows that it gets; the pass is then repeated with the
 * check after each layer (core_find_layer), which finds the layer unless that device hid the
 * value. */
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

#include "lib/core/internal.h"
#include "lib/device/host/host.h"

static int not_finite(const char *where, struct error *error)
{
    return error_set(
        error, ERR_NOT_FINITE,
        "%s: values that are not finite (NaN or infinity); the model's file is damaged "
        "or was converted wrongly",
        where);
}

static bool noted(const struct core *c)
{
    return atomic_load_explicit(&c->device->not_finite, memory_order_relaxed) != 0;
}

void core_finite_begin(struct core *c)
{
    atomic_store_explicit(&c->device->not_finite, 0, memory_order_relaxed);
}

int core_finite_embeddings(struct core *c, struct error *error)
{
    size_t floats = (size_t)c->pass.step.rows * model_residual_floats(&c->hp);
    if (!c->device->is_host ||
        host_finite(device_fetch(c->device, &(struct device_result){.at = c->scratch.x},
                                 floats * sizeof(float)),
                    floats))
        return 0;
    return not_finite("the embeddings of tokens", error);
}

int core_finite_layer(struct core *c, struct error *error)
{
    char where[32];
    uint32_t n = model_residual_floats(&c->hp);
    bool finite = !noted(c);
    if (finite && (c->device->is_host || c->finds_layer))
        finite = host_finite(core_fetch_rows(c, c->scratch.x, n), (size_t)c->pass.step.rows * n);
    if (finite)
        return 0;
    snprintf(where, sizeof where, "layer %u", c->pass.step.layer);
    return not_finite(where, error);
}

void core_find_layer(struct core *c, bool on)
{
    OBJ_CHECK(c, CORE_MAGIC);
    c->finds_layer = on;
}

/* A logit of -infinity means that the token cannot follow. */
static bool usable(const float *values, size_t count)
{
    if (host_finite(values, count))
        return true;
    for (size_t i = 0; i < count; i++)
        if (isnan(values[i]) || values[i] > FLT_MAX)
            return false;
    return true;
}

int core_check_output(struct core *c, const float *values, size_t count, struct error *error)
{
    OBJ_CHECK(c, CORE_MAGIC);
    return !noted(c) && usable(values, count) ? 0 : not_finite("the output", error);
}
