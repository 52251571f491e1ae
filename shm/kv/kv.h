/* SPDX-License-Identifier: Apache-2.0 */
/* Request table, token logs and KV cache. Writer: compute only (the main thread admits, the runner
 * appends). They survive compute: its successor resumes every row that is QUEUED or RUNNING. The
 * token log is authoritative: it is appended (release) after the barrier that ends the token. KV
 * rows below kv_valid are complete, everything else is recomputed.
 *
 * Keys and values are in slots, which exist independently of the rows of the request table. A slot
 * is empty, belongs to a RUNNING request, or is kept after its end for a prompt that begins with
 * the same tokens. Its memory is fallocated as the sequence grows, and punched. Slots that begin
 * alike share it (pages.h).
 *
 * A recurrent state is that after a number of tokens, and cannot be cut back. So it has versions,
 * which all slots share: a pass reads one and writes another. kv_valid is stored when that one is
 * complete, and this one store commits both: whenever compute is killed, the version of kv_valid
 * rows is untouched. A version that is not written again is a checkpoint.
 *
 * An indexer's keys are a third kind of rows, of a type of their own (kv_index_type). They are in
 * the pages of their positions, so whatever grows, shares, copies or cuts keys and values does it
 * to them, too.
 *
 * A layer with a window has a ring: position p is at p % ring. The ring holds the window and a
 * whole chunk, so that a pass overwrites no position that a row of it, or of its repetition after a
 * crash, attends to. It can be cut back by few rows only (kv_slot.lowest); checkpoints have copies
 * of its windows. */
#ifndef SLUICE_SHM_KV_KV_H
#define SLUICE_SHM_KV_KV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/grammar/grammar.h"
#include "lib/model/arch/arch.h"
#include "lib/sampling/sampler.h"
#include "lib/sampling/sampling.h"
#include "lib/sampling/stops.h"
#include "shm/segment/segment.h"

/* A request at which compute crashes is retried by its successors: so many crashes without progress
 * end it. */
#define SEQUENCE_CRASHES_MAX 5

#define KV_TURNS_MAX    8  /* places in a prompt where messages meet (lib/policy/reuse) */
#define KV_REQUESTS_MAX 64 /* rows: queued, running, and finished ones that may still be polled */

/*  FREE -> QUEUED (submit) -> RUNNING (runner) -> DONE | FAILED | CANCELLED
 *       -> FREE (polled to the end, or not polled for 30 s) */
enum kv_state { KV_FREE, KV_QUEUED, KV_RUNNING, KV_DONE, KV_FAILED, KV_CANCELLED };
enum kv_finish {
    KV_FINISH_NONE,
    KV_FINISH_LENGTH,
    KV_FINISH_STOP,
    KV_FINISH_CANCELLED,
    KV_FINISH_ERROR
};

struct kv_accesses { /* of experts, and bytes read from devices */
    uint64_t hits, hits_inflight, misses, skipped, bytes_read;
};

struct kv_stats { /* statistics of one request; JSON names are those of generate --output json */
    uint64_t submitted_ns, started_ns, first_token_ns, finished_ns;
    uint64_t prefill_ns, decode_ns, stall_ns;
    uint64_t hits, hits_inflight, misses, skipped, low_precision_accesses;
    uint64_t evictions, bytes_read;           /* while it ran: its share of those of the engine */
    uint64_t evictions_seen, bytes_read_seen; /* of the engine, when they were shared last */
    uint64_t bytes_read_before;               /* of the engine, when it started */
    struct kv_accesses at_first;              /* the counts above when the first token was there */
    uint64_t resumes;                         /* number of resumes after restarts of compute */
    uint32_t cached;  /* tokens of the prompt whose rows were kept from an earlier sequence */
    uint32_t counted; /* tokens of the log whose computation was counted: those that a pause, or a
                       * restart of compute, has computed again are not counted again */
    uint32_t preset;  /* preset of the sequence (lib/policy/presets/presets.h); the active one may
                      * differ by now */
};

#define KV_CLIENT_BYTES 64

struct kv_request {
    _Atomic uint32_t state;    /* enum kv_state; stored with release after the fields it covers */
    _Atomic uint32_t finish;   /* enum kv_finish */
    _Atomic uint64_t id;       /* unique over the run, never 0 when not FREE */
    _Atomic uint64_t key_hash; /* XXH3 of the client's request_key */
    _Atomic uint64_t arrival;  /* run order */
    _Atomic uint32_t cancel;   /* set by the main thread; the runner obeys within one token */
    _Atomic uint32_t prompt_tokens;
    _Atomic uint32_t
        log_tokens; /* tokens in the log: prompt, then generated; release after the token */
    _Atomic uint32_t kv_valid;     /* KV rows [0, kv_valid) are complete; release after the rows */
    _Atomic uint64_t last_poll_ns; /* last next() */
    uint64_t end_sent_ns;          /* when a client got the end of an ended row first; 0: not yet */
    uint32_t max_tokens;
    uint32_t flags; /* KV_FLAG_* */
    uint32_t logprobs;
    uint32_t error_code;    /* enum error_code when FAILED */
    uint32_t forced_tokens; /* number of forced tokens, already in the log beyond log_tokens */
    uint32_t stop_token;    /* generated token in which the text ends; UINT32_MAX: none */
    uint32_t stop_bytes;    /* bytes of it that belong to the text */
    uint32_t crashes_seen;  /* crashes of compute (process.crashes) at the last progress; writer:
                               runner */
    uint32_t gateway;       /* incarnation of the gateway that submitted it; 0: another client */
    uint32_t branch;        /* where it differs from an earlier one; 0: none. Writer: runner */
    _Atomic uint32_t
        in_pass;            /* 1: rows of it are computed now; a crash of compute is then counted */
    uint32_t top_logprobs;  /* of so many tokens beside each generated one: 0 to KV_TOPS_MAX */
    uint32_t grammar;       /* enum grammar_kind; its text and marks are in struct kv_extra */
    uint32_t grammar_bytes; /* of the text */
    uint32_t biases;        /* in struct kv_extra */
    uint32_t reserved;
    uint32_t turns[KV_TURNS_MAX]; /* of the prompt, ascending; 0: no more */
    uint64_t seed; /* resolved at submit, so that a successor samples the same tokens */
    struct stop_texts stops;
    struct sampling sampling;
    struct kv_stats stats;        /* writer: runner */
    char client[KV_CLIENT_BYTES]; /* who asks, for people: printable ASCII */
    char error_text[256];
};

#define KV_BIASES_MAX 300
#define KV_TOPS_MAX   20

/* What only few requests have, in sparse memory: a successor of compute continues with the same
 * grammar. Written at submit, before the row is QUEUED. */
struct kv_extra {
    struct sampler_bias bias[KV_BIASES_MAX];
    char open[GRAMMAR_MARK_BYTES_MAX + 1], close[GRAMMAR_MARK_BYTES_MAX + 1],
        trigger[GRAMMAR_MARK_BYTES_MAX + 1]; /* "": none */
    char text[GRAMMAR_TEXT_BYTES_MAX];
};

struct kv_top {
    uint32_t id;
    float logprob;
};

#define KV_SEQUENCES_MAX 64  /* that are RUNNING at a time: kv_head.sequences */
#define KV_SLOTS_MAX     128 /* of RUNNING sequences, and kept ones: kv_head.slots */

/* Memory of the keys and values of one sequence. Writer: runner.
 *
 *   empty (rows 0) -> owned (owner) -> kept (rows > 0) -> owned by the next sequence, or empty
 *
 * Which slot a RUNNING request has is decided by `owner` alone, the last field stored when a slot
 * is taken and before the end state of the request: a successor of compute finds either, whenever
 * its predecessor was killed. */
struct kv_slot {
    _Atomic uint64_t owner;     /* id of the RUNNING request; 0: none */
    _Atomic uint32_t rows;      /* rows [0, rows) are those of the tokens in the slot's log; release
                                 * after both. Owned: those that were taken over */
    _Atomic uint32_t allocated; /* positions that may have memory: raised before, lowered after */
    uint32_t preset, lossy;     /* of the sequence that computed the rows */
    uint32_t side;              /* 1: of a side request. Owned by one, 0: the rows that it began
                                 * with are a conversation's, which keeps them */
    _Atomic uint32_t lowest;    /* fewest rows to which its rings can be cut back, above 0: raised
                                 * before a pass writes, lowered after a window was restored */
    uint32_t used;              /* kept: 1 + that of the slots kept or used before it */
    uint32_t prompt;            /* kept: of `rows`, those of the prompt */
    uint32_t uses;              /* how many prompts continued from its rows */
    uint32_t branch, start; /* of its sequence: kv_request.branch, and rows that it began with */
    uint32_t given;         /* rows that another one took from it last; 0: none did */
    uint32_t turns[KV_TURNS_MAX]; /* kept: kv_request.turns */
    uint32_t shared;              /* rows that it has from another slot; 0: none */
    uint32_t reserved;
    uint64_t cost_ns; /* measured time to compute `rows` */
};

#define KV_STATES_WORKING 2 /* of a running sequence with recurrent layers: read and written */
#define KV_STATES_MAX     (KV_STATES_WORKING * KV_SEQUENCES_MAX + 128) /* of all slots */

/* A version of the state that cannot be cut back: of recurrent layers; in checkpoints also the last
 * window of layers that have a ring. Writer: runner. */
struct kv_version {
    _Atomic uint64_t tag;       /* KV_STATE_TAG once complete; 0: free, or being written */
    _Atomic uint32_t allocated; /* 1: may have memory; raised before, lowered after */
    uint32_t reserved;
};

/* After `rows` tokens of the sequence in the slot; kept: a checkpoint. */
#define KV_STATE_TAG(slot, rows, kept)                                                             \
    ((uint64_t)(kept) << 63 | ((uint64_t)(slot) + 1) << 32 | (uint64_t)(rows))
#define KV_STATE_SLOT(tag)    ((uint32_t)((tag) >> 32 & INT32_MAX) - 1) /* UINT32_MAX: free */
#define KV_STATE_ROWS(tag)    ((uint32_t)(tag))
#define KV_STATE_IS_KEPT(tag) ((tag) >> 63 != 0)

#define KV_FLAG_IGNORE_EOS   1u
#define KV_FLAG_SCORE_PROMPT 2u
#define KV_FLAG_NO_CACHE     4u  /* neither uses nor leaves a kept slot */
#define KV_FLAG_SIDE         8u  /* a side request: a title, tags */
#define KV_FLAG_PROMPT_TEXT  16u /* the prompt was given as a text, not as ids */

struct kv_head {
    struct segment_head segment;
    uint32_t layers, context; /* context: positions per request (--ctx-size) */
    uint64_t logs_offset;     /* KV_REQUESTS_MAX rows of uint32_t[context], each whole pages */
    uint64_t logprobs_offset; /* the same, of float */
    uint64_t tops_offset;     /* KV_REQUESTS_MAX rows of struct kv_top[context * KV_TOPS_MAX] */
    uint64_t extras_offset;   /* KV_REQUESTS_MAX rows of a struct kv_extra; both each whole pages */
    uint64_t slot_logs_offset; /* `slots` rows of uint32_t[context]: tokens of kept rows */
    uint64_t homes_offset;     /* `slots` rows of `pages` bytes: where each page is (pages.h) */
    uint64_t kv_offset;        /* page-aligned; kv_slot_bytes per slot, sparse */
    uint64_t kv_slot_bytes;
    uint64_t states_offset;  /* `states` of state_bytes, whole pages, sparse */
    uint64_t state_bytes;    /* 0: neither recurrent layers nor rings */
    uint64_t windows_offset; /* of the windows in a version: bytes of the recurrent states, a
                                multiple of 64 */
    uint32_t states;
    uint32_t ring;   /* positions in layers with a window, whole tiles; 0: all */
    uint32_t window; /* of these layers, if they have rings */
    _Atomic uint64_t next_id, next_arrival;
    _Atomic uint32_t isa; /* enum kernel_isa + 1 once chosen: a successor must use the same */
    /* The call with a prompt that was handled last; a successor finds it after a crash in the
     * middle of it. */
    uint32_t call_crashes;       /* crashes of compute when it arrived first */
    uint64_t call_key;           /* hash of its request key or prompt; 0: it got its reply */
    uint32_t call_runs;          /* 1: it is being handled */
    uint32_t crashes_before;     /* crashes of compute when this one started */
    uint64_t alive_ns;           /* compute's main thread ran last */
    uint32_t kv_type;            /* enum kv_type of keys and values (--kv-type) */
    uint32_t slots;              /* 1 to KV_SLOTS_MAX */
    uint32_t sequences;          /* that may be RUNNING at a time: 1 to `slots` */
    uint32_t states_reserved;    /* of `states`: the pool has memory for so many and one context */
    uint32_t page_tokens, pages; /* positions of a page that slots share; pages of a slot */
    uint64_t model_hash[2];      /* of the model's files, for rows on storage; 0: not known */
    /* Removals of all that is kept: requests, and those that are done. A successor ends one. */
    _Atomic uint64_t clear_wanted, cleared;
    uint32_t tile_bytes[LAYER_KIND__COUNT][2]; /* of all heads of a layer, by enum kv_side */
    uint8_t layer_kind[MODEL_LAYERS_MAX];
    /* Of an indexer's keys, or of entries and their keys: 0, the layer has neither; else 1 + the
     * number of its size, of which a model has up to two. */
    uint8_t layer_indexed[MODEL_LAYERS_MAX];
    uint32_t index_tile_bytes[2];
    struct kv_version state[KV_STATES_MAX];
    struct kv_request request[KV_REQUESTS_MAX];
    struct kv_slot slot[]; /* [slots] */
};

/* The counts are those of the head when it was attached: checked, and not read again, because
 * another process may have written them since. */
struct kv {
    struct segment segment;
    struct kv_head *head;
    uint32_t slots, sequences, states;
    uint64_t pool_bytes; /* kv_reserved_bytes of its shape */
};

struct kv_shape {
    const struct model_hparams *model;
    enum kv_type type;
    uint32_t context, ring, states, slots, sequences, states_reserved; /* as in struct kv_head */
};

struct kv_counts {
    uint32_t sequences;   /* that run at a time: 1 to KV_SEQUENCES_MAX */
    uint32_t kept;        /* slots in addition, for kept sequences */
    uint32_t checkpoints; /* versions of the state in addition to those that are read and written */
    uint32_t versions;    /* more of them, in what others leave of the pool, and in spare memory */
    uint32_t reserved;    /* of `sequences`, whose states have memory for sure; 0: one */
};

/* For passes of at most `chunk` rows. Layers with a window have rings if these and their
 * checkpoints need less memory than all positions. */
struct kv_shape kv_shape_of(const struct model_hparams *h, enum kv_type type, uint32_t context,
                            uint32_t chunk, const struct kv_counts *counts);
/* Bytes of the segment, and of its header, which is in memory from the start. */
uint64_t kv_bytes(const struct kv_shape *shape);
uint64_t kv_head_bytes(const struct kv_shape *shape);
/* The pool: what the ledger reserves for keys, values and states of all slots. It is what one
 * sequence needs at full length, and the checkpoints. Running sequences share it, and kept ones use
 * what these leave, and spare memory. */
uint64_t kv_reserved_bytes(const struct kv_shape *shape);
/* KV bytes of one sequence of `tokens` tokens. */
uint64_t kv_sequence_bytes(const struct kv_shape *shape, uint32_t tokens);
/* Bytes of `states` versions of the state. */
uint64_t kv_states_bytes(const struct kv_shape *shape, uint32_t states);
void kv_format(void *base, const struct kv_shape *shape);
int kv_attach(int fd, bool writable, uint64_t boot, struct kv *out, struct error *error);
/* -1 with *error: an attached segment is not one of this model, or a pass of `chunk` rows spoils
 * its rings. */
int kv_check(const struct kv *kv, const struct model_hparams *model, uint32_t chunk,
             struct error *error);

_Atomic uint32_t *kv_log(const struct kv *kv, uint32_t row);       /* [context] */
_Atomic uint32_t *kv_slot_log(const struct kv *kv, uint32_t slot); /* [context] */
float *kv_logprobs(const struct kv *kv, uint32_t row);             /* [context]; NaN where none was
                                                                    * recorded */
struct kv_extra *kv_extra(const struct kv *kv, uint32_t row);
/* Of a generated token, counted from 0: as many as the row's top_logprobs. */
struct kv_top *kv_tops(const struct kv *kv, uint32_t row, uint32_t token);
/* K or V of one layer in a slot: tiles of KV_TILE positions, [tile][kv_head] (lib/kernels); a ring
 * begins again after kv_head.ring positions. */
void *kv_keys(const struct kv *kv, uint32_t slot, uint32_t layer);
void *kv_values(const struct kv *kv, uint32_t slot, uint32_t layer);
/* The same of the keys of its indexer, which some layers have. */
void *kv_index(const struct kv *kv, uint32_t slot, uint32_t layer);

/* Gives a slot memory for `tokens` positions (whole tiles and pages per layer), or takes what is
 * beyond them; rows below stay as they are. -1 with *error: the slot is as before. `alive` (may be
 * NULL) is called between layers: gigabytes take seconds. kv_slot_release frees all of it. */
int kv_slot_resize(const struct kv *kv, uint32_t slot, uint32_t tokens, void (*alive)(void *arg),
                   void *arg, struct error *error);
void kv_slot_release(const struct kv *kv, uint32_t slot, void (*alive)(void *arg), void *arg);

/* A version of the state: the parts of recurrent layers (model_state_bytes), then windows. -1 with
 * *error: /dev/shm has no space. */
void *kv_state_at(const struct kv *kv, uint32_t state);
int kv_state_allocate(const struct kv *kv, uint32_t state, struct error *error);
void kv_state_release(const struct kv *kv, uint32_t state);

/* Copies what the next row after `rows` rows attends to, in all rings of a slot, to a version or
 * back. window.c */
void kv_windows_save(const struct kv *kv, uint32_t slot, uint32_t rows, uint32_t state);
void kv_windows_restore(const struct kv *kv, uint32_t slot, uint32_t rows, uint32_t state);
/* kv_slot.lowest once positions below `end` were written. */
uint32_t kv_ring_lowest(const struct kv_head *h, uint32_t end);

/* Allocates the slot's log for `tokens` tokens; kv_slot_log_cut frees what is beyond
 * `tokens` tokens. */
int kv_slot_log_allocate(const struct kv *kv, uint32_t slot, uint32_t tokens, struct error *error);
void kv_slot_log_cut(const struct kv *kv, uint32_t slot, uint32_t tokens);

/* Bytes of the keys and values of `tokens` tokens; how many tokens, at most `max`, have at most
 * `bytes`. */
uint64_t kv_tokens_bytes(const struct kv *kv, uint32_t tokens);
uint32_t kv_tokens_within(const struct kv *kv, uint64_t bytes, uint32_t max);

/* Allocates the token log and log-probabilities of `tokens` tokens of a row, at submit and before
 * the first store. Without it a full /dev/shm would cause SIGBUS at a store instead of
 * ERR_NO_MEMORY here. The next two: room for biases, marks and a grammar of `text` bytes; and for
 * the most probable tokens beside generated tokens [from, to) of a row with top_logprobs.
 * kv_log_release frees all of them when the row becomes FREE. */
int kv_log_allocate(const struct kv *kv, uint32_t row, uint32_t tokens, struct error *error);
int kv_extra_allocate(const struct kv *kv, uint32_t row, uint32_t text, struct error *error);
int kv_tops_allocate(const struct kv *kv, uint32_t row, uint32_t from, uint32_t to,
                     struct error *error);
void kv_log_release(const struct kv *kv, uint32_t row);

#endif
