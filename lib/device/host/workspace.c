/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch memory of the threads: cut from one range, by the function that also counts it. */
#include "lib/device/host/internal.h"

struct cutter {
    uint8_t *base; /* NULL: only compute sizes */
    size_t at;
};

static void *cut(struct cutter *m, size_t count, size_t bytes)
{
    size_t at = (m->at + 63) / 64 * 64;
    m->at = at + count * bytes;
    return m->base ? m->base + at : NULL;
}

/* Rows of k elements in the given forms. */
static void cut_rows(struct cutter *m, struct device_rows *r, uint32_t forms, uint32_t rows,
                     uint32_t k)
{
    device_rows_set(r, k);
    for (int i = 0; i < FORM__COUNT; i++)
        r->base[i] =
            forms & (1u << i) ? device_address(cut(m, rows, r->stride[i])) : device_address(NULL);
}

static void cut_latent(struct cutter *m, const struct device_limits *limits,
                       struct latent_scratch *t)
{
    const struct device_latent *sizes = &limits->latent;
    t->q = cut(m, (size_t)MLA_QUERIES * (sizes->nope + sizes->rope), sizeof(float));
    t->key_q = cut(m, (size_t)MLA_QUERIES * sizes->key, sizeof(float));
    cut_rows(m, &t->nope, limits->nope_forms, MLA_QUERIES, sizes->nope);
    cut_rows(m, &t->latent, limits->latent_forms, MLA_QUERIES, sizes->rank);
}

static void cut_thread(struct cutter *m, const struct device_limits *limits, struct host_thread *t)
{
    uint32_t rows = smaller(limits->rows, DEVICE_GATHER_ROWS);
    cut_rows(m, &t->gather, limits->gather_forms, rows, limits->expert_width);
    cut_rows(m, &t->inner, limits->inner_forms, rows, limits->inner);
    if (limits->latent.key > 0)
        cut_latent(m, limits, &t->latent);
    t->keys = cut(m, limits->entry_floats, sizeof(float));
    t->router = cut(m, ROUTING_SCRATCH(limits->experts), sizeof(float));
}

size_t host_workspace(const struct device *d, const struct device_limits *limits)
{
    const struct host *h = (const struct host *)(const void *)d;
    OBJ_CHECK(h, HOST_MAGIC);
    struct host_thread unused;
    struct cutter m = {0};
    for (uint32_t t = 0; t < h->threads; t++)
        cut_thread(&m, limits, &unused);
    return m.at;
}

void host_use_workspace(struct device *d, const struct device_limits *limits, struct device_at at)
{
    struct host *h = host_of(d);
    struct cutter m = {.base = device_pointer(at)};
    for (uint32_t t = 0; t < h->threads; t++)
        cut_thread(&m, limits, &h->thread[t]);
}
