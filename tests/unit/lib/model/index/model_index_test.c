/* SPDX-License-Identifier: Apache-2.0 */
/* The index of real and synthetic files: contents, shards of entries, and the check of a tampered
 * blob. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/model/chat/format.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "tests/harness/sample.h"
#include "tests/unit/lib/model/gguf_make.h"

#define DEMO SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf"

static struct model_index *open_index(const char *path, int *fd)
{
    struct model_index *index;
    struct error error = {0};
    *fd = open(path, O_RDONLY);
    ck_assert_int_ge(*fd, 0);
    ck_assert_msg(model_index_build(*fd, path, &index, &error) == 0, "%s", error.text);
    return index;
}

static struct model_index *made_index(unsigned layers, bool mixed)
{
    struct make m;
    make_tiny(&m, layers, mixed);
    struct bytes file = make_write(&m);
    int fd = memfd_create("gguf", 0);
    ck_assert_int_eq(write(fd, file.data, file.size), (ssize_t)file.size);
    struct model_index *index;
    struct error error = {0};
    ck_assert_msg(model_index_build(fd, "FILE", &index, &error) == 0, "%s", error.text);
    close(fd);
    bytes_free(&file);
    make_free(&m);
    return index;
}

START_TEST(demo_contents)
{
    int fd;
    struct model_index *m = open_index(DEMO, &fd);
    struct error error = {0};
    ck_assert_int_eq(model_index_check(m, m->bytes, &error), 0);
    ck_assert_str_eq(m->arch, "qwen3moe");
    ck_assert_str_eq(m->name, "tiny-books-moe");
    const struct model_hparams *h = &m->hparams;
    ck_assert_uint_eq(h->layers, 8);
    ck_assert_uint_eq(h->hidden, 256);
    ck_assert_uint_eq(h->heads, 4);
    ck_assert_uint_eq(h->kv_heads, 2);
    ck_assert_uint_eq(h->head_size, 64);
    ck_assert_uint_eq(h->rope_dims, 64);
    ck_assert_uint_eq(h->vocab, 4096);
    ck_assert_uint_eq(h->context, 2048);
    ck_assert_uint_eq(h->experts, 32);
    ck_assert_uint_eq(h->experts_used, 4);
    ck_assert_uint_eq(h->expert_inner, 128);
    ck_assert_uint_eq(h->norm_top_k, 1);
    ck_assert_uint_eq(h->qk_norm, 1);
    ck_assert_uint_eq(h->tied_output, 1);
    ck_assert_double_eq(h->rope_theta, 10000);
    ck_assert_double_eq_tol(h->rms_eps, 1e-6, 1e-12);
    ck_assert_uint_eq(m->dense_count, 2 + 8 * 9);
    ck_assert_uint_eq(m->expert_entry_count, 8 * 32);
    ck_assert_uint_eq(m->expert_bytes, 8 * 32 * 3 * 128 * 256 / 32 * 34);
    ck_assert_uint_eq(model_entry_dense(m, 8, DENSE_OUTPUT), ENTRY_NONE);
    ck_assert_int_eq(model_file_unchanged(fd, &m->file, &error), 0);
    free(m);
    close(fd);
}
END_TEST

static void check_entry(const struct model_index *m, const struct model_entry *e, uint64_t *payload)
{
    const struct model_tensor *tensors = model_index_tensors(m);
    uint64_t slot = 0, bytes = 0;
    for (uint32_t i = 0; i < e->extents; i++) {
        const struct model_extent *x = &e->extent[i];
        const struct model_tensor *t = &tensors[x->tensor];
        uint64_t start = x->file_offset + x->head_bytes;
        ck_assert_uint_eq(x->file_offset % PAGE_BYTES, 0);
        ck_assert_uint_eq(x->read_bytes % PAGE_BYTES, 0);
        ck_assert_uint_eq(x->slot_offset, slot);
        ck_assert_uint_lt(x->head_bytes, PAGE_BYTES);
        ck_assert_uint_ge(x->read_bytes, x->head_bytes + x->payload_bytes);
        ck_assert_uint_lt(x->read_bytes - x->head_bytes - x->payload_bytes, PAGE_BYTES);
        ck_assert_uint_ge(start, t->file_offset);
        ck_assert_uint_le(start + x->payload_bytes, t->file_offset + t->bytes);
        ck_assert_uint_lt(x->file_offset + x->read_bytes, m->file.bytes + PAGE_BYTES);
        slot += x->read_bytes;
        bytes += x->payload_bytes;
    }
    ck_assert_uint_eq(e->slot_bytes, slot);
    ck_assert_uint_eq(e->payload_bytes, bytes);
    *payload += bytes;
}

/* The chat template is recognised; a prompt to which the tokenizer adds BOS gets no second one. */
START_TEST(chat_template)
{
    struct make m;
    struct error error = {0};
    struct model_index *index;
    make_tiny(&m, 1, false);
    make_text(&m, "tokenizer.chat_template", "{{ bos_token }}<|im_start|>{{ m }}<|im_end|>");
    struct bytes file = make_write(&m);
    int fd = memfd_create("gguf", 0);
    ck_assert_int_eq(write(fd, file.data, file.size), (ssize_t)file.size);
    ck_assert_msg(model_index_build(fd, "FILE", &index, &error) == 0, "%s", error.text);
    ck_assert_int_eq(index->chat.family, CHAT_CHATML);
    ck_assert_str_ne(index->chat.bos, "");
    ck_assert_uint_eq(index->chat.bos_first, 0);
    ck_assert_str_ne(index->chat.eos, "");
    index->chat.family = CHAT__COUNT;
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), -1);
    free(index);
    close(fd);
    bytes_free(&file);
    make_free(&m);
}
END_TEST

static struct model_index *index_with_template(const char *text)
{
    struct make m;
    struct error error = {0};
    struct model_index *index;
    make_tiny(&m, 1, false);
    if (text)
        make_text(&m, "tokenizer.chat_template", text);
    else
        make_u32(&m, "tokenizer.chat_template", 7);
    struct bytes file = make_write(&m);
    int fd = memfd_create("gguf", 0);
    ck_assert_int_eq(write(fd, file.data, file.size), (ssize_t)file.size);
    ck_assert_msg(model_index_build(fd, "FILE", &index, &error) == 0, "%s", error.text);
    close(fd);
    bytes_free(&file);
    make_free(&m);
    return index;
}

/* What cannot be a template is no reason to reject the model, and is not in the index. */
START_TEST(no_chat_template)
{
    static const char marks[] = "<|im_start|><|im_end|>";
    char *longer = calloc(1, CHAT_TEMPLATE_BYTES_MAX + 2);
    memset(longer, 'x', CHAT_TEMPLATE_BYTES_MAX + 1);
    memcpy(longer, marks, sizeof marks - 1);
    const struct {
        const char *text;
        enum chat_family family;
    } rows[] = {{NULL, CHAT_PLAIN},
                {longer, CHAT_CHATML},
                {"<|im_start|>\xff<|im_end|>", CHAT_CHATML},
                {"\xed\xa0\x80", CHAT_PLAIN}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct model_index *index = index_with_template(rows[i].text);
        ck_assert_msg(index->template_bytes == 0, "row %zu", i);
        ck_assert_msg(index->chat.family == rows[i].family, "row %zu", i);
        free(index);
    }
    longer[CHAT_TEMPLATE_BYTES_MAX] = 0;
    struct model_index *index = index_with_template(longer);
    ck_assert_uint_eq(index->template_bytes, CHAT_TEMPLATE_BYTES_MAX);
    free(index);
    free(longer);
}
END_TEST

/* The template for tools counts next to the other one, within the bytes that both may have. */
START_TEST(tools_template)
{
    char *most = calloc(1, CHAT_TEMPLATE_BYTES_MAX + 1);
    memset(most, 'x', CHAT_TEMPLATE_BYTES_MAX - 5);
    const struct {
        const char *plain, *tools;
        size_t plain_bytes, tools_bytes;
    } rows[] = {{"plain", "tools", 5, 5},
                {"plain", NULL, 5, 0},
                {NULL, "tools", 0, 0},
                {"plain", "\xff", 5, 0},
                {most, "tools", CHAT_TEMPLATE_BYTES_MAX - 5, 5},
                {most, "longer", CHAT_TEMPLATE_BYTES_MAX - 5, 0}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct make m;
        struct error error = {0};
        struct model_index *index;
        make_tiny(&m, 1, false);
        if (rows[i].plain)
            make_text(&m, "tokenizer.chat_template", rows[i].plain);
        if (rows[i].tools)
            make_text(&m, "tokenizer.chat_template.tool_use", rows[i].tools);
        struct bytes file = make_write(&m);
        int fd = memfd_create("gguf", 0);
        ck_assert_int_eq(write(fd, file.data, file.size), (ssize_t)file.size);
        ck_assert_msg(model_index_build(fd, "FILE", &index, &error) == 0, "%s", error.text);
        ck_assert_msg(model_index_check(index, index->bytes, &error) == 0, "%s", error.text);
        ck_assert_msg(index->template_bytes == rows[i].plain_bytes &&
                          index->tools_template_bytes == rows[i].tools_bytes,
                      "row %zu", i);
        ck_assert_msg(memcmp(model_index_template(index), rows[i].plain ? rows[i].plain : "",
                             rows[i].plain_bytes) == 0 &&
                          memcmp(model_index_tools_template(index),
                                 rows[i].tools ? rows[i].tools : "", rows[i].tools_bytes) == 0,
                      "row %zu", i);
        index->tools_template_bytes += 64;
        ck_assert_int_eq(model_index_check(index, index->bytes, &error), -1);
        free(index);
        close(fd);
        bytes_free(&file);
        make_free(&m);
    }
    free(most);
}
END_TEST

/* Every byte of every tensor is in exactly one entry: the sizes add up. */
START_TEST(entries_cover_tensors)
{
    struct model_index *indices[] = {made_index(1, false), made_index(3, true)};
    for (size_t k = 0; k < ARRAY_LEN(indices); k++) {
        const struct model_index *m = indices[k];
        const struct model_entry *entries = model_index_entries(m);
        uint64_t payload = 0, tensors = 0;
        for (uint32_t i = 0; i < m->tensor_count; i++)
            tensors += model_index_tensors(m)[i].bytes;
        for (uint32_t i = 0; i < m->entry_count; i++) {
            check_entry(m, &entries[i], &payload);
            ck_assert_uint_eq(entries[i].kind, i < m->dense_count ? ENTRY_DENSE : ENTRY_EXPERT);
            ck_assert_uint_eq(entries[i].extents, i < m->dense_count ? 1 : EXPERT__COUNT);
        }
        ck_assert_uint_eq(payload, tensors);
        for (uint32_t layer = 0; layer < m->hparams.layers; layer++) {
            for (uint32_t x = 0; x < m->hparams.experts; x++) {
                const struct model_entry *e = &entries[model_entry_expert(m, layer, x)];
                ck_assert_uint_eq(e->layer, layer);
                ck_assert_uint_eq(e->expert, x);
                const struct model_tensor *t = &model_index_tensors(m)[e->extent[1].tensor];
                ck_assert_ptr_nonnull(strstr(t->name, ".ffn_up_exps.weight"));
                ck_assert_uint_eq(e->extent[1].file_offset + e->extent[1].head_bytes,
                                  t->file_offset + x * (t->bytes / m->hparams.experts));
            }
            uint32_t router = model_entry_dense(m, layer, DENSE_ROUTER);
            ck_assert_uint_eq(entries[router].role, DENSE_ROUTER);
            ck_assert_uint_eq(entries[router].layer, layer);
        }
        ck_assert_uint_eq(entries[model_entry_dense(m, m->hparams.layers, DENSE_TOKEN_EMBD)].layer,
                          UINT16_MAX);
        ck_assert_uint_eq(m->hparams.tied_output, k == 0);
        free(indices[k]);
    }
}
END_TEST

/* Parts: whole pages, disjoint, in order, together the entry; file and slot offsets advance
 * together. */
static void check_parts(const struct model_entry *e, uint32_t parts)
{
    uint64_t at = 0;
    for (uint32_t p = 0; p < parts; p++) {
        struct model_extent runs[ENTRY_EXTENTS_MAX];
        memset(runs, 0xee, sizeof runs);
        uint32_t n = model_entry_shard(e, p, parts, runs);
        uint64_t size = 0;
        ck_assert_uint_le(n, ENTRY_EXTENTS_MAX);
        for (uint32_t i = 0; i < n; i++) {
            ck_assert_uint_eq(runs[i].slot_offset, at);
            ck_assert_uint_gt(runs[i].read_bytes, 0);
            ck_assert_uint_eq(runs[i].read_bytes % PAGE_BYTES, 0);
            ck_assert_uint_eq(runs[i].head_bytes, 0);
            ck_assert_uint_eq(runs[i].payload_bytes, 0);
            uint32_t x = 0;
            while (e->extent[x].slot_offset + e->extent[x].read_bytes <= at)
                x++;
            ck_assert_uint_eq(runs[i].file_offset - e->extent[x].file_offset,
                              at - e->extent[x].slot_offset);
            ck_assert_uint_le(at + runs[i].read_bytes,
                              e->extent[x].slot_offset + e->extent[x].read_bytes);
            at += runs[i].read_bytes;
            size += runs[i].read_bytes;
        }
        uint64_t pages = e->slot_bytes / PAGE_BYTES;
        ck_assert_uint_ge(size / PAGE_BYTES, pages / parts);
        ck_assert_uint_le(size / PAGE_BYTES, pages / parts + 1);
        ck_assert(n > 0 || pages < parts);
    }
    ck_assert_uint_eq(at, e->slot_bytes);
}

START_TEST(parts)
{
    int fd;
    struct model_index *m = open_index(DEMO, &fd);
    for (uint32_t i = 0; i < m->entry_count; i++)
        for (uint32_t n = 1; n <= 17; n++)
            check_parts(&model_index_entries(m)[i], n);
    struct model_entry e = {.extents = 3};
    srand(3);
    for (int round = 0; round < 2000; round++) {
        e.slot_bytes = 0;
        for (uint32_t x = 0; x < 3; x++) {
            e.extent[x] = (struct model_extent){
                .file_offset = (uint64_t)(rand() % 100000) * PAGE_BYTES,
                .read_bytes = (uint64_t)(1 + rand() % 40) * PAGE_BYTES,
                .slot_offset = e.slot_bytes,
            };
            e.slot_bytes += e.extent[x].read_bytes;
        }
        check_parts(&e, 1 + (uint32_t)rand() % 150);
    }
    free(m);
    close(fd);
}
END_TEST

/* A table that is read by rows: no page of it is dense, and each page has one reader. */
START_TEST(pages_of_a_table)
{
    int fd;
    struct error error;
    struct model_extent run[ENTRY_EXTENTS_MAX];
    struct model_index *m =
        open_index(SLUICE_SOURCE_DIR "/tests/golden/data/converted/qwen4exp-base.gguf", &fd);
    const struct model_entry *entries = model_index_entries(m);
    const struct model_entry *table = &entries[model_table_entry(m)];
    uint32_t pages = model_table_pages(m), end = model_experts_end(m);
    uint64_t dense = (uint64_t)m->page_count * PAGE_BYTES;
    ck_assert(table->kind == ENTRY_DENSE && table->role == DENSE_NGRAM_TABLE);
    ck_assert_uint_eq(pages, table->slot_bytes / PAGE_BYTES);
    ck_assert_uint_eq(m->page_count, align_up(pages, MODEL_PAGE_WAYS));
    ck_assert_uint_eq(end, m->dense_count + m->expert_entry_count);
    for (uint32_t i = 0; i < m->dense_count; i++)
        dense += &entries[i] == table ? 0 : entries[i].slot_bytes;
    ck_assert_uint_eq(m->dense_bytes, dense);
    for (uint32_t i = end; i < m->entry_count; i++)
        ck_assert(entries[i].kind == ENTRY_PAGE && entries[i].slot_bytes == PAGE_BYTES);
    for (uint32_t page = 0; page < pages; page++) {
        uint32_t set = model_page_set(m, page), readers = 0;
        ck_assert(set >= end && set + MODEL_PAGE_WAYS <= m->entry_count);
        for (uint32_t shard = 0; shard < 3; shard++)
            readers += model_page_shard(m, page, shard, 3, run);
        ck_assert_uint_eq(readers, 1);
        ck_assert_uint_eq(run[0].file_offset, table->extent[0].file_offset + page * PAGE_BYTES);
        ck_assert_uint_eq(run[0].read_bytes, PAGE_BYTES);
    }
    ck_assert(!model_dense_quantisable(m, model_table_entry(m)));
    ck_assert_int_eq(model_index_check(m, m->bytes, &error), 0);
    ((struct model_entry *)(uintptr_t)entries)[end + 1].extent[0].file_offset += PAGE_BYTES;
    ck_assert_int_eq(model_index_check(m, m->bytes, &error), -1);
    free(m);
    close(fd);
}
END_TEST

START_TEST(file_changed)
{
    struct error error = {0};
    struct make m;
    make_tiny(&m, 1, false);
    struct bytes file = make_write(&m);
    char path[] = "/tmp/sluice-model-XXXXXX", other_path[] = "/tmp/sluice-model-XXXXXX";
    int fd = mkstemp(path), other = mkstemp(other_path);
    ck_assert_int_eq(write(fd, file.data, file.size), (ssize_t)file.size);
    struct model_index *index;
    ck_assert_int_eq(model_index_build(fd, path, &index, &error), 0);
    ck_assert_int_eq(model_file_unchanged(fd, &index->file, &error), 0);

    ck_assert_int_eq(model_file_unchanged(other, &index->file, &error), -1);
    ck_assert_int_eq(error.code, ERR_GONE);
    ck_assert_ptr_nonnull(strstr(error.text, "replaced by another"));

    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
    futimens(fd, times);
    ck_assert_int_eq(model_file_unchanged(fd, &index->file, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "written to"));

    ck_assert_int_eq(ftruncate(fd, 100), 0);
    ck_assert_int_eq(model_file_unchanged(fd, &index->file, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "size"));
    ck_assert_int_eq(model_file_unchanged(-1, &index->file, &error), -1);
    ck_assert_int_eq(error.code, ERR_IO);
    free(index);
    unlink(path);
    unlink(other_path);
    close(fd);
    close(other);
    bytes_free(&file);
    make_free(&m);
}
END_TEST

/* Uses everything an accepted blob provides, so that a sanitizer detects a wrong acceptance. */
static void use(const struct model_index *m)
{
    uint64_t sum = 0;
    for (uint32_t layer = 0; layer <= m->hparams.layers; layer++)
        for (int role = 0; role < DENSE__COUNT; role++) {
            uint32_t i = model_entry_dense(m, layer, (enum dense_role)role);
            if (i != ENTRY_NONE)
                sum += model_index_tensors(m)[model_index_entries(m)[i].extent[0].tensor].bytes;
        }
    ck_assert_uint_gt(sum, 0);
    const char *blob = (const char *)m + m->tokenizer_offset;
    struct tokenizer *t = tokenizer_open(blob, m->tokenizer_bytes, NULL);
    ck_assert_ptr_nonnull(t);
    uint32_t *ids;
    size_t count;
    if (tokenizer_encode(t, "<|end|>hello <tag>", 18, &text_ranges_all, &ids, &count, NULL) == 0)
        free(ids);
    for (uint32_t id = 0; id < tokenizer_vocab(t); id++) {
        size_t n;
        const char *piece = tokenizer_piece(t, id, &n);
        for (size_t i = 0; i < n; i++)
            sum += (unsigned char)piece[i];
    }
    tokenizer_close(t);
}

/* The first byte to change, or word, in turn. */
static uint64_t first_step(void)
{
    return test_turn() % test_amount(AMOUNT_tampered_index);
}

/* Bytes to the next one to change: rows of layers that the model does not have are alike, so most
 * are left out. */
static uint64_t step_at(const struct model_index *m, uint64_t i)
{
    uint64_t first = offsetof(struct model_index, dense_entry),
             unused = first + (m->hparams.layers + 1) * sizeof m->dense_entry[0];
    return (i >= unused && i < first + sizeof m->dense_entry ? 7 : 1) *
           test_amount(AMOUNT_tampered_index);
}

START_TEST(tampered_bits)
{
    struct model_index *m = made_index(1, true);
    unsigned char *blob = (unsigned char *)m;
    uint64_t bytes = m->bytes;
    srand(4);
    unsigned rejected = 0, tried = 0;
    for (uint64_t i = first_step(); i < bytes; i += step_at(m, i), tried++) {
        unsigned char mask = (unsigned char)(1u << rand() % 8);
        blob[i] ^= mask;
        struct error error = {0};
        if (model_index_check(m, bytes, &error) == 0)
            use(m);
        else
            rejected++;
        ck_assert(error.code == ERR_NONE || error.code == ERR_BAD_INPUT);
        blob[i] ^= mask;
    }
    ck_assert_uint_gt(rejected, tried / 2);
    struct error error = {0};
    ck_assert_int_eq(model_index_check(m, bytes, &error), 0);
    free(m);
}
END_TEST

START_TEST(tampered_words)
{
    static const uint32_t values[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 4096};
    struct model_index *m = made_index(1, false);
    uint32_t *words = (uint32_t *)(void *)m;
    uint64_t bytes = m->bytes;
    for (uint64_t i = first_step(); i < bytes / 4; i += step_at(m, 4 * i)) {
        uint32_t saved = words[i];
        words[i] = values[(i * 7 + i / 6) % ARRAY_LEN(values)];
        struct error error = {0};
        if (model_index_check(m, bytes, &error) == 0)
            use(m);
        words[i] = saved;
    }
    free(m);
}
END_TEST

START_TEST(cut_blob)
{
    struct model_index *m = made_index(1, false);
    for (uint64_t n = 0; n < m->bytes; n += 61) {
        void *copy = malloc(n ? n : 1);
        memcpy(copy, m, n);
        struct error error = {0};
        ck_assert_int_eq(model_index_check(copy, n, &error), -1);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        free(copy);
    }
    size_t tokenizer = m->tokenizer_bytes;
    for (size_t n = 0; n < tokenizer; n += 61) {
        void *copy = malloc(n ? n : 1);
        memcpy(copy, (char *)m + m->tokenizer_offset, n);
        ck_assert_ptr_null(tokenizer_open(copy, n, NULL));
        free(copy);
    }
    free(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("model_index");
    TCase *c = tcase_create("index");
    tcase_set_timeout(c, 240);
    tcase_add_test(c, demo_contents);
    tcase_add_test(c, chat_template);
    tcase_add_test(c, no_chat_template);
    tcase_add_test(c, tools_template);
    tcase_add_test(c, entries_cover_tensors);
    tcase_add_test(c, parts);
    tcase_add_test(c, pages_of_a_table);
    tcase_add_test(c, file_changed);
    tcase_add_test(c, tampered_bits);
    tcase_add_test(c, tampered_words);
    tcase_add_test(c, cut_blob);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
