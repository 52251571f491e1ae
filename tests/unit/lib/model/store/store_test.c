/* SPDX-License-Identifier: Apache-2.0 */
/* Valid stores read back as written. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"
#include "tests/harness/sample.h"
#include "tests/unit/lib/model/store/store_fixture.h"

#define DEMO SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf"

/* Assembles an entry's slot from its shards, as loaders do, and checks the checksum of each
 * shard. */
static void read_entry(const struct model_index *m, const struct model_entry *e,
                       const struct open_file *stripes, uint8_t *slot)
{
    uint64_t pages = 0;
    for (uint32_t s = 0; s < m->stripe_count; s++) {
        struct model_extent run[ENTRY_EXTENTS_MAX];
        if (model_entry_shard(e, s, m->stripe_count, run) == 0)
            continue;
        ck_assert_uint_le(run[0].file_offset + run[0].read_bytes, stripes[s].bytes);
        const uint8_t *from = stripes[s].data + run[0].file_offset;
        memcpy(slot + run[0].slot_offset, from, run[0].read_bytes);
        ck_assert_uint_eq(XXH3_64bits(from, run[0].read_bytes),
                          model_index_checksums(m)[e->checksum_first + s]);
        pages += run[0].read_bytes / PAGE_BYTES;
    }
    ck_assert_uint_eq(pages * PAGE_BYTES, e->slot_bytes);
}

/* Every expert of the store has the same matrices as in the GGUF file. */
static void compare(const struct model_index *m, const char *from)
{
    struct model_index *g = NULL;
    struct error error;
    struct open_file stripes[MODEL_STRIPES_MAX], file = map_file(from);
    int fd = open(from, O_RDONLY);
    ck_assert_int_eq(model_index_build(fd, from, &g, &error), 0);
    close(fd);
    for (uint32_t s = 0; s < m->stripe_count; s++)
        stripes[s] = map_file(model_index_stripes(m)[s].path);
    uint8_t *slot = malloc(m->expert_slot_bytes_max);
    for (uint32_t i = 0; i < g->hparams.layers * g->hparams.experts; i++) {
        uint32_t layer = i / g->hparams.experts, expert = i % g->hparams.experts;
        const struct model_entry *a = &model_index_entries(g)[g->dense_count + i];
        const struct model_entry *b = &model_index_entries(m)[model_entry_expert(m, layer, expert)];
        ck_assert_uint_eq(b->layer, layer);
        ck_assert_uint_eq(b->expert, expert);
        read_entry(m, b, stripes, slot);
        for (int k = 0; k < EXPERT__COUNT; k++) {
            const struct model_extent *x = &a->extent[k];
            ck_assert_uint_eq(b->matrix[k].type, a->matrix[k].type);
            ck_assert_uint_eq(b->matrix[k].row_bytes, a->matrix[k].row_bytes);
            ck_assert_mem_eq(slot + b->matrix[k].slot_offset,
                             file.data + x->file_offset + x->head_bytes, x->payload_bytes);
        }
    }
    ck_assert_uint_eq(m->expert_bytes, g->expert_bytes);
    ck_assert_uint_eq(m->dense_count, g->dense_count);
    ck_assert_mem_eq(m->dense_entry, g->dense_entry, sizeof m->dense_entry);
    for (uint32_t s = 0; s < m->stripe_count; s++)
        munmap((void *)(uintptr_t)stripes[s].data, stripes[s].bytes);
    munmap((void *)(uintptr_t)file.data, file.bytes);
    free(slot);
    free(g);
}

static const struct store_make shapes[] = {
    {.stripes = 1, .precision_mask = 1},
    {.stripes = 2, .precision_mask = 1},
    {.stripes = 3, .precision_mask = 3},
    {.stripes = 16, .precision_mask = 15},
    {.stripes = 2, .precision_mask = 5, .scattered = true},
    {.stripes = 1, .precision_mask = 8},
    {.stripes = 5, .precision_mask = 14, .scattered = true},
    {.stripes = 2, .precision_mask = 1, .spread = true},
    {.stripes = 3, .precision_mask = 1, .mirrored = true},
    {.stripes = 5, .precision_mask = 14, .scattered = true, .spread = true},
};

START_TEST(contents)
{
    const struct store_make *how = &shapes[_i];
    unsigned met = (unsigned)_i;
    const int models = test_sample(EVERY_store_shapes, &met) ? 2 : 1;
    for (int demo = 0; demo < models; demo++) {
        struct error error;
        make_it(demo ? DEMO : gguf, *how);
        struct model_index *m = open_store(store, &error);
        ck_assert_msg(m != NULL, "%s", error.text);
        ck_assert_int_eq(model_index_check(m, m->bytes, &error), 0);
        compare(m, demo ? DEMO : gguf);
        uint32_t grid = m->hparams.layers * m->hparams.experts, there = 0;
        ck_assert_uint_eq(m->stripe_count, how->stripes);
        ck_assert_uint_eq(m->precision_mask, how->precision_mask);
        for (int t = 0; t < PRECISION__COUNT; t++) /* as store_make writes it */
            ck_assert_uint_eq(m->precision_method[t], QUANT_COPY);
        m->precision_method[PRECISION_INT2] = QUANT_METHOD__COUNT;
        ck_assert_int_eq(model_index_check(m, m->bytes, &error), -1);
        m->precision_method[PRECISION_INT2] = QUANT_COPY;
        ck_assert_uint_eq(m->expert_entry_count, grid * m->precision_count);
        for (uint32_t i = 0; i < grid; i++) {
            uint32_t layer = i / m->hparams.experts, x = i % m->hparams.experts, ordinal = 0;
            for (int t = 0; t < PRECISION__COUNT; t++) {
                bool stored = how->precision_mask >> t & 1;
                bool here = stored && (!how->scattered || i % m->precision_count == ordinal);
                uint32_t entry = model_entry_expert_precision(m, layer, x, (enum precision)t);
                ck_assert_uint_eq(entry, here ? m->dense_count + ordinal * grid + i : ENTRY_NONE);
                ordinal += stored;
                there += here;
            }
        }
        ck_assert_uint_eq(m->absent_count, m->expert_entry_count - there);
        free(m);
    }
}
END_TEST

/* In the layout "spread" an expert is one shard on one stripe; experts are assigned in turn. */
START_TEST(spread_by_expert)
{
    struct error error;
    make_it(gguf, (struct store_make){.stripes = 3, .precision_mask = 1, .spread = true});
    struct model_index *m = open_store(store, &error);
    ck_assert_msg(m != NULL, "%s", error.text);
    for (uint32_t i = m->dense_count; i < m->entry_count; i++) {
        const struct model_entry *e = &model_index_entries(m)[i];
        struct model_extent run[ENTRY_EXTENTS_MAX];
        for (uint32_t s = 0; s < 3; s++) {
            bool here = s == (e->layer + (uint32_t)e->expert) % 3;
            ck_assert_uint_eq(model_entry_shard(e, s, 3, run), here);
            ck_assert(!here || run[0].read_bytes == e->slot_bytes);
        }
    }
    struct model_entry *last =
        (struct model_entry *)(uintptr_t)&model_index_entries(m)[m->entry_count - 1];
    last->only_stripe = last->only_stripe % 3 + 1;
    ck_assert_int_eq(model_index_check(m, m->bytes, &error), -1);
    free(m);
}
END_TEST

/* A mirror is used when its stripe is absent. When both are absent, the error names the stripe. */
START_TEST(mirrors)
{
    struct error error;
    char stripe[96], mirror[96];
    make_it(gguf, (struct store_make){.stripes = 2, .precision_mask = 1, .mirrored = true});
    snprintf(stripe, sizeof stripe, "%s/experts.1.bin", store);
    snprintf(mirror, sizeof mirror, "%s/experts.1.bin.mirror", store);
    for (int there = 1; there >= 0; there--) {
        struct model_index *m = open_store(store, &error);
        ck_assert_msg(m != NULL, "%s", error.text);
        ck_assert_str_eq(model_index_stripes(m)[1].path, there ? stripe : mirror);
        ck_assert_str_eq(model_index_stripes(m)[1].mirror, there ? mirror : stripe);
        compare(m, gguf);
        free(m);
        unlink(stripe);
    }
    unlink(mirror);
    ck_assert_ptr_null(open_store(store, &error));
    ck_assert_msg(strstr(error.text, "experts.1.bin: cannot be opened"), "%s", error.text);
}
END_TEST

/* Stripes in other directories, by absolute path and by symbolic link. */
START_TEST(stripes_elsewhere)
{
    struct error error;
    char elsewhere[64], link_path[96], at[96];
    snprintf(elsewhere, sizeof elsewhere, "%s/other", top);
    ck_assert_int_eq(mkdir(elsewhere, 0700), 0);
    make_it(gguf, (struct store_make){.stripes = 3, .precision_mask = 1, .elsewhere = elsewhere});
    struct model_index *m = open_store(store, &error);
    ck_assert_msg(m != NULL, "%s", error.text);
    snprintf(at, sizeof at, "%s/experts.1.bin", elsewhere);
    ck_assert_str_eq(model_index_stripes(m)[1].path, at);
    snprintf(at, sizeof at, "%s/experts.2.bin", store);
    ck_assert_str_eq(model_index_stripes(m)[2].path, at);
    compare(m, gguf);
    free(m);
    snprintf(link_path, sizeof link_path, "%s/link", elsewhere);
    ck_assert_int_eq(rename(at, link_path), 0);
    ck_assert_int_eq(symlink(link_path, at), 0);
    m = open_store(store, &error);
    ck_assert_msg(m != NULL, "%s", error.text);
    compare(m, gguf);
    free(m);
    remove_dir(elsewhere);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store");
    TCase *c = tcase_create("right");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, contents, 0, ARRAY_LEN(shapes));
    tcase_add_test(c, stripes_elsewhere);
    tcase_add_test(c, spread_by_expert);
    tcase_add_test(c, mirrors);
    suite_add_tcase(s, c);
    suite_add_tcase(s, invalid_stores());
    suite_add_tcase(s, deltas());
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
