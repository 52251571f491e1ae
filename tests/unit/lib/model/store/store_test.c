/* SPDX-License-Identifier: Apache-2.0 */
/* Stores: a valid store reads back as written; a store with one error is rejected with one line
 * that names the location. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
#include "tests/unit/lib/model/gguf_make.h"
#include "tests/unit/lib/model/store_make.h"

#define DEMO SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf"

static char top[] = "/tmp/sluice-store-XXXXXX";
static char gguf[64], store[64];

static int remove_dir(const char *dir)
{
    static const char *const names[] = {
        STORE_MANIFEST_FILE, STORE_MODEL_FILE, STORE_ENTRIES_FILE, "link",
        "experts.0.bin",     "experts.1.bin",  "experts.2.bin",    "experts.3.bin",
        "experts.4.bin",     "experts.5.bin",  "experts.6.bin",    "experts.7.bin",
        "experts.8.bin",     "experts.9.bin",  "experts.10.bin",   "experts.11.bin",
        "experts.12.bin",    "experts.13.bin", "experts.14.bin",   "experts.15.bin"};
    char path[300];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
        strcat(path, ".mirror");
        unlink(path);
    }
    return rmdir(dir);
}

/* A tiny model of 2 layers of 3 experts. */
static void setup(void)
{
    strcpy(top + sizeof top - 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(top));
    snprintf(gguf, sizeof gguf, "%s/tiny.gguf", top);
    snprintf(store, sizeof store, "%s/store", top);
    struct make m;
    make_tiny(&m, 2, true);
    struct bytes file = make_write(&m);
    FILE *out = fopen(gguf, "w");
    ck_assert_uint_eq(fwrite(file.data, 1, file.size, out), file.size);
    fclose(out);
    bytes_free(&file);
    make_free(&m);
}

static void teardown(void)
{
    remove_dir(store);
    unlink(gguf);
    ck_assert_int_eq(rmdir(top), 0);
}

static struct model_index *open_store(const char *dir, struct error *error)
{
    struct model_index *index = NULL;
    *error = (struct error){0};
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    ck_assert_int_ge(fd, 0);
    int rc = store_index_build(fd, dir, &index, error);
    close(fd);
    ck_assert_int_eq(rc, index ? 0 : -1);
    ck_assert(index || (error->text[0] && !strchr(error->text, '\n')));
    return index;
}

static void make_it(const char *from, struct store_make how)
{
    struct error error;
    remove_dir(store);
    ck_assert_msg(store_make(from, store, &how, &error) == 0, "%s", error.text);
}

/* ---- valid stores ---------------------------------------------------------------------------- */

struct open_file {
    const uint8_t *data;
    uint64_t bytes;
};

static struct open_file map_file(const char *path)
{
    struct open_file f = {0};
    struct stat st;
    int fd = open(path, O_RDONLY);
    ck_assert_msg(fd >= 0 && fstat(fd, &st) == 0, "%s", path);
    f.bytes = (uint64_t)st.st_size;
    f.data = mmap(NULL, f.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    ck_assert_ptr_ne(f.data, MAP_FAILED);
    close(fd);
    return f;
}

/* Assembles an entry's slot from its parts, as loaders do, and checks the checksum of each part. */
static void read_entry(const struct model_index *m, const struct model_entry *e,
                       const struct open_file *stripes, uint8_t *slot)
{
    uint64_t pages = 0;
    for (uint32_t s = 0; s < m->stripe_count; s++) {
        struct model_extent run[ENTRY_EXTENTS_MAX];
        if (model_entry_part(e, s, m->stripe_count, run) == 0)
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
    for (int demo = 0; demo < 2; demo++) {
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

/* In the layout "spread" an expert is one part on one stripe; experts are assigned in turn. */
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
            ck_assert_uint_eq(model_entry_part(e, s, 3, run), here);
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

/* ---- invalid stores -------------------------------------------------------------------------- */

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
    {"\"last_layer\": 0", "\"last_layer\": 1", "tiers[0].groups[1]: behind the last layer"},
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

/* Any flipped bit of a store's index: rejected, or still safe to use. */
START_TEST(tampered_index)
{
    struct error error;
    make_it(gguf, (struct store_make){.stripes = 2, .precision_mask = 3, .scattered = true});
    struct model_index *m = open_store(store, &error);
    ck_assert_ptr_nonnull(m);
    unsigned char *blob = (unsigned char *)m;
    uint64_t bytes = m->bytes, end = m->tokenizer_offset, checksums = m->checksums_offset;
    unsigned rejections = 0, entries = 0;
    srand(5);
    for (uint64_t i = 0; i < end; i++) {
        unsigned char mask = (unsigned char)(1u << rand() % 8);
        blob[i] ^= mask;
        int rc = model_index_check(m, bytes, &error);
        rejections += rc != 0;
        entries += rc != 0 && i >= m->entries_offset && i < checksums;
        for (uint32_t x = 0; rc == 0 && x < m->entry_count; x++)
            for (uint32_t s = 0; s < m->stripe_count; s++) {
                struct model_extent run[ENTRY_EXTENTS_MAX];
                const struct model_entry *e = &model_index_entries(m)[x];
                uint32_t n = model_entry_part(e, s, m->stripe_count, run);
                for (uint32_t r = 0; e->in_store && r < n; r++)
                    ck_assert_uint_le(run[r].file_offset + run[r].read_bytes,
                                      model_index_stripes(m)[s].file.bytes);
            }
        blob[i] ^= mask;
    }
    ck_assert_uint_gt(rejections, end / 2);
    /* Per entry, up to 8 bytes are not checked: its offset in the stripes, which may be another
     * entry's, and the index of its checksums. */
    uint64_t entry_bytes = checksums - m->entries_offset;
    ck_assert_uint_gt(entries, entry_bytes - 8 * (uint64_t)m->entry_count - 64);
    ck_assert_int_eq(model_index_check(m, bytes, &error), 0);
    free(m);
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
    c = tcase_create("wrong");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, manifest_wrong, 0, ARRAY_LEN(edits));
    tcase_add_test(c, manifest_cut);
    tcase_add_loop_test(c, table_wrong, 0, ARRAY_LEN(words));
    tcase_add_test(c, nowhere_at_all);
    tcase_add_test(c, files_wrong);
    tcase_add_test(c, shape_of_another_model);
    tcase_add_test(c, tampered_index);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
