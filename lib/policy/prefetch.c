#include "lib/policy/policy.h"

/* A guess further ahead than this is older than the reads it would save. */
#define LAYERS_AHEAD_MAX 4

static uint32_t layers_ahead(const struct prefetch_state *s)
{
    return (s->layer_guess + s->layers - s->layer_now) % s->layers;
}

/* Idle drive, room in the queue, a layer that still lies ahead - and when something resident has to
 * leave for it, only what is used less often than the guess is probable: evicting a hot expert for
 * a guess costs a certain read to save a possible one. */
bool prefetch_allowed(const struct prefetch_state *s)
{
    if (s->demands_open > 0 || s->prefetches_open >= s->prefetches_max)
        return false;
    if (s->layers == 0 || layers_ahead(s) == 0 || layers_ahead(s) > LAYERS_AHEAD_MAX)
        return false;
    return !s->needs_eviction || s->probability > s->victim_heat;
}
