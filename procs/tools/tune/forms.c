/* SPDX-License-Identifier: Apache-2.0 */
/* The lower precisions of all experts, for profile and plan. If they and the model's experts do not
 * fit into memory, each measurement would encode experts again, which takes longer than to read
 * them. So they are stored before the profile, and removed when there is a plan. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/offline/offline.h"
#include "procs/tools/tune/tune.h"

uint64_t form_bytes(const struct offline_model *m, uint32_t layer, enum precision x)
{
    uint64_t bytes = offline_expert_bytes(m, layer, 0, x, QUANT_METHOD_DEFAULT);
    bool smaller =
        bytes < offline_expert_bytes(m, layer, 0, PRECISION_NATIVE, QUANT_METHOD_DEFAULT);
    return smaller ? align_up(bytes, PAGE_BYTES) : 0;
}

void forms_choose(struct tune *t, const struct offline_model *m)
{
    const struct model_hparams *hp = &offline_index(m)->hparams;
    uint64_t bytes = 0;
    uint32_t mask = 0;
    for (uint32_t l = hparams_next_experts(hp, 0); l < hp->layers;
         l = hparams_next_experts(hp, l + 1))
        for (enum precision x = PRECISION_INT8; x < PRECISION__COUNT; x++) {
            uint64_t one = form_bytes(m, l, x);
            bytes += one * hp->experts;
            mask |= one > 0 ? 1u << x : 0;
        }
    bool fit = t->job.expert_bytes + (double)bytes <= (double)t->memory;
    t->job.forms = fit ? 0 : mask;
    t->job.forms_bytes = fit ? 0 : (double)bytes;
}

static int run_pack(struct tune *t, struct error *error)
{
    struct arguments a = {.count = 0};
    char list[64];
    precisions_list((uint32_t)t->job.forms, list, sizeof list);
    arguments_add(&a, "-m", t->model);
    arguments_add(&a, "-o", t->measured);
    arguments_add(&a, "--precisions", list);
    arguments_add_number(&a, "--memory", (double)memory_of_child(t));
    a.at[a.count++] = "--delta";
    return stage_run(t, "pack", a.at, true, 0, error);
}

int stage_forms(struct tune *t, struct error *error)
{
    struct error why;
    char size[16];
    if (t->job.forms == 0)
        return 0;
    uint64_t hash = XXH3_64bits_withSeed(&t->job.forms, sizeof t->job.forms, t->key);
    hash = XXH3_64bits_withSeed(t->model, strlen(t->model), hash);
    if (store_name(t, hash, t->measured, error) != 0)
        return -1;
    if (store_space(t, t->measured, (uint64_t)t->job.forms_bytes, &why) != 0) {
        fprintf(stderr,
                "sluice tune: measurements encode experts, and take longer than stated: %s\n",
                why.text);
        strcpy(t->measured, t->model);
        return 0;
    }
    fprintf(stderr,
            "sluice tune: lower precisions of all experts are stored until there is a plan: %s, "
            "about %.1f minutes\n",
            bytes_format((uint64_t)t->job.forms_bytes, size), t->left.forms / 60);
    t->left.forms = 0;
    int found = store_find(t, t->measured, error);
    if (found != 0)
        return found > 0 ? 0 : -1;
    return tunings_store_note(t->directory, t->measured, error) != 0 ? -1 : run_pack(t, error);
}

void forms_drop(struct tune *t)
{
    uint64_t bytes;
    if (strcmp(t->measured, t->model) != 0 &&
        tunings_store_drop(t->directory, t->measured, &bytes) != 0)
        fprintf(stderr, "sluice tune: cannot remove all of %s\n", t->measured);
    strcpy(t->measured, t->model);
}
