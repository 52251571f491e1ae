/* SPDX-License-Identifier: Apache-2.0 */
/* Routing (lib/policy/access/routing.c): a warp per row. The exponentials and the search for the
 * best expert are divided among the lanes; sums, whose order counts, are made by every lane from
 * shared memory, which costs no exchange and at most a few hundred additions. */
#include <float.h>

#include "lib/cuda/exact.cuh"

#define TAKEN (-INFINITY)
#define NONE  0xffffffffu

/* Three floats for each in shared memory. */
#define ROUTE_EXPERTS_MAX 4096

struct route_args {
    gpu_route r;
};

/* An expert and what it is compared by. */
struct candidate {
    uint32_t expert; /* NONE: there is none */
    float score;
};

INLINE float score_of(const model_router &r, const float *p, uint32_t e)
{
    return r.bias ? p[e] + r.bias[e] : p[e];
}

/* The better of two, neither NaN: a larger score, or the lower number. */
INLINE candidate better(const candidate &a, const candidate &b)
{
    if (a.expert == NONE || b.expert == NONE)
        return a.expert == NONE ? b : a;
    bool second = b.score > a.score || (b.score == a.score && b.expert < a.expert);
    return second ? b : a;
}

/* The best of [begin, end) that is not taken, in every lane. NaN: a search in ascending order keeps
 * the first expert if its score is NaN, and no other NaN is larger than anything. So NaN is left
 * out, which makes the order of comparisons free, unless the first one is. */
INLINE candidate best_of(const model_router &r, const float *p, uint32_t begin, uint32_t end)
{
    candidate best = {NONE, 0};
    uint32_t first = NONE;
    for (uint32_t e = begin + threadIdx.x; e < end; e += WARP) {
        float score = score_of(r, p, e);
        if (p[e] == TAKEN)
            continue;
        first = e < first ? e : first;
        if (score == score)
            best = better(best, {e, score});
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        uint32_t other = __shfl_xor_sync(ALL, first, d);
        uint32_t expert = __shfl_xor_sync(ALL, best.expert, d);
        float score = __shfl_xor_sync(ALL, best.score, d);
        first = other < first ? other : first;
        best = better(best, {expert, score});
    }
    if (first == NONE)
        return {NONE, 0};
    float score = score_of(r, p, first);
    return score == score ? best : candidate{first, score};
}

INLINE uint32_t left_of(const model_router &r, const float *p)
{
    uint32_t n = 0;
    for (uint32_t e = threadIdx.x; e < r.experts; e += WARP)
        n += p[e] != TAKEN;
    return sum_up<WARP, 1>(n);
}

INLINE bool usable(const bool *allowed, uint32_t e)
{
    return !allowed || allowed[e];
}

INLINE void softmax_of(const float *logits, const bool *allowed, uint32_t experts, float *p)
{
    float top = -INFINITY, sum = 0;
    for (uint32_t e = threadIdx.x; e < experts; e += WARP)
        top = usable(allowed, e) && logits[e] > top ? logits[e] : top;
    top = max_of_warp(top);
    for (uint32_t e = threadIdx.x; e < experts; e += WARP)
        p[e] = usable(allowed, e) ? (float)exact_exp((double)(logits[e] - top)) : 0.0f;
    __syncwarp();
    for (uint32_t e = 0; e < experts; e++)
        sum += p[e];
    __syncwarp(); /* all lanes have read */
    for (uint32_t e = threadIdx.x; e < experts; e += WARP)
        p[e] = usable(allowed, e) ? p[e] / sum : TAKEN;
    __syncwarp();
}

INLINE float sigmoid(float z)
{
    return (float)(1.0 / (1.0 + exact_exp(-(double)z)));
}

INLINE void probabilities(const model_router &r, const float *logits, const bool *allowed, float *p)
{
    if (r.gating == ROUTER_SOFTMAX) {
        softmax_of(logits, allowed, r.experts, p);
        return;
    }
    for (uint32_t e = threadIdx.x; e < r.experts; e += WARP)
        p[e] = !usable(allowed, e)          ? TAKEN
               : r.gating == ROUTER_SIGMOID ? sigmoid(logits[e])
               : logits[e] < -FLT_MAX       ? -FLT_MAX
                                            : logits[e];
    __syncwarp();
}

INLINE void set_taken(float *p, uint32_t e)
{
    __syncwarp(); /* all lanes have read */
    if (threadIdx.x == 0)
        p[e] = TAKEN;
    __syncwarp();
}

INLINE float group_score(const model_router &r, float *p, uint32_t begin, uint32_t end)
{
    candidate first = best_of(r, p, begin, end);
    if (first.expert == NONE)
        return -INFINITY;
    if (r.gating == ROUTER_SOFTMAX)
        return first.score;
    float kept = p[first.expert];
    set_taken(p, first.expert);
    candidate second = best_of(r, p, begin, end);
    __syncwarp();
    if (threadIdx.x == 0)
        p[first.expert] = kept;
    __syncwarp();
    return second.expert == NONE ? first.score : first.score + second.score;
}

/* score: space for one per group. */
INLINE void keep_groups(const model_router &r, float *p, float *score)
{
    uint32_t size = r.experts / r.groups;
    for (uint32_t g = 0; g < r.groups; g++) {
        float s = group_score(r, p, g * size, (g + 1) * size);
        if (threadIdx.x == 0)
            score[g] = s;
    }
    __syncwarp();
    for (uint32_t g = 0; g < r.groups; g++) {
        uint32_t others = 0;
        for (uint32_t o = 0; o < r.groups; o++)
            others += score[o] > score[g] || (!(score[o] < score[g]) && o < g);
        for (uint32_t e = g * size + threadIdx.x; others >= r.groups_used && e < (g + 1) * size;
             e += WARP)
            p[e] = TAKEN;
    }
    __syncwarp();
}

/* SparseMixer: the weight of the best among those that are left, experts in ascending order. */
INLINE float sparse_weight(const model_router &r, const float *p, uint32_t best)
{
    float top = p[best], sum = 0;
    for (uint32_t e = 0; e < r.experts; e++) {
        float size = fabsf(p[e]) > top ? fabsf(p[e]) : top;
        if (p[e] != TAKEN && !((top - p[e]) / size > ROUTER_SPARSE_NEAR))
            sum += (float)exact_exp((double)(p[e] - top));
    }
    return 1 / sum;
}

/* The weights of the chosen, best first, by one lane. */
INLINE void weigh(const model_router &r, float *weight)
{
    float sum = 0, top = -INFINITY;
    if (r.gating == ROUTER_SOFTMAX_AFTER) {
        for (uint32_t k = 0; k < r.top_k; k++)
            top = weight[k] > top ? weight[k] : top;
        for (uint32_t k = 0; k < r.top_k; k++) {
            weight[k] = (float)exact_exp((double)(weight[k] - top));
            sum += weight[k];
        }
        for (uint32_t k = 0; k < r.top_k; k++)
            weight[k] /= sum;
        sum = 0;
    }
    for (uint32_t k = 0; r.gating == ROUTER_SIGMOID_AFTER && k < r.top_k; k++)
        weight[k] = sigmoid(weight[k]);
    for (uint32_t k = 0; k < r.top_k; k++)
        sum += weight[k];
    for (uint32_t k = 0; r.normalise && sum != 0 && k < r.top_k; k++)
        weight[k] /= sum;
    for (uint32_t k = 0; r.scale != 0 && k < r.top_k; k++)
        weight[k] *= r.scale;
}

__global__ void __launch_bounds__(WARP) route_rows(route_args a)
{
    const model_router &r = a.r.router;
    float *p = (float *)(void *)shared_memory(), *weight = p + r.experts, *score = weight + r.top_k;
    const float *logits = a.r.logits + blockIdx.x * a.r.stride;
    size_t to = (size_t)blockIdx.x * r.top_k * a.r.step;
    probabilities(r, logits, a.r.allowed, p);
    if (r.groups > 1)
        keep_groups(r, p, score);
    /* Scores of groups that are NaN may exclude all; then no group counts, as on the CPU. */
    if (r.groups > 1 && left_of(r, p) < r.top_k) {
        __syncwarp(); /* all lanes have read */
        probabilities(r, logits, a.r.allowed, p);
    }
    for (uint32_t k = 0; k < r.top_k; k++) {
        candidate best = best_of(r, p, 0, r.experts);
        if (best.expert == NONE) /* too few are allowed */
            return;
        float w =
            r.gating == ROUTER_SPARSE_MIXER ? sparse_weight(r, p, best.expert) : p[best.expert];
        if (threadIdx.x == 0) {
            a.r.expert[to + k * a.r.step] = best.expert;
            weight[k] = w;
        }
        set_taken(p, best.expert);
    }
    if (threadIdx.x == 0)
        weigh(r, weight);
    __syncwarp();
    for (uint32_t k = threadIdx.x; k < r.top_k; k += WARP)
        a.r.weight[to + k * a.r.step] = weight[k];
}

/* With top_k <= experts and groups that divide them, every choice has an expert that is left. */
static bool routable(const model_router &r)
{
    bool gating = r.gating == ROUTER_SOFTMAX || r.gating == ROUTER_SIGMOID ||
                  r.gating == ROUTER_SOFTMAX_AFTER || r.gating == ROUTER_SPARSE_MIXER ||
                  r.gating == ROUTER_SIGMOID_AFTER;
    return gating && r.top_k > 0 && r.top_k <= r.experts && r.experts <= ROUTE_EXPERTS_MAX &&
           (r.groups < 2 || (r.groups <= r.experts && r.experts % r.groups == 0));
}

extern "C" int gpu_route_rows(const struct gpu_route *r, void *stream)
{
    route_args a = {*r};
    size_t floats = r->router.experts + r->router.top_k + (size_t)r->router.groups;
    if (!routable(r->router) || !count_fits(r->rows))
        return GPU_UNSUPPORTED;
    if (r->rows == 0)
        return 0;
    a.r.step = r->step ? r->step : 1;
    return LAUNCH(route_rows, dim3(r->rows), dim3(WARP), floats * sizeof(float), stream, a);
}
