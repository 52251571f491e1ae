/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the model core without the engine, all weights in memory: tokens per second of prefill
 * and decode for several numbers of threads. Prints results; not a test.
 *
 *   core_speed [FILE [TOKENS]] */
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define CONTEXT 2048
#define PROMPT  256

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

int main(int argc, char **argv)
{
    log_init("speed", LOG_LEVEL_INFO);
    struct image image;
    uint32_t tokens = argc > 2 ? (uint32_t)atoi(argv[2]) : 512;
    image_open(&image, argc > 1 ? argv[1] : golden_demo_path(), CONTEXT);
    sl_assert(tokens > 0 && tokens <= CONTEXT - PROMPT);
    for (int isa = 0; isa < ISA__COUNT; isa++)
        for (uint32_t threads = 1; threads <= 2 && kernel_ops_of((enum kernel_isa)isa); threads++)
            measure(&image, kernel_ops_of((enum kernel_isa)isa), threads, tokens);
    image_close(&image);
    return 0;
}
