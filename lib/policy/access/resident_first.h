/* SPDX-License-Identifier: Apache-2.0 */
/* Cache-aware routing (routing=resident-first): a resident expert takes the place of a missing one
 * that is little better. Only the choice changes; the weights of the chosen experts are those that
 * the router gives them.
 *
 * m of an expert is its margin (routing_margins), in nats: its router logit, or, with a bias or
 * groups, its log-odds above what it needs to be chosen. With softmax a difference of d nats is a
 * ratio e^d of probabilities, with sigmoid of odds. I is the exact choice, the K experts of
 * routing_exact by rank; the first `exact_ranks` of them stay. A resident expert j outside I may
 * take the place of a missing expert i of I if
 *   m_j + nats >= m_i
 * and, with groups, if j is in a group that the row uses. The best such j takes the place of the
 * worst missing i, the next best of the next worst, and so on. Without a bias these are the K
 * largest m + nats * [resident], that is, the bias toward resident experts of cache-conditional
 * routing (Skliar et al., arXiv:2412.00099, section 3); its "max rank" has no counterpart here.
 * Order: those of I that stay, by rank, then the others, by m.
 *
 * With a bias or groups the margins are odds above a threshold, and they saturate: a p counts as at
 * least 1e-6 and at most 1 - 1e-6, and a margin as at most ROUTING_MARGIN_MAX. Experts that are all
 * beyond such a limit are equally good, so that one may take the place of another with any nats.
 *
 * Resident means that an access would be a hit now by the precision rule (precision.h). Its sum of
 * weights is the one that the exact choice gives the rank of the expert, and outside I that of the
 * last rank. */
#ifndef SLUICE_POLICY_ACCESS_RESIDENT_FIRST_H
#define SLUICE_POLICY_ACCESS_RESIDENT_FIRST_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/model/limits.h"
#include "lib/policy/access/routing.h"

struct resident_first {
    float nats;           /* >= 0; 0: exact routing, also where two experts are equally good */
    uint32_t exact_ranks; /* at least 1: the router's first choice always stays */
};

struct routing_candidate {
    uint32_t expert;
    float margin; /* m */
};

/* Writes the experts that could be chosen within `nats`: the exact choice by rank, then the others
 * that have m + nats >= the least m of the exact choice, by descending m; ties: the lower index.
 * Experts outside the groups of the row, and those with a logit of -infinity, are left out.
 * Returns their number, at most experts. out: [experts]; scratch: RESIDENT_FIRST_SCRATCH(experts)
 * floats. */
#define RESIDENT_FIRST_SCRATCH(experts) (5 * (size_t)(experts))
uint32_t resident_first_candidates(const struct model_router *router, const float *logits,
                                   const struct route *exact, float nats, float *scratch,
                                   struct routing_candidate *out);

/* A trace has the candidates within the nats of its run, or within so many if these are more. */
#define RESIDENT_FIRST_TRACED_NATS 1.0f

/* How many of the candidates of a row a trace has at most, the first ones: three times top-k. Those
 * after them are too far below the last rank. */
static inline uint32_t resident_first_recorded(uint32_t experts, uint32_t top_k)
{
    return 3 * top_k < experts ? 3 * top_k : experts;
}

/* Chooses top_k of the candidates, in their order in the choice. resident[i]: of candidate i; of
 * those beyond the exact choice, the others cannot be chosen. Candidates beyond what `nats` allows
 * change nothing. expert: [top_k]. Returns how many of the exact choice were replaced. */
uint32_t resident_first_choose(const struct resident_first *rule,
                               const struct routing_candidate *candidate, uint32_t count,
                               uint32_t top_k, const bool *resident, uint32_t *expert);

/* Whether an access to an expert of the running layer would be a hit now; weight_before: of
 * precision.h. */
typedef bool resident_first_asks(void *arg, uint32_t expert, float weight_before);

/* Memory of a thread for resident_first_row. */
struct resident_first_work {
    struct routing_candidate *candidate; /* [experts] */
    bool *resident;                      /* [experts] */
    float *scratch;                      /* RESIDENT_FIRST_SCRATCH(experts) */
};
/* False: out of memory, and nothing is to be freed. */
bool resident_first_work_create(struct resident_first_work *w, uint32_t experts);
void resident_first_work_free(struct resident_first_work *w);

/* All of it for one row: replaces its exact routes, [top_k] by rank. Returns how many were
 * replaced; with 0 the routes are unchanged. With every expert resident it asks for those of the
 * exact choice only, and computes nothing; with nats=0 it does not ask. */
uint32_t resident_first_row(const struct resident_first *rule, const struct model_router *router,
                            const float *logits, resident_first_asks *asks, void *arg,
                            struct resident_first_work *w, struct route *routes);

#endif
