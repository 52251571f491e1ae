#include "lib/policy/prediction/prefetch.h"

#include <string.h>

#include "lib/base/assert.h"

/* A guess further ahead than this is older than the reads it would save. */
#define LAYERS_AHEAD_MAX 4
#define MUST_WIN         0.98 /* auto: of the time without prefetch */
/* What has to leave for a guess that does not come true is missed itself. A guess that does saves
 * as much of its read as the work of a layer hides: the slower the drive, the surer it has to be.
 * Both by measurement (docs/numbers.md). */
#define WORTH_A_VICTIM 0.2
#define WORTH_MAX      0.8

enum { TRIAL_WITH, TRIAL_WITHOUT, KEEP };

static uint32_t layers_ahead(const struct prefetch_state *s)
{
    return s->layers == 0 ? 0 : (s->layer_predicted + s->layers - s->layer_now) % s->layers;
}

static bool queue_has_space(const struct prefetch_state *s)
{
    return s->prefetches_open < s->prefetches_max && layers_ahead(s) > 0 &&
           layers_ahead(s) <= LAYERS_AHEAD_MAX;
}

static bool yields_to_demands(const struct prefetch_state *s)
{
    return s->demands_open == 0 && queue_has_space(s);
}

/* Room in the queue, a layer that still lies ahead - and when something resident has to leave for
 * it, a guess worth that, and only what is used less often than the guess is probable: evicting a
 * hot expert for a guess costs a certain read to save a possible one. That demands are open is no
 * reason to wait: loaders read guesses in the drive's time that demands leave, and between one
 * layer's demands and the next's there is no time to lose on messages. */
static bool idle_allows(const struct prefetch_limit *l, const struct prefetch_state *s)
{
    if (s->needs_eviction && !(s->probability >= l->worth && s->probability > s->victim_heat))
        return false;
    return queue_has_space(s);
}

bool prefetch_limit_init(struct prefetch_limit *l, const char *name)
{
    static const char *const names[] = {"none",   "idle", "demand-first", "until-router",
                                        "credit", "all",  "auto"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) {
            *l = (struct prefetch_limit){
                .rule = (enum prefetch_rule)i, .on = true, .worth = (float)WORTH_A_VICTIM};
            return true;
        }
    return false;
}

bool prefetch_limit_allows(const struct prefetch_limit *l, const struct prefetch_state *s)
{
    switch (l->rule) {
    case PREFETCH_NONE: return false;
    case PREFETCH_IDLE: return idle_allows(l, s);
    case PREFETCH_DEMAND_FIRST: return yields_to_demands(s);
    case PREFETCH_UNTIL_ROUTER:
        return yields_to_demands(s) && s->prefetches_open == 0 && layers_ahead(s) == 1;
    case PREFETCH_CREDIT: return yields_to_demands(s) && l->credit >= 1;
    case PREFETCH_ALL: return queue_has_space(s);
    case PREFETCH_AUTO: return l->on && idle_allows(l, s);
    }
    sl_panic("prefetch rule %d", (int)l->rule);
}

void prefetch_limit_sent(struct prefetch_limit *l)
{
    if (l->rule == PREFETCH_CREDIT)
        l->credit = l->credit > 1 ? l->credit - 1 : 0;
}

void prefetch_limit_layer(struct prefetch_limit *l, double layer_ns, double expert_ns,
                          uint32_t top_k)
{
    if (!(layer_ns > 0) || !(expert_ns > 0))
        return;
    double worth = layer_ns < expert_ns ? WORTH_A_VICTIM * expert_ns / layer_ns : WORTH_A_VICTIM;
    l->worth = (float)(worth < WORTH_MAX ? worth : WORTH_MAX);
    if (l->rule != PREFETCH_CREDIT)
        return;
    double n = layer_ns / expert_ns, max = n > top_k ? n : top_k;
    l->credit = l->credit + n < max ? l->credit + n : max;
}

/* Trials in turns, so that what changes with the text meets both sides. */
void prefetch_limit_token(struct prefetch_limit *l, double token_ns)
{
    if (l->rule != PREFETCH_AUTO)
        return;
    l->tokens++;
    if (l->phase != KEEP)
        l->trial_ns[l->phase] += token_ns;
    if (l->tokens < (l->phase == KEEP ? PREFETCH_KEEP : PREFETCH_TRIAL))
        return;
    l->tokens = 0;
    switch (l->phase) {
    case TRIAL_WITH:
        l->phase = TRIAL_WITHOUT;
        l->on = false;
        return;
    case TRIAL_WITHOUT:
        l->phase = KEEP;
        l->on = l->trial_ns[TRIAL_WITH] < MUST_WIN * l->trial_ns[TRIAL_WITHOUT];
        return;
    default:
        l->phase = TRIAL_WITH;
        l->on = true;
        l->trial_ns[TRIAL_WITH] = l->trial_ns[TRIAL_WITHOUT] = 0;
    }
}
