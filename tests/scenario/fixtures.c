/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans, stores, chat models and changed copies of the demo model. */
#include "tests/scenario/fixtures.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/file/sample_hash.h"
#include "lib/model/gguf/write.h"
#include "lib/model/index/model_index.h"
#include "lib/plan/plan.h"
#include "tests/harness/harness.h"

#define CELLS_PER_PAIR 2u
#define PACK_MS        120000

static struct plan *blank(uint64_t arrays, uint32_t *cells)
{
    struct error error;
    struct model_index *m;
    uint8_t hash[PLAN_HASH_BYTES];
    int fd = open(test_model(), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "cannot open %s", test_model());
    CHECK(model_index_build(fd, test_model(), &m, &error) == 0, "%s", error.text);
    CHECK(plan_model_hash(m, &fd, hash, &error) == 0, "%s", error.text);
    const struct model_hparams *h = &m->hparams;
    *cells = CELLS_PER_PAIR * (h->layers - 2) * h->experts * h->experts;
    struct plan *plan =
        plan_create(h->layers, h->experts, h->experts_used, hash, arrays, *cells, &error);
    CHECK(plan, "%s", error.text);
    free(m);
    close(fd);
    return plan;
}

/* Expert transitions: a few successors of each expert are more frequent than the rest. */
static void fill_paths(struct plan *plan, uint32_t cells)
{
    uint32_t pairs = plan->layers * plan->experts * plan->experts, *first = plan_pair_first(plan);
    for (uint32_t i = plan->experts * plan->experts; i < pairs; i++)
        plan_prev1(plan)[i] = (uint16_t)(1 + i * 2654435761u % 97);
    for (uint32_t i = 0; i <= pairs; i++) { /* the first two layers have no pairs */
        uint32_t empty = 2 * plan->experts * plan->experts;
        first[i] = i < empty ? 0 : CELLS_PER_PAIR * (i - empty);
    }
    for (uint32_t i = 0; i < cells; i++)
        plan_pair_cells(plan)[i] = (struct plan_cell){
            (uint16_t)(i * 7 % plan->experts), (uint16_t)(CELLS_PER_PAIR - i % CELLS_PER_PAIR)};
}

static uint8_t precision_in_turn(uint32_t precision_mask, uint32_t turn)
{
    uint32_t left = turn % (uint32_t)__builtin_popcount(precision_mask);
    for (; left > 0; left--)
        precision_mask &= precision_mask - 1;
    return (uint8_t)__builtin_ctz(precision_mask);
}

static void make_plan(char path[PATH_MAX], const char *name, uint32_t precision_mask, bool two)
{
    struct error error;
    uint32_t cells;
    uint64_t arrays = plan_array_bit(PLAN_ARRAY_norm) | plan_array_bit(PLAN_ARRAY_frequency) |
                      plan_array_bit(PLAN_ARRAY_prev1) | plan_array_bit(PLAN_ARRAY_pair_first) |
                      plan_array_bit(PLAN_ARRAY_pair_cells);
    if (precision_mask)
        arrays |= plan_array_bit(PLAN_ARRAY_width);
    if (two)
        arrays |= plan_array_bit(PLAN_ARRAY_mixed_high) | plan_array_bit(PLAN_ARRAY_mixed_low) |
                  plan_array_bit(PLAN_ARRAY_joint_high) | plan_array_bit(PLAN_ARRAY_joint_low);
    struct plan *plan = blank(arrays, &cells);
    for (uint32_t i = 0; i < plan->layers * plan->experts; i++) {
        uint8_t precision = precision_mask ? precision_in_turn(precision_mask, i) : 0;
        plan_norm(plan)[i] = 1 + (float)(i % 7);
        plan_frequency(plan)[i] = (float)(i % 11) / 20;
        if (precision_mask)
            plan_width(plan)[i] = precision;
        if (two) {
            plan_mixed_high(plan)[i] = precision;
            plan_mixed_low(plan)[i] = precision <= PRECISION_INT8 ? precision + 2 : PRECISION_INT2;
            plan_joint_high(plan)[i] = i % 3 ? precision : PRECISION_NATIVE;
            plan_joint_low(plan)[i] = PRECISION_INT2;
        }
    }
    fill_paths(plan, cells);
    plan->scalar[PLAN_tokens] = 1000;
    snprintf(path, PATH_MAX, "%s/%s", test_dir(), name);
    CHECK(plan_write(plan, path, &error) == 0, "%s", error.text);
    free(plan);
}

void plan_make(char path[PATH_MAX], const char *name, uint32_t precision_mask)
{
    make_plan(path, name, precision_mask, false);
}

void plan_make_two(char path[PATH_MAX], const char *name, uint32_t precision_mask)
{
    make_plan(path, name, precision_mask, true);
}

void store_pack(char path[PATH_MAX], const char *name, const char *precisions)
{
    struct command c;
    snprintf(path, PATH_MAX, "%s/%s", test_dir(), name);
    command_run(&c, NULL, PACK_MS,
                (const char *const[]){"pack", "--quiet", "-m", test_model(), "-o", path,
                                      "--precisions", precisions, "--method=channel", NULL});
    CHECK(c.status == 0, "sluice pack: status %d: %.300s", c.status, c.err);
    command_free(&c);
}

/* ---- a model with a chat template ---- */

static ssize_t read_mapped(void *file, void *buf, size_t n, uint64_t offset)
{
    memcpy(buf, (const char *)file + offset, n);
    return (ssize_t)n;
}

static bool key_is(const struct gguf *g, uint32_t i, const char *name)
{
    return g->keys[i].name_bytes == strlen(name) &&
           memcmp(g->header + g->keys[i].name_at, name, strlen(name)) == 0;
}

static void copy_with_template(const struct gguf *g, const char *file, const char *path,
                               const char *chat_template)
{
    struct error error;
    struct gguf_writer *w = gguf_writer_new(g->alignment);
    CHECK(w, "out of memory");
    for (uint32_t i = 0; i < g->key_count; i++)
        if (!key_is(g, i, "general.alignment") && !key_is(g, i, "tokenizer.chat_template"))
            gguf_put_copy(w, g, i);
    gguf_put_text(w, "tokenizer.chat_template", chat_template);
    for (uint32_t i = 0; i < g->tensor_count; i++)
        gguf_put_tensor(w, g->tensors[i].name, g->tensors[i].type, g->tensors[i].dims,
                        g->tensors[i].ne);
    CHECK(gguf_writer_layout(w, &error) == 0 && gguf_writer_start(w, path, &error) == 0, "%s",
          error.text);
    for (uint32_t i = 0; i < g->tensor_count; i++)
        CHECK(gguf_writer_data(w, file + g->tensors[i].file_offset, g->tensors[i].bytes, &error) ==
                  0,
              "%s", error.text);
    CHECK(gguf_writer_end(w, &error) == 0, "%s", error.text);
    gguf_writer_free(w);
}

void chat_model_make(char path[PATH_MAX], const char *name, const char *chat_template)
{
    struct error error;
    struct stat st;
    struct gguf g;
    int fd = open(test_model(), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0, "cannot open %s", test_model());
    char *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    CHECK(file != MAP_FAILED, "cannot map %s", test_model());
    struct gguf_source source = {.read = read_mapped, .arg = file, .bytes = (uint64_t)st.st_size};
    CHECK(gguf_open(&g, &source, &error) == 0, "%s", error.text);
    snprintf(path, PATH_MAX, "%s/%s", test_dir(), name);
    copy_with_template(&g, file, path, chat_template);
    gguf_close(&g);
    munmap(file, (size_t)st.st_size);
}

void plan_tables(const char *plan, char path[PATH_MAX])
{
    char pattern[PATH_MAX + 16];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s.*.tables", plan);
    CHECK(glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1, "no tables of %s", plan);
    snprintf(path, PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
}

/* ---- other models ---------------------------------------------------------------------------- */

static void copy_model(char path[PATH_MAX], const char *name)
{
    struct command c;
    path_in_dir(path, name);
    command_run(&c, NULL, PACK_MS, (const char *const[]){"/bin/cp", test_model(), path, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

void other_model_make(char path[PATH_MAX])
{
    struct stat st;
    copy_model(path, "other.gguf");
    FILE *file = fopen(path, "r+e");
    CHECK(file && stat(path, &st) == 0, "no %s", path);
    for (long at = (long)st.st_size * 3 / 4; at < (long)st.st_size; at += 997)
        CHECK(fseek(file, at, SEEK_SET) == 0 && fputc(17, file) != EOF, "%s", path);
    CHECK(fclose(file) == 0, "%s", path);
}

static bool in_sample(uint64_t size, uint64_t at)
{
    uint64_t first, bytes;
    for (uint32_t i = 0; sample_hash_range(size, i, &first, &bytes); i++)
        if (at >= first && at < first + bytes)
            return true;
    return false;
}

/* The pages at both ends may have bytes of a neighbour. */
static void change_signs(int fd, uint64_t size, const struct model_extent *x)
{
    char weight;
    uint64_t end = x->file_offset + x->read_bytes - PAGE_BYTES;
    for (uint64_t at = x->file_offset + PAGE_BYTES + 1; at < end; at += 64) {
        if (in_sample(size, at))
            continue;
        CHECK(pread(fd, &weight, 1, (off_t)at) == 1, "a short file");
        weight ^= (char)0x80;
        CHECK(pwrite(fd, &weight, 1, (off_t)at) == 1, "%s", strerror(errno));
    }
}

void other_experts_make(char path[PATH_MAX])
{
    struct error error;
    struct model_index *m;
    struct stat st;
    copy_model(path, "experts.gguf");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0, "no %s", path);
    CHECK(model_index_build(fd, path, &m, &error) == 0, "%s", error.text);
    for (uint32_t i = 0; i < model_experts_end(m); i++)
        if (model_index_entries(m)[i].kind == ENTRY_EXPERT)
            change_signs(fd, (uint64_t)st.st_size, &model_index_entries(m)[i].extent[0]);
    free(m);
    close(fd);
}
