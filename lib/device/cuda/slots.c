/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the experts on the device: slots, each with the matrices of one expert at one
 * precision, in the place that lib/policy/gpu/places.h gives it, of the size of such experts. The
 * upload of another expert into its slot waits for the operations that were submitted until its
 * last lease ended. */
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"

_Static_assert(PLACES_MATRICES == EXPERT__COUNT, "pieces of an expert");

struct slot {
    bool arriving; /* operations have not waited for its event */
    void *arrived; /* event of the stream of uploads */
    size_t used;
    uint8_t *memory[EXPERT__COUNT];
};

static bool ring_has_space(void *arg)
{
    struct cuda *c = arg;
    return cuda_ring_has(c, places_pieces(c->layout.slot_bytes));
}

static bool has_arrived(void *arg, uint32_t place)
{
    struct cuda *c = arg;
    struct slot *s = &c->slots.slot[place];
    bool here = c->k->event_happened(s->arrived);
    s->arriving = !here;
    return here;
}

int cuda_slots_open(struct cuda *c, struct error *error)
{
    const struct gpu_layout *p = &c->layout;
    struct slots *s = &c->slots;
    if (p->slot_bytes == 0)
        return 0;
    s->places = places_create(&(struct places_config){.layers = p->layers,
                                                      .experts = p->experts,
                                                      .top_k = p->top_k,
                                                      .sizes = &p->sizes,
                                                      .bytes = p->bytes[CUDA_EXPERTS],
                                                      .eviction = p->eviction,
                                                      .cooperative = c->cooperate.on,
                                                      .space = ring_has_space,
                                                      .arrived = has_arrived,
                                                      .arg = c});
    s->count = s->places ? places_count(s->places) : 0;
    s->slot = calloc(s->count, sizeof *s->slot);
    if (!s->places || !s->slot)
        return error_set(error, ERR_NO_MEMORY, "out of memory (slots of the GPU)");
    for (uint32_t i = 0; i < s->count; i++) {
        int status = c->k->event_create(&s->slot[i].arrived);
        if (status != 0)
            return error_set(error, ERR_FAILED, "no event of the GPU: %s (%d)", c->k->text(status),
                             status);
    }
    return 0;
}

void cuda_slots_close(struct cuda *c)
{
    places_destroy(c->slots.places);
    for (uint32_t i = 0; c->slots.slot && i < c->slots.count; i++)
        if (c->slots.slot[i].arrived)
            cuda_check(c, c->k->event_destroy(c->slots.slot[i].arrived), "an event");
    free(c->slots.slot);
    c->slots = (struct slots){0};
}

void cuda_sequence(struct device *d)
{
    struct cuda *c = cuda_of(d);
    if (c->slots.places)
        places_sequence(c->slots.places);
}

static void empty(struct cuda *c, struct slot *s)
{
    *s = (struct slot){.arrived = s->arrived};
    c->slots.changes++;
    cuda_uploads_after_use(c); /* of the expert that it had */
}

static void put(struct cuda *c, struct slot *s, uint32_t m, const struct kernel_matrix *from)
{
    const struct places *p = c->slots.places;
    size_t bytes = cuda_matrix_bytes(c->k, from);
    uint32_t place = (uint32_t)(s - c->slots.slot);
    sl_assert(s->used + bytes <= places_bytes(p, place));
    s->memory[m] = c->experts_area.memory + places_offset(p, place) + s->used;
    s->used += align_up(bytes, DEVICE_ALIGN);
    cuda_upload_matrix(c, s->memory[m], from);
    cuda_check(c, c->k->event_record(s->arrived, c->uploads), "an event");
    s->arriving = true;
}

void *cuda_slot(struct cuda *c, uint64_t content, const struct kernel_matrix *from)
{
    sl_assert(content > 0 && c->slots.count > 0);
    uint32_t expert = (uint32_t)((content - 1) / EXPERT__COUNT), m = (content - 1) % EXPERT__COUNT;
    struct place_result r = places_use(c->slots.places, expert, c->pass_rows);
    struct slot *s = r.place == PLACES_NONE ? NULL : &c->slots.slot[r.place];
    if (r.taken)
        empty(c, s);
    if (s && !s->memory[m])
        put(c, s, m, from);
    return r.use == PLACE_ON_HOST ? NULL : s->memory[m];
}

static void copy_ahead(struct cuda *c, uint32_t place, const struct device_expert *expert)
{
    struct slot *s = &c->slots.slot[place];
    empty(c, s);
    for (uint32_t m = 0; m < EXPERT__COUNT; m++)
        if (expert->matrix[m].data)
            put(c, s, m, &expert->matrix[m]);
}

static uint32_t number_of(const struct device_expert *expert)
{
    return (uint32_t)((expert->content[0] - 1) / EXPERT__COUNT);
}

struct ahead {
    struct cuda *c;
    const struct device_expert *expert;
};

static void copy_one(void *arg, uint32_t at, uint32_t place)
{
    const struct ahead *a = arg;
    copy_ahead(a->c, place, &a->expert[at]);
}

void cuda_prefetch_experts(struct cuda *c, const struct device_expert *expert, uint32_t count)
{
    uint32_t number[MODEL_TOP_K_MAX];
    struct ahead ahead = {c, expert};
    sl_assert(count <= MODEL_TOP_K_MAX);
    for (uint32_t i = 0; i < count; i++)
        number[i] = number_of(&expert[i]);
    places_prefetch(c->slots.places, number, count, copy_one, &ahead);
}

/* ---- experts that stay ---- */

static uint32_t expert_of(uint64_t content)
{
    return (uint32_t)((content - 1) / EXPERT__COUNT);
}

bool cuda_has(const struct device *d, uint64_t content)
{
    const struct cuda *c = (const struct cuda *)(const void *)d;
    return places_has(c->slots.places, expert_of(content));
}

uint64_t cuda_lost(const struct device *d)
{
    return cuda_slot_counts(d).evicted;
}

bool cuda_keep(struct device *d, const struct device_expert *expert)
{
    struct cuda *c = cuda_of(d);
    uint32_t place = places_reserve(c->slots.places, number_of(expert));
    if (place != PLACES_NONE)
        copy_ahead(c, place, expert);
    return place != PLACES_NONE;
}

void cuda_use(struct device *d, uint64_t content)
{
    struct place_result r = places_use(cuda_of(d)->slots.places, expert_of(content), 1);
    sl_assert(!r.taken && r.use != PLACE_ON_HOST);
}

uint8_t *const *cuda_matrices(struct cuda *c, uint64_t content)
{
    uint32_t place = places_at(c->slots.places, expert_of(content));
    if (place == PLACES_NONE)
        return NULL;
    struct slot *s = &c->slots.slot[place];
    for (int m = 0; m < EXPERT__COUNT; m++)
        if (s->memory[m])
            cuda_await(c, s->memory[m]);
    return s->memory;
}

static struct slot *slot_with(const struct cuda *c, const void *matrix)
{
    size_t at = (size_t)((const uint8_t *)matrix - c->experts_area.memory);
    return &c->slots.slot[places_with(c->slots.places, at)];
}

bool cuda_arrives(const struct cuda *c, const void *matrix)
{
    return slot_with(c, matrix)->arriving;
}

void cuda_await(struct cuda *c, const void *matrix)
{
    struct slot *s = slot_with(c, matrix);
    if (s->arriving)
        cuda_check(c, c->k->stream_wait(c->stream, s->arrived), "an event");
    s->arriving = false;
}

void cuda_end_leases(struct cuda *c)
{
    if (c->slots.places)
        places_end_leases(c->slots.places);
    cuda_used(c);
}
