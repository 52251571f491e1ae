/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of prompts with a gap are those that the file names, or known names in the vocabulary;
 * all of them, or none. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/model/index/model_index.h"
#include "tests/unit/lib/model/gguf_make.h"

static struct model_index *built(const struct make *m)
{
    struct model_index *index = NULL;
    struct error error = {0};
    struct bytes file = make_write((struct make *)(uintptr_t)m);
    int fd = memfd_create("gguf", 0);
    ck_assert_int_eq(write(fd, file.data, file.size), (ssize_t)file.size);
    ck_assert_msg(model_index_build(fd, "FILE", &index, &error) == 0, "%s", error.text);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    close(fd);
    bytes_free(&file);
    return index;
}

static void check(struct make *m, const char *before, const char *after, const char *fill)
{
    struct model_index *index = built(m);
    ck_assert_str_eq(index->chat.gap[0], before);
    ck_assert_str_eq(index->chat.gap[1], after);
    ck_assert_str_eq(index->chat.gap[2], fill);
    free(index);
    make_free(m);
}

static void keys(struct make *m, uint32_t before, uint32_t after, uint32_t fill)
{
    make_tiny(m, 1, false);
    make_u32(m, "tokenizer.ggml.fim_pre_token_id", before);
    make_u32(m, "tokenizer.ggml.fim_suf_token_id", after);
    make_u32(m, "tokenizer.ggml.fim_mid_token_id", fill);
}

START_TEST(named_by_the_file)
{
    struct make m;
    make_tiny(&m, 1, false);
    check(&m, "", "", "");
    keys(&m, TINY_EOS, TINY_CONTROL, TINY_EOS);
    check(&m, "<|end|>", "<|end|>>", "<|end|>");
    keys(&m, TINY_EOS, TINY_HELL, TINY_EOS); /* no control token */
    check(&m, "", "", "");
    keys(&m, TINY_EOS, TINY_VOCAB, TINY_EOS);
    check(&m, "", "", "");
}
END_TEST

START_TEST(known_names)
{
    static const char *const names[] = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"};
    for (unsigned missing = 0; missing < 4; missing++) {
        struct make m;
        const char *texts[TINY_VOCAB];
        int32_t types[TINY_VOCAB];
        make_tiny(&m, 1, false);
        tiny_tokens(texts, types);
        for (unsigned i = 0; i < 3; i++) {
            texts[TINY_EOS + i] = i + 1 == missing ? "<|other|>" : names[i];
            types[TINY_EOS + i] = 3;
        }
        make_texts(&m, "tokenizer.ggml.tokens", texts, TINY_VOCAB);
        make_i32s(&m, "tokenizer.ggml.token_type", types, TINY_VOCAB);
        check(&m, missing ? "" : names[0], missing ? "" : names[1], missing ? "" : names[2]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gap");
    TCase *cases = tcase_create("gap");
    tcase_add_test(cases, named_by_the_file);
    tcase_add_test(cases, known_names);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
