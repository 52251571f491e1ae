/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of expert stores. A store is a directory with a whole model. Every expert is contiguous,
 * page-aligned and checksummed, at one or more precisions. The experts are in up to 16 files, which
 * may be on different devices: one read per expert and device.
 *
 *   manifest.json    description of the store; written last, by rename: a partial store has none
 *   model.gguf       keys, tokenizer and dense tensors of the model; no expert tensors
 *   entries.bin      the table of entries: offset and checksums of each expert
 *   experts.N.bin    stripe N, or another path in the manifest
 *
 * STRIPES. All S stripe files have the same size, a multiple of the page. Page 0 starts with struct
 * store_stripe_head, the rest of the page is 0. Entries follow, in any order, without overlap. An
 * entry of P pages takes c = ceil(P / S) pages (model_stripe_pages) at one page-aligned offset,
 * the same in every file. Stripe d contains pages [d * c, (d + 1) * c) of the slot; pages >= P are
 * not read and may be a hole in the file.
 *
 * That is the layout "striped": every storage device reads a shard of every expert. In the layout
 * "spread" all P pages of expert e of layer l are in stripe (l + e) % S (store_stripe_of).
 *
 * A stripe may have a *mirror*: another file with the same bytes, used when the first cannot be
 * read. Opening a store checks a mirror only if its stripe is missing or wrong.
 *
 * SLOTS. A slot has the same bytes in a stripe and in the arena: the three matrices of the expert
 * in the order gate, up, down, each at a multiple of MATRIX_ALIGN, n rows of row_bytes bytes
 * without gaps, of a type of lib/tensor/tensor_types.tbl.h. Bytes between and after the matrices
 * are 0. A slot has the minimum number of pages for them.
 *
 * DELTA. A store with "base" has only precisions below the native one, and those only of some
 * experts; the native ones of all experts are in the model file that it was made of. So one table,
 * the entries of the index, states for each expert and precision where it is: in_store, or in a
 * part of the model file, which has loaders of its own after that of the stripe. A delta has one
 * stripe, and the layout "spread".
 *
 * CHECKSUMS. XXH3-64 (seed 0) of each shard: all bytes of the pages of this entry in stripe d, in
 * order. A shard without pages has checksum 0 and is never read.
 *
 * ENTRIES.BIN. struct store_entries_head, then one record for each precision of the manifest
 * (ascending), layer and expert: 1 + S u64, the offset (STORE_ABSENT: the store does not have this
 * expert at this precision; its checksums are 0), then the S checksums. Every expert is present at
 * one precision or more (of a delta: with those of the model file); all of a layer are absent if
 * the model has no experts there. Numbers are little-endian. The manifest has the file's XXH3-64.
 *
 * MANIFEST. One JSON object. All fields are required except "layout", "mirror", "base" and "info";
 * unknown fields are errors, except inside "info":
 *   {"format": "sluice-store", "version": 1,
 *    "id": 32 hex digits,          identifies this store; repeated in every stripe's header
 *    "model_hash": 32 hex digits,  XXH3-128 of all bytes of model.gguf (canonical, big-endian)
 *    "source_hash": 32 hex digits, identifies the packer's input
 *    "arch": "qwen3moe", "layers": 8, "experts": 32, "page_bytes": 4096,
 *    "layout": "spread",           or "striped" (the default)
 *    "stripes": [{"path": "experts.0.bin", "bytes": 27267072,
 *                 "mirror": "/other/experts.0.bin"}, ...],
 *                                  paths: absolute, or relative to the store; mirror: optional
 *    "tiers": [{"tier": "int4",    the precisions, ascending
 *               "method": "copy" | "channel" | "hqq",
 *               "groups": [{"first_layer": 0, "last_layer": 7,
 *                                  ascending, without gaps: layers may have different types (those
 *                                  without experts are in a group, too)
 *                           "slot_pages": 13, "payload_bytes": 52224,
 *                           "gate": {"type": "C4", "k": 256, "n": 128, "row_bytes": 136,
 *                                    "offset": 0},
 *                           "up": {...}, "down": {...}}, ...]}, ...],
 *    "entries": {"bytes": 4160, "xxh3": 16 hex digits},
 *    "base": {"path": "../model.gguf", "hash": 32 hex digits},
 *                                  of a delta; the path of the first part; hash: store_base_hash
 *    "info": {...}}                optional, for users
 * k: elements of a row; n: rows. Both follow from the model, and row_bytes from the type; all three
 * are checked. Hex digits are lower case.
 *
 * The input is untrusted: each number is checked before use, each error is one line. The writer is
 * lib/model/store/write.h. */
#ifndef SLUICE_MODEL_STORE_STORE_H
#define SLUICE_MODEL_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/quant_method.h"

#define STORE_FORMAT  "sluice-store"
#define STORE_VERSION 1u
#define STORE_RESERVE_BYTES                                                                        \
    (16u << 20) /* free space in addition to it: metadata of the file system */
#define STORE_MANIFEST_FILE "manifest.json"
#define STORE_MODEL_FILE    "model.gguf"
#define STORE_JOURNAL_FILE  "pack.journal" /* until the store is complete */
#define STORE_ENTRIES_FILE  "entries.bin"
#define STORE_STRIPE_FILE   "experts.%u.bin"
#define STORE_MIRROR_FILE   "experts.%u.mirror.bin"

#define STORE_STRIPE_MAGIC  0x5049525453554c53ull /* "SLUSTRIP" */
#define STORE_ENTRIES_MAGIC 0x5952544e45554c53ull /* "SLUENTRY" */
#define STORE_ABSENT        UINT64_MAX
#define STORE_HASH_BYTES    16
#define STORE_MANIFEST_MAX  (4 * MIB)
#define STORE_ENTRIES_MAX   (256 * MIB)

/* X(NAME, name in the manifest): how experts are distributed over the stripes. */
#define STORE_LAYOUTS(X)                                                                           \
    X(STRIPED, "striped") /* every stripe has a shard of every expert */                           \
    X(SPREAD, "spread")   /* each expert is in one stripe */

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
    uint64_t count; /* of records: precisions * layers * experts */
    uint64_t unused;
};
_Static_assert(sizeof(struct store_entries_head) == 64, "no padding");

struct store_group { /* layers whose experts have the same slot layout */
    uint32_t first_layer, last_layer;
    /* Set by the writer: these layers have no experts, or none at this precision. In a store their
     * records say so. */
    bool absent;
    uint64_t slot_pages, payload_bytes;
    struct model_matrix matrix[EXPERT__COUNT];
};

struct store_precision {
    enum precision precision;
    enum quant_method method;
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
    char base_path[MODEL_PATH_BYTES]; /* of a delta; "": all experts are in the stripes */
    uint8_t base_hash[STORE_HASH_BYTES];
    /* Set by the writer: the only precision (enum precision) that is stored of each expert; NULL:
     * all. Borrowed. */
    const uint8_t *chosen;
};

const char *store_layout_name(enum store_layout layout);
/* The layout of that name; STORE_LAYOUT__COUNT: there is none. */
enum store_layout store_layout_find(const char *name);

/* Parses a manifest and makes all checks that need no other file: fields, ranges, consistent sizes.
 * 0, or -1 with ERR_BAD_INPUT or ERR_NO_MEMORY; on success the caller calls store_manifest_free. */
int store_manifest_parse(const char *text, size_t bytes, struct store_manifest *manifest,
                         struct error *error);
void store_manifest_free(struct store_manifest *manifest);

/* The group of `layer` in manifest->precision[precision] (an index into that array). */
const struct store_group *store_group_of(const struct store_manifest *manifest, uint32_t precision,
                                         uint32_t layer);

/* Computes the layout of a slot from the types, k and n of its matrices: fills their row_bytes and
 * offsets, slot_pages and payload_bytes. False if k does not fit a type, or the slot is larger than
 * STORE_SLOT_MAX. */
bool store_group_layout(struct store_group *group);

/* The size of entries.bin in bytes, which follows from the counts of the manifest. */
uint64_t store_entries_bytes(const struct store_manifest *manifest);

/* Checks the table against its manifest: checksum, header, every entry inside the stripes, no
 * overlaps, every expert present at some precision. `table` is aligned to 8. 0, or -1 with
 * ERR_BAD_INPUT or ERR_NO_MEMORY. */
int store_entries_check(const struct store_manifest *manifest, const void *table, uint64_t bytes,
                        struct error *error);

/* The stripe of an expert in the layout "spread". */
static inline uint32_t store_stripe_of(const struct store_manifest *m, uint32_t layer,
                                       uint32_t expert)
{
    return (layer + expert) % m->stripe_count;
}

/* The number of pages that an expert of `pages` pages takes in each of its stripes. */
static inline uint64_t store_shard_pages(const struct store_manifest *m, uint64_t pages)
{
    return m->layout == STORE_SPREAD ? pages : model_stripe_pages(pages, m->stripe_count);
}

/* The first stripe of an expert: the one with page 0. */
static inline uint32_t store_first_stripe(const struct store_manifest *m, uint32_t layer,
                                          uint32_t expert)
{
    return m->layout == STORE_SPREAD ? store_stripe_of(m, layer, expert) : 0;
}

/* The record of an expert at manifest->precision[precision] in a table: the offset, then one
 * checksum per stripe. */
static inline const uint64_t *store_record(const struct store_manifest *m, const void *table,
                                           uint32_t precision, uint32_t layer, uint32_t expert)
{
    uint64_t number = ((uint64_t)precision * m->layers + layer) * m->experts + expert;
    const char *records = (const char *)table + sizeof(struct store_entries_head);
    return (const uint64_t *)(const void *)records + number * (1 + m->stripe_count);
}

/* Fills the index's entries from a checked table: precisions * layers * experts entries, and one
 * checksum per stripe for each of them. */
void store_entries_make(const struct store_manifest *manifest, const void *table,
                        struct model_entry *entries, uint64_t *checksums);

/* Opens the store whose directory is open at dir_fd, checks everything except the bytes of experts
 * (manifest, table, size and header of every stripe, hash and header of model.gguf), and returns a
 * newly allocated index (caller frees). `path`: the directory, from which the absolute paths of the
 * stripes are made. Reads all of model.gguf once, and drops the page cache of the files that it
 * read. 0, or -1 with ERR_BAD_INPUT (one line that names the file and the cause), ERR_IO, ERR_GONE
 * or ERR_NO_MEMORY. */
int store_index_build(int dir_fd, const char *path, struct model_index **index,
                      struct error *error);

/* The index of the model at `path` (option -m), open at fd: of a store if it is a directory, else
 * of a GGUF file. Errors: those of store_index_build and model_index_build. */
int model_or_store_index_build(int fd, const char *path, struct model_index **index,
                               struct error *error);

#endif
