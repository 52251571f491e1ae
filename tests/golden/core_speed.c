/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the model core without the engine, all weights in memory. Prints results; not a test.
 *
 *   core_speed [FILE [TOKENS]]        tokens per second of prefill and decode, by instruction set,
 *                                     for several numbers of threads
 *   core_speed FILE TOKENS DEPTH...   decode after so many tokens, beside what a token reads there
 *
 * In the second form keys and values of the tokens before are random instead of computed, which
 * takes no other time: where an indexer chooses positions, those of the highest scores are
 * anywhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/rates/rates.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define CONTEXT 2048
#define PROMPT  256
#define WARM    4 /* tokens before those that are measured */

static double per_second(uint32_t n, uint64_t start)
{
    return (double)n * 1e9 / (double)(clock_now_ns() - start);
}

static uint32_t largest(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void measure(struct image *image, const struct kernel_ops *ops, uint32_t threads,
                    uint32_t tokens)
{
    uint32_t vocab = image->model->hparams.vocab, prompt[PROMPT];
    struct core *core = image_core(image, ops, threads, PROMPT);
    struct core_sequence sequence = image_sequence(image);
    struct error error;
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = i * 7919 % vocab;
    sl_assert(core_forward(core, &sequence, prompt, 0, PROMPT, &error) == 0);
    uint64_t start = clock_now_ns();
    sl_assert(core_forward(core, &sequence, prompt, 0, PROMPT, &error) == 0);
    double prefill = per_second(PROMPT, start);
    uint32_t token = largest(core_output(core, PROMPT - 1, 1), vocab);
    start = clock_now_ns();
    for (uint32_t i = 0; i < tokens; i++) {
        sl_assert(core_forward(core, &sequence, &token, PROMPT + i, 1, &error) == 0);
        token = largest(core_output(core, 0, 1), vocab);
    }
    printf("%-8s %u threads: prefill %8.0f tokens/s, decode %8.0f tokens/s\n", ops->name, threads,
           prefill, per_second(tokens, start));
    core_destroy(core);
}

/* ---- at a depth ---- */

static void fill(const struct kernel_ops *ops, struct random *random, void *at, size_t bytes)
{
    uint16_t *to = at;
    float x[64];
    for (size_t i = 0; i < bytes / sizeof *to / ARRAY_LEN(x); i++) {
        for (size_t k = 0; k < ARRAY_LEN(x); k++)
            x[k] = random_normal(random);
        ops->to_f16(x, ARRAY_LEN(x), to + i * ARRAY_LEN(x));
    }
}

static void fill_rows(const struct image *image, const struct kernel_ops *ops)
{
    const struct model_hparams *h = &image->model->hparams;
    struct random random;
    random_seed(&random, 1, 0);
    sl_assert(image->kv_type == KV_TYPE_F16);
    for (uint32_t i = 0; i < h->layers; i++) {
        void *const to[KV_SIDE__COUNT] = {image->keys[i], image->values[i], image->index[i]};
        for (uint32_t side = 0; side < KV_SIDE__COUNT; side++)
            fill(ops, &random, to[side],
                 (size_t)model_kv_bytes(h, i, side, KV_TYPE_F16, image->context));
    }
}

struct reads { /* bytes of a token */
    uint64_t dense, experts, index, rows, all_rows;
};

static struct reads reads_of(const struct model_index *m, uint32_t depth)
{
    const struct model_hparams *h = &m->hparams;
    double *hits = calloc((size_t)h->experts + 1, sizeof *hits);
    struct rates_model r;
    struct error error;
    sl_assert(hits && rates_model(m, KV_TYPE_F16, 2 * depth, 0, hits, &r, &error) == 0);
    struct reads out = {.dense = cost_bytes_sum(&r.cost.output)};
    for (uint32_t i = 0; i < h->layers; i++) {
        out.dense += cost_bytes_sum(&r.layer[i].dense);
        out.experts += cost_bytes_sum(&r.layer[i].expert) * h->experts_used;
        out.index += model_read_bytes(h, i, KV_SIDE_INDEX, KV_TYPE_F16, depth);
        for (uint32_t side = 0; side < KV_SIDE_INDEX; side++) {
            out.rows += model_read_bytes(h, i, side, KV_TYPE_F16, depth);
            out.all_rows += model_kv_bytes(h, i, side, KV_TYPE_F16, depth);
        }
    }
    rates_model_free(&r);
    free(hits);
    return out;
}

static double cpu_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return 1e3 * (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-3 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Decode from position `depth` on: the median time of a token, and the mean of the processor. */
static void measure_at(struct image *image, struct core *core, uint32_t depth, uint32_t tokens)
{
    uint32_t vocab = image->model->hparams.vocab, token = 1;
    struct core_sequence sequence = image_sequence(image);
    double *ms = calloc(tokens, sizeof *ms), cpu = 0;
    struct error error;
    sl_assert(ms);
    for (uint32_t i = 0; i < WARM + tokens; i++) {
        uint64_t start = clock_now_ns();
        cpu = i == WARM ? cpu_ms() : cpu;
        sl_assert(core_forward(core, &sequence, &token, depth + i, 1, &error) == 0);
        token = largest(core_output(core, 0, 1), vocab);
        if (i >= WARM)
            ms[i - WARM] = (double)(clock_now_ns() - start) / 1e6;
    }
    cpu = (cpu_ms() - cpu) / tokens;
    qsort(ms, tokens, sizeof *ms, ascending);
    const struct reads r = reads_of(image->model, depth);
    printf("%8u %9.2f %8.1f %8.1f %8.1f %8.0f %8.0f %8.1f %8.1f %8.1f\n", depth,
           1e3 / ms[tokens / 2], ms[tokens / 2], ms[0], cpu, (double)r.dense / MIB,
           (double)r.experts / MIB, (double)r.index / MIB, (double)r.rows / MIB,
           (double)r.all_rows / MIB);
    free(ms);
}

static void measure_depths(const char *path, uint32_t tokens, char **depths, uint32_t count)
{
    const struct kernel_ops *ops = kernel_ops_select("auto");
    uint32_t deepest = 0, threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    struct image image;
    for (uint32_t i = 0; i < count; i++)
        deepest = (uint32_t)atoi(depths[i]) > deepest ? (uint32_t)atoi(depths[i]) : deepest;
    image_open(&image, path, deepest + WARM + tokens);
    fill_rows(&image, ops);
    struct core *core = image_core(&image, ops, threads, 1);
    printf("%s, %u threads\n%8s %9s %8s %8s %8s %8s %8s %8s %8s %8s\n", ops->name, threads,
           "tokens", "tokens/s", "ms", "least", "CPU ms", "dense", "experts", "index", "rows",
           "all rows");
    for (uint32_t i = 0; i < count; i++)
        measure_at(&image, core, (uint32_t)atoi(depths[i]), tokens);
    core_destroy(core);
    image_close(&image);
}

int main(int argc, char **argv)
{
    log_init("speed", LOG_LEVEL_INFO);
    struct image image;
    uint32_t tokens = argc > 2 ? (uint32_t)atoi(argv[2]) : 512;
    sl_assert(tokens > 0);
    if (argc > 3) {
        measure_depths(argv[1], tokens, argv + 3, (uint32_t)(argc - 3));
        return 0;
    }
    image_open(&image, argc > 1 ? argv[1] : golden_demo_path(), CONTEXT);
    sl_assert(tokens <= CONTEXT - PROMPT);
    for (int isa = 0; isa < ISA__COUNT; isa++)
        for (uint32_t threads = 1; threads <= 2 && kernel_ops_of((enum kernel_isa)isa); threads++)
            measure(&image, kernel_ops_of((enum kernel_isa)isa), threads, tokens);
    image_close(&image);
    return 0;
}
