/* SPDX-License-Identifier: Apache-2.0 */
/* The memory budget: facts for the ledger, the quota of the arena, and a cgroup as its limit. */
#ifndef SLUICE_ENGINE_SUPERVISOR_BUDGET_BUDGET_H
#define SLUICE_ENGINE_SUPERVISOR_BUDGET_BUDGET_H

#include "procs/engine/supervisor/supervisor.h"

/* budget.c */
/* Facts of the ledger about the model and about processes before they exist; divides --budget, or
 * without it half of the available memory, at least the minimum if that much is available. May be
 * below budget.ledger.min_budget. */
int budget_make(struct supervisor *s, struct error *error);
/* memory_available; 0: not known, too. */
uint64_t budget_available(void);
/* chunk.c. Of compute: activations of a chunk, logits, and rows gathered by every thread. Of keys,
 * values and states: what the ledger reserves. What --prefill-chunk 0 stands for with --budget, at
 * most budget.chunk_max. */
uint64_t budget_compute_bytes(const struct supervisor *s);
uint64_t budget_compute_threads(const struct supervisor *s);
uint64_t budget_kv_bytes(const struct supervisor *s);
uint64_t budget_chunk(struct supervisor *s);
/* context.c: the context if none was given, with this budget; with any, as long as the engine can
 * start with it; the smallest that an engine starts with; and half of the one chosen, false: it was
 * not, or is the smallest. */
#define CONTEXT_MIN 16u /* of --ctx-size */
uint32_t budget_context(struct supervisor *s);
uint32_t budget_context_low(const struct supervisor *s);
uint32_t budget_context_smallest(const struct supervisor *s);
bool budget_context_halve(struct supervisor *s);
int budget_start(struct supervisor *s, struct error *error);
/* Writes quota, caps and throttles into the directory, before any child exists. */
void budget_publish(struct supervisor *s);
void budget_child_ready(struct supervisor *s, struct child_record *c);
int budget_all_ready(struct supervisor *s, struct error *error);
void budget_tick(struct supervisor *s, uint64_t now_ns);
/* Share of the experts' bytes that these are, that fits into a quota, and into the current one. */
double budget_share_of(const struct supervisor *s, uint64_t bytes);
double budget_share(const struct supervisor *s, uint64_t quota);
double budget_share_now(const struct supervisor *s);
/* Requests another budget. 0: in effect at once; 1: in progress; -1: rejected. */
int budget_change(struct supervisor *s, uint64_t bytes, struct error *error);
bool budget_settled(const struct supervisor *s);
uint64_t budget_timeout_ns(const struct supervisor *s, uint64_t bytes);

/* lend.c. Before the ledger divides the budget: what is reserved for kept prefixes. After the quota
 * was sent: what they may use, if experts have left it; and tells compute. */
void lend_reserve(struct supervisor *s);
void lend_settle(struct supervisor *s);
void lend_send(struct supervisor *s);
/* Whether experts, and kept prefixes, have left what they must. */
bool lend_quota_settled(const struct supervisor *s);
bool lend_settled(const struct supervisor *s);

/* text.c */
uint64_t measure_text(struct supervisor *s);
uint64_t estimate_text(struct supervisor *s);
void text_trim(const struct supervisor *s, const char *program);

/* estimate.c. How many sequences of a whole context the budget holds beside *percent % of the
 * experts: as many quarters of them as it holds. */
uint32_t budget_sequences(const struct supervisor *s, unsigned *percent);
/* --print-memory. Needs the model, and no other process. */
int memory_estimate_print(struct supervisor *s, struct error *error);

/* cgroup.c */
int cgroup_enter(struct supervisor *s, struct error *error);
bool cgroup_limit(struct supervisor *s, uint64_t bytes);
/* Processes that the kernel killed for lack of memory, of the own cgroup or else the one we run in;
 * false where neither counts them. */
bool cgroup_oom_counts(const struct supervisor *s, struct oom_counts *counts);
bool cgroup_peak(const struct supervisor *s, uint64_t *usage, uint64_t *peak);
void cgroup_leave(struct supervisor *s);

#endif
