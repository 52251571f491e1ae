/* SPDX-License-Identifier: Apache-2.0 */
/* The token with the largest logit after each token of a text (compare_arch.py):
 *   peer_best MODEL WINDOW     token ids from standard input, as decimal numbers; each window of
 *                              that many is computed alone. Prints one number per token. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/log.h"
#include "lib/model/index/model_index.h"
#include "lib/offline/offline.h"

static uint32_t best_of(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

int main(int argc, char **argv)
{
    struct error error;
    log_init("peer_best", LOG_LEVEL_INFO);
    uint32_t window = argc == 3 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    if (window == 0)
        log_fatal(2, "usage: peer_best MODEL WINDOW < IDS");
    struct offline_model *m = offline_open(argv[1], model_index_build, &error);
    if (!m)
        log_fatal(2, "%s", error.text);
    uint32_t vocab = offline_index(m)->hparams.vocab, token;
    const struct offline_runner_config config = {
        .ops = kernel_ops_select("auto"), .threads = 2, .chunk = 1, .context = window};
    struct offline_runner *r = offline_runner_create(m, &config, &error);
    if (!r)
        log_fatal(2, "%s", error.text);
    for (uint32_t at = 0; scanf("%u", &token) == 1; at++) {
        if (token >= vocab)
            log_fatal(2, "token %u: the vocabulary has %u", token, vocab);
        if (core_forward(offline_core(r), offline_sequence(r), &token, at % window, 1, &error) != 0)
            log_fatal(2, "%s", error.text);
        printf("%u\n", best_of(core_output(offline_core(r), 0, 1), vocab));
    }
    offline_runner_destroy(r);
    offline_close(m);
    return fflush(stdout) == 0 ? 0 : 1;
}
