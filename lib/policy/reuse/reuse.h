/* SPDX-License-Identifier: Apache-2.0 */
/* Reuse of keys and values: which kept sequence a prompt continues from, which slot or version of
 * the state is given up when another one is needed, and where checkpoints are made. Pure functions
 * over tables that the caller fills; none of them changes a table.
 *
 * A slot has the keys and values of one sequence. It is empty, belongs to a running sequence, or is
 * kept after the end of its sequence. Layers that are recurrent have a state in addition, which is
 * that after a number of rows and cannot be cut back. A pass of the model reads one version of it
 * and writes another one. A version that is not written again is a checkpoint: the sequence can be
 * cut back to its rows. Layers with a window have rings, which can be cut back by few rows; further
 * back, they need a checkpoint, too, because it has a copy of their windows.
 *
 * Each version belongs to one slot. Keys, values and versions of all slots share one pool of bytes:
 * what kept ones have yields to running ones, and so do checkpoints of running ones. The rule that
 * lets several sequences run at a time: nobody takes the version that a running sequence reads next
 * or writes now. */
#ifndef SLUICE_POLICY_REUSE_H
#define SLUICE_POLICY_REUSE_H

#include <stdbool.h>
#include <stdint.h>

#define REUSE_NONE UINT32_MAX /* no slot, no version */

enum reuse_use { REUSE_EMPTY, REUSE_KEPT, REUSE_RUNNING };

struct reuse_slot {
    enum reuse_use use;
    uint32_t rows;   /* complete rows: kept, or computed by the running sequence until now */
    uint32_t lowest; /* fewest rows to which its rings can be cut back without a checkpoint */
    uint32_t used;  /* kept: order in which they were kept; the one with the lowest is the oldest */
    uint64_t bytes; /* memory of its keys and values */
};

struct reuse_version {
    uint32_t slot; /* REUSE_NONE: nobody's */
    uint32_t rows; /* of the slot's sequence, after which this is the state */
    bool checkpoint;
    bool memory; /* it has memory */
    bool busy;   /* a pass that has not ended writes it */
};

struct reuse_table {
    bool recurrent, rings; /* the model has such layers */
    uint32_t slots, versions;
    uint64_t version_bytes;
    uint64_t pool_bytes; /* of all slots and versions together, at most */
    const struct reuse_slot *slot;
    const struct reuse_version *version;
};

/* ---- slots ---- */

/* The largest number of rows up to `wanted` to which a slot's sequence of `rows` rows can be cut.
 */
uint32_t reuse_cut(const struct reuse_table *t, uint32_t slot, uint32_t rows, uint32_t wanted);

struct reuse_prefix {
    uint32_t slot; /* REUSE_NONE: none serves */
    uint32_t rows; /* that are taken over */
};
/* The kept slot that gives a prompt most rows. common[slot]: how many of its first rows are those
 * of the prompt; 0: it must not be used. Of equal ones, the slot that loses fewest rows, then the
 * oldest. */
struct reuse_prefix reuse_prefix(const struct reuse_table *t, const uint32_t *common);

/* The slot of a sequence that takes nothing over: an empty one, else the oldest kept one, which is
 * given up. REUSE_NONE: all run. */
uint32_t reuse_slot(const struct reuse_table *t);

/* The oldest kept slot but `except`; REUSE_NONE: there is none. */
uint32_t reuse_oldest(const struct reuse_table *t, uint32_t except);
/* The next kept slot to give up, the oldest first and `slot` never, whose sequence ends now: until
 * at most `most` are kept with it, and their keys, values and versions with `bytes` for `slot` are
 * at most `limit`. REUSE_NONE: they are. */
uint32_t reuse_surplus(const struct reuse_table *t, uint32_t slot, uint32_t most, uint64_t bytes,
                       uint64_t limit);

/* Memory of the slot's versions; REUSE_NONE: of all. */
uint64_t reuse_version_bytes(const struct reuse_table *t, uint32_t slot);

/* ---- memory ---- */

/* What is given up: a kept slot with its versions, or one version. Both REUSE_NONE: nothing. */
struct reuse_victim {
    uint32_t slot, version;
};
static inline bool reuse_nothing(struct reuse_victim v)
{
    return v.slot == REUSE_NONE && v.version == REUSE_NONE;
}

/* Memory of all slots and versions, and whether the pool has some for one more version. */
uint64_t reuse_bytes(const struct reuse_table *t);
bool reuse_has_room(const struct reuse_table *t);
/* Whether a running slot may have `bytes` of keys and values in all (REUSE_NONE: a new one): with
 * what other running ones have, and of recurrent layers a version to read and one to write for
 * each, it is within the pool. As long as this holds, every pass has a version to write. */
bool reuse_may_grow(const struct reuse_table *t, uint32_t slot, uint64_t bytes);
/* Whether the pool has memory for `bytes` of keys and values in `slot`, in all. */
bool reuse_fits(const struct reuse_table *t, uint32_t slot, uint64_t bytes);
/* What is given up next, until they fit: memory of versions that nobody uses, kept slots, the oldest
 * first, then checkpoints of running ones, those first whose neighbours are nearest to each other.
 * Nothing: they fit, or all else is needed. */
struct reuse_victim reuse_yield(const struct reuse_table *t, uint32_t slot, uint64_t bytes);
/* What kept slots give up next, so that a pass of `slot`, which reads the version of `end` rows, has
 * a version to write without loss for a running one. Nothing: it has, or nothing is kept. */
struct reuse_victim reuse_room(const struct reuse_table *t, uint32_t slot, uint32_t end);

/* ---- checkpoints ---- */

/* Whether the state of so many rows of a sequence becomes a checkpoint: every `every` rows, and
 * near the end of the prompt. */
bool reuse_is_point(uint32_t rows, uint32_t prompt, uint32_t every);
/* The point near the end of the prompt; 0: none. */
uint32_t reuse_prompt_point(uint32_t prompt);
/* Of `rows` rows from `position` on, how many a pass may compute: it ends at the next point. */
uint32_t reuse_pass_rows(uint32_t position, uint32_t rows, uint32_t prompt, uint32_t every);

/* How many rows lie between the versions of a slot around one of `rows` rows; `end`: those of the
 * sequence. */
uint32_t reuse_gap(const struct reuse_table *t, uint32_t slot, uint32_t rows, uint32_t end);

/* The version that a slot has of so many rows. */
uint32_t reuse_version(const struct reuse_table *t, uint32_t slot, uint32_t rows);

/* The version that the next pass of a running slot writes. `end`: the rows whose version stays,
 * because the pass reads it, or makes it. `point`: of the own prompt. In this order:
 *   1. memory that nobody uses any more
 *   2. the slot's version of the pass before
 *   3. a version without memory, if the pool has some
 *   4. the slot's own checkpoint that is needed least
 *   5. of another running slot, what it needs least, but never the version of its rows
 *   6. if layers are recurrent: the checkpoint near the end of the own prompt
 * REUSE_NONE: all are needed. Versions of kept slots are not taken: reuse_room gives them up. */
uint32_t reuse_write(const struct reuse_table *t, uint32_t slot, uint32_t end, uint32_t point);

/* The version of any running slot that is needed least, but never that of its rows. */
uint32_t reuse_least(const struct reuse_table *t);

/* The version of a slot that is needed least, because its neighbours are nearest to each other;
 * those of `end` and `point` rows stay. REUSE_NONE: there is no other. */
uint32_t reuse_weakest(const struct reuse_table *t, uint32_t slot, uint32_t end, uint32_t point);

#endif
