/* SPDX-License-Identifier: Apache-2.0 */
/* A file with the rows of a prefix: keys and values of its tokens, and what cannot be cut back.
 *
 *   struct prefix_head | tokens, positions of the states, checksums of the blocks | blocks
 *
 * Each of the three begins at a multiple of PREFIX_ALIGN, and so does each block; what is between
 * is zero. Little-endian. The blocks are, in this order:
 *
 *   tiles    one for each PREFIX_TILE tokens: keys and values of all layers that have all positions
 *   ring     if the model has rings: those of all layers with a window, as they are in memory
 *   states   one for each position: recurrent states, then windows
 *
 * So the rows of fewer tokens are the first blocks. What the bytes of a block mean, the engine
 * defines that wrote them: `shape` is a hash of it, and it is used by an engine of the same one
 * only. The head has a checksum of itself and one of the tables, and these one of each block, so a
 * change of any byte of the file is noticed. */
#ifndef SLUICE_PREFIX_PREFIX_H
#define SLUICE_PREFIX_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

#define PREFIX_MAGIC      0x5846455250434c53ull /* "SLCPREFX" */
#define PREFIX_VERSION    1u /* of this layout, and of that of tiles and states */
#define PREFIX_ALIGN      4096u
#define PREFIX_TILE       64u
#define PREFIX_TOKENS_MAX (1u << 20)
#define PREFIX_STATES_MAX 256u
#define PREFIX_BLOCK_MAX  (4ull << 30) /* bytes of a block */
/* Memory of an engine that uses such files: tokens of all, two pieces of 1 MiB, tables of two. */
#define PREFIX_MEMORY_BYTES (6u << 20)
#define PREFIX_NAME_SUFFIX  ".prefix"
#define PREFIX_NAME_BYTES   (16 + sizeof PREFIX_NAME_SUFFIX) /* with NUL */

/* What rows belong to: an engine uses those of equal ones only. */
struct prefix_bond {
    uint64_t model[2];   /* hash of the model's files */
    uint64_t shape;      /* hash of the sizes of tiles, rings and states */
    uint64_t preset;     /* 0: rows of a lossless preset; else a hash of its parameters */
    uint32_t arithmetic; /* KERNEL_ARITHMETIC (lib/kernels) */
    uint32_t kv_type;    /* enum kv_type */
};

struct prefix_head {
    uint64_t magic;
    uint32_t version;
    uint32_t tokens;
    struct prefix_bond bond;
    uint64_t tile_bytes, ring_bytes, state_bytes; /* of a block; ring: 0 if there is none */
    uint64_t cost_ns; /* measured time to compute the rows; below 2^62 */
    uint32_t states;
    uint32_t lowest;       /* fewest rows to which the rings can be cut back, above 0 */
    uint32_t prompt, uses; /* of the tokens, those of a prompt; prompts that continued from them */
    uint64_t tables_checksum; /* XXH3 of the tables, without the zeros at their end */
    uint64_t checksum;        /* XXH3 of the fields above */
};
_Static_assert(sizeof(struct prefix_head) == 120, "layout of a file");

/* ---- layout, of a head that prefix_check_head has accepted ---- */

uint32_t prefix_tiles(const struct prefix_head *h);
uint32_t prefix_blocks(const struct prefix_head *h);
/* Numbers of the ring's block, if there is one, and of the first state's. */
uint32_t prefix_ring_block(const struct prefix_head *h);
uint32_t prefix_state_block(const struct prefix_head *h);
/* Bytes of the tables; where a block begins in the file; its bytes, whole PREFIX_ALIGN. */
uint64_t prefix_tables_bytes(const struct prefix_head *h);
uint64_t prefix_block_offset(const struct prefix_head *h, uint32_t block);
uint64_t prefix_block_bytes(const struct prefix_head *h, uint32_t block);
uint64_t prefix_file_bytes(const struct prefix_head *h);

/* Parts of tables of prefix_tables_bytes. */
uint32_t *prefix_tokens(const struct prefix_head *h, void *tables);
uint32_t *prefix_positions(const struct prefix_head *h, void *tables); /* ascending */
uint64_t prefix_checksum(const struct prefix_head *h, const void *tables, uint32_t block);
void prefix_set_checksum(const struct prefix_head *h, void *tables, uint32_t block, uint64_t sum);

/* ---- writing and reading ---- */

/* The checksums of the tables, which are complete, and of the head. */
void prefix_seal(struct prefix_head *h, const void *tables);

/* 0, or -1 with ERR_BAD_INPUT: damaged, too new, or not of a file of `file_bytes` bytes. */
int prefix_check_head(const struct prefix_head *h, uint64_t file_bytes, struct error *error);
int prefix_check_tables(const struct prefix_head *h, const void *tables, struct error *error);

bool prefix_same_bond(const struct prefix_bond *a, const struct prefix_bond *b);

/* The name of a file: equal tokens of equal bonds have equal ones. */
void prefix_name(const struct prefix_bond *bond, const uint32_t *tokens, uint32_t count,
                 char name[PREFIX_NAME_BYTES]);
bool prefix_is_name(const char *name);

/* ---- what it is used for ---- */

#define PREFIX_NO_STATE UINT32_MAX

/* How many rows the file gives a prompt that has its first `common` tokens, and the number of the
 * state that they need. recurrent: every use needs a state; else only rows below `lowest` of
 * rings. */
struct prefix_use {
    uint32_t rows;
    uint32_t state; /* PREFIX_NO_STATE: none; then the ring, if there is one */
};
struct prefix_use prefix_use(const struct prefix_head *h, const uint32_t *positions,
                             uint32_t common, bool recurrent);
/* Bytes of the blocks that are read for it, from row `from` on. */
uint64_t prefix_use_bytes(const struct prefix_head *h, struct prefix_use use, uint32_t from);

#endif
