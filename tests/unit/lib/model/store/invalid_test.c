/* SPDX-License-Identifier: Apache-2.0 */
/* A store with one error is rejected with one line that names the location. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/harness/sample.h"
#include "tests/unit/lib/model/store/store_fixture.h"

static char *slurp(const char *name, size_t *bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", store, name);
    struct open_file f = map_file(path);
    char *copy = calloc(1, f.bytes + 1);
    memcpy(copy, f.data, f.bytes);
    munmap((void *)(uintptr_t)f.data, f.bytes);
    *bytes = f.bytes;
    return copy;
}

static void spill(const char *name, const void *data, size_t bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", store, name);
    FILE *out = fopen(path, "w");
    ck_assert_uint_eq(fwrite(data, 1, bytes, out), bytes);
    fclose(out);
}

static void expect_rejected(enum error_code code, const char *file, const char *what)
{
    struct error error;
    struct model_index *m = open_store(store, &error);
    ck_assert_msg(m == NULL, "accepted, '%s' expected", what);
    ck_assert_msg(strstr(error.text, what), "'%s', '%s' expected", error.text, what);
    ck_assert_msg(strstr(error.text, file), "'%s' does not name %s", error.text, file);
    ck_assert_int_eq(error.code, code);
}

/* Replaces the first `find` in the manifest; every field is invalid once. */
static const struct {
    const char *find, *replace, *why;
} edits[] = {
    {"{\"format\"", "[\"format\"", "invalid JSON"},
    {"sluice-store", "sluice-stool", "format: not the manifest of a store"},
    {"\"version\": 1", "\"version\": 2", "version: 2; only version 1"},
    {"\"version\": 1", "\"version\": \"1\"", "version: 0; only version 1"},
    {"\"version\": 1,", "", "version: 0; only version 1"},
    {"\"id\": \"", "\"id\": \"0", "id: not 32 hex digits"},
    {"abab", "ABAB", "id: not 32 hex digits"},
    {"\"model_hash\": \"", "\"model_hash\": \"x", "model_hash: not 32 hex digits"},
    {"\"source_hash\": \"0", "\"source_hash\": \"", "source_hash: not 32 hex digits"},
    {"\"source_hash\"", "\"source\"", "manifest: Object item not found: source_hash"},
    {"\"arch\": \"qwen3moe\"", "\"arch\": 3", "manifest: Expected string, got integer"},
    {"qwen3moe", "qwen3moe-with-a-name-of-too-many-letters", "arch: longer than 31"},
    {"qwen3moe", "qwen4moe", "architecture qwen3moe, but qwen4moe in the manifest"},
    {"\"layers\": 2", "\"layers\": 0", "layers is 0: not between 1 and 512"},
    {"\"layers\": 2", "\"layers\": 1e9", "Expected integer, got real"},
    {"\"layers\": 2", "\"layers\": 100000000000", "layers is 100000000000"},
    {"\"layers\": 2", "\"layers\": -2", "layers is -2"},
    {"\"layers\": 2", "\"layers\": 1", "2 groups of 1 layers"},
    {"\"layers\": 2", "\"layers\": 3", "layers from 2 on are in no group"},
    {"\"experts\": 3", "\"experts\": 2", "entries: bytes is"},
    {"\"experts\": 3", "\"experts\": 5000", "experts is 5000"},
    {"\"page_bytes\": 4096", "\"page_bytes\": 16384", "page_bytes is 16384"},
    {"\"stripes\": [", "\"stripes\": [], \"old\": [", "left unpacked: old"},
    {"\"stripes\": [", "\"stripes\": {}, \"x\": [", "left unpacked: x"},
    {"\"stripes\": [", "\"layout\": \"woven\", \"stripes\": [", "layout: unknown layout 'woven'"},
    {"\"stripes\": [", "\"layout\": \"spread\", \"stripes\": [",
     "has a checksum for a part without pages"},
    {"\"stripes\": [", "\"layout\": 1, \"stripes\": [", "Expected string, got integer"},
    {"experts.0.bin", "experts.0.bin\", \"mirror\": \"", "stripes[0]: a path of 0 bytes"},
    {"experts.0.bin", "experts.0.bin\", \"mirrors\": \"x", "left unpacked: mirrors"},
    {"experts.0.bin", "", "stripes[0]: a path of 0 bytes"},
    {"experts.0.bin", "experts\\u000a0.bin", "stripes[0]: a path with control characters"},
    {"experts.0.bin", "experts\\u00000.bin", "invalid JSON"},
    {"experts.0.bin", "nowhere.bin", "nowhere.bin: cannot be opened: No such file"},
    {"experts.0.bin", ".", "a directory, not a model file"},
    {"experts.0.bin", "experts.1.bin", "stripe 1 of 2, 0 of 2 expected"},
    {"experts.0.bin", "model.gguf", "truncated"},
    {"\"bytes\": ", "\"bytes\": 1", "stripes[0]: 1"},
    {"\"bytes\": ", "\"bytes\": -1", "stripes[0]: bytes is -"},
    {"\"tier\": \"native\"", "\"tier\": \"int3\"", "tiers[0]: unknown tier 'int3'"},
    {"\"tier\": \"native\"", "\"tier\": \"int4\"", "tiers[1]: tiers are not in ascending order"},
    {"\"method\": \"copy\"", "\"method\": \"magic\"", "tiers[0]: unknown method 'magic'"},
    {"\"groups\": [", "\"groups\": [], \"old\": [", "tiers[0]: 1 object item(s) left unpacked"},
    {"\"first_layer\": 0", "\"first_layer\": 1", "tiers[0].groups[0]: first_layer is 1"},
    {"\"last_layer\": 0", "\"last_layer\": 2", "tiers[0].groups[0]: last_layer is 2"},
    {"\"last_layer\": 0", "\"last_layer\": 1", "tiers[0].groups[1]: after the last layer"},
    {"\"slot_pages\": ", "\"slot_pages\": 1", "follow from its matrices"},
    {"\"payload_bytes\": ", "\"payload_bytes\": 1", "follow from its matrices"},
    {"\"type\": \"", "\"type\": \"Q", "tiers[0].groups[0].gate: unknown type 'Q"},
    {"\"k\": 32", "\"k\": 0", "tiers[0].groups[0].gate: k is 0"},
    {"\"k\": 32", "\"k\": 64", "gate has rows of"},
    {"\"k\": 32", "\"k\": 31", "tiers[0].groups[0]: rows that do not fit their type"},
    {"\"n\": 32", "\"n\": 20000000", "gate: n is 20000000"},
    {"\"row_bytes\": ", "\"row_bytes\": 1", "gate has rows of"},
    {"\"offset\": 0", "\"offset\": 64", "gate has rows of"},
    {"\"offset\": 0", "\"offset\": \"\"", "gate: Expected integer, got string"},
    {"\"entries\": {\"bytes\": ", "\"entries\": {\"bytes\": 1", "entries: bytes is 1"},
    {"\"xxh3\": \"", "\"xxh3\": \"0", "entries.xxh3: not 16 hex digits"},
    {"\"info\"", "\"inform\"", "left unpacked: inform"},
    {"\"info\": {", "\"layers\": 2, \"info\": {", "invalid JSON: duplicate"},
};

START_TEST(manifest_wrong)
{
    make_it(gguf, (struct store_make){.stripes = 2, .precision_mask = 5});
    size_t bytes;
    char *text = slurp(STORE_MANIFEST_FILE, &bytes);
    char *at = strstr(text, edits[_i].find);
    ck_assert_msg(at != NULL, "no '%s' in the manifest", edits[_i].find);
    size_t found = strlen(edits[_i].find), put = strlen(edits[_i].replace);
    char *edited = calloc(1, bytes + put + 1);
    memcpy(edited, text, (size_t)(at - text));
    strcat(edited, edits[_i].replace);
    strcat(edited, at + found);
    spill(STORE_MANIFEST_FILE, edited, bytes + put - found);
    struct error error;
    struct model_index *m = open_store(store, &error);
    ck_assert_msg(m == NULL, "%s -> %s: accepted", edits[_i].find, edits[_i].replace);
    ck_assert_msg(strstr(error.text, edits[_i].why), "%s -> %s: '%s', '%s' expected",
                  edits[_i].find, edits[_i].replace, error.text, edits[_i].why);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    free(text);
    free(edited);
}
END_TEST

START_TEST(manifest_cut)
{
    make_it(gguf, (struct store_make){.stripes = 2, .precision_mask = 1});
    size_t bytes;
    char *text = slurp(STORE_MANIFEST_FILE, &bytes);
    while (text[bytes - 1] != '}') /* the final newline is optional */
        bytes--;
    for (size_t n = 0; n < bytes; n += 7) {
        spill(STORE_MANIFEST_FILE, text, n);
        expect_rejected(ERR_BAD_INPUT, STORE_MANIFEST_FILE, "invalid JSON");
    }
    free(text);
}
END_TEST

/* u64 values of entries.bin: {index, value, expected error}. resum: the manifest's checksum is
 * recomputed, so that later checks are reached. */
static const struct {
    size_t word;
    uint64_t value;
    bool resum;
    const char *why;
} words[] = {
    {0, 1, false, "damaged: its checksum is not the manifest's"},
    {0, 1, true, "not a table of entries"},
    {1, 2 | 2ull << 32, true, "not a table of entries of version 1"},
    {1, 1 | 3ull << 32, true, "its counts are not the manifest's"},
    {2, 2 | 4ull << 32, true, "its counts are not the manifest's"},
    {3, 1, true, "its counts are not the manifest's"},
    {3, 5 | 1ull << 32, true, "its counts are not the manifest's"},
    {4, 99, true, "belongs to another store than the manifest"},
    {6, 7, true, "its counts are not the manifest's"},
    {7, 7, true, "its counts are not the manifest's"},
    {8, 0, true, "expert 0 of layer 0 (native) is at 0: outside"},
    {8, 4097, true, "is at 4097: outside"},
    {8, UINT64_C(1) << 63, true, "outside its stripe"},
    {8, UINT64_MAX - 4095, true, "outside its stripe"},
    {8, UINT64_MAX, true, NULL}, /* absent: present in the other precision */
    {8, 8192, true, "two experts share the bytes at"},
    {9, 12345, true, NULL}, /* a wrong checksum is detected at load */
};

START_TEST(table_wrong)
{
    struct error error;
    make_it(gguf, (struct store_make){.stripes = 2, .precision_mask = 5});
    size_t bytes;
    char *table = slurp(STORE_ENTRIES_FILE, &bytes);
    memcpy(table + 8 * words[_i].word, &words[_i].value, 8);
    spill(STORE_ENTRIES_FILE, table, bytes);
    if (words[_i].resum)
        ck_assert_int_eq(store_make_resum(store, &error), 0);
    if (words[_i].why)
        expect_rejected(ERR_BAD_INPUT, STORE_ENTRIES_FILE, words[_i].why);
    else
        free(open_store(store, &error));
    if (!words[_i].why)
        ck_assert_msg(error.code == ERR_NONE, "%s", error.text);
    free(table);
}
END_TEST

START_TEST(nowhere_at_all)
{
    struct error error;
    make_it(gguf, (struct store_make){.stripes = 1, .precision_mask = 3, .scattered = true});
    size_t bytes;
    char *table = slurp(STORE_ENTRIES_FILE, &bytes);
    memset(table + 64 + 16 * 2, 0xff, 8); /* expert 2 is present only in the first precision */
    spill(STORE_ENTRIES_FILE, table, bytes);
    ck_assert_int_eq(store_make_resum(store, &error), 0);
    expect_rejected(ERR_BAD_INPUT, STORE_ENTRIES_FILE, "expert 2 of layer 0 has no precision");
    free(table);
}
END_TEST

START_TEST(files_wrong)
{
    struct error error;
    char path[128];
    size_t bytes;
    make_it(gguf, (struct store_make){.stripes = 3, .precision_mask = 1});

    char *stripe = slurp("experts.1.bin", &bytes);
    spill("experts.1.bin", stripe, bytes - 1);
    expect_rejected(ERR_BAD_INPUT, "experts.1.bin", "truncated");
    spill("experts.1.bin", stripe, 0);
    expect_rejected(ERR_BAD_INPUT, "experts.1.bin", "truncated: 0 bytes");
    char *more = calloc(1, bytes + 1);
    memcpy(more, stripe, bytes);
    spill("experts.1.bin", more, bytes + 1);
    expect_rejected(ERR_BAD_INPUT, "experts.1.bin", "too long");
    more[24] ^= 1; /* id */
    spill("experts.1.bin", more, bytes);
    expect_rejected(ERR_BAD_INPUT, "experts.1.bin", "a stripe of another store");
    more[8] ^= 7; /* version */
    spill("experts.1.bin", more, bytes);
    expect_rejected(ERR_BAD_INPUT, "experts.1.bin", "not a stripe of a store of version 1");
    snprintf(path, sizeof path, "%s/experts.1.bin", store);
    unlink(path);
    expect_rejected(ERR_BAD_INPUT, "experts.1.bin", "No such file");
    spill("experts.1.bin", stripe, bytes);

    size_t model_bytes;
    char *model = slurp(STORE_MODEL_FILE, &model_bytes);
    model[model_bytes - 1] ^= 1;
    spill(STORE_MODEL_FILE, model, model_bytes);
    expect_rejected(ERR_BAD_INPUT, STORE_MODEL_FILE, "its hash is not the manifest's");
    ck_assert_int_eq(store_make_resum(store, &error), 0);
    free(open_store(store, &error));
    ck_assert_int_eq(error.code, ERR_NONE);
    spill(STORE_MODEL_FILE, model, model_bytes / 2);
    ck_assert_int_eq(store_make_resum(store, &error), 0);
    expect_rejected(ERR_BAD_INPUT, STORE_MODEL_FILE, "file");
    struct open_file whole = map_file(gguf); /* including its experts */
    spill(STORE_MODEL_FILE, whole.data, whole.bytes);
    munmap((void *)(uintptr_t)whole.data, whole.bytes);
    ck_assert_int_eq(store_make_resum(store, &error), 0);
    expect_rejected(ERR_BAD_INPUT, STORE_MODEL_FILE,
                    "holds experts: those of a store are in its stripes");
    snprintf(path, sizeof path, "%s/" STORE_MODEL_FILE, store);
    unlink(path);
    expect_rejected(ERR_BAD_INPUT, STORE_MODEL_FILE, "No such file");
    snprintf(path, sizeof path, "%s/" STORE_ENTRIES_FILE, store);
    unlink(path);
    expect_rejected(ERR_BAD_INPUT, STORE_ENTRIES_FILE, "No such file");
    snprintf(path, sizeof path, "%s/" STORE_MANIFEST_FILE, store);
    unlink(path);
    expect_rejected(ERR_BAD_INPUT, STORE_MANIFEST_FILE,
                    "does not exist: this is not an expert store");
    snprintf(path, sizeof path, "%s/" STORE_JOURNAL_FILE, store);
    fclose(fopen(path, "w"));
    expect_rejected(ERR_BAD_INPUT, STORE_MANIFEST_FILE, "unfinished");
    expect_rejected(ERR_BAD_INPUT, STORE_MANIFEST_FILE, "sluice pack -m MODEL -o /");
    unlink(path);
    free(stripe);
    free(more);
    free(model);
}
END_TEST

/* An expert with a shape the model does not have: rejected by the check of the index. */
START_TEST(shape_of_another_model)
{
    struct error error;
    make_it(gguf, (struct store_make){.stripes = 1, .precision_mask = 1});
    struct model_index *m = open_store(store, &error);
    struct model_entry *e =
        (struct model_entry *)(uintptr_t)&model_index_entries(m)[m->dense_count];
    e->matrix[EXPERT_UP].k = 64;
    ck_assert_int_eq(model_index_check(m, m->bytes, &error), -1);
    ck_assert_msg(strstr(error.text, "a shape or type that is not the model's"), "%s", error.text);
    free(m);
}
END_TEST

/* Bytes to the next one to change: rows of layers that the model does not have are alike, so most
 * are left out. */
static uint64_t step_at(const struct model_index *m, uint64_t i)
{
    uint64_t first = offsetof(struct model_index, dense_entry),
             unused = first + (m->hparams.layers + 1) * sizeof m->dense_entry[0];
    return (i >= unused && i < first + sizeof m->dense_entry ? 7 : 1) *
           test_amount(AMOUNT_tampered_index);
}

/* Any flipped bit of a store's index: rejected, or still safe to use. */
START_TEST(tampered_index)
{
    struct error error;
    make_it(gguf, (struct store_make){.stripes = 2, .precision_mask = 3, .scattered = true});
    struct model_index *m = open_store(store, &error);
    ck_assert_ptr_nonnull(m);
    unsigned char *blob = (unsigned char *)m;
    uint64_t bytes = m->bytes, end = m->tokenizer_offset, checksums = m->checksums_offset;
    unsigned rejections = 0, entries = 0, tried = 0;
    const unsigned step = test_amount(AMOUNT_tampered_index);
    srand(5);
    for (uint64_t i = test_turn() % step; i < end; i += step_at(m, i), tried++) {
        unsigned char mask = (unsigned char)(1u << rand() % 8);
        blob[i] ^= mask;
        int rc = model_index_check(m, bytes, &error);
        rejections += rc != 0;
        entries += rc != 0 && i >= m->entries_offset && i < checksums;
        for (uint32_t x = 0; rc == 0 && x < m->entry_count; x++)
            for (uint32_t s = 0; s < m->stripe_count; s++) {
                struct model_extent run[ENTRY_EXTENTS_MAX];
                const struct model_entry *e = &model_index_entries(m)[x];
                uint32_t n = model_entry_shard(e, s, m->stripe_count, run);
                for (uint32_t r = 0; e->in_store && r < n; r++)
                    ck_assert_uint_le(run[r].file_offset + run[r].read_bytes,
                                      model_index_stripes(m)[s].file.bytes);
            }
        blob[i] ^= mask;
    }
    ck_assert_uint_gt(rejections, tried / 2);
    /* Per entry, up to 8 bytes are not checked: its offset in the stripes, which may be another
     * entry's, and the index of its checksums. */
    uint64_t entry_bytes = checksums - m->entries_offset;
    ck_assert_uint_gt(entries, (entry_bytes - 8 * (uint64_t)m->entry_count - 64) / step);
    ck_assert_int_eq(model_index_check(m, bytes, &error), 0);
    free(m);
}
END_TEST

TCase *invalid_stores(void)
{
    TCase *c = tcase_create("wrong");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, manifest_wrong, 0, ARRAY_LEN(edits));
    tcase_add_test(c, manifest_cut);
    tcase_add_loop_test(c, table_wrong, 0, ARRAY_LEN(words));
    tcase_add_test(c, nowhere_at_all);
    tcase_add_test(c, files_wrong);
    tcase_add_test(c, shape_of_another_model);
    tcase_add_test(c, tampered_index);
    return c;
}
