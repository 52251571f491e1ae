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
 * what kept ones have yields to running ones, and so do checkpoints of running ones. Slots that
 * begin alike share memory; it is counted once, and freed with the last of them. The rule that
 * lets several sequences run at a time: nobody takes the version that a running sequence reads next
 * or writes now. */
#ifndef SLUICE_POLICY_REUSE_H
#define SLUICE_POLICY_REUSE_H

#include <stdbool.h>
#include <stdint.h>

#define REUSE_NONE UINT32_MAX /* no slot, no version */

/* A template often writes the last tokens of a prompt in another way once the response follows: a
 * checkpoint is so many tokens before its end. */
#define REUSE_BEFORE_END 8u

/* Positions in a prompt where two of its messages meet, ascending; 0: no more of them. */
#define REUSE_TURNS_MAX 8u

enum reuse_use { REUSE_EMPTY, REUSE_KEPT, REUSE_RUNNING };

struct reuse_slot {
    enum reuse_use use;
    bool side;       /* of a side request, such as for a title: it goes first */
    uint32_t rows;   /* complete rows: kept, or computed by the running sequence until now */
    uint32_t lowest; /* fewest rows to which its rings can be cut back without a checkpoint */
    uint32_t prompt; /* of its rows, those of the prompt; the others are a response */
    uint32_t turns[REUSE_TURNS_MAX];
    uint32_t branch;  /* tokens that an earlier prompt had, too; 0: none */
    uint32_t start;   /* rows that it began with; 0: none */
    uint32_t given;   /* rows that another one took from it; 0: none */
    uint32_t shared;  /* rows that it has from another slot, which has the version, too; 0: none */
    uint32_t used;    /* kept: the higher, the later it was kept or used */
    uint32_t uses;    /* kept: how many prompts continued from it */
    uint64_t cost_ns; /* kept: measured time to compute its rows */
    uint64_t bytes;   /* memory of its keys and values, with what it shares with others */
    uint64_t counted; /* part of `bytes` that it shares with a slot that comes before it, where it
                       * is counted: running ones come first, kept ones last */
    uint64_t joint;   /* part of `bytes` that it shares with any slot: it is not freed with it */
    uint64_t apart;   /* part of `joint` that it copies when it grows, because others have more
                       * rows in the same memory */
    uint64_t apart_running; /* the same, if one of them runs */
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
    uint64_t pool_bytes;  /* of all that running ones need, at most */
    uint64_t spare_bytes; /* in addition for the rest: it must be given back when it shrinks */
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
/* Where another prompt began to differ: REUSE_BEFORE_END before the end of the most tokens that
 * the prompt has in common with a slot, whether or not that can be cut there, because texts that
 * differ may be tokenized differently before. 0: fewer than REUSE_BRANCH_LEAST, which every
 * prompt may have in common. */
#define REUSE_BRANCH_LEAST 64u
uint32_t reuse_branch(const struct reuse_table *t, const uint32_t *common);
/* The slot, kept or running, that gives a prompt most rows. side: that of a side request.
 * common[slot]: how many of its first rows are those of the prompt; 0: it must not be used. A kept
 * one that moves goes before one that gives up to REUSE_BEFORE_END rows more, because a copy would
 * leave it behind. Of equal ones, one that moves, then the one that loses fewest rows, then the
 * oldest. */
struct reuse_prefix reuse_prefix(const struct reuse_table *t, const uint32_t *common, bool side);

/* Whether a sequence with `common` tokens takes a slot over, with what it has beyond them: a kept
 * one, whose prompt they include, so that it is the same conversation. Else its rows are copied, as
 * far as there is memory for both. A side request takes no conversation over. */
bool reuse_moves(const struct reuse_table *t, uint32_t slot, uint32_t common, bool side);

/* Whether a sequence takes rows from a kept slot that does not move where there is no memory for a
 * copy: a conversation takes REUSE_BRANCH_LEAST or more; a side request borrows those of a
 * conversation, and only if its prompt includes the other one. */
bool reuse_takes(const struct reuse_table *t, uint32_t slot, uint32_t common, uint32_t rows,
                 bool side);

/* The slot of a sequence that takes nothing over: an empty one, else the kept one of the least
 * value, which is given up. REUSE_NONE: all run. */
uint32_t reuse_slot(const struct reuse_table *t);

/* ---- value ---- */

/* Kept rows are worth the seconds that they can be expected to save: the measured time in which
 * they were computed, times the chance that the next prompt continues from them, taken as
 * (1 + uses) / (1 + age). `uses` counts up to 3, and `age` is how many sequences were kept or used
 * since.  A version of a kept slot is worth its loss (reuse_loss).
 *
 * What side requests left goes first, then what has the least value per byte. This is
 * GreedyDual-Size-Frequency (L. Cherkasova, HP Labs HPL-98-69, 1998: frequency * cost / size) with
 * age as a divisor instead of a clock, and with time as the cost, as Marconi (R. Pan et al., MLSys
 * 2025) does for states of hybrid models.
 */
double reuse_value(const struct reuse_table *t, uint32_t slot);
double reuse_version_value(const struct reuse_table *t, uint32_t version);
/* The kept slot of the least value but `except`; REUSE_NONE: there is none. */
uint32_t reuse_least_kept(const struct reuse_table *t, uint32_t except);

/* Memory of the slot's versions; REUSE_NONE: of all. */
uint64_t reuse_version_bytes(const struct reuse_table *t, uint32_t slot);

/* ---- memory ---- */

/* What is given up: so many bytes of a kept slot, its last rows first, with the versions of these
 * rows (UINT64_MAX: all), or a version. Both REUSE_NONE: nothing. */
struct reuse_victim {
    uint32_t slot, version;
    uint64_t bytes;
};
static inline bool reuse_nothing(struct reuse_victim v)
{
    return v.slot == REUSE_NONE && v.version == REUSE_NONE;
}

/* Memory of all slots and versions, and whether the pool has some for one more version. */
uint64_t reuse_bytes(const struct reuse_table *t);
bool reuse_has_room(const struct reuse_table *t);
/* Whether a running slot may have `bytes` of keys and values in all (REUSE_NONE: a new one, without
 * what it will share with a running one):
 * with what other running ones have, and the versions that each needs (of recurrent layers one
 * to read and one to write, of rings one that they are restored from), it is within the pool. As
 * long as this holds, every pass has a version to write. */
bool reuse_may_grow(const struct reuse_table *t, uint32_t slot, uint64_t bytes);
/* Of the versions that a new slot needs, the memory. */
uint64_t reuse_new_bytes(const struct reuse_table *t);
/* Whether the pool has memory for `bytes` of keys and values in `slot`, in all. */
bool reuse_fits(const struct reuse_table *t, uint32_t slot, uint64_t bytes);
/* What is given up next, until they fit: memory of versions that nobody uses, what is kept, by its
 * value per byte, then checkpoints of running ones, those of the least loss first. Nothing: they
 * fit, or all else is needed. */
struct reuse_victim reuse_yield(const struct reuse_table *t, uint32_t slot, uint64_t bytes);
/* The same until all is within the pool and the spare memory, which has shrunk. */
struct reuse_victim reuse_excess(const struct reuse_table *t);
/* What kept slots give up next, so that a pass of `slot`, which reads the version of `end` rows,
 * has a version to write without loss for another running one. Nothing: it has, also where a
 * checkpoint of its own is worth less than what is kept, or nothing is kept. A long prompt makes
 * many checkpoints: without that rule, each would cost a conversation its newest state. */
struct reuse_victim reuse_room(const struct reuse_table *t, uint32_t slot, uint32_t end);
/* What is given up next, until at most `most` slots are kept, and their keys, values and versions
 * are at most `limit` bytes. */
struct reuse_victim reuse_surplus(const struct reuse_table *t, uint32_t most, uint64_t limit);
/* Of what is kept, but in slot `except`, what has the least value per byte. `versions`: of slots
 * that have versions only. Nothing: there is none. */
struct reuse_victim reuse_least_dense(const struct reuse_table *t, uint32_t except, bool versions);
/* The same for a pass of `slot` that reads the version of `end` rows. *own: the checkpoint of that
 * slot which is worth less, rows for rows; REUSE_NONE: none is. */
struct reuse_victim reuse_least_with(const struct reuse_table *t, uint32_t slot, uint32_t end,
                                     bool versions, uint32_t *own);

/* ---- storage ---- */

/* Whether rows that took cost_ns to compute are read from storage: it takes less time. */
bool reuse_reads(uint64_t cost_ns, uint64_t bytes, double bytes_per_ns);
/* How long a kept prefix of `rows` rows stays untouched before it is written, when storage has
 * `stored` of its rows: a conversation is likely to continue and would be written again, and the
 * more so the larger it is, and the less of it is new. */
uint64_t reuse_store_delay_ns(uint64_t bytes, uint32_t rows, uint32_t stored);

/* ---- checkpoints ---- */

/* Where the messages of a prompt meet: there the control tokens of its template are, which no text
 * of a user becomes. Those that follow each other with a few tokens between them, such as a role,
 * are one place, which is the first of them. at: the first two, because one of them is the end of
 * the system prompt with its tools; and the last ones, because templates rewrite the turns since
 * the last message of the user once another one follows. They are REUSE_BRANCH_LEAST tokens apart
 * or more, because a pass ends at each; but the last one is always among them. */
void reuse_turns(bool (*is_control)(const void *arg, uint32_t token), const void *arg,
                 const uint32_t *tokens, uint32_t count, uint32_t at[REUSE_TURNS_MAX]);

/* Where checkpoints of a sequence are: every `every` rows; where messages of the prompt meet; where
 * the response begins; and where an earlier prompt began to differ, because what both begin with
 * is likely to begin a third one. The end of the response is one, too, when the sequence ends. */
struct reuse_points {
    uint32_t prompt; /* tokens */
    uint32_t branch; /* rows: reuse_branch */
    uint32_t every;
    const uint32_t *turns; /* [REUSE_TURNS_MAX] */
};
/* Whether the state of so many rows becomes a checkpoint. */
bool reuse_is_point(uint32_t rows, const struct reuse_points *points);
/* The last of them up to `rows` rows; 0: there is none. */
uint32_t reuse_last_point(uint32_t rows, const struct reuse_points *points);
/* Where the response to a prompt begins: the last place where messages meet if that is at most
 * REUSE_RESPONSE_MOST tokens before the end, else REUSE_BEFORE_END before it. 0: none. */
#define REUSE_RESPONSE_MOST 32u
uint32_t reuse_response(uint32_t prompt, const uint32_t turns[REUSE_TURNS_MAX]);
/* Of `rows` rows from `position` on, how many a pass may compute: it ends at the next point. */
uint32_t reuse_pass_rows(uint32_t position, uint32_t rows, const struct reuse_points *points);

/* What is lost without the version of `rows` rows of a slot whose sequence has `end`: the rows from
 * the version below it on, times the part of the sequence in which a prompt that differs would
 * continue from it, up to the version above, in rows: all for the last one and where the response
 * begins; at least one of REUSE_OTHERS for `branch` rows, where others began to differ; one of
 * REUSE_EDITS where messages meet and for `start` and `given` rows, where an edited message would;
 * of `shared` ones nothing, because other prompts continue from the other slot. Most conversations
 * are only appended to: the newest state of each is worth more than the ways back. */
#define REUSE_OTHERS 4u
#define REUSE_EDITS  16u
uint64_t reuse_loss(const struct reuse_table *t, uint32_t slot, uint32_t rows, uint32_t end);

/* The version that a slot has of so many rows. */
uint32_t reuse_version(const struct reuse_table *t, uint32_t slot, uint32_t rows);

/* The version that the next pass of a running slot writes. `end`: the rows whose version stays,
 * because the pass reads it, or makes it. In this order:
 *   1. memory that nobody uses any more
 *   2. the slot's version of the pass before
 *   3. a version without memory, if the pool has some
 *   4. a checkpoint of a running slot, the one of the least loss, and never what its next pass
 *      reads; if there are rings only, not that where the own response begins
 * REUSE_NONE: all are needed. Versions of kept slots are not taken: reuse_room gives them up. */
uint32_t reuse_write(const struct reuse_table *t, uint32_t slot, uint32_t end);

/* The checkpoint of a running slot that reuse_write would take, had it no other version: the one of
 * the least loss. REUSE_NONE: it has none that may be taken. */
uint32_t reuse_weakest_checkpoint(const struct reuse_table *t, uint32_t slot, uint32_t end);

/* The version of any running slot of the least loss, but never what its next pass reads. */
uint32_t reuse_least(const struct reuse_table *t);

/* The version of a slot of the least loss, but not that of `end` rows. REUSE_NONE: there is no
 * other. */
uint32_t reuse_weakest(const struct reuse_table *t, uint32_t slot, uint32_t end);

#endif
