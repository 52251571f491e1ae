/* SPDX-License-Identifier: Apache-2.0 */
/* Generates texts for tests, also in a thread, and compares them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "procs/clients/common/stream.h"
#include "tests/harness/internal.h"

struct generation {
    struct session session;
    struct engine_submit submit;
    char *prompt;
    size_t wanted;
    atomic_size_t tokens;
    atomic_bool done;
    struct text text;
    pthread_t thread;
};

const char *test_prompt(unsigned i)
{
    static char long_prompt[2048];
    static const char *const prompts[] = {
        "It was a dark and stormy night, and",
        "The origin of species by means of natural selection, or the preservation of favoured "
        "races in the struggle for life, is a book that was read by everybody who could read, "
        "and by some who could not; and it was whispered of it in the drawing-rooms of London that",
    };
    if (i < 2)
        return prompts[i];
    if (!long_prompt[0])
        for (int k = 0; k < 4; k++)
            strcat(strcat(long_prompt, prompts[1 - k % 2]), k < 3 ? " and then, " : "");
    return long_prompt;
}

static void count_tokens(const struct engine_next *next, void *arg)
{
    struct generation *g = arg;
    atomic_fetch_add(&g->tokens, next->count);
}

static void *generation_thread(void *arg)
{
    struct generation *g = arg;
    struct stream_result result;
    struct error error = {.code = ERR_NONE};
    int status = stream_run(&g->session, &g->submit, count_tokens, g, &result, &error);
    g->text = (struct text){.ids = result.ids,
                            .count = result.count,
                            .text = result.text,
                            .stats = json_incref(result.stats)};
    snprintf(g->text.finish, sizeof g->text.finish, "%s", result.finish);
    if (status != 0)
        g->text.error = error;
    result.ids = NULL;
    result.text = NULL;
    stream_result_free(&result);
    atomic_store(&g->done, true);
    return NULL;
}

struct generation *generation_start(struct engine *e, const char *prompt, size_t n)
{
    return generation_start_seeded(e, prompt, n, 0);
}

struct generation *generation_start_seeded(struct engine *e, const char *prompt, size_t n,
                                           uint64_t seed)
{
    struct engine_submit submit;
    engine_submit_defaults(&submit);
    submit.prompt = prompt;
    submit.prompt_bytes = strlen(prompt);
    submit.max_tokens = (int64_t)n;
    submit.ignore_eos = true;
    submit.sampling.temperature = seed ? 0.8 : 0;
    submit.sampling.seed = seed ? (int64_t)seed : -1;
    return generation_start_submit(e, &submit);
}

struct generation *generation_start_submit(struct engine *e, const struct engine_submit *submit)
{
    struct error error;
    struct generation *g = calloc(1, sizeof *g);
    CHECK(g && (g->prompt = strdup(submit->prompt)), "no memory");
    g->session.log_fd = -1;
    snprintf(g->session.run, sizeof g->session.run, "%s", e->run);
    g->session.engine = engine_client_open(e->run, &error);
    CHECK(g->session.engine, "%s", error.text);
    g->submit = *submit;
    g->submit.prompt = g->prompt;
    g->wanted = (size_t)submit->max_tokens;
    CHECK(pthread_create(&g->thread, NULL, generation_thread, g) == 0, "no thread");
    return g;
}

size_t generation_tokens(const struct generation *g)
{
    return atomic_load(&g->tokens);
}

bool generation_done(const struct generation *g)
{
    return atomic_load(&g->done);
}

void generation_finish(struct generation *g, unsigned ms, struct text *out)
{
    uint64_t deadline = deadline_in(ms);
    struct timespec end = {.tv_sec = (time_t)(deadline / NS_PER_S),
                           .tv_nsec = (long)(deadline % NS_PER_S)};
    int status = pthread_clockjoin_np(g->thread, NULL, CLOCK_MONOTONIC, &end);
    CHECK(status == 0, "a generation of %zu tokens has %zu after %u ms", g->wanted,
          generation_tokens(g), ms);
    *out = g->text;
    rpc_client_close(g->session.engine);
    free(g->prompt);
    free(g);
}

void engine_generate(struct engine *e, const char *prompt, size_t n, struct text *out)
{
    generation_finish(generation_start(e, prompt, n), 300000, out);
    CHECK(out->error.code == ERR_NONE, "generate: %s", out->error.text);
    CHECK(out->count == n, "generate: %zu of %zu tokens, finish \"%s\"", out->count, n,
          out->finish);
}

void text_check_same(const struct text *expected, const struct text *got, const char *what)
{
    CHECK(got->error.code == ERR_NONE, "%s: %s", what, got->error.text);
    size_t i = 0;
    while (i < expected->count && i < got->count && expected->ids[i] == got->ids[i])
        i++;
    CHECK(i == expected->count && i == got->count,
          "%s: the text differs from token %zu (%zu and %zu tokens)", what, i, expected->count,
          got->count);
    CHECK(strcmp(expected->text, got->text) == 0, "%s: same tokens, different bytes", what);
}

void text_free(struct text *t)
{
    free(t->ids);
    free(t->text);
    json_decref(t->stats);
    memset(t, 0, sizeof *t);
}
