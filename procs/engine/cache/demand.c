/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the demands of compute. The access log is read first, so that the policy has every access
 * before the demand; then the entries of the demand are requested. */
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/tensor/precision.h"
#include "procs/engine/cache/cache.h"

#define NEAR_DIVISOR 64 /* a step of lib/policy/reuse/balance.h */

static atomic_flag invalid_logged = ATOMIC_FLAG_INIT;

/* The first access after its arrival decides whether a prefetch was used. */
static void note_access(struct cache *c, uint32_t entry)
{
    struct cache_note *n = &c->notes[entry];
    n->heat = cache_heat(c, entry) + PREFETCH_HEAT_GAIN;
    n->heat_token = c->token;
    _Atomic uint32_t *accesses = &c->child.directory.entries[entry].accesses;
    uint32_t before = atomic_load_explicit(accesses, memory_order_relaxed);
    atomic_store_explicit(accesses, before < UINT32_MAX ? before + 1 : before,
                          memory_order_relaxed);
    if (n->flags & NOTE_PREFETCHED) {
        cache_count(c, CTR_CACHE_prefetches_used, 1);
        prefetch_limit_outcome(&c->limit, true, c->prefill);
    }
    n->flags &= (uint16_t)~NOTE_PREFETCHED;
}

static void take_logits(struct cache *c, const struct access_record *access)
{
    const struct model_hparams *h = &c->child.model->hparams;
    if (access->layer >= h->layers || access->rank > ACCESS_VALUES ||
        (uint32_t)access->expert + access->rank > h->experts)
        return;
    struct residency_step at = {access->sequence, access->position, access->layer};
    uint8_t levels[ACCESS_VALUES];
    memcpy(levels, access->values, ACCESS_VALUES_HALF);
    memcpy(levels + ACCESS_VALUES_HALF, access->more_values, ACCESS_VALUES_HALF);
    residency_logits(c->residency, &at, access->expert, levels, access->rank);
}

static void take_access(struct cache *c, const struct access_record *access)
{
    const struct model_hparams *h = &c->child.model->hparams;
    if (access->kind == ACCESS_LOGITS) {
        take_logits(c, access);
        return;
    }
    if (access->kind == ACCESS_SEQUENCE_START) {
        cache_follow_preset(c, access->preset);
        cache_sequence_starts(c, access->sequence);
        c->pass_ended = 0; /* compute may have restarted: passes are numbered from 1 on again */
    }
    if (access->kind == ACCESS_SEQUENCE_END)
        cache_sequence_ends(c, access->sequence);
    if (access->kind == ACCESS_TOKEN_END) {
        c->token += access->pass != c->pass_ended; /* a pass of several sequences ends once */
        c->pass_ended = access->pass;
        c->tokens_ended += access->prefill ? 0 : access->tokens;
        if (c->swap)
            swap_tokens(c->swap, access->tokens);
    }
    if (access->layer >= h->layers || access->expert >= h->experts ||
        access->precision >= PRECISION__COUNT)
        return;
    if (access->kind == ACCESS_CHOICE && c->swap)
        swap_choice(c->swap, access->layer, access->expert, access->weight);
    if (access->kind != ACCESS_EXPERT || access->tokens == 0)
        return;
    c->prefill = access->prefill;
    cache_advance(c, &(struct prediction_place){access->sequence, access->position, access->layer});
    uint32_t entry = model_entry_expert_precision(c->child.model, access->layer, access->expert,
                                                  access->precision);
    if (access->outcome == ACCESS_SKIPPED || entry == ENTRY_NONE)
        return;
    struct residency_access how = {.tokens = access->tokens, .high = access->need == NEED_HIGH};
    residency_accessed(c->residency, cache_slot(c, entry), &how);
    note_access(c, entry);
}

void cache_read_accesses(struct cache *c, uint64_t limit)
{
    struct access_record access;
    uint64_t lost = c->accesses.lost, from = c->accesses.next;
    if (limit == UINT64_MAX) /* read before the records, so that none of its tokens is missing */
        c->tokens_read = access_log_tokens(&c->child.access_log);
    while (access_log_read(&c->child.access_log, &c->accesses, limit, &access))
        take_access(c, &access);
    if (c->accesses.lost != lost) {
        cache_count(c, CTR_CACHE_accesses_dropped, c->accesses.lost - lost);
        cache_forget_predictions(c);
    }
    if (c->tokens_ended > 0)
        cache_note_tokens(c, c->tokens_ended);
    c->tokens_ended = 0;
    if (c->accesses.next != from)
        cache_count(c, CTR_CACHE_accesses_read,
                    c->accesses.next - from - (c->accesses.lost - lost));
}

/* A plan or a pair that is due after a number of tokens: compute wakes the cache when it is
 * reached. Otherwise an idle cache would find it at the next tick. Early by the tokens whose
 * records were read before they were counted; then the bell is set again. */
void cache_set_token_bell(struct cache *c)
{
    uint64_t idle = c->swap && !c->pair_active ? swap_idle_tokens(c->swap) : 0;
    uint64_t bell = idle > 0 ? c->tokens_read + idle : 0;
    _Atomic uint64_t *word = &c->child.directory.head->token_bell;
    if (atomic_load_explicit(word, memory_order_relaxed) != bell)
        atomic_store_explicit(word, bell, memory_order_seq_cst);
}

/* Compute passed the number before it was stored. */
bool cache_tokens_passed(struct cache *c)
{
    uint64_t bell =
        atomic_load_explicit(&c->child.directory.head->token_bell, memory_order_relaxed);
    return bell > 0 && access_log_tokens(&c->child.access_log) >= bell;
}

/* More quota would have kept it: what was evicted since is no more than that. */
static void note_miss(struct cache *c, uint32_t entry)
{
    uint64_t at = c->notes[entry].evicted_at;
    if (at != 0 && c->evicted_bytes - at < cache_quota(c) / NEAR_DIVISOR)
        cache_count(c, CTR_CACHE_misses_near, 1);
}

/* True when the entry is READY: then compute missed the wake-up. */
static bool demand_entry(struct cache *c, uint32_t entry, const struct msg_demand *demand)
{
    cache_observe(c, entry);
    switch (entry_state_of(cache_entry_word(c, entry))) {
    case ENTRY_READY: return true;
    case ENTRY_LOADING: cache_raise(c, entry, demand->sent_ns); return false;
    case ENTRY_DOOMED:
        cache_set_demanded(c, entry, true);
        return false; /* requested again after its reset */
    case ENTRY_ABSENT: break;
    }
    if (!cache_noted(c, entry, NOTE_WAITING)) {
        note_miss(c, entry);
        cache_request_fresh(c, entry, LOAD_DEMAND, demand->sent_ns);
    }
    return false;
}

/* DEMANDs can be lost, for example with a broken channel; pins cannot. While compute waits for an
 * expert, every entry that is pinned and ABSENT is needed. Compute repeats a lost DEMAND after 20
 * ms, so that normally nothing is found here. Entries with failures are left to compute's repeats.
 */
void cache_check_pins(struct cache *c, uint64_t now_ns)
{
    const struct process *compute =
        &c->child.procs.head->process[procs_index_of(SERVICE_COMPUTE, 0)];
    if (now_ns < c->next_pins_ns)
        return;
    c->next_pins_ns = now_ns + (c->pins_soon ? CACHE_PINS_SOON_MS * NS_PER_MS : CACHE_PINS_NS);
    if (atomic_load_explicit(&compute->wait, memory_order_relaxed) != WAIT_EXPERT ||
        c->demands_open > 0)
        return;
    for (uint32_t e = c->child.model->dense_count; e < model_experts_end(c->child.model); e++) {
        uint64_t word = cache_entry_word(c, e);
        if (entry_state_of(word) != ENTRY_ABSENT || entry_pins_of(word) == 0 ||
            cache_noted(c, e, NOTE_WAITING) ||
            atomic_load_explicit(&cache_directory_entry(c, e)->failures, memory_order_relaxed) > 0)
            continue;
        cache_request_fresh(c, e, LOAD_DEMAND, 0);
        c->pins_soon = true;
    }
}

static void take_demand(struct cache *c, const struct msg_demand *demand)
{
    c->pins_soon = false;
    cache_count(c, CTR_CACHE_demands, 1);
    cache_count(c, CTR_CACHE_demand_entries, demand->count);
    if (demand->attempt > 0)
        cache_count(c, CTR_CACHE_demands_retried, 1);
    cache_observe_all(c); /* DONE messages can be lost */
    cache_read_accesses(c, demand->access_log_position);
    if (demand->layer < c->child.model->hparams.layers &&
        !sequences_ended(&c->sequences, demand->sequence)) /* its last records were read before */
        cache_advance(
            c, &(struct prediction_place){demand->sequence, demand->position, demand->layer});
    uint32_t ready = ENTRY_NONE;
    for (unsigned i = 0; i < demand->count; i++) {
        uint32_t entry = demand->wants[i].entry;
        if (entry >= model_experts_end(c->child.model) || c->entries[entry].extents == 0 ||
            entry == model_table_entry(c->child.model)) {
            cache_count(c, CTR_CACHE_messages_invalid, 1);
            if (log_once(&invalid_logged))
                log_warn("DEMAND for entry %u rejected: the model has %u entries", entry,
                         c->child.model->entry_count);
        } else if (demand_entry(c, entry, demand)) {
            ready = entry;
        }
    }
    if (ready != ENTRY_NONE)
        cache_signal(c, ready);
}

void cache_receive_compute(struct cache *c)
{
    _Alignas(8) char buf[MSG_BYTES_MAX];
    while (channel_receive(c->compute, buf) > 0) {
        const struct msg_head *head = (const struct msg_head *)(const void *)buf;
        cache_count(c, CTR_CACHE_messages, 1);
        if (head->type == MSG_DEMAND)
            take_demand(c, (const struct msg_demand *)(const void *)buf);
        else if (head->type == MSG_KNOWN)
            cache_take_hint(c, (const struct msg_hint *)(const void *)buf, true);
        else if (head->type == MSG_PAGES)
            cache_demand_pages(c, (const struct msg_pages *)(const void *)buf);
        else if (head->type == MSG_TOKENS)
            cache_read_accesses(c, UINT64_MAX);
        cache_send_gathered(c);
    }
}
