/* SPDX-License-Identifier: Apache-2.0 */
/* The sequences of the simulated cache: which of them run, and what each has of its own. */
#include <stdlib.h>
#include <string.h>

#include "lib/sim/internal.h"

static uint32_t places(const struct sim_cache *c)
{
    uint32_t all = c->config.sequences;
    return all > 0 && all < SEQUENCES_MAX ? all : SEQUENCES_MAX;
}

/* Of all places in a few blocks; pages of places that no sequence had stay untouched. The first
 * place's pointers are those of the blocks. */
bool sim_sequences_create(struct sim_cache *c)
{
    uint32_t layers = c->config.layers, experts = c->config.experts;
    size_t lists = (size_t)places(c) * layers;
    struct sim_sequence *first = &c->sequence[0];
    first->hints = calloc(lists, sizeof *first->hints);
    first->named = calloc(lists * experts, 1);
    first->had_predictions = calloc(lists, 1);
    if (!first->hints || !first->named || !first->had_predictions)
        return false;
    struct prediction *prediction = calloc(lists * experts, sizeof *prediction);
    uint32_t *slot = calloc(lists * experts, sizeof *slot);
    for (size_t i = 0; i < lists; i++) {
        first->hints[i].prediction = prediction ? prediction + i * experts : NULL;
        first->hints[i].slot = slot ? slot + i * experts : NULL;
    }
    for (uint32_t p = 1; p < places(c); p++) {
        size_t list = (size_t)p * layers;
        c->sequence[p].hints = first->hints + list;
        c->sequence[p].named = first->named + list * experts;
        c->sequence[p].had_predictions = first->had_predictions + list;
    }
    return prediction && slot;
}

void sim_sequences_destroy(struct sim_cache *c)
{
    struct sim_sequence *first = &c->sequence[0];
    if (first->hints) {
        free(first->hints[0].prediction);
        free(first->hints[0].slot);
    }
    free(first->hints);
    free(first->named);
    free(first->had_predictions);
}

static void forget_all(struct sim_cache *c, struct sim_sequence *s)
{
    for (uint32_t l = 0; l < c->config.layers; l++)
        sim_forget_hints(c, s, l, true);
}

static void end_at(struct sim_cache *c, struct sim_sequence *s)
{
    uint32_t at = 0;
    forget_all(c, s);
    while (at < c->sequences_in_pass && c->in_pass[at] != s)
        at++;
    if (at < c->sequences_in_pass)
        memmove(c->in_pass + at, c->in_pass + at + 1,
                (--c->sequences_in_pass - at) * sizeof *c->in_pass);
    s->in_pass = false;
}

struct sim_sequence *sim_sequence_of(struct sim_cache *c, uint32_t sequence)
{
    bool displaced;
    uint32_t place = sequences_find(&c->sequences, sequence);
    if (place != SEQUENCE_NONE)
        return &c->sequence[place];
    place = sequences_start(&c->sequences, sequence, &displaced);
    sl_assert(place < places(c));
    if (displaced)
        end_at(c, &c->sequence[place]);
    residency_sequence_starts(c->residency, sequence);
    sim_gpu_sequence(c);
    return &c->sequence[place];
}

void sim_cache_sequence_starts(struct sim_cache *c, uint32_t sequence)
{
    OBJ_CHECK(c, SIM_MAGIC);
    (void)sim_sequence_of(c, sequence);
}

void sim_cache_sequence_ends(struct sim_cache *c, uint32_t sequence)
{
    OBJ_CHECK(c, SIM_MAGIC);
    uint32_t place = sequences_end(&c->sequences, sequence);
    if (place != SEQUENCE_NONE)
        end_at(c, &c->sequence[place]);
    residency_sequence_ends(c->residency, sequence);
}

void sim_pass_starts(struct sim_cache *c, struct sim_sequence *s, const struct sim_step *step)
{
    uint32_t layers = c->config.layers;
    forget_all(c, s);
    memset(s->named, 0, (size_t)layers * c->config.experts);
    memset(s->had_predictions, 0, layers);
    if (c->sequences_in_pass == 0) {
        c->pass_start = c->now;
        c->f->passes++;
    }
    c->in_pass[c->sequences_in_pass++] = s;
    s->in_pass = true;
    c->f->tokens += step->tokens;
}
