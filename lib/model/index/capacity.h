/* SPDX-License-Identifier: Apache-2.0 */
/* Computes how much of a model's experts fits into the memory of a run. This is the only place for
 * that arithmetic: supervisor, cache, compute and inspect call it. Pure functions.
 *
 * Two limits apply, in two units. The *quota* limits backed bytes of the arena, hence slots: those
 * of the dense entries, which are always resident, and those of experts. payload_max, the cap of
 * --resident-experts, limits payload bytes of experts; UINT64_MAX: no cap. A slot is its payload
 * rounded up to pages, so that slots never have fewer bytes.
 *
 * What fits is asked for in three units; each has its function:
 *   slot bytes     capacity_slot_bytes      for memory that is lent or shared: the pin limit of a
 *                                           layer, the share of the experts that presets are
 *                                           checked and chosen with
 *   payload bytes  capacity_payload_bytes   for residency, which counts payload as traces do
 *   experts        capacity_experts         for sets of a fixed size (masked routing) */
#ifndef SLUICE_MODEL_INDEX_CAPACITY_H
#define SLUICE_MODEL_INDEX_CAPACITY_H

#include "lib/model/index/model_index.h"

/* Slot bytes of experts: what the quota leaves beside the dense entries, at most payload_max. The
 * cap is not converted to slots: with one, the result is less than what its experts take. */
uint64_t capacity_slot_bytes(const struct model_index *m, uint64_t quota, uint64_t payload_max);

/* Payload bytes of experts: the slot bytes that the quota leaves, less the rounding to pages in
 * proportion, at most payload_max. */
uint64_t capacity_payload_bytes(const struct model_index *m, uint64_t quota, uint64_t payload_max);

/* Number of experts that fit whichever they are: all have the size of the largest, in slots under
 * the quota and in payload under the cap. At most all entries of experts, of every precision. */
uint32_t capacity_experts(const struct model_index *m, uint64_t quota, uint64_t payload_max);

/* The inverse of capacity_payload_bytes: the part of the quota that is ever used under the cap.
 * One expert is added, because the next one is read before its victim's pages are given back. */
uint64_t capacity_quota_used(const struct model_index *m, uint64_t quota, uint64_t payload_max);

/* payload_max for --resident-experts: `percent` of the experts' payload, exact for a whole number
 * of equal experts; UINT64_MAX for 100 %. 0 < percent <= 100. */
uint64_t capacity_payload_max(const struct model_index *m, double percent);

/* The least that must fit: the experts of one token in one layer, all of the largest size, in
 * payload bytes and in slot bytes. */
uint64_t capacity_payload_min(const struct model_index *m);
uint64_t capacity_slot_min(const struct model_index *m);

/* How many sequences of a whole context fit into `limit` bytes, where `budget` has space for the
 * keys and values of one (kv_bytes; 0: there are none): 1 to CAPACITY_SEQUENCES. */
#define CAPACITY_SEQUENCES 16u /* more share few experts more, by the union of random choices */
uint32_t capacity_sequences(uint64_t budget, uint64_t limit, uint64_t kv_bytes);

/* Payload bytes of the largest expert, of all precisions. Its slot: m->expert_slot_bytes_max. */
uint64_t capacity_largest_payload(const struct model_index *m);

#endif
