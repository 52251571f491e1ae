/* The F16 model against an independent fp32 implementation: routing, logits and greedy
 * continuations of every instruction set this machine has.
 *
 * Where two router logits (4th and 5th) are nearer than GAP, another arithmetic may rightly choose
 * the other expert; from there on the numbers are another computation's, so a prompt is compared up
 * to such a place. Likewise a greedy choice whose margin is below MARGIN. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define GAP         1e-3
#define MARGIN      0.05
#define LOGIT_DELTA 2e-2
#define CONTEXT     512

struct routing { /* what was routed in a pass: [layer][position][top_k] */
    struct route *routes;
    uint32_t layers, positions, top_k;
};

static void record_routing(void *arg, const struct expert_step *step, const struct route *routes)
{
    struct routing *r = arg;
    for (uint32_t i = 0; i < step->rows && step->position + i < r->positions; i++)
        memcpy(&r->routes[((size_t)step->layer * r->positions + step->position + i) * r->top_k],
               &routes[(size_t)i * r->top_k], r->top_k * sizeof *routes);
}

static bool same_experts(const struct route *ours, const json_t *theirs, uint32_t top_k)
{
    for (uint32_t i = 0; i < top_k; i++) {
        bool found = false;
        for (uint32_t j = 0; j < top_k; j++)
            found |= json_integer_value(json_array_get(theirs, j)) == (json_int_t)ours[i].expert;
        if (!found)
            return false;
    }
    return true;
}

static double weight_delta(const struct route *ours, const json_t *experts, const json_t *weights,
                           uint32_t top_k)
{
    double delta = 0;
    for (uint32_t i = 0; i < top_k; i++)
        for (uint32_t j = 0; j < top_k; j++)
            if (json_integer_value(json_array_get(experts, j)) == (json_int_t)ours[i].expert)
                delta = fmax(delta, fabs((double)ours[i].weight -
                                         json_real_value(json_array_get(weights, j))));
    return delta;
}

/* Compares routing up to the first near-tie that fell the other way; returns its position. */
static uint32_t check_routing(const struct routing *r, unsigned prompt)
{
    char file[32];
    snprintf(file, sizeof file, "routing_%u.json", prompt);
    json_t *root = golden_json(file), *layers = json_object_get(root, "layers");
    double delta = 0;
    uint32_t ok_until = r->positions;
    for (uint32_t t = 0; t < ok_until; t++) {
        for (uint32_t l = 0; l < r->layers; l++) {
            json_t *layer = json_array_get(layers, l);
            json_t *experts = json_array_get(json_object_get(layer, "experts"), t);
            json_t *weights = json_array_get(json_object_get(layer, "weights"), t);
            double gap =
                json_number_value(json_array_get(json_object_get(layer, "gap_4th_5th_logit"), t));
            const struct route *ours = &r->routes[((size_t)l * r->positions + t) * r->top_k];
            if (same_experts(ours, experts, r->top_k)) {
                delta = fmax(delta, weight_delta(ours, experts, weights, r->top_k));
                continue;
            }
            golden_check(gap < GAP, "prompt %u layer %u position %u: other experts, gap %g", prompt,
                         l, t, gap);
            printf("  prompt %u: near-tie (gap %g) fell the other way in layer %u at position %u\n",
                   prompt, gap, l, t);
            ok_until = t;
            break;
        }
    }
    golden_check(delta < 5e-3, "prompt %u: gate weights differ by %g", prompt, delta);
    printf("  prompt %u: %u positions routed alike, largest gate weight difference %.2g\n", prompt,
           ok_until, delta);
    json_decref(root);
    return ok_until;
}

static void top_two(const float *x, size_t n, size_t *best, float *margin)
{
    size_t first = 0;
    for (size_t i = 1; i < n; i++)
        first = x[i] > x[first] ? i : first;
    float second = -INFINITY;
    for (size_t i = 0; i < n; i++)
        second = i != first && x[i] > second ? x[i] : second;
    *best = first;
    *margin = x[first] - second;
}

static double compare_row(const float *ours, const float *theirs, size_t n, unsigned prompt,
                          uint32_t position)
{
    double delta = 0;
    for (size_t i = 0; i < n; i++)
        delta = fmax(delta, fabs((double)ours[i] - (double)theirs[i]));
    size_t best, own;
    float margin, unused;
    top_two(theirs, n, &best, &margin);
    top_two(ours, n, &own, &unused);
    golden_check(margin < MARGIN || own == best, "prompt %u position %u: top-1 %zu, not %zu (%g)",
                 prompt, position, own, best, (double)margin);
    return delta;
}

static void check_logits(struct image *image, struct core *core, const json_t *item,
                         unsigned prompt)
{
    const struct model_hparams *hp = &image->model->hparams;
    struct golden_ids ids = golden_ids_of(json_object_get(item, "ids"));
    size_t rows, vocab;
    float *reference = golden_npy(json_string_value(json_object_get(item, "file")), &rows, &vocab);
    sl_assert(rows == ids.count && vocab == hp->vocab);
    struct routing routing = {NULL, hp->layers, (uint32_t)rows, hp->experts_used};
    routing.routes = calloc(rows * hp->layers * hp->experts_used, sizeof *routing.routes);
    float *ours = calloc(rows * vocab, sizeof *ours);
    sl_assert(routing.routes && ours);
    image->routed = record_routing;
    image->routed_arg = &routing;
    struct core_sequence sequence = image_sequence(image);
    struct error error;
    for (uint32_t at = 0; at < rows;) {
        uint32_t n =
            (uint32_t)rows - at < core_chunk(core) ? (uint32_t)rows - at : core_chunk(core);
        sl_assert(core_forward(core, &sequence, ids.id + at, at, n, &error) == 0);
        for (uint32_t r = 0; r < n; r++)
            memcpy(ours + (at + r) * vocab, core_output(core, r, 1), vocab * sizeof *ours);
        at += n;
    }
    image->routed = NULL;
    uint32_t until = check_routing(&routing, prompt);
    double delta = 0;
    for (uint32_t t = 0; t < until; t++)
        delta = fmax(delta, compare_row(ours + t * vocab, reference + t * vocab, vocab, prompt, t));
    golden_check(delta <= LOGIT_DELTA, "prompt %u: logits differ by %g", prompt, delta);
    printf("  prompt %u: max |logit difference| %.5f over %u of %zu positions\n", prompt, delta,
           until, rows);
    free(ours);
    free(routing.routes);
    free(reference);
    golden_ids_free(&ids);
}

/* Positions [0, end) have no near-tie that may have fallen the other way. */
static bool ties_before(const json_t *gaps, size_t end)
{
    for (size_t i = 0; i < end && i < json_array_size(gaps); i++)
        if (json_number_value(json_array_get(gaps, i)) < GAP)
            return true;
    return false;
}

static void check_greedy(struct image *image, struct core *core, const json_t *item,
                         unsigned prompt)
{
    struct golden_ids ids = golden_ids_of(json_object_get(item, "prompt_ids"));
    struct golden_ids wanted = golden_ids_of(json_object_get(item, "continuation_ids"));
    const json_t *margins = json_object_get(item, "top1_minus_top2_logit");
    struct core_sequence sequence = image_sequence(image);
    struct error error;
    uint32_t at = 0, chunk = core_chunk(core), count = (uint32_t)ids.count;
    for (uint32_t n; at < count; at += n) {
        n = count - at < chunk ? count - at : chunk;
        sl_assert(core_forward(core, &sequence, ids.id + at, at, n, &error) == 0);
        chunk = n; /* rows of the last pass */
    }
    float *logits = core_output(core, chunk - 1, 1);
    size_t same = 0;
    for (;; same++, at++) {
        size_t best;
        float margin;
        top_two(logits, image->model->hparams.vocab, &best, &margin);
        if (same == wanted.count || best != wanted.id[same])
            break;
        uint32_t token = (uint32_t)best;
        sl_assert(core_forward(core, &sequence, &token, at, 1, &error) == 0);
        logits = core_output(core, 0, 1);
    }
    double margin = json_number_value(json_array_get(margins, same));
    golden_check(same == wanted.count || margin < MARGIN ||
                     ties_before(json_object_get(item, "router_gap"), ids.count + same),
                 "greedy %u departs at token %zu, margin %g", prompt, same, margin);
    printf("  greedy %u: %zu of %zu tokens the same\n", prompt, same, wanted.count);
    golden_ids_free(&ids);
    golden_ids_free(&wanted);
}

static void check_isa(struct image *image, const struct kernel_ops *ops, const json_t *logits,
                      const json_t *greedy)
{
    printf("%s\n", ops->name);
    struct core *core = image_core(image, ops, 2, 16);
    size_t i;
    json_t *item;
    json_array_foreach(logits, i, item)
    {
        check_logits(image, core, item, (unsigned)i);
    }
    json_array_foreach(greedy, i, item)
    {
        check_greedy(image, core, item, (unsigned)i);
    }
    core_destroy(core);
}

int main(void)
{
    log_init("golden", LOG_LEVEL_INFO);
    struct image image;
    image_open(&image, golden_path("tiny-books-moe-f16.gguf"), CONTEXT);
    json_t *logits = golden_json("logits.json"), *greedy = golden_json("greedy.json");
    for (int isa = 0; isa < ISA__COUNT; isa++)
        if (kernel_ops_of((enum kernel_isa)isa))
            check_isa(&image, kernel_ops_of((enum kernel_isa)isa), logits,
                      json_object_get(greedy, "prompts"));
    json_decref(logits);
    json_decref(greedy);
    image_close(&image);
    return golden_result("golden logits");
}
