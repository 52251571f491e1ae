/* What compute says: the use log first, so that the policy knows what was used up to the demand,
 * then the entries the demand names. */
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/tensor/tier.h"
#include "procs/engine/cache/cache.h"

#define HEAT_GAIN 0.0424f /* 1 - 2^(-1/16): uses per token, averaged like cache_heat decays */

static atomic_flag foreign_logged = ATOMIC_FLAG_INIT;

/* Only the first use after it came tells whether a guess was worth its read. */
static void note_use(struct cache *c, uint32_t entry)
{
    struct cache_note *n = &c->notes[entry];
    n->heat = cache_heat(c, entry) + HEAT_GAIN;
    n->heat_token = c->token;
    if (n->flags & NOTE_PREFETCHED)
        cache_count(c, CTR_CACHE_prefetches_used, 1);
    n->flags &= (uint16_t)~NOTE_PREFETCHED;
}

static bool same_place(const struct cache_now *a, const struct cache_now *b)
{
    return a->sequence == b->sequence && a->position == b->position && a->layer == b->layer;
}

/* Kept until the layer's first use: before it compute has not pinned anything of the layer, and to
 * the policy as to guesses it would have passed. Whole layers only. */
static void take_logits(struct cache *c, const struct use_record *use)
{
    const struct model_hparams *h = &c->child.model->hparams;
    struct cache_said *said = &c->said;
    if (use->layer >= h->layers || use->rank > USE_VALUES ||
        (uint32_t)use->expert + use->rank > h->experts)
        return;
    struct cache_now at = {use->sequence, use->position, use->layer};
    if (use->expert == 0)
        *said = (struct cache_said){.levels = said->levels, .at = at};
    if (use->expert != said->count || !same_place(&at, &said->at)) { /* a piece was lost */
        said->count = 0;
        return;
    }
    uint8_t levels[USE_VALUES];
    memcpy(levels, use->values, USE_VALUES_HALF);
    memcpy(levels + USE_VALUES_HALF, use->more_values, USE_VALUES_HALF);
    memcpy(said->levels + said->count, levels, use->rank);
    said->count += use->rank;
}

static void hand_over_logits(struct cache *c, const struct cache_now *at)
{
    struct cache_said *said = &c->said;
    if (said->count == c->child.model->hparams.experts && same_place(at, &said->at))
        residency_logits(c->residency, at->layer, 0, said->levels, said->count);
    said->count = 0;
}

static void take_use(struct cache *c, const struct use_record *use)
{
    const struct model_hparams *h = &c->child.model->hparams;
    if (use->kind == USE_LOGITS) {
        take_logits(c, use);
        return;
    }
    if (use->kind == USE_SEQUENCE_BEGIN)
        cache_follow_system(c, use->system);
    if (use->kind == USE_TOKEN_END) {
        c->token++;
        c->tokens_ended += use->tokens == 1;
        if (c->swap)
            swap_tokens(c->swap, use->tokens);
    }
    if (use->layer >= h->layers || use->expert >= h->experts || use->tier >= TIER__COUNT)
        return;
    if (use->kind == USE_CHOICE && c->swap)
        swap_choice(c->swap, use->layer, use->expert, use->weight);
    if (use->kind != USE_EXPERT)
        return;
    struct cache_now at = {use->sequence, use->position, use->layer};
    cache_advance(c, at);
    if (c->said.count > 0)
        hand_over_logits(c, &at);
    uint32_t entry = model_entry_expert_tier(c->child.model, use->layer, use->expert, use->tier);
    if (use->outcome == USE_SKIPPED || entry == ENTRY_NONE)
        return;
    struct residency_use how = {.tokens = use->tokens, .high = use->need == NEED_HIGH};
    residency_used(c->residency, cache_slot(c, entry), &how);
    note_use(c, entry);
}

void cache_read_uses(struct cache *c, uint64_t limit)
{
    struct use_record use;
    uint64_t lost = c->uses.lost, from = c->uses.next;
    while (uses_read(&c->child.uses, &c->uses, limit, &use))
        take_use(c, &use);
    if (c->uses.lost != lost)
        cache_count(c, CTR_CACHE_uses_lost, c->uses.lost - lost);
    if (c->tokens_ended > 0)
        cache_note_tokens(c, c->tokens_ended);
    c->tokens_ended = 0;
    if (c->uses.next != from)
        cache_count(c, CTR_CACHE_uses_read, c->uses.next - from - (c->uses.lost - lost));
}

/* True when the entry is READY: then somebody missed the wake. */
static bool demand_entry(struct cache *c, uint32_t entry, const struct msg_demand *demand)
{
    cache_observe(c, entry);
    switch (entry_state_of(cache_word(c, entry))) {
    case ENTRY_READY: return true;
    case ENTRY_LOADING: cache_raise(c, entry, demand->sent_ns); return false;
    case ENTRY_DOOMED: cache_set_demanded(c, entry, true); return false; /* again after its reset */
    case ENTRY_ABSENT: break;
    }
    if (!cache_noted(c, entry, NOTE_WAITING))
        cache_request_anew(c, entry, LOAD_DEMAND, demand->sent_ns);
    return false;
}

/* DEMANDs get lost, all of them when an edge is broken. Pins do not: with compute waiting for an
 * expert whatever is pinned and ABSENT is wanted. Compute repeats a lost DEMAND after 20 ms, so
 * normally nothing is found here. What failed too often is left to compute's own repeats. */
void cache_look_at_pins(struct cache *c, uint64_t now_ns)
{
    const struct proc_row *compute = &c->child.procs.head->row[procs_row_of(SERVICE_COMPUTE, 0)];
    if (now_ns < c->next_pins_ns)
        return;
    c->next_pins_ns = now_ns + (c->pins_soon ? CACHE_PINS_SOON_MS * NS_PER_MS : CACHE_PINS_NS);
    if (atomic_load_explicit(&compute->wait, memory_order_relaxed) != WAIT_EXPERT ||
        c->demands_open > 0)
        return;
    for (uint32_t e = c->child.model->dense_count; e < c->child.model->entry_count; e++) {
        uint64_t word = cache_word(c, e);
        if (entry_state_of(word) != ENTRY_ABSENT || entry_pins_of(word) == 0 ||
            cache_noted(c, e, NOTE_WAITING) ||
            atomic_load_explicit(&cache_directory_entry(c, e)->failures, memory_order_relaxed) > 0)
            continue;
        cache_request_anew(c, e, LOAD_DEMAND, 0);
        c->pins_soon = true;
    }
}

static void take_demand(struct cache *c, const struct msg_demand *demand)
{
    c->pins_soon = false;
    cache_count(c, CTR_CACHE_demands, 1);
    cache_count(c, CTR_CACHE_demand_entries, demand->count);
    if (demand->attempt > 0)
        cache_count(c, CTR_CACHE_demands_repeated, 1);
    cache_observe_all(c); /* loads may have ended unheard */
    cache_read_uses(c, demand->uses_position);
    if (demand->layer < c->child.model->hparams.layers)
        cache_advance(c, (struct cache_now){demand->sequence, demand->position, demand->layer});
    uint32_t ready = ENTRY_NONE;
    for (unsigned i = 0; i < demand->count; i++) {
        uint32_t entry = demand->wants[i].entry;
        if (entry >= c->child.model->entry_count || c->entries[entry].extents == 0) {
            cache_count(c, CTR_CACHE_messages_invalid, 1);
            if (log_once(&foreign_logged))
                log_warn("a DEMAND names entry %u of %u, which is not there", entry,
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
    while (edge_receive(c->compute, buf) > 0) {
        const struct msg_head *head = (const struct msg_head *)(const void *)buf;
        cache_count(c, CTR_CACHE_messages, 1);
        child_progress(&c->child);
        if (head->type == MSG_DEMAND)
            take_demand(c, (const struct msg_demand *)(const void *)buf);
        cache_send_gathered(c);
    }
}
