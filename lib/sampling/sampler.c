/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling without sorting the vocabulary: the candidates form a heap, and only the survivors are
 * popped. */
#include "lib/sampling/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/exact/elementary.h"

#define SAMPLER_MAGIC 0x53414d50u
#define LANES         4   /* of any x86-64 and ARM: wider ones would be kept in memory */
#define BLOCK         256 /* logits of which only the largest is compared with those before */
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t masks __attribute__((vector_size(4 * LANES)));

struct candidate {
    float logit;
    uint32_t id;
};

struct sampler {
    uint32_t magic;
    uint32_t vocab;
    uint64_t *seen;   /* one bit per token: the penalties apply */
    uint32_t *times;  /* [vocab]: how often, of those that are seen; else 0 */
    uint64_t *biased; /* one bit per token: it has a bias, or is suppressed */
    /* of the current call */
    const struct sampler_choice *choice;
    const struct sampler_settings *settings;
    size_t recent_count;    /* 0: nothing is penalised */
    struct candidate *heap; /* [vocab]; popped candidates go to its end, the best last */
};

struct sampler *sampler_create(uint32_t vocab, struct error *error)
{
    sl_assert(vocab > 0);
    struct sampler *s = calloc(1, sizeof *s);
    if (s) {
        *s = (struct sampler){.magic = SAMPLER_MAGIC, .vocab = vocab};
        s->seen = calloc(vocab / 64 + 1, sizeof *s->seen);
        s->times = calloc(vocab, sizeof *s->times);
        s->biased = calloc(vocab / 64 + 1, sizeof *s->biased);
        s->heap = calloc(vocab, sizeof *s->heap);
    }
    if (!s || !s->seen || !s->times || !s->biased || !s->heap) {
        error_set(error, ERR_NO_MEMORY, "out of memory (sampler of %u tokens)", vocab);
        sampler_destroy(s);
        return NULL;
    }
    return s;
}

void sampler_destroy(struct sampler *s)
{
    if (!s)
        return;
    OBJ_CHECK(s, SAMPLER_MAGIC);
    free(s->seen);
    free(s->times);
    free(s->biased);
    free(s->heap);
    s->magic = 0;
    free(s);
}

static uint64_t mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull; /* finaliser of SplitMix64 (Steele et al. 2014) */
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

double sampler_random(uint64_t seed, uint32_t position)
{
    const uint64_t step = 0x9e3779b97f4a7c15ull;
    uint64_t bits = mix64(mix64(seed + step) + ((uint64_t)position + 1) * step);
    return (double)(bits >> 11) * 0x1p-53;
}

static void mark(struct sampler *s)
{
    const struct sampler_choice *c = s->choice;
    for (size_t i = 0; i < s->recent_count; i++)
        if (c->recent[i] < s->vocab) {
            s->seen[c->recent[i] / 64] |= 1ull << (c->recent[i] % 64);
            s->times[c->recent[i]]++;
        }
    for (size_t i = 0; i < c->bias_count; i++)
        if (c->bias[i].id < s->vocab)
            s->biased[c->bias[i].id / 64] |= 1ull << (c->bias[i].id % 64);
    for (size_t i = 0; i < c->suppressed_count; i++)
        if (c->suppressed[i] < s->vocab)
            s->biased[c->suppressed[i] / 64] |= 1ull << (c->suppressed[i] % 64);
}

static void unmark(struct sampler *s)
{
    const struct sampler_choice *c = s->choice;
    for (size_t i = 0; i < s->recent_count; i++)
        if (c->recent[i] < s->vocab) {
            s->seen[c->recent[i] / 64] = 0;
            s->times[c->recent[i]] = 0;
        }
    for (size_t i = 0; i < c->bias_count; i++)
        if (c->bias[i].id < s->vocab)
            s->biased[c->bias[i].id / 64] = 0;
    for (size_t i = 0; i < c->suppressed_count; i++)
        if (c->suppressed[i] < s->vocab)
            s->biased[c->suppressed[i] / 64] = 0;
}

bool sampler_penalises(const struct sampler_settings *p)
{
    return p->repeat_penalty != 1.0 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

static double penalised(const struct sampler *s, uint32_t id, double l)
{
    const struct sampler_settings *p = s->settings;
    if (p->repeat_penalty != 1.0)
        l = l > 0 ? l / p->repeat_penalty : l * p->repeat_penalty;
    if (p->presence_penalty != 0)
        l -= p->presence_penalty;
    if (p->frequency_penalty != 0)
        l -= p->frequency_penalty * (double)s->times[id];
    return l;
}

static bool is_suppressed(const struct sampler_choice *c, uint32_t id)
{
    size_t lo = 0, hi = c->suppressed_count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (c->suppressed[mid] < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->suppressed_count && c->suppressed[lo] == id;
}

/* Of a token that is marked. */
static float bias_of(const struct sampler_choice *c, uint32_t id)
{
    size_t i = c->bias_count;
    if (is_suppressed(c, id))
        return -INFINITY;
    while (i > 1 && c->bias[i - 1].id != id)
        i--;
    return c->bias[i - 1].bias;
}

/* Effective logit: with its bias, penalised when the token was seen, -inf for NaN. */
static float logit_of(const struct sampler *s, uint32_t id)
{
    float l = s->choice->logits[id];
    bool any = s->choice->bias_count > 0 || s->choice->suppressed_count > 0;
    if (any && s->biased[id / 64] >> (id % 64) & 1)
        l += bias_of(s->choice, id);
    if (l != l)
        return -INFINITY;
    if (s->recent_count == 0 || (s->seen[id / 64] >> (id % 64) & 1) == 0)
        return l;
    return (float)penalised(s, id, (double)l);
}

/* The first allowed token from `id` on; `vocab`: there is none. */
static uint32_t allowed_from(const struct sampler *s, uint32_t id)
{
    const uint64_t *mask = s->choice->mask;
    if (!mask || id >= s->vocab)
        return id;
    uint64_t word = mask[id / 64] >> (id % 64);
    if (word == 0) {
        uint32_t at = id / 64 + 1, words = (s->vocab + 63) / 64;
        while (at < words && mask[at] == 0)
            at++;
        if (at == words)
            return s->vocab;
        id = 64 * at;
        word = mask[at];
    }
    id += (uint32_t)__builtin_ctzll(word);
    return id < s->vocab ? id : s->vocab;
}

/* Of each lane: a if it is larger, which a NaN is not. */
static inline lanes larger(lanes a, lanes b)
{
    masks take = a > b;
    return (lanes)(((masks)a & take) | ((masks)b & ~take));
}

/* The largest of n values that are not NaN, at least -infinity. */
static float largest(const float *x, uint32_t n)
{
    float top = -INFINITY;
    uint32_t i = 0;
    lanes v, w, all = top - (lanes){0}, others = all;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        memcpy(&v, x + i, sizeof v);
        memcpy(&w, x + i + LANES, sizeof w);
        all = larger(v, all);
        others = larger(w, others);
    }
    all = larger(others, all);
    for (uint32_t j = 0; j < LANES; j++)
        top = all[j] > top ? all[j] : top;
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

/* No logit differs from that of the choice, and no token is excluded. */
static bool is_plain(const struct sampler *s)
{
    const struct sampler_choice *c = s->choice;
    return !c->mask && c->bias_count == 0 && c->suppressed_count == 0 && s->recent_count == 0;
}

/* The first block from `id` on with a logit above `above`; from `vocab` on: there is none. While
 * they are compared one by one, 160,000 logits take 0.6 ms. */
static uint32_t block_above(const struct sampler *s, uint32_t id, float above)
{
    const float *logits = s->choice->logits;
    while (id < s->vocab &&
           !(largest(logits + id, s->vocab - id < BLOCK ? s->vocab - id : BLOCK) > above))
        id += BLOCK;
    return id;
}

static uint32_t greedy_plain(const struct sampler *s)
{
    const float *logits = s->choice->logits;
    uint32_t best = 0;
    float top = -INFINITY;
    for (uint32_t i = 0; (i = block_above(s, i, top)) < s->vocab; i += BLOCK)
        for (uint32_t id = i; id < s->vocab && id < i + BLOCK; id++)
            if (logits[id] > top) {
                top = logits[id];
                best = id;
            }
    return best;
}

static uint32_t greedy(const struct sampler *s)
{
    if (is_plain(s))
        return greedy_plain(s);
    uint32_t best = allowed_from(s, 0);
    float top = -INFINITY;
    for (uint32_t i = best; i < s->vocab; i = allowed_from(s, i + 1)) {
        float l = logit_of(s, i);
        if (l > top) {
            top = l;
            best = i;
        }
    }
    return best;
}

/* Better: larger, ties to the lower id. */
static bool better(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Restores the heap property below heap[at]; best on top, or worst on top. */
static void sink(struct candidate *heap, uint32_t n, uint32_t at, bool best_on_top)
{
    struct candidate moving = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && better(heap[child + 1], heap[child]) == best_on_top)
            child++;
        if (better(heap[child], moving) != best_on_top)
            break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static void heapify(struct candidate *heap, uint32_t n, bool best_on_top)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sink(heap, n, i, best_on_top);
}

static struct candidate candidate_of(const struct sampler *s, uint32_t id)
{
    return (struct candidate){logit_of(s, id), id};
}

/* Fills the heap with the top_k best (all when 0) of those allowed, best on top. Returns their
 * number. */
static uint32_t gather(struct sampler *s, uint32_t top_k)
{
    uint32_t most = top_k == 0 || top_k > s->vocab ? s->vocab : top_k, n = 0;
    uint32_t i = allowed_from(s, 0);
    for (; i < s->vocab && n < most; i = allowed_from(s, i + 1))
        s->heap[n++] = candidate_of(s, i);
    if (i < s->vocab) {
        uint32_t block = is_plain(s) ? i : s->vocab; /* of equals, later ones are worse */
        heapify(s->heap, n, false);
        for (; i < s->vocab; i = allowed_from(s, i + 1)) {
            if (i == block) {
                i = block_above(s, i, s->heap[0].logit);
                block = i + BLOCK;
                if (i >= s->vocab)
                    break;
            }
            struct candidate c = candidate_of(s, i);
            if (better(c, s->heap[0])) {
                s->heap[0] = c;
                sink(s->heap, n, 0, false);
            }
        }
    }
    heapify(s->heap, n, true);
    return n;
}

/* Pops candidates, best first, while top-p and min-p admit them; the best always is. top-p is
 * relative to the candidates after top-k. They end up before heap[count], the best last. */
static uint32_t keep(struct candidate *heap, uint32_t count, double top_p, double min_p)
{
    double max = (double)heap[0].logit, total = 0, sum = 0;
    uint32_t n = count;
    if (top_p < 1) /* in heap order, which depends on the logits alone */
        for (uint32_t i = 0; i < n; i++)
            total += exact_exp((double)heap[i].logit - max);
    while (n > 0) {
        struct candidate top = heap[0];
        double weight = exact_exp((double)top.logit - max);
        if (n < count && (weight < min_p || weight == 0 || (top_p < 1 && sum >= top_p * total)))
            break;
        heap[0] = heap[--n];
        if (n > 0)
            sink(heap, n, 0, true);
        heap[n] = top;
        sum += weight;
    }
    return count - n;
}

/* `last` points at the best of `kept` candidates; the others precede it in descending order. */
static uint32_t draw(const struct candidate *last, uint32_t kept, double temperature, double random)
{
    double max = (double)last->logit, total = 0;
    for (uint32_t i = 0; i < kept; i++)
        total += exact_exp(((double)last[-(ptrdiff_t)i].logit - max) / temperature);
    double left = random * total;
    for (uint32_t i = 0; i + 1 < kept; i++) {
        left -= exact_exp(((double)last[-(ptrdiff_t)i].logit - max) / temperature);
        if (left < 0)
            return last[-(ptrdiff_t)i].id;
    }
    return last[1 - (ptrdiff_t)kept].id;
}

static uint32_t sample(struct sampler *s)
{
    const struct sampler_settings *settings = s->settings;
    uint32_t n = gather(s, settings->top_k);
    if (!isfinite(s->heap[0].logit)) /* no finite logit */
        return s->heap[0].id;
    uint32_t kept = keep(s->heap, n, settings->top_p, settings->min_p);
    return draw(&s->heap[n - 1], kept, settings->temperature,
                sampler_random(settings->seed, s->choice->position));
}

uint32_t sampler_choose(struct sampler *s, const struct sampler_settings *settings,
                        const struct sampler_choice *choice)
{
    OBJ_CHECK(s, SAMPLER_MAGIC);
    s->choice = choice;
    s->settings = settings;
    s->recent_count = sampler_penalises(settings) ? choice->recent_count : 0;
    if (allowed_from(s, 0) == s->vocab)
        return SAMPLER_NONE;
    mark(s);
    uint32_t token = settings->temperature > 0 ? sample(s) : greedy(s);
    unmark(s);
    return token;
}

uint32_t sampler_top(const float *logits, uint32_t vocab, uint32_t count, uint32_t *ids)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < vocab && count > 0; id++) {
        if (n == count && !(logits[id] > logits[ids[n - 1]]))
            continue;
        uint32_t at = n < count ? n++ : n - 1;
        for (; at > 0 && logits[id] > logits[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
    return n;
}
