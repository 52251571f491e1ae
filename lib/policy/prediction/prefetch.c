#include "lib/policy/prediction/prefetch.h"

#include <string.h>

#include "lib/base/assert.h"

/* Predictions further ahead are too old to save reads. */
#define LAYERS_AHEAD_MAX 4
#define MUST_WIN         0.98 /* auto: share of the time without prefetch */
/* A wrong prefetch costs a later miss on its victim; a correct one saves only the part of the read
 * that compute hides. Slower devices need a higher probability. Both values are measured
 * (docs/lab/prefetch.md). */
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

/* An eviction costs a certain read to save a possible one, so it needs a probability above the
 * victim's heat. Pending demands are no reason to wait: loaders read prefetches in the time that
 * demands leave, and between the demands of two layers there is no time for messages. */
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

/* Trials alternate, so that changes of the text affect both sides. */
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
