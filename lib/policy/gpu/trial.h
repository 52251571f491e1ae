/* SPDX-License-Identifier: Apache-2.0 */
/* --gpu-policy auto: the fastest policy, measured while tokens are computed.
 *
 *   trial: slices of GPU_TRIAL_SLICE tokens with one policy after the other, GPU_TRIAL_SLICES
 *     |    of each. A slice has the mean time of its tokens but the first, a policy the median
 *     v    of its slices.
 *   use:   the first policy of the list, unless another one is faster by GPU_TRIAL_GAIN of its
 *          time. A trial begins again after GPU_TRIAL_AGAIN tokens, or when the share of hits
 *          differs by GPU_TRIAL_CHANGE from that of the first GPU_TRIAL_WINDOW tokens.
 *
 * A token is a pass of one row. The one after another pass is not counted. */
#ifndef SLUICE_POLICY_GPU_TRIAL_H
#define SLUICE_POLICY_GPU_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/policy/gpu/policy.h"

#define GPU_TRIAL_SLICE  16u
#define GPU_TRIAL_SLICES 3u
#define GPU_TRIAL_GAIN   0.02
#define GPU_TRIAL_AGAIN  4096u
#define GPU_TRIAL_WINDOW 256u
#define GPU_TRIAL_CHANGE 0.1

struct gpu_trial_token {
    uint64_t ns;
    uint64_t uses, hits; /* of experts; hits: they were on the GPU */
};

struct gpu_trial {
    enum gpu_policy policy; /* of the next pass */
    uint32_t trials;        /* trials that have ended */
    /* By policy: the time per token in the last trial that ended (0: none did), and the tokens that
     * were counted in all. */
    double token_ns[GPU_POLICY__COUNT];
    uint64_t tokens[GPU_POLICY__COUNT];

    /* private */
    uint32_t allowed; /* 1 << policy */
    bool trying, skip;
    uint32_t round, slice_tokens, slice_counted;
    double slice_ns, slices[GPU_POLICY__COUNT][GPU_TRIAL_SLICES];
    uint32_t since, window_tokens;
    uint64_t uses, hits;
    double usual; /* share of hits; below 0: not known */
};

/* allowed: a mask of 1 << policy. With a single policy there are no trials. */
void gpu_trial_open(struct gpu_trial *t, uint32_t allowed);
/* A pass of one row ended, which was computed with t->policy. The call may change t->policy. */
void gpu_trial_token(struct gpu_trial *t, const struct gpu_trial_token *token);
/* A pass of several rows ended: it is not counted, nor is the token after it. */
void gpu_trial_other(struct gpu_trial *t);

#endif
