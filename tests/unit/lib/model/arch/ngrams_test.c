/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of rows by n-grams, with the constants of Qwen3.8-Flash-Next, against a pass in Python
 * with integers of any size. */
#include <check.h>

#include "lib/model/arch/ngrams/ngrams.h"

#define END 248044u

static const uint32_t count[16] = {20000003, 20000023, 20000033, 20000047, 20000059, 20000063,
                                   20000069, 20000077, 20000081, 20000093, 20000107, 20000147,
                                   20000153, 20000159, 20000161, 20000171};

static struct model_hparams published(void)
{
    struct model_hparams h = {.ngram_size = 3, .ngram_heads = 8, .ngram_end = END};
    h.ngrams.multiplier[0] = 23703573157769;
    h.ngrams.multiplier[1] = 20109073645365;
    h.ngrams.multiplier[2] = 8052911324071;
    for (uint32_t i = 0, at = 0; i < 16; at += count[i++]) {
        h.ngrams.offset[i] = at;
        h.ngrams.count[i] = count[i];
    }
    return h;
}

/* The end of a text is part of an n-gram, and what is before it is not; twice with a token between,
 * and at the start. */
static const uint32_t text[] = {17, END, 5, 248319, END, END, 9};
/* Of each token the first and last row of the bigram, and those of the trigram. */
static const uint32_t want[ARRAY_LEN(text)][4] = {
    {7961118, 144041389, 176216895, 308564037},  {5560156, 154118427, 161844582, 305423709},
    {15389869, 155458159, 179763390, 315720898}, {14967857, 153624824, 165693203, 300488787},
    {16534799, 152246291, 169431774, 316495680}, {9663979, 151022725, 170054832, 300986548},
    {18043673, 144330141, 176817901, 307951937},
};

START_TEST(numbers_of_a_text)
{
    struct model_hparams h = published();
    ck_assert_uint_eq(model_ngram_rows(&h), 16);
    for (size_t i = 0; i < ARRAY_LEN(text); i++) {
        uint32_t token[3], row[16];
        for (size_t s = 0; s < 3; s++)
            token[s] = s <= i ? text[i - s] : END;
        model_ngram_numbers(&h, token, row);
        const uint32_t got[] = {row[0], row[7], row[8], row[15]};
        for (size_t k = 0; k < 4; k++)
            ck_assert_msg(got[k] == want[i][k], "token %zu, row %zu: %u, not %u", i, k, got[k],
                          want[i][k]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arch_ngrams");
    TCase *t = tcase_create("arch_ngrams");
    tcase_add_test(t, numbers_of_a_text);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
