/* SPDX-License-Identifier: Apache-2.0 */
/* Perplexity of the held-out texts by the protocol of data/perplexity.json: independent windows of
 * 512 tokens, tokens 1..511 scored.
 *
 *   golden_perplexity FILE TOLERANCE% [WINDOWS]
 *
 * Without WINDOWS: the whole texts, compared with perplexity.json. With WINDOWS (6): the first
 * windows of each text, compared with the same reference implementation's values for these. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define WINDOW 512

/* The reference's perplexity of the first 6 windows of each text (fp32). */
static const struct {
    const char *domain;
    double first_six;
} texts[] = {{"novel", 37.0369}, {"tales", 43.6983}, {"drama", 46.1874}, {"science", 35.3754}};

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

static void check_text(struct image *image, struct core *core, const struct tokenizer *tokenizer,
                       size_t which, double tolerance, size_t windows_max)
{
    char file[64];
    snprintf(file, sizeof file, "heldout/%s.txt", texts[which].domain);
    size_t bytes, count;
    char *text = golden_text(file, &bytes);
    uint32_t *ids;
    struct error error;
    if (tokenizer_encode(tokenizer, text, bytes, NULL, &ids, &count, &error) != 0)
        log_fatal(1, "%s", error.text);
    json_t *root = golden_json("perplexity.json");
    json_t *domain = json_object_get(json_object_get(root, "domains"), texts[which].domain);
    golden_check((json_int_t)count == json_integer_value(json_object_get(domain, "tokens_in_file")),
                 "%s: %zu tokens in the file", texts[which].domain, count);
    double wanted = windows_max ? texts[which].first_six
                                : json_real_value(json_object_get(domain, "perplexity"));
    size_t windows = count / WINDOW;
    windows = windows_max && windows_max < windows ? windows_max : windows;
    double nll = 0;
    uint64_t start = clock_now_ns();
    for (size_t w = 0; w < windows; w++)
        nll += window_nll(image, core, ids + w * WINDOW);
    double ppl = exp(nll / (double)(windows * (WINDOW - 1)));
    double off = 100 * (ppl / wanted - 1), seconds = (double)(clock_now_ns() - start) / 1e9;
    printf("  %-8s %zu windows: perplexity %.4f, reference %.4f, %+.3f %% (%.0f tokens/s)\n",
           texts[which].domain, windows, ppl, wanted, off, (double)(windows * WINDOW) / seconds);
    golden_check(fabs(off) <= tolerance, "%s: perplexity %.4f is %+.3f %% off", texts[which].domain,
                 ppl, off);
    json_decref(root);
    free(ids);
    free(text);
}

int main(int argc, char **argv)
{
    log_init("golden", LOG_LEVEL_INFO);
    if (argc < 3)
        log_fatal(2, "usage: golden_perplexity FILE TOLERANCE%% [WINDOWS]");
    size_t windows = argc > 3 ? (size_t)atoi(argv[3]) : 0;
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
        check_text(&image, core, tokenizer, i, strtod(argv[2], NULL), windows);
    core_destroy(core);
    tokenizer_close(tokenizer);
    image_close(&image);
    return golden_result("golden perplexity");
}
