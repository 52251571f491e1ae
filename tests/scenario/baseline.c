/* SPDX-License-Identifier: Apache-2.0 */
/* Generates reference texts once, and compares texts with them. */
#include "tests/scenario/baseline.h"

#include <stdio.h>

#define DISTINCT_MIN 64

static struct text texts[TEST_PROMPTS];
static bool made;

/* A text that repeats a few tokens may hide an error. The demo model's do, after a sentence. */
static void check_varies(const struct text *t, unsigned prompt)
{
    size_t distinct = 0;
    for (size_t i = 0; i < t->count; i++) {
        size_t first = 0;
        while (t->ids[first] != t->ids[i])
            first++;
        distinct += first == i;
    }
    test_note("prompt %u: %zu different tokens of %zu", prompt, distinct, t->count);
    CHECK(test_demo() || distinct >= DISTINCT_MIN, "too few different tokens");
}

const struct text *baseline(unsigned i)
{
    if (!made) {
        struct engine *e = engine_new();
        engine_start(e, (const char *const[]){"--resident-experts=100", "--threads=1", NULL});
        for (unsigned p = 0; p < TEST_PROMPTS; p++)
            engine_generate(e, test_prompt(p), BASELINE_TOKENS, &texts[p]);
        engine_stop(e);
        for (unsigned p = 0; p < TEST_PROMPTS; p++)
            check_varies(&texts[p], p);
        made = true;
    }
    return &texts[i];
}

void baseline_compare(struct engine *e, unsigned i, const char *what)
{
    const struct text *expected = baseline(i);
    struct text got;
    char name[128];
    engine_generate(e, test_prompt(i), BASELINE_TOKENS, &got);
    snprintf(name, sizeof name, "%s, prompt %u", what, i);
    text_check_same(expected, &got, name);
    text_free(&got);
}
