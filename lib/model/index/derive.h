/* SPDX-License-Identifier: Apache-2.0 */
/* Derives tensor locations, entries and totals from the hyper-parameters and the tensor table. Used
 * to build an index and to check one, so that no derived number of an untrusted blob is used. The
 * experts of a store do not follow from tensors: they are input, with their own checks
 * (index_experts_check). */
#ifndef SLUICE_MODEL_INDEX_DERIVE_H
#define SLUICE_MODEL_INDEX_DERIVE_H

#include "lib/model/arch/table.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"

#define DENSE_MAX (MODEL_LAYERS_MAX * DENSE__COUNT + DENSE__COUNT)

struct index_derived {
    uint32_t tied_output;
    uint32_t dense_count;
    uint32_t entry_count; /* dense entries, and experts that are tensors of the file */
    uint32_t in_parts;    /* 1: INDEX_SPLIT */
    uint32_t page_count;
    uint32_t table; /* number of the dense entry of a table on storage; ENTRY_NONE: none */
    uint64_t dense_bytes;
    uint32_t dense_entry[MODEL_LAYERS_MAX + 1][DENSE__COUNT];
    uint32_t expert_tensor[MODEL_LAYERS_MAX][EXPERT_TENSORS];
    struct layer_parts layer[MODEL_LAYERS_MAX];
    /* Of the first dense_count dense entries; the rest, which is most bytes of all, is not set. */
    uint32_t dense_tensor[DENSE_MAX]; /* tensor index */
    struct arch_location dense_location[DENSE_MAX];
};

/* The model file of a store has no expert tensors; other model files have all of them. */
enum index_kind { INDEX_GGUF, INDEX_SPLIT, INDEX_STORE };

/* Locates every tensor, checks that none is missing, and counts. The caller has checked hparams,
 * the types and sizes of the tensors, and that their names are terminated. 0, or -1 with
 * ERR_BAD_INPUT. */
int index_derive(const struct arch *arch, const struct model_hparams *hparams,
                 const struct model_tensor *tensors, uint32_t tensor_count, enum index_kind kind,
                 struct index_derived *derived, struct error *error);

/* Fills *entry with entry i < derived->entry_count. */
void index_entry(const struct index_derived *derived, const struct model_hparams *hparams,
                 const struct model_tensor *tensors, uint32_t i, struct model_entry *entry);

/* Fills *entry with a page slot; derived->page_count is not 0. All are alike. */
void index_page_entry(const struct index_derived *derived, const struct model_hparams *hparams,
                      const struct model_tensor *tensors, struct model_entry *entry);

/* Fills the fields of m that follow from all entries and m->precision_mask: those about precisions,
 * absent entries and sums over experts. m may be a copy of only the header. */
void index_totals(struct model_index *m, const struct model_entry *entries);

/* The data that a store adds to its model file. Borrowed during the build. */
struct index_experts {
    uint32_t precision_mask, stripe_count;
    uint32_t part_count; /* of a delta: files of its model, in stripes[] after the stripes */
    uint8_t precision_method[PRECISION__COUNT]; /* enum quant_method */
    uint64_t checksum_count;
    const struct model_entry *entries; /* the grid: precisions * layers * experts */
    const uint64_t *checksums;
    const struct model_stripe *stripes;
    uint32_t layers, experts; /* of the grid */
    const char *arch;
};

/* Builds an index as model_index_build_source does, for the model file of a store; with experts
 * NULL for a GGUF file. */
int index_build_store(const struct gguf_source *source, const struct model_file_id *file,
                      const struct index_experts *experts, struct model_index **index,
                      struct error *error);

/* Builds an index as index_build_store does, from an open file, and drops the pages that it read
 * from the page cache. */
int index_build_fd(int fd, const struct index_experts *experts, struct model_index **index,
                   struct error *error);

/* Checks the experts and stripes of a store in an index whose counts and offsets have been checked.
 * 0, or -1 with ERR_BAD_INPUT. */
int index_experts_check(const struct model_index *m, struct error *error);

/* Sets *id to the identity of an open file. 0, or -1 with ERR_BAD_INPUT if it is not a regular
 * file, or ERR_IO. */
int index_file_id(int fd, struct model_file_id *id, struct error *error);

/* Fills m->unread from the keys that no function has read, and logs each name. It is the last step
 * of a build. */
struct gguf;
void index_report_unread(const struct gguf *gguf, struct model_index *m);

/* The hash over the layout of every struct in the blob. */
uint32_t index_layout_hash(void);

#endif
