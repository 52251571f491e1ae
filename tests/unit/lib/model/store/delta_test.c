/* SPDX-License-Identifier: Apache-2.0 */
/* A delta: native experts in the model file. */
#include <check.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/model/gguf/split.h"
#include "lib/model/store/base.h"
#include "tests/unit/lib/model/store/store_fixture.h"

static void hash_text(char text[2 * STORE_HASH_BYTES + 1])
{
    uint8_t hash[STORE_HASH_BYTES];
    struct error error;
    struct gguf_parts *p = calloc(1, sizeof *p);
    int fd = open(gguf, O_RDONLY);
    gguf_parts_open(p, fd, gguf);
    ck_assert_int_eq(store_base_hash(p, 1, hash, &error), 0);
    gguf_parts_close(p);
    close(fd);
    free(p);
    for (size_t i = 0; i < sizeof hash; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
}

/* Adds "base" to the manifest. */
static void set_base(const char *path, const char *hash)
{
    char name[128], add[400];
    snprintf(name, sizeof name, "%s/manifest.json", store);
    struct open_file f = map_file(name);
    char *text = strndup((const char *)f.data, f.bytes);
    char *at = strchr(text, '{') + 1;
    snprintf(add, sizeof add, "\"base\": {\"path\": \"%s\", \"hash\": \"%s\"},", path, hash);
    FILE *out = fopen(name, "w");
    ck_assert_int_gt(fprintf(out, "{%s%s", add, at), 0);
    ck_assert_int_eq(fclose(out), 0);
    free(text);
}

static void make_delta(void)
{
    char hash[2 * STORE_HASH_BYTES + 1];
    make_it(gguf, (struct store_make){.stripes = 1, .precision_mask = 8, .spread = true});
    hash_text(hash);
    set_base(gguf, hash);
}

static struct model_index *index_of_model(void)
{
    struct model_index *g = NULL;
    struct error error;
    int fd = open(gguf, O_RDONLY);
    ck_assert_int_eq(model_index_build(fd, gguf, &g, &error), 0);
    close(fd);
    return g;
}

/* Loader 0 reads the stripe, loader 1 the model file. */
static void check_entry(const struct model_index *m, const struct model_entry *native,
                        const struct model_entry *low, const struct model_entry *in_model)
{
    struct model_extent run[ENTRY_EXTENTS_MAX];
    ck_assert(!native->in_store && native->extents == EXPERT__COUNT);
    ck_assert_mem_eq(native->matrix, in_model->matrix, sizeof native->matrix);
    ck_assert_uint_eq(native->slot_bytes, in_model->slot_bytes);
    ck_assert_uint_eq(model_entry_shard(native, 0, 2, run), 0);
    ck_assert_uint_eq(model_entry_shard(native, 1, 2, run), EXPERT__COUNT);
    for (int x = 0; x < EXPERT__COUNT; x++)
        ck_assert_uint_eq(run[x].file_offset, in_model->extent[x].file_offset);
    ck_assert_uint_eq(model_entry_shard(low, 0, 2, run), 1);
    ck_assert_uint_eq(run[0].read_bytes, low->slot_bytes);
    ck_assert_uint_eq(model_entry_shard(low, 1, 2, run), 0);
    ck_assert(low->checksum_first < m->checksum_count);
}

START_TEST(each_expert_is_in_one_place_per_precision)
{
    struct error error;
    make_delta();
    struct model_index *m = open_store(store, &error), *g = index_of_model();
    ck_assert_msg(m != NULL, "%s", error.text);
    ck_assert_msg(model_index_check(m, m->bytes, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(m->precision_mask, 1u << PRECISION_NATIVE | 1u << PRECISION_INT2);
    ck_assert(m->stripe_count == 1 && m->part_count == 1);
    ck_assert_str_eq(model_loader_file(m, 1)->path, gguf);
    ck_assert_uint_eq(m->expert_bytes, g->expert_bytes);
    const struct model_entry *entries = model_index_entries(m);
    for (uint32_t i = 0; i < m->hparams.layers * m->hparams.experts; i++)
        check_entry(m, &entries[m->precision_first[PRECISION_NATIVE] + i],
                    &entries[m->precision_first[PRECISION_INT2] + i],
                    &model_index_entries(g)[g->dense_count + i]);
    free(m);
    free(g);
}
END_TEST

/* Whether the byte is one of a position in the file: another page of it has other weights, and no
 * error. */
static bool moves(size_t at)
{
    size_t first = offsetof(struct model_entry, extent), each = sizeof(struct model_extent);
    size_t in = at < first ? each : (at - first) % each;
    return at < first + ENTRY_EXTENTS_MAX * each &&
           in < offsetof(struct model_extent, file_offset) + sizeof(uint64_t);
}

/* Every field of an entry in the model file is untrusted. */
START_TEST(a_wrong_entry_is_rejected)
{
    struct error error;
    make_delta();
    struct model_index *m = open_store(store, &error);
    ck_assert_msg(m != NULL, "%s", error.text);
    struct model_entry *entries = (struct model_entry *)(uintptr_t)model_index_entries(m);
    unsigned char *bytes = (unsigned char *)&entries[m->precision_first[PRECISION_NATIVE] + 1];
    for (size_t i = 0; i < sizeof(struct model_entry); i++) {
        bytes[i] ^= 0x40;
        ck_assert_msg(moves(i) || model_index_check(m, m->bytes, &error) != 0, "byte %zu", i);
        bytes[i] ^= 0x40;
    }
    struct model_extent *x = &entries[m->precision_first[PRECISION_NATIVE] + 1].extent[1];
    x->file_offset += (uint64_t)1 << 40; /* after the end */
    ck_assert_int_ne(model_index_check(m, m->bytes, &error), 0);
    x->file_offset -= (uint64_t)1 << 40;
    ck_assert_int_eq(model_index_check(m, m->bytes, &error), 0);
    m->part_count = 0;
    ck_assert_int_ne(model_index_check(m, m->bytes, &error), 0);
    m->part_count = 2;
    ck_assert_int_ne(model_index_check(m, m->bytes, &error), 0);
    m->part_count = 1;
    char *path = (char *)(uintptr_t)model_loader_file(m, 1)->path;
    ck_assert_int_eq(path[0], '/');
    path[0] = '.'; /* relative to what? */
    ck_assert_int_ne(model_index_check(m, m->bytes, &error), 0);
    path[0] = '/';
    ck_assert_int_eq(model_index_check(m, m->bytes, &error), 0);
    free(m);
}
END_TEST

static void rejected(struct store_make how, const char *path, const char *hash, const char *why)
{
    struct error error;
    make_it(gguf, how);
    set_base(path, hash);
    struct model_index *m = open_store(store, &error);
    ck_assert_msg(!m && strstr(error.text, why), "'%s', '%s' expected", error.text, why);
}

START_TEST(another_model_is_rejected)
{
    static const struct store_make right = {.stripes = 1, .precision_mask = 8, .spread = true};
    char hash[2 * STORE_HASH_BYTES + 1], other[sizeof hash];
    hash_text(hash);
    strcpy(other, hash);
    other[3] = other[3] == '0' ? '1' : '0';
    rejected(right, gguf, other, "not the model that this delta was made of");
    rejected(right, "../none.gguf", hash, "cannot be opened; the delta needs it");
    rejected(right, store, hash, "");
    rejected(right, "", hash, "a path of 0 bytes");
    rejected(right, gguf, "00", "hex digits");
    rejected((struct store_make){.stripes = 2, .precision_mask = 8, .spread = true}, gguf, hash,
             "several stripes");
    rejected((struct store_make){.stripes = 1, .precision_mask = 8}, gguf, hash, "spread");
    rejected((struct store_make){.stripes = 1, .precision_mask = 9, .spread = true}, gguf, hash,
             "native experts");
}
END_TEST

TCase *deltas(void)
{
    TCase *c = tcase_create("delta");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, each_expert_is_in_one_place_per_precision);
    tcase_add_test(c, a_wrong_entry_is_rejected);
    tcase_add_test(c, another_model_is_rejected);
    return c;
}
