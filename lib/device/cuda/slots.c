/* SPDX-License-Identifier: Apache-2.0 */
/* Experts on the device: slots of one size, each with the matrices of one expert at one precision. An expert stays
 * until the policy evicts it (lib/policy/residency). One that operations are being submitted with is leased, and not
 * evicted; the upload of the next one into its slot waits for those that were submitted. */
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"

#define NO_PLACE UINT32_MAX

struct place {
    uint32_t expert; /* slot of the residency object; POLICY_NONE: empty */
    bool leased;
    bool arriving; /* operations have not waited for its event */
    void *arrived; /* event of the stream of uploads */
    size_t used;
    uint8_t *memory[EXPERT__COUNT];
};

int cuda_slots_open(struct cuda *c, struct error *error)
{
    const struct cuda_plan *p = &c->plan;
    struct slots *s = &c->slots;
    if (p->slot_bytes == 0)
        return 0;
    s->count = (uint32_t)(p->bytes[CUDA_EXPERTS] / p->slot_bytes);
    struct residency_config config = {.layers = p->layers,
                                      .experts = p->experts,
                                      .top_k = p->top_k,
                                      .precisions = PRECISION__COUNT,
                                      .eviction = p->eviction,
                                      .allocation = ALLOCATE_SHARED,
                                      .boundary = 1};
    for (int i = 0; i < PRECISION__COUNT; i++)
        config.precision_bytes[i] = p->slot_bytes;
    s->residency = residency_create(&config);
    s->place = calloc(s->count, sizeof *s->place);
    uint32_t experts = PRECISION__COUNT * p->layers * p->experts;
    s->place_of = malloc(experts * sizeof *s->place_of);
    if (!s->residency || !s->place || !s->place_of)
        return error_set(error, ERR_NO_MEMORY, "out of memory (slots of the GPU)");
    memset(s->place_of, 0xff, experts * sizeof *s->place_of);
    for (uint32_t i = 0; i < s->count; i++) {
        s->place[i].expert = POLICY_NONE;
        int status = c->k->event_create(&s->place[i].arrived);
        if (status != 0)
            return error_set(error, ERR_FAILED, "no event of the GPU: %s (%d)", c->k->text(status),
                             status);
    }
    residency_capacity(s->residency, s->count * p->slot_bytes);
    return 0;
}

void cuda_slots_close(struct cuda *c)
{
    if (c->slots.residency)
        residency_destroy(c->slots.residency);
    for (uint32_t i = 0; c->slots.place && i < c->slots.count; i++)
        if (c->slots.place[i].arrived)
            cuda_check(c, c->k->event_destroy(c->slots.place[i].arrived), "an event");
    free(c->slots.place);
    free(c->slots.place_of);
    c->slots = (struct slots){0};
}

/* The position of the core, as far as the policy needs it: a lower layer than before is another pass. */
static void follow(struct cuda *c, uint32_t layer)
{
    struct slots *s = &c->slots;
    s->step.position += layer < s->step.layer;
    s->step.layer = layer;
    residency_step(s->residency, &s->step);
}

static bool may_evict(void *arg, uint32_t expert)
{
    const struct slots *s = arg;
    return !s->place[s->place_of[expert]].leased;
}

/* NO_PLACE: all are leased. */
static uint32_t free_place(struct cuda *c, uint32_t expert)
{
    struct slots *s = &c->slots;
    if (s->taken < s->count)
        return s->taken++;
    uint32_t victim = residency_victim(s->residency, expert, may_evict, s);
    if (victim == POLICY_NONE)
        return NO_PLACE;
    uint32_t place = s->place_of[victim];
    residency_remove(s->residency, victim, true);
    s->place_of[victim] = NO_PLACE;
    s->counts.evicted++;
    return place;
}

/* An empty place for an expert. NULL: all are leased. */
static struct place *take_place(struct cuda *c, uint32_t expert)
{
    struct slots *s = &c->slots;
    uint32_t at = free_place(c, expert);
    if (at == NO_PLACE)
        return NULL;
    s->place[at] = (struct place){.expert = expert, .arrived = s->place[at].arrived};
    s->place_of[expert] = at;
    residency_insert(s->residency, expert, false);
    cuda_uploads_after_use(c); /* of the expert that it had */
    return &s->place[at];
}

static void note_access(struct cuda *c, uint32_t expert)
{
    follow(c, expert / c->plan.experts % c->plan.layers);
    residency_accessed(c->slots.residency, expert,
                       &(struct residency_access){.tokens = 1, .high = true});
}

/* The place of an expert, leased. */
static struct place *lease(struct cuda *c, uint32_t expert)
{
    struct slots *s = &c->slots;
    uint32_t at = s->place_of[expert];
    struct place *p = at == NO_PLACE ? NULL : &s->place[at];
    if (p && p->leased)
        return p;
    note_access(c, expert);
    s->counts.hits += p != NULL;
    s->counts.uploaded += p == NULL;
    p = p ? p : take_place(c, expert);
    sl_assert(p); /* the source of experts keeps to the limit of those that are leased */
    p->leased = true;
    return p;
}

static void put(struct cuda *c, struct place *p, uint32_t m, const void *from, size_t bytes)
{
    sl_assert(p->used + bytes <= c->plan.slot_bytes);
    p->memory[m] =
        c->experts_area.memory + (size_t)(p - c->slots.place) * c->plan.slot_bytes + p->used;
    p->used += align_up(bytes, DEVICE_ALIGN);
    cuda_upload_expert(c, p->memory[m], from, bytes);
    cuda_check(c, c->k->event_record(p->arrived, c->uploads), "an event");
    p->arriving = true;
}

/* ---- experts that the host computes ---- */

/* Whether the host computes this one: it is not in a slot, in a pass of one row. It gets a slot for later passes if the
 * ring has space for it now. */
static bool left_to_host(struct cuda *c, uint32_t expert)
{
    struct cooperate *h = &c->cooperate;
    for (uint32_t i = 0; i < h->experts; i++)
        if (h->expert[i] == expert)
            return true;
    if (!h->host || c->pass_rows != 1 || c->slots.place_of[expert] != NO_PLACE ||
        h->experts == MODEL_TOP_K_MAX)
        return false;
    h->expert[h->experts++] = expert;
    note_access(c, expert);
    c->slots.counts.on_host++;
    bool space = cuda_ring_has(c, (uint32_t)(c->plan.slot_bytes / CUDA_RING_PIECE) + EXPERT__COUNT);
    c->slots.behind = space ? take_place(c, expert) : NULL;
    c->slots.counts.behind += c->slots.behind != NULL;
    return true;
}

void *cuda_slot(struct cuda *c, uint64_t content, const void *from, size_t bytes)
{
    sl_assert(content > 0 && c->slots.count > 0);
    uint32_t expert = (uint32_t)((content - 1) / EXPERT__COUNT), m = (content - 1) % EXPERT__COUNT;
    if (left_to_host(c, expert)) {
        struct place *behind = c->slots.behind;
        if (behind && behind->expert == expert && !behind->memory[m])
            put(c, behind, m, from, bytes);
        return (void *)from;
    }
    struct place *p = lease(c, expert);
    if (!p->memory[m])
        put(c, p, m, from, bytes);
    return p->memory[m];
}

static struct place *place_with(const struct cuda *c, const void *matrix)
{
    size_t at = (size_t)((const uint8_t *)matrix - c->experts_area.memory);
    sl_assert(at < c->slots.count * c->plan.slot_bytes);
    return &c->slots.place[at / c->plan.slot_bytes];
}

bool cuda_arrives(const struct cuda *c, const void *matrix)
{
    return place_with(c, matrix)->arriving;
}

void cuda_await(struct cuda *c, const void *matrix)
{
    struct place *p = place_with(c, matrix);
    if (p->arriving)
        cuda_check(c, c->k->stream_wait(c->stream, p->arrived), "an event");
    p->arriving = false;
}

void cuda_end_leases(struct cuda *c)
{
    for (uint32_t i = 0; i < c->slots.taken; i++)
        c->slots.place[i].leased = false;
    c->slots.behind = NULL;
    c->cooperate.experts = 0;
}
