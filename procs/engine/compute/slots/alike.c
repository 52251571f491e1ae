/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the tokens of a prompt with those of the slots. */
#include "procs/engine/compute/slots/alike.h"

#include "lib/base/assert.h"
#include "procs/engine/compute/slots/kept.h"
#include "procs/engine/compute/slots/slots.h"
#include "procs/engine/compute/slots/state.h"
#include "procs/engine/compute/slots/table.h"

uint32_t alike_prefix(const _Atomic uint32_t *kept, uint32_t rows, const _Atomic uint32_t *log,
                      uint32_t tokens)
{
    sl_assert(tokens > 0);
    uint32_t n = 0, max = rows < tokens - 1 ? rows : tokens - 1;
    while (n < max && atomic_load_explicit(&kept[n], memory_order_relaxed) ==
                          atomic_load_explicit(&log[n], memory_order_relaxed))
        n++;
    return n;
}

/* Rows of a lossless preset are the same under every lossless preset. */
static bool same_bits(const struct slots *p, const struct kv_slot *s)
{
    return s->preset == p->preset || (!s->lossy && !p->lossy);
}

/* Of the first `rows` tokens of the running sequence in the slot, which has the same preset. */
static uint32_t common_with_running(const struct slots *p, uint32_t slot, uint32_t rows,
                                    const struct kv_request *q, const _Atomic uint32_t *log)
{
    uint32_t row;
    const struct kv_request *other = slots_request(p, slot, &row);
    return other && kept_may(p, other)
               ? alike_prefix(kv_log(&p->child->kv, row), rows, log, atomic_load(&q->log_tokens))
               : 0;
}

uint32_t alike_common(const struct slots *p, uint32_t slot, const struct kv_request *q,
                      const _Atomic uint32_t *log)
{
    const struct kv_slot *s = &p->child->kv.head->slot[slot];
    if (!slots_is_kept(p, slot))
        return common_with_running(p, slot, slots_rows(p, slot), q, log);
    return same_bits(p, s) ? alike_prefix(kv_slot_log(&p->child->kv, slot), atomic_load(&s->rows),
                                          log, atomic_load(&q->log_tokens))
                           : 0;
}

uint32_t alike_rows(const struct slots *p, const struct kv_request *q, const _Atomic uint32_t *log)
{
    struct slots_table s;
    uint32_t common[KV_SLOTS_MAX] = {0};
    for (uint32_t i = 0; i < p->child->kv.slots && kept_may(p, q); i++)
        common[i] = alike_common(p, i, q, log);
    return reuse_prefix(slots_table(p, &s), common, (q->flags & KV_FLAG_SIDE) != 0).rows;
}

uint32_t alike_gives(const struct slots *p, uint32_t slot, const struct kv_request *q,
                     const _Atomic uint32_t *log)
{
    uint32_t row, rows = slots_rows(p, slot);
    const struct kv_request *other = slots_request(p, slot, &row);
    if (!other || !kept_may(p, q))
        return 0;
    uint32_t common = common_with_running(p, slot, atomic_load(&other->log_tokens), q, log);
    uint32_t gives = common > rows ? state_will_cut(p, other, rows, common) : 0;
    return gives > rows ? gives : 0;
}

void alike_await(struct slots *p, uint32_t slot, uint32_t rows)
{
    uint32_t row;
    if (slots_request(p, slot, &row))
        state_branch(p, slot, &p->child->kv.head->request[row], rows);
}
