/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of operations in addition to their arguments: the largest of all operations, for the rows of a pass. Each has
 * some arrays, and those of rows once for each run of consecutive rows of a sequence. */
#include "lib/device/cuda/internal.h"

#define ATTEND_BYTES ((size_t)16 << 20) /* of attention of several rows; a row may need more */
#define ARRAYS       8                  /* of an operation, or of a run in it */

/* Bytes of rows of k elements in the largest of the forms; floats are among them. */
static size_t row_bytes(uint32_t forms, uint32_t k)
{
    size_t most = k * sizeof(float);
    for (int form = FORM_F32 + 1; form < FORM__COUNT; form++) {
        if ((forms & (1u << form)) == 0)
            continue;
        size_t bytes = kernel_activation_bytes(kernel_form_type((enum kernel_form)form), k);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t cuda_attend_bytes(const struct cuda *c, const struct device_limits *l)
{
    size_t segments = c->plan.positions / KERNEL_KEY_SEGMENT + 2;
    size_t row = segments * l->attention_floats * sizeof(float);
    return align_up(larger(row, smaller(row * l->rows, ATTEND_BYTES)), DEVICE_ALIGN);
}

/* Rows of a batch: of one expert those of the pass, of a row all its experts. */
static size_t experts_bytes(const struct device_limits *l)
{
    size_t pairs = (size_t)l->rows * l->top_k, batch = larger(l->rows, l->top_k);
    size_t gathered = 2 * batch * (row_bytes(l->gather_forms, l->hidden) + DEVICE_ALIGN);
    size_t inner = batch * (row_bytes(l->inner_forms, l->inner) + DEVICE_ALIGN);
    return pairs * sizeof(uint32_t) + larger(gathered, inner) + l->experts;
}

static size_t latent_bytes(const struct device_limits *l)
{
    const struct device_latent *m = &l->latent;
    size_t all = (size_t)l->rows * m->heads;
    return all * ((m->nope + m->rope + m->key + m->rank) * sizeof(float) +
                  row_bytes(l->nope_forms, m->nope) + row_bytes(l->latent_forms, m->rank));
}

static size_t recurrent_bytes(const struct device_limits *l)
{
    const struct device_delta *s = &l->delta;
    size_t runs = smaller(l->rows, DEVICE_SEQUENCES_MAX);
    size_t floats =
        l->channels + 2 * (size_t)s->k_heads * s->size + (size_t)s->v_heads * (s->size + 2);
    return l->rows * floats * sizeof(float) + runs * ARRAYS * DEVICE_ALIGN;
}

size_t cuda_workspace(const struct device *d, const struct device_limits *l)
{
    const struct cuda *c = (const struct cuda *)(const void *)d;
    size_t scratch = larger(larger(experts_bytes(l), latent_bytes(l)), recurrent_bytes(l));
    return cuda_attend_bytes(c, l) + align_up(scratch, DEVICE_ALIGN) + ARRAYS * DEVICE_ALIGN;
}
