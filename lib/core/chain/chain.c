/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the cores of a chain, and passes rows from part to part. */
#include "lib/core/chain/chain.h"

#include <stdlib.h>

#include "lib/base/assert.h"

#define CHAIN_MAGIC 0x4348414eu

struct chain {
    uint32_t magic;
    uint32_t count;
    bool others;                        /* a part is not on the host */
    bool finds_layer;                   /* core_find_layer */
    struct core *core[CHAIN_PARTS_MAX]; /* in the order of their layers */
    uint32_t rows_max;
    uint32_t passes;      /* of several parts */
    size_t bytes;         /* of the two below */
    struct core_row *row; /* [rows_max] */
    float *x;             /* [rows_max] rows of the residual, between two parts */
};

static struct core *last(const struct chain *c)
{
    return c->core[c->count - 1];
}

static int open_cores(struct chain *c, const struct core_config *config,
                      const struct chain_part *parts, uint32_t count, struct error *error)
{
    struct core_config one = *config;
    for (uint32_t i = 0, first = 0; i < count; i++) {
        one.device = parts[i].device;
        c->others |= parts[i].device && !parts[i].device->is_host;
        one.scratch_limit = parts[i].scratch_limit;
        one.first_layer = first;
        one.layers = parts[i].layers;
        c->core[i] = core_create(&one, error);
        if (!c->core[i])
            return -1;
        c->count++;
        first += parts[i].layers;
        uint32_t rows = core_chunk(c->core[i]);
        c->rows_max = i == 0 || rows < c->rows_max ? rows : c->rows_max;
    }
    return 0;
}

static int allocate_between(struct chain *c, uint32_t residual, struct error *error)
{
    size_t floats = (size_t)c->rows_max * residual;
    c->bytes = c->rows_max * sizeof *c->row + floats * sizeof *c->x;
    c->row = calloc(c->rows_max, sizeof *c->row);
    c->x = calloc(floats, sizeof *c->x);
    return c->row && c->x ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (model core)");
}

struct chain *chain_create(const struct core_config *config, const struct chain_part *parts,
                           uint32_t count, struct error *error)
{
    uint32_t layers = 0;
    sl_assert(count >= 1 && count <= CHAIN_PARTS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        sl_assert(parts[i].layers > 0);
        layers += parts[i].layers;
    }
    sl_assert(layers == config->model->hparams.layers);
    struct chain *c = calloc(1, sizeof *c);
    if (!c) {
        error_set(error, ERR_NO_MEMORY, "out of memory (model core)");
        return NULL;
    }
    c->magic = CHAIN_MAGIC;
    if (open_cores(c, config, parts, count, error) != 0 ||
        (count > 1 &&
         allocate_between(c, model_residual_floats(&config->model->hparams), error) != 0)) {
        chain_destroy(c);
        return NULL;
    }
    return c;
}

void chain_destroy(struct chain *c)
{
    if (!c)
        return;
    OBJ_CHECK(c, CHAIN_MAGIC);
    for (uint32_t i = 0; i < c->count; i++)
        core_destroy(c->core[i]);
    free(c->row);
    free(c->x);
    c->magic = 0;
    free(c);
}

uint32_t chain_rows(const struct chain *c)
{
    return c->rows_max;
}

void chain_prefill_order(struct chain *c, prefill_order_fn order)
{
    OBJ_CHECK(c, CHAIN_MAGIC);
    for (uint32_t i = 0; i < c->count; i++)
        core_prefill_order(c->core[i], order);
}

size_t chain_scratch_bytes(const struct chain *c)
{
    size_t bytes = c->bytes;
    for (uint32_t i = 0; i < c->count; i++)
        bytes += core_scratch_bytes(c->core[i]);
    return bytes;
}

static int pass_parts(struct chain *c, const struct core_pass *pass, struct error *error)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (core_pass_part(c->core[i], pass, c->x, c->x, error) != 0)
            return -1;
    return 0;
}

/* A part on the host that gets values that are not finite names its own first layer: the pass is
 * repeated to find the layer that made them. */
int chain_pass(struct chain *c, const struct core_pass *pass, struct error *error)
{
    OBJ_CHECK(c, CHAIN_MAGIC);
    if (c->count == 1)
        return core_pass(c->core[0], pass, error);
    sl_assert(pass->rows >= 1 && pass->rows <= c->rows_max);
    struct core_pass numbered = *pass; /* the same in all parts */
    numbered.number = pass->number ? pass->number : ++c->passes;
    if (pass_parts(c, &numbered, error) == 0)
        return 0;
    if (error->code != ERR_NOT_FINITE || !c->others || c->finds_layer)
        return -1;
    numbered.number = pass->number ? pass->number : ++c->passes;
    chain_find_layer(c, true);
    (void)pass_parts(c, &numbered, error);
    chain_find_layer(c, false);
    return -1;
}

int chain_forward(struct chain *c, const struct core_sequence *sequence, const uint32_t *tokens,
                  uint32_t position, uint32_t rows, struct error *error)
{
    OBJ_CHECK(c, CHAIN_MAGIC);
    if (c->count == 1)
        return core_forward(c->core[0], sequence, tokens, position, rows, error);
    sl_assert(rows >= 1 && rows <= c->rows_max);
    const struct core_pass pass = {
        .sequences = sequence, .sequence_count = 1, .row = c->row, .rows = rows};
    for (uint32_t r = 0; r < rows; r++)
        c->row[r] = (struct core_row){
            .position = position + r, .token = tokens[r], .prefill = core_rows_prefill(rows)};
    return chain_pass(c, &pass, error);
}

uint32_t chain_pass_number(const struct chain *c)
{
    return core_pass_number(c->core[0]);
}

float *chain_output(struct chain *c, uint32_t row, uint32_t rows)
{
    OBJ_CHECK(c, CHAIN_MAGIC);
    return core_output(last(c), row, rows);
}

uint32_t chain_output_rows(const struct chain *c)
{
    return core_output_rows(last(c));
}

void chain_score(struct chain *c, uint32_t row, uint32_t rows, const uint32_t *targets, float *out)
{
    OBJ_CHECK(c, CHAIN_MAGIC);
    core_score(last(c), row, rows, targets, out);
}

int chain_check_output(struct chain *c, const float *values, size_t count, struct error *error)
{
    OBJ_CHECK(c, CHAIN_MAGIC);
    return core_check_output(last(c), values, count, error);
}

void chain_find_layer(struct chain *c, bool on)
{
    OBJ_CHECK(c, CHAIN_MAGIC);
    c->finds_layer = on;
    for (uint32_t i = 0; i < c->count; i++)
        core_find_layer(c->core[i], on);
}
