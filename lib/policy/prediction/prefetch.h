/* Prefetch limits: may a guess be loaded now? One object per cache; time comes in as arguments.
 *
 *  none          never
 *  idle          the queue has room, the layer lies ahead by at most four, and when something would
 *                have to leave the guess has a chance of 0.2 at least - of 0.2 / n, at most 0.8,
 *                where a layer's work hides only the part n of reading an expert - and that is used
 *                less often than the guess is probable. Demands may be open: the guess is queued
 *                behind them, and read when they leave the drive time
 *  demand-first  no demand is open, and idle without the last condition (HOBBIT)
 *  until-router  one at a time, for the next layer only, until its router has spoken (EdgeMoE
 *                §III-C1)
 *  credit        n = T / t_expert loads per layer, T = t_moe + t_attn + t_gate; the credit grows by
 * n with every layer and a load costs one, so that n < 1 adds up over layers; it never exceeds
 * max(n, top_k) (Fate §4.3) all           whenever the queue has room, demands or not (whole layers
 * streamed) auto          idle, while it pays: the time of a token is measured with and without
 * prefetch in turns of PREFETCH_TRIAL tokens, the better is kept for PREFETCH_KEEP tokens, then it
 * is measured again. Prefetch must win by 2 % to stay on. */
#ifndef SLUICE_POLICY_PREDICTION_PREFETCH_H
#define SLUICE_POLICY_PREDICTION_PREFETCH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define PREFETCH_LIMITS "none|idle|demand-first|until-router|credit|all|auto"
#define PREFETCH_TRIAL  16
#define PREFETCH_KEEP   256

struct prefetch_state {
    uint32_t demands_open; /* demanded entries not yet READY */
    uint32_t prefetches_open;
    uint32_t prefetches_max; /* bound from queue depth and room */
    uint32_t layer_now;      /* layer compute works on */
    uint32_t layer_predicted;
    uint32_t layers;
    float probability;
    bool needs_eviction; /* room only by evicting a resident entry */
    float victim_heat;   /* uses of that victim per token lately, 0 when unknown */
};

/* Heat: uses of an entry per token, lately; a moving average over tokens with this half-life. What
 * keeps it notes the token of the last use; before comparing or adding, it is brought up to date. A
 * use adds PREFETCH_HEAT_GAIN, 1 - 2^(-1 / half-life), so that one use per token is heat 1. */
#define PREFETCH_HEAT_HALF_LIFE 16.0f
#define PREFETCH_HEAT_GAIN      0.0424f

static inline float prefetch_heat(float heat, uint32_t tokens_since)
{
    return heat * exp2f(-(float)tokens_since / PREFETCH_HEAT_HALF_LIFE);
}

enum prefetch_rule {
    PREFETCH_NONE,
    PREFETCH_IDLE,
    PREFETCH_DEMAND_FIRST,
    PREFETCH_UNTIL_ROUTER,
    PREFETCH_CREDIT,
    PREFETCH_ALL,
    PREFETCH_AUTO
};

struct prefetch_limit {
    enum prefetch_rule rule;
    double credit; /* credit: loads allowed now */
    float worth;   /* idle, auto: chance from which something may leave for a guess */
    /* auto */
    uint32_t phase; /* 0 trial with, 1 trial without, 2 keep */
    uint32_t tokens;
    bool on;
    double trial_ns[2]; /* summed over the trial with, without */
};

/* False when the name is unknown. */
bool prefetch_limit_init(struct prefetch_limit *l, const char *name);

/* Before room is looked for, with needs_eviction false, and again once the victim is known. Looks
 * only. */
bool prefetch_limit_allows(const struct prefetch_limit *l, const struct prefetch_state *s);

/* A prefetch was sent. */
void prefetch_limit_sent(struct prefetch_limit *l);

/* Compute has come to another layer. layer_ns: time of a layer's own work, without waiting for
 * experts; expert_ns: time one expert takes to read. Both kept up to date by the caller; 0 means
 * not known yet, gives no credit and leaves what a guess must be as it is. */
void prefetch_limit_layer(struct prefetch_limit *l, double layer_ns, double expert_ns,
                          uint32_t top_k);

/* A token of decode has ended; token_ns is the time since the one before, waiting included. */
void prefetch_limit_token(struct prefetch_limit *l, double token_ns);

#endif
