/* Expert stores: reading them. A store is a directory that holds a whole model, with every expert
 * contiguous, page-aligned, checksummed, at one or more tiers, and spread over up to 16 files that
 * may lie on different devices: one read per expert and device.
 *
 *   manifest.json    what is below; written last, by rename: a half store has none
 *   model.gguf       keys, tokenizer and dense tensors of the model; no expert tensors
 *   entries.bin      the table of entries: where each expert lies, and its checksums
 *   experts.N.bin    stripe N, or another path in the manifest
 *
 * STRIPES. All S stripe files have the same size, a multiple of the page. Page 0 begins with struct
 * store_stripe_head, the rest of the page is 0. Then entries, in any order, never overlapping. An
 * entry of P pages takes c = ceil(P / S) pages (model_stripe_pages) at one page-aligned offset,
 * the same in every file; stripe d holds pages [d * c, (d + 1) * c) of the slot, as far as there
 * are any; what a file spends beyond them is not read and may be a hole.
 *
 * That is the layout "striped": every device reads a part of every expert. In the layout "spread"
 * expert e of layer l lies whole, P pages, in stripe (l + e) % S alone (store_stripe_of).
 *
 * A stripe may have a *mirror*: another file with all the same bytes, for when the first cannot be
 * read. It is not looked at when the store is opened, unless the stripe itself is not there.
 *
 * SLOTS. What stands in a stripe is what stands in the arena: the three matrices of the expert in
 * the order gate, up, down, each at a multiple of MATRIX_ALIGN, n rows of row_bytes bytes without
 * gaps between them, of a type of lib/tensor/tensor_types.tbl.h. Bytes between and behind the
 * matrices are 0. A slot is the smallest number of pages that holds them.
 *
 * CHECKSUMS. XXH3-64 (seed 0) of each part: of all bytes of the pages that stripe d holds of this
 * entry, in order. A part without pages has checksum 0 and is never read.
 *
 * ENTRIES.BIN. struct store_entries_head, then for each tier of the manifest (ascending), layer and
 * expert one record of 1 + S u64: the offset (STORE_ABSENT: this expert is not here at this tier;
 * its checksums are 0), then the S checksums. Every expert is there at one tier at least. Numbers
 * are little-endian. Its own XXH3-64 stands in the manifest.
 *
 * MANIFEST. One JSON object; nothing may be missing, nothing unknown may be there (but anything
 * inside "info"):
 *   {"format": "sluice-store", "version": 1,
 *    "id": 32 hex digits,          made by the packer for this store; stands in every stripe's head
 *    "model_hash": 32 hex digits,  XXH3-128 of all bytes of model.gguf (canonical, big-endian)
 *    "source_hash": 32 hex digits, of what it was made from, as the packer identifies it
 *    "arch": "qwen3moe", "layers": 8, "experts": 32, "page_bytes": 4096,
 *    "layout": "spread",           or "striped", also when it is not there
 *    "stripes": [{"path": "experts.0.bin", "bytes": 27267072,
 *                 "mirror": "/other/experts.0.bin"}, ...],
 *                                  absolute, or relative to the store; mirror: may not be there
 *    "tiers": [{"tier": "int4",    ascending
 *               "method": "copy" | "channel" | "hqq",
 *               "groups": [{"first_layer": 0, "last_layer": 7,
 *                                  ascending, without gaps: layers of a model may differ in type
 *                           "slot_pages": 13, "payload_bytes": 52224,
 *                           "gate": {"type": "C4", "k": 256, "n": 128, "row_bytes": 136,
 *                                    "offset": 0},
 *                           "up": {...}, "down": {...}}, ...]}, ...],
 *    "entries": {"bytes": 4160, "xxh3": 16 hex digits},
 *    "info": {...}}                optional, for people
 * k is the row's elements, n the rows; both follow from the model, row_bytes from the type, and all
 * three are checked. Hex digits are lower case.
 *
 * Everything here is foreign: each number is checked before use, each refusal is one line.
 * lib/model has no other reader of stores; the writer is lib/model/store/write.h. */
#ifndef SLUICE_MODEL_STORE_STORE_H
#define SLUICE_MODEL_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"

#define STORE_FORMAT        "sluice-store"
#define STORE_VERSION       1u
#define STORE_MANIFEST_FILE "manifest.json"
#define STORE_MODEL_FILE    "model.gguf"
#define STORE_ENTRIES_FILE  "entries.bin"
#define STORE_STRIPE_FILE   "experts.%u.bin"
#define STORE_MIRROR_FILE   "experts.%u.mirror.bin"

#define STORE_STRIPE_MAGIC  0x5049525453554c53ull /* "SLUSTRIP" */
#define STORE_ENTRIES_MAGIC 0x5952544e45554c53ull /* "SLUENTRY" */
#define STORE_ABSENT        UINT64_MAX
#define STORE_HASH_BYTES    16
#define STORE_MANIFEST_MAX  (4 * MIB)
#define STORE_ENTRIES_MAX   (256 * MIB)

/* STORE_METHOD(NAME, word in the manifest): how a tier was made from the source. */
#define STORE_METHODS(X)                                                                           \
    X(COPY, "copy")       /* the source's own bytes, row by row */                                 \
    X(CHANNEL, "channel") /* linear, a scale per row */                                            \
    X(HQQ, "hqq")         /* groups, half-quadratic */

enum store_method {
#define X(id, name) STORE_##id,
    STORE_METHODS(X)
#undef X
        STORE_METHOD__COUNT
};

/* STORE_LAYOUT(NAME, word): how experts lie in the stripes. */
#define STORE_LAYOUTS(X)                                                                           \
    X(STRIPED, "striped") /* a part of each in every stripe */                                     \
    X(SPREAD, "spread")   /* each in one */

enum store_layout {
#define X(id, name) STORE_##id,
    STORE_LAYOUTS(X)
#undef X
        STORE_LAYOUT__COUNT
};

struct store_stripe_head { /* at byte 0 of a stripe file */
    uint64_t magic;        /* STORE_STRIPE_MAGIC */
    uint32_t version;      /* STORE_VERSION */
    uint32_t stripe, stripes;
    uint32_t reserved; /* 0 */
    uint8_t id[STORE_HASH_BYTES];
};
_Static_assert(sizeof(struct store_stripe_head) == 40, "no padding");

struct store_entries_head { /* at byte 0 of entries.bin */
    uint64_t magic;         /* STORE_ENTRIES_MAGIC */
    uint32_t version;       /* STORE_VERSION */
    uint32_t stripes, layers, experts, precision_mask;
    uint32_t reserved; /* 0 */
    uint8_t id[STORE_HASH_BYTES];
    uint64_t count; /* of records: tiers * layers * experts */
    uint64_t unused;
};
_Static_assert(sizeof(struct store_entries_head) == 64, "no padding");

struct store_group { /* layers whose experts look alike */
    uint32_t first_layer, last_layer;
    uint64_t slot_pages, payload_bytes;
    struct model_matrix matrix[EXPERT__COUNT];
};

struct store_precision {
    enum precision precision;
    enum store_method method;
    uint32_t group_first, group_count; /* in groups[] */
};

struct store_stripe {
    char path[MODEL_PATH_BYTES];   /* as in the manifest */
    char mirror[MODEL_PATH_BYTES]; /* likewise; "": none */
    uint64_t bytes;
};

/* A manifest in memory. */
struct store_manifest {
    uint8_t id[STORE_HASH_BYTES], model_hash[STORE_HASH_BYTES], source_hash[STORE_HASH_BYTES];
    char arch[32];
    uint32_t layers, experts;
    uint32_t stripe_count, precision_count, group_count;
    uint32_t precision_mask;
    enum store_layout layout;
    struct store_stripe stripe[MODEL_STRIPES_MAX];
    struct store_precision precision[PRECISION__COUNT]; /* ascending */
    struct store_group *groups;                         /* owned */
    uint64_t entries_bytes, entries_xxh3;
};

/* The tier's name in manifests, on command lines and in descriptions: native, int8, int4, int2. */
const char *precision_name(enum precision precision);
const char *store_method_name(enum store_method method);

const char *store_layout_name(enum store_layout layout);
/* By its word; STORE_LAYOUT__COUNT when there is no such. */
enum store_layout store_layout_find(const char *name);

/* Parses a manifest and checks all that can be checked without another file: fields, ranges, sizes
 * that follow from each other. 0, or -1 with ERR_BAD_INPUT or ERR_NO_MEMORY; on success the caller
 * ends with store_manifest_free. */
int store_manifest_parse(const char *text, size_t bytes, struct store_manifest *manifest,
                         struct error *error);
void store_manifest_free(struct store_manifest *manifest);

/* The group of a layer of manifest->tier[tier]. */
const struct store_group *store_group_of(const struct store_manifest *manifest, uint32_t precision,
                                         uint32_t layer);

/* Lays out a slot in the one way there is: from the matrices' types, k and n fills their row_bytes
 * and offsets, slot_pages and payload_bytes. False when a type does not fit its k, or it would be
 * larger than an index takes. */
bool store_group_layout(struct store_group *group);

/* Bytes entries.bin must have. */
uint64_t store_entries_bytes(const struct store_manifest *manifest);

/* Checks the table against its manifest: checksum, head, every offset inside the stripes and none
 * over another, no expert without a tier. `table` is aligned to 8. 0, or -1 with ERR_BAD_INPUT or
 * ERR_NO_MEMORY. */
int store_entries_check(const struct store_manifest *manifest, const void *table, uint64_t bytes,
                        struct error *error);

/* The stripe an expert lies in as a whole, in the layout "spread". */
static inline uint32_t store_stripe_of(const struct store_manifest *m, uint32_t layer,
                                       uint32_t expert)
{
    return (layer + expert) % m->stripe_count;
}

/* Pages an expert of `pages` pages takes in each of its stripes. */
static inline uint64_t store_part_pages(const struct store_manifest *m, uint64_t pages)
{
    return m->layout == STORE_SPREAD ? pages : model_stripe_pages(pages, m->stripe_count);
}

/* The first of its stripes: the one that holds page 0. */
static inline uint32_t store_first_stripe(const struct store_manifest *m, uint32_t layer,
                                          uint32_t expert)
{
    return m->layout == STORE_SPREAD ? store_stripe_of(m, layer, expert) : 0;
}

/* Record of (manifest->tier[tier], layer, expert) in a table: offset, then a checksum per stripe.
 */
static inline const uint64_t *store_record(const struct store_manifest *m, const void *table,
                                           uint32_t precision, uint32_t layer, uint32_t expert)
{
    uint64_t number = ((uint64_t)precision * m->layers + layer) * m->experts + expert;
    const char *records = (const char *)table + sizeof(struct store_entries_head);
    return (const uint64_t *)(const void *)records + number * (1 + m->stripe_count);
}

/* The entries of a checked table, as the index has them: tiers * layers * experts of them, and as
 * many checksums for each as there are stripes. */
void store_entries_make(const struct store_manifest *manifest, const void *table,
                        struct model_entry *entries, uint64_t *checksums);

/* Opens the store whose directory is open at dir_fd, checks all of it but the experts' own bytes
 * (manifest, table, size and head of every stripe, the hash and the header of model.gguf), and
 * returns a newly allocated index (caller frees). `path` is the directory's: stripes' paths are
 * made from it, made absolute. Reads model.gguf once; page cache it caused is dropped. Errors:
 * ERR_BAD_INPUT with one line naming the file and what is wrong; ERR_IO; ERR_NO_MEMORY. */
int store_index_build(int dir_fd, const char *path, struct model_index **index,
                      struct error *error);

/* What stands behind -m, open at fd: the index of a store where it is a directory, else of a GGUF
 * file. Errors as of the two. */
int model_or_store_index_build(int fd, const char *path, struct model_index **index,
                               struct error *error);

#endif
