/* The model segment: a flat, validated index of a model: a GGUF file, or an expert store
 * (lib/model/store/store.h). inspect writes it once; everyone else maps it read-only. Offsets, never
 * pointers; no field is trusted before model_index_check has accepted it.
 *
 * Layout:  struct model_index | tensors[] | entries[] | checksums[] | stripes[] | tokenizer blob
 *
 * An *entry* is what the directory, the cache and the loaders move: one expert at one tier, or one
 * dense tensor (one extent). An expert of a GGUF file has three extents, one of a store a single
 * one. An entry's slot in the arena holds, per extent, the page-aligned superset of the file bytes,
 * so that O_DIRECT reads land in place: payload of extent x starts at slot_offset + head_bytes.
 *
 * Entry numbers are the directory's: dense entries first (model_entry_dense), then for each tier
 * the model has (ascending enum tier) its experts ordered by layer, then expert: a full grid, entry
 * = precision_first[tier] + layer * experts + expert. A GGUF file has the native tier alone. A store may
 * lack single experts of a tier; such an entry is *absent*: its place in the grid has no extents
 * and is never loaded, and model_entry_expert_precision does not return it.
 *
 * Striping: the entry is read in parts by `parts` loaders (model_entry_part). Entries of the model
 * file are cut evenly; an entry of a store has a fixed cut, one part per stripe file, all at the
 * same offset of their files, or it lies in one stripe as a whole. */
#ifndef SLUICE_MODEL_INDEX_MODEL_INDEX_H
#define SLUICE_MODEL_INDEX_MODEL_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"
#include "lib/model/arch/arch.h"
#include "lib/model/chat/chat.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

#define MODEL_INDEX_MAGIC   0x58444e4943554c53ull /* "SLUCINDX" */
#define MODEL_INDEX_VERSION 3u
#define MATRIX_ALIGN        64 /* of a matrix inside the slot of a store's entry */
#define ENTRY_EXTENTS_MAX   3
#define ENTRY_NONE          UINT32_MAX

enum entry_kind { ENTRY_DENSE, ENTRY_EXPERT };

/* A file of a store that holds parts of experts. */
struct model_stripe {
    struct model_file_id file;
    char path[MODEL_PATH_BYTES];   /* absolute, NUL-terminated */
    char mirror[MODEL_PATH_BYTES]; /* likewise: the same bytes once more; "": there are none */
};

/* One run of file bytes an entry needs, and where it lies in the entry's slot. */
struct model_extent {
    uint64_t file_offset; /* page-aligned start of the superset; in_store: in every stripe file */
    uint64_t
        read_bytes; /* superset, a multiple of the page; may pass the end of the file by < 1 page */
    uint64_t slot_offset; /* page-aligned, from the slot's start */
    uint32_t head_bytes;  /* payload starts at slot_offset + head_bytes; < page */
    uint32_t tensor;      /* index into tensors[]; in_store: ENTRY_NONE */
    uint64_t payload_bytes;
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
    uint16_t precision; /* enum tier */
    uint16_t
        layer; /* layer of an expert or of a layer's dense tensor; UINT16_MAX for global tensors */
    uint16_t expert;
    uint32_t extents;        /* 0: absent */
    uint32_t role;           /* enum dense_role for dense entries */
    uint32_t in_store;       /* 1: in the stripe files; 0: in the model file */
    uint32_t checksum_first; /* in checksums[], one per stripe; ENTRY_NONE: not known */
    uint32_t only_stripe;    /* in_store: all of it is in this stripe, counted from 1; 0: in all */
    uint32_t reserved;
    uint64_t slot_bytes; /* pages of all extents */
    uint64_t payload_bytes;
    struct model_extent extent[ENTRY_EXTENTS_MAX];
    struct model_matrix matrix[EXPERT__COUNT]; /* of an expert, by enum expert_matrix */
};

struct model_index {
    uint64_t magic;
    uint32_t version;
    uint32_t layout_hash;      /* over sizeof/offsetof of the structs above */
    uint64_t bytes;            /* of the whole blob */
    struct model_file_id file; /* the GGUF file; of a store its model.gguf */
    char arch[32];
    char name[128];         /* general.name, for people */
    struct model_chat chat; /* how its conversations are written */
    struct model_hparams hparams;
    uint32_t tensor_count, entry_count;
    uint32_t dense_count,
        expert_entry_count; /* entries: dense_count + expert_entry_count == entry_count */
    uint32_t precision_mask,
        precision_count; /* bit of enum tier: some expert is there at that tier */
    uint32_t
        precision_first[PRECISION__COUNT]; /* first entry of the tier's grid; ENTRY_NONE: no such */
    uint32_t
        precision_entries[PRECISION__COUNT]; /* experts there at that tier; the others are absent */
    uint32_t stripe_count;                   /* 0: a GGUF file */
    uint32_t absent_count;                   /* absent entries of all tiers */
    uint64_t tensors_offset, entries_offset;
    uint64_t checksums_offset, checksum_count; /* u64 each: XXH3-64 of an entry's part as stored */
    uint64_t stripes_offset;
    uint64_t tokenizer_offset, tokenizer_bytes;
    uint64_t dense_bytes; /* sum of slot_bytes of dense entries */
    /* Sums over experts, each at its best available precision. */
    uint64_t expert_bytes;                           /* payload_bytes */
    uint64_t expert_slot_bytes;                      /* slot_bytes */
    uint64_t expert_slot_bytes_max;                  /* of any entry, all tiers */
    uint64_t precision_bytes[PRECISION__COUNT];      /* payload of all experts there at that tier */
    uint64_t precision_slot_bytes[PRECISION__COUNT]; /* their slots */
    uint32_t dense_entry[MODEL_LAYERS_MAX + 1]
                        [DENSE__COUNT]; /* ENTRY_NONE where absent; row `layers` = globals */
};

/* Parses and checks the GGUF file (v2, v3) open at fd, and returns a newly allocated index (caller
 * frees). Every check of the format is made here; nothing after this reads the header again.
 * Memory stays proportional to the header. Reads with pread; page cache it caused is dropped
 * (POSIX_FADV_DONTNEED). Errors: ERR_BAD_INPUT with one line naming what is wrong and where;
 * ERR_IO. */
int model_index_build(int fd, const char *path, struct model_index **index, struct error *error);

/* The same from any source of bytes (gguf.h): tests and fuzzing. `file` is copied into the index.
 * The error's line has no path before it. */
struct gguf_source;
int model_index_build_source(const struct gguf_source *source, const struct model_file_id *file,
                             struct model_index **index, struct error *error);

/* Checks a mapped or received blob of `bytes` bytes completely (magic, version, hash, every offset
 * and count, every entry inside its tensor, the tokenizer) before it is used. 0, or -1 with
 * ERR_BAD_INPUT. */
int model_index_check(const struct model_index *index, uint64_t bytes, struct error *error);

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

/* Entry number of an expert at a tier; ENTRY_NONE when it is not there at that tier. Layer, expert
 * and tier are in range (caller's own state). */
static inline uint32_t model_entry_expert_precision(const struct model_index *m, uint32_t layer,
                                                    uint32_t expert, enum precision precision)
{
    if (!(m->precision_mask & 1u << precision))
        return ENTRY_NONE;
    uint32_t entry = m->precision_first[precision] + layer * m->hparams.experts + expert;
    return m->absent_count == 0 || model_index_entries(m)[entry].extents != 0 ? entry : ENTRY_NONE;
}

/* Entry number of an expert at its best available precision: every expert has at least one. */
static inline uint32_t model_entry_expert(const struct model_index *m, uint32_t layer,
                                          uint32_t expert)
{
    uint32_t entry = ENTRY_NONE;
    for (int precision = PRECISION_NATIVE; precision < PRECISION__COUNT && entry == ENTRY_NONE;
         precision++)
        entry = model_entry_expert_precision(m, layer, expert, (enum precision)precision);
    return entry;
}

/* Entry number of a dense tensor; ENTRY_NONE when the model has none of that role (e.g. tied
 * output). Global tensors live at layer == hparams.layers. */
static inline uint32_t model_entry_dense(const struct model_index *m, uint32_t layer,
                                         enum dense_role role)
{
    return m->dense_entry[layer][role];
}

/* 0 when the file open at fd still is the one the index was made from, else -1 with ERR_GONE. */
int model_file_unchanged(int fd, const struct model_file_id *id, struct error *error);

/* Pages that every stripe file spends on an entry of `pages` pages. Stripe d holds the slot's pages
 * [d * each, (d + 1) * each), as far as there are any. */
static inline uint64_t model_stripe_pages(uint64_t pages, uint32_t stripes)
{
    return (pages + stripes - 1) / stripes;
}

/* A part of an entry: what loader `part` of `parts` reads when an entry is striped. Parts are whole
 * pages, disjoint, and together the entry. Fills at most ENTRY_EXTENTS_MAX runs (file_offset,
 * read_bytes, slot_offset valid; the others zero) and returns their number; 0 when the entry has
 * fewer pages than parts and this part gets none, or is absent. For entries of a store `parts` is
 * the number of stripes. Pure. */
uint32_t model_entry_part(const struct model_entry *entry, uint32_t part, uint32_t parts,
                          struct model_extent out[ENTRY_EXTENTS_MAX]);

#endif
