/* SPDX-License-Identifier: Apache-2.0 */
/* Compares small random models of every architecture (arch_vectors.py) with the Python package
 * transformers: routing and logits, on every instruction set of this machine. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/assert.h"
#include "tests/golden/compare.h"

/* Minimum compared: near-ties must not exclude most positions of a model. */
#define POSITIONS_MIN 30

static void check_model(const json_t *item)
{
    char file[128];
    const char *name = json_string_value(json_object_get(item, "name"));
    struct golden_ids ids = golden_ids_of(json_object_get(item, "ids"));
    size_t rows, vocab;
    struct image image;
    snprintf(file, sizeof file, "arch/%s.npy", name);
    float *logits = golden_npy(file, &rows, &vocab);
    snprintf(file, sizeof file, "arch/%s.gguf", name);
    image_open(&image, golden_path(file), (uint32_t)rows);
    sl_assert(rows == ids.count && vocab == image.model->hparams.vocab);
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        if (!ops)
            continue;
        printf("%s %s\n", name, ops->name);
        struct core *core = image_core(&image, ops, 2, 16);
        uint32_t compared =
            golden_compare(&image, core,
                           &(struct golden_expected){.name = name,
                                                     .ids = ids.id,
                                                     .positions = (uint32_t)rows,
                                                     .logits = logits,
                                                     .layers = json_object_get(item, "layers"),
                                                     .gap_key = "gap"});
        golden_check(compared >= POSITIONS_MIN, "%s: only %u positions", name, compared);
        core_destroy(core);
    }
    image_close(&image);
    free(logits);
    golden_ids_free(&ids);
}

int main(void)
{
    log_init("golden", LOG_LEVEL_INFO);
    json_t *models = golden_json("arch/arch.json");
    size_t i;
    json_t *item;
    json_array_foreach(models, i, item)
    {
        check_model(item);
    }
    sl_assert(i > 0);
    json_decref(models);
    return golden_result("golden arch");
}
