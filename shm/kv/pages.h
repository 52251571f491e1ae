/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that slots share: one copy of the keys and values that their sequences have in common.
 *
 * A page has kv_head.page_tokens positions of all regions but rings: whole tiles, which are whole
 * pages of memory in every region. Memory for a page of a slot is at the offset of some slot, its
 * home. A slot that shares the beginning of another one has the same homes; mapped at its own
 * addresses, so that its rows are contiguous for the kernels. Only complete pages are shared, and
 * nobody writes into a page that others have: who was cut back into one copies it first.
 *
 * The table of homes is the only truth. So a page that no slot has in the table is free, whatever
 * compute did when it was killed. Two slots have pages in common from the first one on, up to where
 * they part, and never again after that. */
#ifndef SLUICE_SHM_KV_PAGES_H
#define SLUICE_SHM_KV_PAGES_H

#include "shm/kv/kv.h"

/* Positions of a page of this shape; pages of a slot. */
uint32_t kv_page_tokens(const struct kv_head *h);
uint32_t kv_page_count(const struct kv_head *h);

/* Memory of the first `tokens` positions of a slot, without rings. */
uint64_t kv_pages_bytes(const struct kv *kv, uint32_t tokens);

/* How many pages two slots have in common; of the last one, a slot may use a part only. */
uint32_t kv_pages_common(const struct kv *kv, uint32_t a, uint32_t b);

/* Whether another slot has the page that position `token` of a slot is in. */
bool kv_page_is_shared(const struct kv *kv, uint32_t slot, uint32_t token);

/* Gives an empty slot the first `tokens` positions of another one: complete pages are shared, and
 * the others and rings copied. -1 with *error: it is empty as before. */
int kv_slot_share(const struct kv *kv, uint32_t from, uint32_t to, uint32_t tokens,
                  void (*alive)(void *arg), void *arg, struct error *error);

/* For a successor of compute. kv_slot_map: maps the pages of a slot; positions that have none are
 * not allocated. -1 with *error: the kernel refuses. kv_pages_settle, when all slots are checked:
 * frees pages that no slot has. */
int kv_slot_map(const struct kv *kv, uint32_t slot, struct error *error);
void kv_pages_settle(const struct kv *kv, void (*alive)(void *arg), void *arg);

/* ---- for slots.c ---- */

/* Called between regions: gigabytes take seconds. alive may be NULL. */
struct kv_report {
    void (*alive)(void *arg);
    void *arg;
};

/* Gives the pages of positions [from, end) a home where they have none. -1 with *error: they have
 * none as before. */
int kv_pages_assign(const struct kv *kv, uint32_t slot, uint32_t from, uint32_t end,
                    struct error *error);
/* Position `token` will be written next: if it is within a page that others have, the slot gets one
 * of its own with the positions before it, and memory up to `end`. -1 with *error: it is as
 * before. */
int kv_page_own(const struct kv *kv, uint32_t slot, uint32_t token, uint32_t end,
                struct error *error);
/* Memory of positions [from, end) of the slot, which have homes. 0 or -errno. */
int kv_pages_allocate(const struct kv *kv, uint32_t slot, uint32_t from, uint32_t end,
                      const struct kv_report *r);
/* Takes positions [tokens, end), and frees what no other slot has. */
void kv_pages_drop(const struct kv *kv, uint32_t slot, uint32_t tokens, uint32_t end,
                   const struct kv_report *r);

/* The same of the rings of a slot, which are never shared. */
int kv_rings_allocate(const struct kv *kv, uint32_t slot, uint32_t before, uint32_t tokens);
void kv_rings_drop(const struct kv *kv, uint32_t slot, uint32_t tokens, uint32_t end);

#endif
