/* SPDX-License-Identifier: Apache-2.0 */
/* Computes how much of a model's experts fits, in slot bytes, payload bytes and experts. */
#include "lib/model/index/capacity.h"

#include "lib/base/assert.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t left_by_dense(const struct model_index *m, uint64_t quota)
{
    return quota > m->dense_bytes ? quota - m->dense_bytes : 0;
}

uint64_t capacity_slot_bytes(const struct model_index *m, uint64_t quota, uint64_t payload_max)
{
    return least(left_by_dense(m, quota), payload_max);
}

uint64_t capacity_payload_bytes(const struct model_index *m, uint64_t quota, uint64_t payload_max)
{
    uint64_t slots = left_by_dense(m, quota), payload = slots;
    if (m->expert_slot_bytes > 0)
        payload =
            (uint64_t)((double)slots * ((double)m->expert_bytes / (double)m->expert_slot_bytes));
    return least(payload, payload_max);
}

uint32_t capacity_experts(const struct model_index *m, uint64_t quota, uint64_t payload_max)
{
    uint64_t payload = capacity_largest_payload(m);
    uint64_t by_slot = left_by_dense(m, quota) / m->expert_slot_bytes_max;
    uint64_t by_payload = payload_max / (payload > 0 ? payload : 1);
    return (uint32_t)least(least(by_slot, by_payload), m->expert_entry_count);
}

uint64_t capacity_quota_used(const struct model_index *m, uint64_t quota, uint64_t payload_max)
{
    if (payload_max >= m->expert_bytes)
        return quota;
    double slots = (double)m->expert_slot_bytes * ((double)payload_max / (double)m->expert_bytes);
    return least(m->dense_bytes + (uint64_t)slots + m->expert_slot_bytes_max, quota);
}

uint64_t capacity_payload_max(const struct model_index *m, double percent)
{
    sl_assert(percent > 0.0 && percent <= 100.0);
    return percent < 100.0 ? percent_of(percent, m->expert_bytes) : UINT64_MAX;
}

uint64_t capacity_payload_min(const struct model_index *m)
{
    return capacity_largest_payload(m) * m->hparams.experts_used;
}

uint64_t capacity_slot_min(const struct model_index *m)
{
    return m->expert_slot_bytes_max * m->hparams.experts_used;
}

uint64_t capacity_largest_payload(const struct model_index *m)
{
    const struct model_entry *entries = model_index_entries(m);
    uint64_t largest = 0;
    for (uint32_t i = m->dense_count; i < model_experts_end(m); i++)
        if (entries[i].payload_bytes > largest)
            largest = entries[i].payload_bytes;
    return largest;
}

uint32_t capacity_sequences(uint64_t budget, uint64_t limit, uint64_t kv_bytes)
{
    uint64_t more = limit > budget && kv_bytes > 0 ? (limit - budget) / kv_bytes : 0;
    return kv_bytes == 0 || more >= CAPACITY_SEQUENCES ? CAPACITY_SEQUENCES : (uint32_t)more + 1;
}
