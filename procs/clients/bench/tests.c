/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of a run: prefill and decode at every depth. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "procs/clients/bench/bench.h"
#include "procs/clients/common/options.h"

int depths_parse(struct bench *b, const char *text, struct error *error)
{
    char copy[256], *rest = copy;
    if (strlen(text) >= sizeof copy)
        return error_set(error, ERR_BAD_INPUT, "-d: '%.40s...' is too long", text);
    snprintf(copy, sizeof copy, "%s", text);
    b->depth_count = 0;
    for (const char *item; (item = strsep(&rest, ",")) != NULL;) {
        if (b->depth_count == BENCH_DEPTHS_MAX)
            return error_set(error, ERR_BAD_INPUT, "-d: more than %u depths", BENCH_DEPTHS_MAX);
        int64_t *depth = &b->depth[b->depth_count];
        if (option_i64("-d", item, 0, BENCH_TOKENS_MAX, depth, error) != 0)
            return -1;
        for (uint32_t i = 0; i < b->depth_count; i++)
            if (b->depth[i] == *depth)
                return error_set(error, ERR_BAD_INPUT, "-d: %" PRId64 " is given twice", *depth);
        b->depth_count++;
    }
    return 0;
}

void tests_make(struct bench *b)
{
    b->test_count = 0;
    for (uint32_t i = 0; i < b->depth_count; i++)
        for (int kind = 0; kind < TEST__COUNT; kind++)
            if ((kind == TEST_PREFILL ? b->prompt : b->tokens) > 0)
                b->test[b->test_count++] =
                    (struct test){.kind = (enum test_kind)kind, .depth = b->depth[i]};
}

int64_t tests_deepest(const struct bench *b)
{
    int64_t deepest = 0;
    for (uint32_t i = 0; i < b->depth_count; i++)
        deepest = b->depth[i] > deepest ? b->depth[i] : deepest;
    return deepest;
}

void test_name(const struct bench *b, const struct test *test, char name[TEST_NAME_BYTES])
{
    bool prefill = test->kind == TEST_PREFILL;
    int n = snprintf(name, TEST_NAME_BYTES, "%s%" PRId64, prefill ? "pp" : "tg",
                     prefill ? b->prompt : b->tokens);
    if (test->depth > 0)
        snprintf(name + n, TEST_NAME_BYTES - (size_t)n, " @ d%" PRId64, test->depth);
}
