/* SPDX-License-Identifier: Apache-2.0 */
/* The model segment: a flat, validated index of a model, which is a GGUF file or an expert store
 * (lib/model/store/store.h). inspect writes it once; all other processes map it read-only. It has
 * offsets instead of pointers. No field is trusted before model_index_check has accepted the blob.
 *
 * Layout:  struct model_index | tensors[] | entries[] | checksums[] | stripes[] | tokenizer blob |
 * chat template
 *
 * An *entry* is the unit of the directory, the cache and the loaders: one expert at one precision,
 * or one dense tensor. A dense tensor has one extent, an expert of a GGUF file one per matrix, an
 * expert of a store one. For each extent, the entry's slot in the arena has the page-aligned
 * superset of the file bytes, so that O_DIRECT can read into it: the payload of extent x starts at
 * slot_offset + head_bytes. A matrix that an expert does not have is all zeros, without an extent.
 *
 * A table of which a token reads a few rows (DENSE_NGRAM_TABLE) is on storage: its dense entry says
 * where, and is never loaded. Instead there are entries for a fixed number of its pages, *page
 * slots*. Which page of the table such an entry has is set in the directory when it is reserved.
 *
 * Entry numbers are those of the directory: first the dense entries (model_entry_dense), then, for
 * each precision of the model (ascending enum precision), the experts ordered by layer, then
 * expert, then the page slots. The experts are a full grid: entry = precision_first[precision] +
 * layer * experts + expert. A GGUF file has only the native precision. A store may lack some
 * experts at a precision, and layers without experts have none at any. Such an entry is *absent*:
 * it is in the grid but has no extents, is never loaded, and model_entry_expert_precision does not
 * return it.
 *
 * Striping: `shards` loaders read an entry in shards (model_entry_shard). Entries of the model file
 * are divided evenly. Each part of a split GGUF file (lib/model/gguf/split.h) has its own loader.
 * For an entry of a store the division is fixed: one shard per stripe file, all at the same offset
 * of their files, or all of it in one stripe. */
#ifndef SLUICE_MODEL_INDEX_MODEL_INDEX_H
#define SLUICE_MODEL_INDEX_MODEL_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"
#include "lib/model/arch/arch.h"
#include "lib/model/chat/chat.h"
#include "lib/model/limits.h"
#include "lib/model/table_pages.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

#define MODEL_INDEX_MAGIC   0x58444e4943554c53ull /* "SLUCINDX" */
#define MODEL_INDEX_VERSION 5u
#define MODEL_UNREAD_BYTES  1024
#define MATRIX_ALIGN        64 /* alignment of a matrix inside the slot of a store's entry */
#define ENTRY_EXTENTS_MAX   3
#define ENTRY_NONE          UINT32_MAX

enum entry_kind { ENTRY_DENSE, ENTRY_EXPERT, ENTRY_PAGE };

/* A stripe file of a store, or a part of a split GGUF file or of the model file of a delta
 * (store.h). */
struct model_stripe {
    struct model_file_id file;
    char path[MODEL_PATH_BYTES];   /* absolute, NUL-terminated */
    char mirror[MODEL_PATH_BYTES]; /* likewise, a file with the same bytes; "": none */
};

/* One run of file bytes of an entry, and its position in the entry's slot. */
struct model_extent {
    uint64_t file_offset; /* page-aligned start of the superset; in_store: in each stripe file */
    /* Of the superset: whole pages, which may pass the end of the file by less than a page. */
    uint64_t read_bytes;
    uint64_t slot_offset; /* page-aligned, from the slot's start */
    uint32_t head_bytes;  /* payload starts at slot_offset + head_bytes; < page */
    uint32_t tensor;      /* index into tensors[]; in_store: ENTRY_NONE */
    uint64_t payload_bytes;
    uint32_t part; /* of a split model, or of a delta's; with in_parts the number of its loader */
    uint32_t reserved;
};

/* One matrix of an expert inside its entry's slot: n rows of k elements. */
struct model_matrix {
    uint32_t type; /* enum tensor_type */
    uint32_t k, n;
    uint32_t reserved;
    uint64_t row_bytes;
    uint64_t slot_offset; /* of the payload, from the slot's start */
};

struct model_entry {
    uint16_t kind;      /* enum entry_kind */
    uint16_t precision; /* enum precision */
    uint16_t layer;     /* UINT16_MAX: a dense tensor outside the layers */
    uint16_t expert;
    uint32_t extents;        /* 0: absent */
    uint32_t role;           /* enum dense_role for dense entries */
    uint32_t in_store;       /* 1: in the stripe files; 0: in the model file */
    uint32_t checksum_first; /* index into checksums[], one per stripe; ENTRY_NONE: unknown */
    uint32_t only_stripe;    /* in_store: 1 + the stripe that has all of it; 0: in all stripes */
    uint32_t in_parts;       /* 1: extents have the part that they are in: a loader's number */
    uint64_t slot_bytes;     /* pages of all extents */
    uint64_t payload_bytes;
    struct model_extent extent[ENTRY_EXTENTS_MAX];
    struct model_matrix matrix[EXPERT__COUNT]; /* of an expert, by enum expert_matrix */
};

struct model_index {
    uint64_t magic;
    uint32_t version;
    uint32_t layout_hash;      /* over sizeof/offsetof of the structs above */
    uint64_t bytes;            /* of the whole blob */
    struct model_file_id file; /* the GGUF file (the first part), or the model.gguf of a store */
    char arch[32];
    char name[128];         /* general.name, for display */
    struct model_chat chat; /* format of its conversations */
    struct model_hparams hparams;
    uint32_t tensor_count, entry_count;
    uint32_t dense_count, expert_entry_count;   /* of entries; with page_count the entry_count */
    uint32_t precision_mask;                    /* 1 << enum precision of those that have a grid */
    uint32_t precision_count;                   /* the number of them */
    uint32_t precision_first[PRECISION__COUNT]; /* first entry of its grid; ENTRY_NONE: no grid */
    uint32_t precision_entries[PRECISION__COUNT]; /* experts present at that precision */
    uint8_t precision_method[PRECISION__COUNT];   /* enum quant_method; of absent ones: copy */
    uint32_t stripe_count;                        /* of a store; 0: a GGUF file */
    uint32_t part_count;   /* files of a split model, or of a delta's: after the stripes */
    uint32_t page_count;   /* page slots of a table on storage: whole sets; 0: there is none */
    uint32_t absent_count; /* absent entries of all precisions */
    uint64_t tensors_offset, entries_offset;
    uint64_t checksums_offset, checksum_count; /* u64 each: XXH3-64 of an entry's shard as stored */
    uint64_t stripes_offset;
    uint64_t tokenizer_offset, tokenizer_bytes;
    uint64_t template_offset, template_bytes; /* of the chat, as in the file; 0 bytes: none */
    uint64_t tools_template_offset, tools_template_bytes; /* of chats with tools; 0 bytes: none */
    /* The keys of the file that were not read, without those of harmless.tbl.h: their number, and
     * the names of the first ones, each with a newline after it, as printable() makes them. */
    uint64_t unread_count;
    char unread[MODEL_UNREAD_BYTES];
    /* Of the arena what is not for experts: slot_bytes of dense entries, without a table on
     * storage, and of page slots. */
    uint64_t dense_bytes;
    /* Sums over experts, each at its best available precision. */
    uint64_t expert_bytes;                           /* payload_bytes */
    uint64_t expert_slot_bytes;                      /* slot_bytes */
    uint64_t expert_slot_bytes_max;                  /* largest slot of an expert, all precisions */
    uint64_t precision_bytes[PRECISION__COUNT];      /* payload of all experts at that precision */
    uint64_t precision_slot_bytes[PRECISION__COUNT]; /* their slots */
    /* ENTRY_NONE: absent; row `layers` has the global tensors. */
    uint32_t dense_entry[MODEL_LAYERS_MAX + 1][DENSE__COUNT];
    struct layer_parts layer[MODEL_LAYERS_MAX]; /* what each layer consists of */
};

/* Parses and checks the GGUF file (v2, v3) open at fd, and returns a newly allocated index (caller
 * frees). Of a split model, fd is the first part; `path` names the others. All checks of the format
 * are here; the header is not read again afterwards. Memory is proportional to the header. Reads
 * with pread, and drops the page cache of what it read
 * (POSIX_FADV_DONTNEED). 0, or -1 with ERR_BAD_INPUT (one line that names `path` and the cause),
 * ERR_IO, ERR_GONE (the file changed meanwhile) or ERR_NO_MEMORY. */
int model_index_build(int fd, const char *path, struct model_index **index, struct error *error);

/* Opens a model for reading; of a split model the first part, whichever part `path` names. Returns
 * a descriptor, which the caller closes, or -1 with errno and *error (ERR_BAD_INPUT). flags: more
 * flags of open. */
int model_open(const char *path, int flags, struct error *error);

/* Builds an index as model_index_build does, from files that are all open, for a process that may
 * not open files. */
struct gguf_parts;
int model_index_build_parts(struct gguf_parts *parts, struct model_index **index,
                            struct error *error);

/* Builds an index from any source of bytes (gguf.h), for tests and fuzzing. `file` is copied into
 * the index. The error has no path. */
struct gguf_source;
int model_index_build_source(const struct gguf_source *source, const struct model_file_id *file,
                             struct model_index **index, struct error *error);

/* Checks a mapped or received blob of `bytes` bytes completely (magic, version, hash, every offset
 * and count, every entry inside its tensor, the tokenizer) before it is used. 0, or -1 with
 * ERR_BAD_INPUT. */
int model_index_check(const struct model_index *index, uint64_t bytes, struct error *error);

/* Why the engine computes no sequence of more than model_context tokens, although the model does;
 * "" if it computes what the model does. Returns text. */
#define MODEL_LIMIT_BYTES 224
const char *model_limit_text(const struct model_index *m, char text[MODEL_LIMIT_BYTES]);

/* Whether the engine computes what the model does in sequences of that many tokens; what: the
 * option that states the number. 0, or -1 with ERR_BAD_INPUT. */
int model_check_tokens(const struct model_index *m, uint64_t tokens, const char *what,
                       struct error *error);

static inline const struct model_tensor *model_index_tensors(const struct model_index *m)
{
    return (const struct model_tensor *)((const char *)m + m->tensors_offset);
}

static inline const struct model_entry *model_index_entries(const struct model_index *m)
{
    return (const struct model_entry *)((const char *)m + m->entries_offset);
}

static inline const uint64_t *model_index_checksums(const struct model_index *m)
{
    return (const uint64_t *)(const void *)((const char *)m + m->checksums_offset);
}

static inline const struct model_stripe *model_index_stripes(const struct model_index *m)
{
    return (const struct model_stripe *)((const char *)m + m->stripes_offset);
}

/* The file of a store or of a split model that a loader reads; NULL: it reads the model file. */
static inline const struct model_stripe *model_loader_file(const struct model_index *m,
                                                           uint32_t loader)
{
    return m->stripe_count + m->part_count > 0 ? &model_index_stripes(m)[loader] : NULL;
}

/* The chat template: m->template_bytes bytes, which are not NUL-terminated. */
static inline const char *model_index_template(const struct model_index *m)
{
    return (const char *)m + m->template_offset;
}

/* The template of chats with tools: m->tools_template_bytes bytes, which are not NUL-terminated. */
static inline const char *model_index_tools_template(const struct model_index *m)
{
    return (const char *)m + m->tools_template_offset;
}

/* The entry number of an expert at a precision; ENTRY_NONE if it is absent there. Layer, expert and
 * precision must be in range. */
static inline uint32_t model_entry_expert_precision(const struct model_index *m, uint32_t layer,
                                                    uint32_t expert, enum precision precision)
{
    if (!(m->precision_mask & 1u << precision))
        return ENTRY_NONE;
    uint32_t entry = m->precision_first[precision] + layer * m->hparams.experts + expert;
    return m->absent_count == 0 || model_index_entries(m)[entry].extents != 0 ? entry : ENTRY_NONE;
}

/* The precisions in which an expert is stored, as a mask of 1 << enum precision, which is not 0. */
static inline uint32_t model_expert_precisions(const struct model_index *m, uint32_t layer,
                                               uint32_t expert)
{
    uint32_t mask = 0;
    for (int precision = PRECISION_NATIVE; precision < PRECISION__COUNT; precision++)
        if (model_entry_expert_precision(m, layer, expert, (enum precision)precision) != ENTRY_NONE)
            mask |= 1u << precision;
    return mask;
}

/* True if the layer has a router and experts. */
static inline bool model_layer_has_experts(const struct model_index *m, uint32_t layer)
{
    return hparams_layer_has_experts(&m->hparams, layer);
}

/* The first layer with experts from `layer` on, or else from the start; every model has one. */
static inline uint32_t model_expert_layer(const struct model_index *m, uint32_t layer)
{
    for (uint32_t i = 0; i < m->hparams.layers; i++)
        if (model_layer_has_experts(m, (layer + i) % m->hparams.layers))
            return (layer + i) % m->hparams.layers;
    return 0;
}

/* The entry number of an expert at its best available precision; ENTRY_NONE only in a layer without
 * experts. */
static inline uint32_t model_entry_expert(const struct model_index *m, uint32_t layer,
                                          uint32_t expert)
{
    uint32_t entry = ENTRY_NONE;
    for (int precision = PRECISION_NATIVE; precision < PRECISION__COUNT && entry == ENTRY_NONE;
         precision++)
        entry = model_entry_expert_precision(m, layer, expert, (enum precision)precision);
    return entry;
}

/* The number of the extent that has a matrix of an expert which is in the model file. */
static inline uint32_t model_matrix_extent(const struct model_entry *e, enum expert_matrix m)
{
    return m == EXPERT_DOWN && e->matrix[EXPERT_UP].n == 0 ? 1 : (uint32_t)m;
}

/* The entry number of a dense tensor; ENTRY_NONE if the model has no tensor of that role, such as
 * an output matrix that is the embedding. For global tensors, layer is hparams.layers. */
static inline uint32_t model_entry_dense(const struct model_index *m, uint32_t layer,
                                         enum dense_role role)
{
    return m->dense_entry[layer][role];
}

/* The end of the entries of experts, which is the first page slot. */
static inline uint32_t model_experts_end(const struct model_index *m)
{
    return m->entry_count - m->page_count;
}

/* The dense entry of the table on storage; ENTRY_NONE: the model has none. */
static inline uint32_t model_table_entry(const struct model_index *m)
{
    return m->page_count > 0 ? m->dense_entry[m->hparams.layers][DENSE_NGRAM_TABLE] : ENTRY_NONE;
}

/* Pages of the table on storage, as it lies in the file; 0: the model has none. */
static inline uint32_t model_table_pages(const struct model_index *m)
{
    uint32_t table = model_table_entry(m);
    return table == ENTRY_NONE ? 0
                               : (uint32_t)(model_index_entries(m)[table].slot_bytes / PAGE_BYTES);
}

/* The first of the MODEL_PAGE_WAYS entries one of which may have this page of the table. */
static inline uint32_t model_page_set(const struct model_index *m, uint32_t page)
{
    return model_experts_end(m) + table_page_set(page, m->page_count);
}

/* Its rows, pages and page slots. The model has such a table. */
static inline struct table_pages model_table(const struct model_index *m)
{
    const struct model_extent *x = &model_index_entries(m)[model_table_entry(m)].extent[0];
    return (struct table_pages){.row_bytes = model_index_tensors(m)[x->tensor].row_bytes,
                                .head_bytes = x->head_bytes,
                                .slots = m->page_count};
}

/* The shard of a page of the table that loader `shard` of `shards` reads, as model_entry_shard: one
 * loader reads the whole page. page < model_table_pages. */
uint32_t model_page_shard(const struct model_index *m, uint32_t page, uint32_t shard,
                          uint32_t shards, struct model_extent out[ENTRY_EXTENTS_MAX]);

/* Whether a forward pass of the layers [first, end) reads this dense entry. It reads those of the
 * layers, the embedding for layer 0, the output matrix for the last layer, and the router of the
 * next layer with experts, whose experts the last one with experts predicts. */
bool model_part_reads(const struct model_index *m, uint32_t first, uint32_t end, uint32_t entry);

/* Whether `sluice pack --dense` may store this dense entry at a lower precision: matrices, except
 * those that the architecture requires as floats (routers), and a table on storage. */
bool model_dense_quantisable(const struct model_index *m, uint32_t entry);

/* The precision of the dense matrices: int8 or int4 if a store was packed with it, else native. */
enum precision model_dense_precision(const struct model_index *m);

/* Copies the names of m->unread one after another; *at is 0 before the first. False: there are no
 * more. */
bool model_index_unread(const struct model_index *m, size_t *at, char name[MODEL_UNREAD_BYTES]);

/* Checks that the file open at fd is still the one that the index was made from. 0, or -1 with
 * ERR_GONE if it is not, ERR_IO or ERR_BAD_INPUT. */
int model_file_unchanged(int fd, const struct model_file_id *id, struct error *error);

/* The number of pages that an entry of `pages` pages takes in every stripe file. With "each" for
 * it, stripe d has the pages [d * each, (d + 1) * each) of the slot, as far as they exist. */
static inline uint64_t model_stripe_pages(uint64_t pages, uint32_t stripes)
{
    return (pages + stripes - 1) / stripes;
}

/* The shard of an entry that loader `shard` of `shards` reads. Shards are whole pages, disjoint,
 * and together cover the entry. Fills at most ENTRY_EXTENTS_MAX runs (file_offset, read_bytes and
 * slot_offset; the other fields are zero) and returns their number; 0 if the entry is absent or
 * this shard has no pages. For entries of a store, `shards` is the number of stripes. Pure. */
uint32_t model_entry_shard(const struct model_entry *entry, uint32_t shard, uint32_t shards,
                           struct model_extent out[ENTRY_EXTENTS_MAX]);

#endif
