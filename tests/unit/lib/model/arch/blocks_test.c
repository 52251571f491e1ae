/* SPDX-License-Identifier: Apache-2.0 */
/* Models whose indexer chooses blocks of positions: which layers have one, what is wrong, and files
 * that lack its tensors. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/index/model_index.h"
#include "tests/unit/lib/model/gguf_make.h"

#define INDEXER "minimax-m3.attention.indexer."

static struct model_index *read_model(struct make *m)
{
    struct error error = {0};
    struct model_index *index = make_index(m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_msg(model_index_check(index, index->bytes, &error) == 0, "%s", error.text);
    ck_assert_msg(index->unread_count == 0, "%s", index->unread);
    return index;
}

/* Those with experts, one query of each key head; the first ones attend to all positions. */
START_TEST(layers_with_blocks)
{
    static const struct {
        const char *key;
        uint32_t value;
        const char *why;
    } wrong[] = {{"head_count", 2, "indexer.head_count is 2; each of 1 key heads has one"},
                 {"local_blocks", 0, "indexer.local_blocks"},
                 {"local_blocks", 3, "local_blocks is 3, of 2 blocks"},
                 {"key_length", 1, "indexer.key_length is 1"},
                 {"key_length", 4, "blk.1.indexer.q_proj.weight is 4 x 8"}};
    struct make m;
    struct error error;
    char key[80];
    make_arch(&m, "minimax-m3", 3, false);
    struct model_index *index = read_model(&m);
    ck_assert(model_chooses(&index->hparams, 33) && !model_chooses(&index->hparams, 32));
    ck_assert_uint_eq(model_index_lists(&index->hparams), 1); /* of one key head */
    for (uint32_t layer = 0; layer < 3; layer++) {
        ck_assert_uint_eq(index->layer[layer].index, layer > 0 ? INDEX_OWN : INDEX_NONE);
        ck_assert_uint_eq(model_kv_bytes(&index->hparams, layer, KV_SIDE_INDEX, KV_TYPE_Q4_0, 64),
                          layer > 0 ? 64 * 2 * 8 : 0);
        ck_assert((model_entry_dense(index, layer, DENSE_INDEX_Q_NORM) != ENTRY_NONE) ==
                  (layer > 0));
    }
    ck_assert_uint_eq(index->hparams.index_local, 1);
    free(index);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        make_arch(&m, "minimax-m3", 2, false);
        snprintf(key, sizeof key, INDEXER "%s", wrong[i].key);
        make_u32(&m, key, wrong[i].value);
        ck_assert_ptr_null(make_index(&m, &error));
        ck_assert_msg(strstr(error.text, wrong[i].why), "%s", error.text);
    }
}
END_TEST

static void drop_tensors(struct make *m)
{
    for (size_t i = m->tensor_count; i-- > 0;)
        if (strstr(m->tensors[i].name, ".indexer."))
            make_drop_tensor(m, m->tensors[i].name);
}

/* Up to how many tokens a file of a context of 128 is computed, with its tensors or without. */
static void limited(uint32_t blocks, uint32_t size, bool tensors, uint32_t tokens)
{
    struct make m;
    struct error error = {0};
    char text[MODEL_LIMIT_BYTES];
    make_arch(&m, "minimax-m3", 2, false);
    make_u32(&m, INDEXER "top_k", blocks);
    make_u32(&m, INDEXER "block_size", size);
    if (!tensors)
        drop_tensors(&m);
    struct model_index *index = read_model(&m);
    ck_assert_uint_eq(model_context(&index->hparams), tokens);
    ck_assert((model_limit_text(index, text)[0] == 0) == (tokens == 128));
    ck_assert_int_eq(model_check_tokens(index, tokens + 1, "--ctx-size", &error),
                     tokens == 128 ? 0 : -1);
    free(index);
}

START_TEST(files_without_tensors)
{
    struct make m;
    limited(2, 16, true, 128);
    limited(2, 16, false, 32);
    limited(2, 63, false, 126);
    limited(1u << 20, 1u << 20, false, 128); /* more than 32 bits */
    limited(1u << 20, 1u << 20, true, 128);
    make_arch(&m, "minimax-m3", 2, false); /* as the first converter wrote it */
    drop_tensors(&m);
    make_drop_key(&m, INDEXER "block_size");
    make_drop_key(&m, INDEXER "top_k");
    make_u32(&m, "minimax-m3.context_length", 4096);
    struct model_index *index = read_model(&m);
    ck_assert_uint_eq(model_context(&index->hparams), 2048);
    free(index);
}
END_TEST

/* Tensors that are there and not computed, as the file lacks their sizes: they take no memory. */
START_TEST(tensors_are_left_alone)
{
    struct make m;
    make_arch(&m, "minimax-m3", 2, false);
    drop_tensors(&m);
    struct model_index *without = read_model(&m);
    make_arch(&m, "minimax-m3", 2, false);
    make_drop_key(&m, INDEXER "head_count");
    struct model_index *with = read_model(&m);
    ck_assert_uint_eq(with->dense_count, without->dense_count);
    ck_assert_uint_gt(with->tensor_count, without->tensor_count);
    ck_assert_uint_eq(with->entry_count, without->entry_count);
    ck_assert_uint_eq(model_context(&with->hparams), 32);
    free(with);
    free(without);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("blocks");
    TCase *tcase = tcase_create("chosen blocks");
    tcase_add_test(tcase, layers_with_blocks);
    tcase_add_test(tcase, files_without_tensors);
    tcase_add_test(tcase, tensors_are_left_alone);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
