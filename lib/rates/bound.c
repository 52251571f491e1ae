/* SPDX-License-Identifier: Apache-2.0 */
/* The least time of a pass, by what it has to read and to multiply. */
#include "lib/rates/rates.h"

static double seconds(double amount, double per_s)
{
    return per_s > 0 ? amount / per_s : 0;
}

struct rates_bound rates_bound(const struct rates_machine *m, const struct rates_pass *pass)
{
    struct rates_bound b = {.memory_s = seconds(pass->memory_bytes, m->memory),
                            .storage_s = seconds(pass->storage_bytes, m->storage),
                            .arithmetic_s = seconds(pass->row_bytes, m->arithmetic)};
    const struct {
        double s;
        const char *name;
    } limits[] = {{b.memory_s, "memory"}, {b.storage_s, "storage"}, {b.arithmetic_s, "arithmetic"}};
    b.limit = "unknown";
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].s > b.pass_s) {
            b.pass_s = limits[i].s;
            b.limit = limits[i].name;
        }
    return b;
}

/* ---- a model ---- */

static double mean_expert(const struct cost_model *m)
{
    uint32_t layers = cost_expert_layers(m, 0, m->layers);
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < m->layers; l++)
        bytes += cost_bytes_sum(&m->layer[l].expert);
    return layers > 0 ? (double)bytes / layers : 0;
}

struct rates_pass rates_pass_of(const struct cost_model *m, const struct rates_counts *n)
{
    double dense = (double)cost_bytes_sum(&m->output), kv = 0, expert = mean_expert(m);
    for (uint32_t l = 0; l < m->layers; l++) {
        dense += (double)cost_bytes_sum(&m->layer[l].dense);
        kv += (double)m->layer[l].kv;
    }
    return (struct rates_pass){.memory_bytes = dense + n->experts * expert + n->rows * kv,
                               .storage_bytes = n->bytes_read,
                               .row_bytes = n->rows * dense + n->expert_rows * expert};
}
