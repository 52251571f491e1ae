/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what is derived from the shape of a model of what a token reads of those before it:
 * positions, bytes and products of a layer. */
#include <check.h>
#include <stdlib.h>

#include "lib/model/arch/arch.h"

#define LATENT      576 /* of GLM-5: elements of a key, of which 512 are the value */
#define VALUE       512
#define HEADS       64
#define INDEX_HEADS 32
#define INDEX_SIZE  128
#define CHOSEN      2048
#define CONTEXT     32768u

/* Layers 0 and 2 have an indexer, layer 1 takes the choice of layer 0. */
static struct model_hparams glm(void)
{
    return (struct model_hparams){.layers = 3,
                                  .heads = HEADS,
                                  .kv_heads = 1,
                                  .head_size = LATENT,
                                  .value_size = VALUE,
                                  .kv_rank = VALUE,
                                  .index_top_k = CHOSEN,
                                  .index_heads = INDEX_HEADS,
                                  .index_size = INDEX_SIZE,
                                  .layer_flags = {LAYER_INDEXED, 0, LAYER_INDEXED}};
}

static uint64_t bytes_of(const struct model_hparams *h, uint32_t layer, uint64_t positions)
{
    uint64_t bytes = 0;
    for (uint32_t side = 0; side < KV_SIDE__COUNT; side++)
        bytes += model_read_bytes(h, layer, side, KV_TYPE_F16, positions);
    return bytes;
}

/* Scores of all positions, attention over the chosen ones. */
START_TEST(chosen_positions)
{
    const struct model_hparams h = glm();
    for (uint32_t layer = 0; layer < h.layers; layer++) {
        const uint64_t keys = layer == 1 ? 0 : (uint64_t)CONTEXT * INDEX_SIZE * 2;
        const uint64_t scores = layer == 1 ? 0 : (uint64_t)CONTEXT * INDEX_HEADS * INDEX_SIZE;
        ck_assert_uint_eq(model_attended(&h, layer, CONTEXT), CHOSEN);
        ck_assert_uint_eq(model_read_bytes(&h, layer, KV_SIDE_INDEX, KV_TYPE_F16, CONTEXT), keys);
        ck_assert_uint_eq(bytes_of(&h, layer, CONTEXT), keys + (uint64_t)CHOSEN * LATENT * 2);
        ck_assert_uint_eq(model_read_products(&h, layer, CONTEXT),
                          scores + (uint64_t)CHOSEN * HEADS * (LATENT + VALUE));
        /* as many as are chosen: no scores, and attention over all of them */
        ck_assert_uint_eq(bytes_of(&h, layer, CHOSEN), (uint64_t)CHOSEN * LATENT * 2);
        ck_assert_uint_eq(model_read_products(&h, layer, 100), 100ul * HEADS * (LATENT + VALUE));
    }
}
END_TEST

/* Without an indexer all positions, in a window its own. */
START_TEST(other_layers)
{
    struct model_hparams h = glm();
    h.index_heads = 0;
    ck_assert_uint_eq(bytes_of(&h, 0, CONTEXT), (uint64_t)CONTEXT * LATENT * 2);
    h.kv_rank = 0;
    h.window = 128;
    h.layer_kind[1] = LAYER_WINDOW;
    h.layer_kind[2] = LAYER_RECURRENT;
    ck_assert_uint_eq(bytes_of(&h, 0, 100), 100ul * (LATENT + VALUE) * 2);
    ck_assert_uint_eq(bytes_of(&h, 1, CONTEXT), 128ul * (LATENT + VALUE) * 2);
    ck_assert_uint_eq(model_attended(&h, 1, 100), 100);
    ck_assert_uint_eq(bytes_of(&h, 2, CONTEXT) + model_read_products(&h, 2, CONTEXT), 0);
}
END_TEST

/* Blocks, and the rest of the own one. */
START_TEST(chosen_blocks)
{
    struct model_hparams h = glm();
    h.index_top_k = 16;
    h.index_block = 128;
    ck_assert_uint_eq(model_attended(&h, 0, CONTEXT), 2048);
    h.index_top_k = 512;
    h.index_block = 4;
    h.index_tail = 3;
    ck_assert_uint_eq(model_attended(&h, 0, CONTEXT), 2051);
}
END_TEST

/* A window of larger latents, in F16 at most; it takes no choice of another layer. */
START_TEST(windows_of_latents)
{
    struct model_hparams h = glm();
    h.layer_kind[1] = LAYER_WINDOW;
    h.window = 512;
    h.kv_rank_window = h.value_size_window = 2 * VALUE;
    h.head_size_window = 2 * VALUE + 64;
    h.heads_window = HEADS / 2;
    const uint64_t row = (2 * VALUE + 64) * 2;
    ck_assert_uint_eq(model_index_of(&h, 1), INDEX_NONE);
    ck_assert_uint_eq(model_latent_of(&h, 1).rank, 2 * VALUE);
    ck_assert_uint_eq(model_latent_of(&h, 1).heads, HEADS / 2);
    ck_assert_uint_eq(model_latent_of(&h, 0).rank, VALUE);
    ck_assert_uint_eq(bytes_of(&h, 1, CONTEXT), 512 * row);
    ck_assert_uint_eq(model_kv_bytes(&h, 1, KV_SIDE_KEYS, KV_TYPE_Q8_0, KV_TILE), KV_TILE * row);
    ck_assert_uint_eq(model_kv_bytes(&h, 1, KV_SIDE_KEYS, KV_TYPE_F32, KV_TILE), KV_TILE * 2 * row);
    ck_assert_uint_lt(model_kv_bytes(&h, 0, KV_SIDE_KEYS, KV_TYPE_Q8_0, KV_TILE),
                      (uint64_t)KV_TILE * LATENT * 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arch.reads");
    TCase *t = tcase_create("reads");
    tcase_add_test(t, chosen_positions);
    tcase_add_test(t, other_layers);
    tcase_add_test(t, chosen_blocks);
    tcase_add_test(t, windows_of_latents);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
