/* SPDX-License-Identifier: Apache-2.0 */
/* Perplexity of the held-out texts by the protocol of data/perplexity.json: independent windows of
 * 512 tokens, tokens 1..511 scored.
 *
 *   golden_perplexity FILE TOLERANCE%
 *
 * The reference has the loss of each window, so that a sample of them, in the short form, is
 * compared as strictly as the whole text: their perplexity within the tolerance, and each loss. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"
#include "tests/harness/sample.h"

#define WINDOW     512
#define LOSS_DELTA 0.01 /* of a window */

static const char *const texts[] = {"novel", "tales", "drama", "science"};

static double window_nll(struct image *image, struct core *core, const uint32_t *ids)
{
    struct core_sequence sequence = image_sequence(image);
    float score[WINDOW];
    struct error error;
    double nll = 0;
    for (uint32_t at = 0, n; at < WINDOW; at += n) {
        n = WINDOW - at < core_chunk(core) ? WINDOW - at : core_chunk(core);
        sl_assert(core_forward(core, &sequence, ids + at, at, n, &error) == 0);
        uint32_t scored = at + n < WINDOW ? n : n - 1;
        if (scored > 0)
            core_score(core, 0, scored, ids + at + 1, score);
        for (uint32_t i = 0; i < scored; i++)
            nll -= (double)score[i];
    }
    return nll;
}

static void compare_windows(struct image *image, struct core *core, const char *name,
                            const uint32_t *ids, const json_t *reference, double tolerance)
{
    double ours = 0, theirs = 0, most = 0;
    unsigned windows = 0, met = 0;
    uint64_t start = clock_now_ns();
    for (size_t w = 0; w < json_array_size(reference); w++) {
        if (!test_sample(EVERY_perplexity_windows, &met))
            continue;
        double nll = window_nll(image, core, ids + w * WINDOW) / (WINDOW - 1);
        double want = json_number_value(json_array_get(reference, w));
        most = fmax(most, fabs(nll - want));
        ours += nll;
        theirs += want;
        windows++;
    }
    double ppl = exp(ours / (double)windows), wanted = exp(theirs / (double)windows);
    double off = 100 * (ppl / wanted - 1), seconds = (double)(clock_now_ns() - start) / 1e9;
    printf("  %-8s %u windows: perplexity %.4f, reference %.4f, %+.3f %%, a window's loss at most "
           "%.4f off (%.0f tokens/s)\n",
           name, windows, ppl, wanted, off, most, (double)(windows * WINDOW) / seconds);
    golden_check(fabs(off) <= tolerance, "%s: perplexity %.4f is %+.3f %% off", name, ppl, off);
    golden_check(most <= LOSS_DELTA, "%s: the loss of a window is %.4f off", name, most);
}

static void check_text(struct image *image, struct core *core, const struct tokenizer *tokenizer,
                       const char *name, double tolerance)
{
    char file[64];
    snprintf(file, sizeof file, "heldout/%s.txt", name);
    size_t bytes, count;
    char *text = golden_text(file, &bytes);
    uint32_t *ids;
    struct error error;
    if (tokenizer_encode(tokenizer, text, bytes, NULL, &ids, &count, &error) != 0)
        log_fatal(1, "%s", error.text);
    json_t *root = golden_json("perplexity.json");
    json_t *domain = json_object_get(json_object_get(root, "domains"), name);
    golden_check((json_int_t)count == json_integer_value(json_object_get(domain, "tokens_in_file")),
                 "%s: %zu tokens in the file", name, count);
    const json_t *reference = json_object_get(domain, "nll_of_windows");
    golden_check(json_array_size(reference) == count / WINDOW, "%s: %zu windows", name,
                 count / WINDOW);
    compare_windows(image, core, name, ids, reference, tolerance);
    json_decref(root);
    free(ids);
    free(text);
}

int main(int argc, char **argv)
{
    log_init("golden", LOG_LEVEL_INFO);
    if (argc < 3)
        log_fatal(2, "usage: golden_perplexity FILE TOLERANCE%%");
    struct image image;
    image_open(&image, argv[1], WINDOW);
    struct error error;
    struct tokenizer *tokenizer =
        tokenizer_open((const char *)image.model + image.model->tokenizer_offset,
                       image.model->tokenizer_bytes, &error);
    if (!tokenizer)
        log_fatal(1, "%s", error.text);
    struct core *core = image_core(&image, kernel_ops_select(NULL), 2, 256);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check_text(&image, core, tokenizer, texts[i], strtod(argv[2], NULL));
    core_destroy(core);
    tokenizer_close(tokenizer);
    image_close(&image);
    return golden_result("golden perplexity");
}
