/* What follows from hyper-parameters and tensor table: places, entries, totals. Used to build the
 * index and again to check one, so that no derived number of a foreign blob is ever trusted. */
#ifndef SLUICE_MODEL_INDEX_DERIVE_H
#define SLUICE_MODEL_INDEX_DERIVE_H

#include "lib/model/arch_table.h"
#include "lib/model/model_index.h"

#define DENSE_MAX (MODEL_LAYERS_MAX * DENSE__COUNT + DENSE__COUNT)

struct index_derived {
    uint32_t tied_output;
    uint32_t dense_count, expert_entry_count, entry_count;
    uint64_t dense_bytes, expert_bytes, expert_slot_bytes, expert_slot_bytes_max;
    uint32_t dense_entry[MODEL_LAYERS_MAX + 1][DENSE__COUNT];
    uint32_t dense_tensor[DENSE_MAX]; /* tensor of each dense entry */
    struct arch_place dense_place[DENSE_MAX];
    uint32_t expert_tensor[MODEL_LAYERS_MAX][EXPERT__COUNT];
};

/* Places every tensor, checks that none is missing, and counts. Tensors' types and sizes are valid
 * and their names terminated (the caller's check); hparams were checked. 0, or -1 with
 * ERR_BAD_INPUT. */
int index_derive(enum arch_id arch, const struct model_hparams *hparams,
                 const struct model_tensor *tensors, uint32_t tensor_count,
                 struct index_derived *derived, struct error *error);

/* Entry number i of the model. */
void index_entry(const struct index_derived *derived, const struct model_hparams *hparams,
                 const struct model_tensor *tensors, uint32_t i, struct model_entry *entry);

/* Hash over the layout of every struct in the blob. */
uint32_t index_layout_hash(void);

#endif
