/* SPDX-License-Identifier: Apache-2.0 */
/* Split files: the index of the parts against that of the whole file, and parts that are wrong. */
#include "lib/model/gguf/split.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/model/index/model_index.h"
#include "procs/tools/synth/split.h"
#include "tests/unit/lib/model/gguf_make.h"

#define PARTS 3u

static char dir[64];

static void in_dir(char path[200], const char *name)
{
    snprintf(path, 200, "%s/%s", dir, name);
}

static void part_path(char path[200], const char *stem, unsigned part, unsigned parts)
{
    snprintf(path, 200, "%s/%s-%05u-of-%05u.gguf", dir, stem, part, parts);
}

static void write_model(const char *name, unsigned layers)
{
    struct make m;
    char path[200];
    make_tiny(&m, layers, true);
    struct bytes file = make_write(&m);
    in_dir(path, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_eq(write(fd, file.data, file.size), (ssize_t)file.size);
    close(fd);
    bytes_free(&file);
    make_free(&m);
}

/* STEM.gguf and its parts. */
static void split_model(const char *stem, unsigned layers, unsigned parts)
{
    char name[100], path[200];
    struct error error = {0};
    snprintf(name, sizeof name, "%s.gguf", stem);
    write_model(name, layers);
    in_dir(path, name);
    ck_assert_msg(split_write(path, path, parts, &error) == 0, "%s", error.text);
}

static void setup(void)
{
    strcpy(dir, "/tmp/sluice-split-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    split_model("a", 2, PARTS);
}

static void teardown(void)
{
    DIR *d = opendir(dir);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    ck_assert_int_eq(rmdir(dir), 0);
}

static struct model_index *index_of(const char *path, struct error *error)
{
    struct model_index *index = NULL;
    int fd = model_open(path, 0, error);
    ck_assert_int_ge(fd, 0);
    (void)model_index_build(fd, path, &index, error);
    close(fd);
    return index;
}

static void read_extent(const struct model_index *m, const char *whole,
                        const struct model_extent *x, char *out)
{
    const struct model_stripe *file = model_loader_file(m, x->part);
    int fd = open(file ? file->path : whole, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, out, x->payload_bytes, (off_t)(x->file_offset + x->head_bytes)),
                     (ssize_t)x->payload_bytes);
    close(fd);
}

/* Every extent has the bytes that it has in the whole file, and one loader reads it. */
static void check_entry(const struct model_index *a, const struct model_index *b, uint32_t i,
                        const char *whole, bool seen[PARTS])
{
    const struct model_entry *x = &model_index_entries(a)[i], *y = &model_index_entries(b)[i];
    ck_assert_uint_eq(x->extents, y->extents);
    for (uint32_t k = 0; k < x->extents; k++) {
        char one[70000], other[70000];
        ck_assert_uint_eq(x->extent[k].payload_bytes, y->extent[k].payload_bytes);
        ck_assert_uint_le(x->extent[k].payload_bytes, sizeof one);
        read_extent(a, whole, &x->extent[k], one);
        read_extent(b, whole, &y->extent[k], other);
        ck_assert(memcmp(one, other, x->extent[k].payload_bytes) == 0);
        seen[y->extent[k].part] = true;
    }
    uint32_t runs = 0;
    for (uint32_t part = 0; part < PARTS; part++) {
        struct model_extent out[ENTRY_EXTENTS_MAX];
        uint32_t n = model_entry_shard(y, part, PARTS, out);
        for (uint32_t k = 0; k < n; k++)
            ck_assert_uint_eq(out[k].read_bytes % 4096, 0);
        runs += n;
    }
    ck_assert_uint_eq(runs, y->extents);
}

START_TEST(any_part_opens_all)
{
    char whole[200], path[200];
    bool seen[PARTS] = {false};
    struct error error = {0};
    in_dir(whole, "a.gguf");
    struct model_index *a = index_of(whole, &error);
    ck_assert_msg(a != NULL, "%s", error.text);
    ck_assert_uint_eq(a->part_count, 0);
    for (unsigned part = 1; part <= PARTS; part++) {
        part_path(path, "a", part, PARTS);
        char first[200];
        strcpy(first, path);
        gguf_first_part(first);
        struct model_index *b = index_of(first, &error);
        ck_assert_msg(b != NULL, "%s", error.text);
        ck_assert_uint_eq(b->part_count, PARTS);
        ck_assert_int_eq(model_index_check(b, b->bytes, &error), 0);
        ck_assert_uint_eq(b->entry_count, a->entry_count);
        ck_assert_uint_eq(b->tensor_count, a->tensor_count);
        for (uint32_t i = 0; i < a->entry_count; i++)
            check_entry(a, b, i, whole, seen);
        free(b);
    }
    for (unsigned part = 0; part < PARTS; part++)
        ck_assert_msg(seen[part], "nothing in part %u", part);
    free(a);
}
END_TEST

static void missing(void)
{
    char path[200];
    part_path(path, "a", 2, PARTS);
    ck_assert_int_eq(unlink(path), 0);
}

static void swapped(void)
{
    char two[200], three[200], other[200];
    part_path(two, "a", 2, PARTS);
    part_path(three, "a", 3, PARTS);
    in_dir(other, "other");
    ck_assert_int_eq(rename(two, other) | rename(three, two) | rename(other, three), 0);
}

static void take_part_of(const char *stem, unsigned layers, unsigned parts)
{
    char from[200], to[200];
    split_model(stem, layers, parts);
    part_path(from, stem, 2, parts);
    part_path(to, "a", 2, PARTS);
    ck_assert_int_eq(rename(from, to), 0);
}

static void of_another_model(void)
{
    take_part_of("b", 3, PARTS);
}

static void of_another_split(void)
{
    take_part_of("c", 2, PARTS + 1);
}

/* The same number of tensors in all, but the second part holds those of the third, too. */
static void of_another_cut(void)
{
    char path[200];
    part_path(path, "a", 3, PARTS);
    char second[200];
    part_path(second, "a", 2, PARTS);
    int fd = open(path, O_RDONLY), to = open(second, O_RDWR);
    char bytes[4096];
    ssize_t n = pread(fd, bytes, sizeof bytes, 0);
    ck_assert_int_gt(n, 200);
    char *no = memmem(bytes, (size_t)n, "split.no", 8);
    ck_assert_ptr_nonnull(no);
    ck_assert_int_eq(no[12], 2); /* after the name and the type */
    no[12] = 1;
    struct bytes all = {0};
    bytes_add(&all, bytes, (size_t)n);
    for (off_t at = n; (n = pread(fd, bytes, sizeof bytes, at)) > 0; at += n)
        bytes_add(&all, bytes, (size_t)n);
    ck_assert_int_eq(ftruncate(to, 0), 0);
    ck_assert_int_eq(pwrite(to, all.data, all.size, 0), (ssize_t)all.size);
    bytes_free(&all);
    close(fd);
    close(to);
}

static void not_gguf(void)
{
    char path[200];
    part_path(path, "a", 3, PARTS);
    ck_assert_int_eq(truncate(path, 3), 0);
}

static void whole_model(void)
{
    char from[200], to[200];
    in_dir(from, "a.gguf");
    part_path(to, "a", 3, PARTS);
    ck_assert_int_eq(rename(from, to), 0);
}

static const struct {
    void (*act)(void);
    const char *message;
} wrongs[] = {
    {missing, "part 2 of 3 cannot be opened: a-00002-of-00003.gguf: No such file"},
    {swapped, "a-00002-of-00003.gguf is not a part of this model: split.no is 2 instead of 1"},
    {of_another_model, "a-00002-of-00003.gguf is not a part of this model: split.tensors.count is"},
    {of_another_split, "a-00002-of-00003.gguf is not a part of this model: split.count is 4"},
    {of_another_cut, "tensors, split.tensors.count is"},
    {not_gguf, "a-00003-of-00003.gguf: "},
    {whole_model, "a-00003-of-00003.gguf is not a part of this model: it has no key split.count"},
};

START_TEST(wrong_parts)
{
    char path[200];
    struct error error = {0};
    wrongs[_i].act();
    part_path(path, "a", 1, PARTS);
    ck_assert_ptr_null(index_of(path, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, wrongs[_i].message), "'%s' lacks '%s'", error.text,
                  wrongs[_i].message);
}
END_TEST

/* A part under a name that does not lead to the others, and a whole file under the name of a
 * part. */
START_TEST(names)
{
    char from[200], to[200];
    struct error error = {0};
    part_path(from, "a", 1, PARTS);
    in_dir(to, "b.gguf");
    ck_assert_int_eq(rename(from, to), 0);
    ck_assert_ptr_null(index_of(to, &error));
    ck_assert_msg(strstr(error.text, "split into 3 files: its name must end with"), "%s",
                  error.text);
    in_dir(from, "a.gguf");
    part_path(to, "d", 1, PARTS);
    ck_assert_int_eq(rename(from, to), 0);
    struct model_index *m = index_of(to, &error);
    ck_assert_msg(m != NULL && m->part_count == 0, "%s", error.text);
    free(m);
}
END_TEST

#define FAR_BYTES (8l << 20) /* after the header and what is read with it */

static bool far_page_cached(int fd)
{
    unsigned char cached = 0;
    void *at = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, FAR_BYTES);
    ck_assert_ptr_ne(at, MAP_FAILED);
    ck_assert_int_eq(mincore(at, 1, &cached), 0);
    munmap(at, 1);
    return cached & 1;
}

/* Only the header is dropped from the page cache. */
START_TEST(page_cache)
{
    char path[200];
    struct error error = {0};
    in_dir(path, "a.gguf");
    int fd = open(path, O_RDWR);
    ck_assert_int_eq(pwrite(fd, "x", 1, FAR_BYTES), 1);
    ck_assert_int_eq(fsync(fd), 0); /* dirty pages would stay in any case */
    ck_assert(far_page_cached(fd));
    struct model_index *m = index_of(path, &error);
    ck_assert_msg(m != NULL, "%s", error.text);
    ck_assert(far_page_cached(fd));
    close(fd);
    free(m);
}
END_TEST

/* A blob that names a part that is not there. */
START_TEST(tampered)
{
    char path[200];
    struct error error = {0};
    part_path(path, "a", 1, PARTS);
    struct model_index *m = index_of(path, &error);
    struct model_tensor *last =
        (struct model_tensor *)(uintptr_t)&model_index_tensors(m)[m->tensor_count - 1];
    last->part = PARTS;
    ck_assert_int_ne(model_index_check(m, m->bytes, &error), 0);
    last->part = 0;
    ck_assert_int_ne(model_index_check(m, m->bytes, &error), 0);
    last->part = PARTS - 1;
    ck_assert_int_eq(model_index_check(m, m->bytes, &error), 0);
    m->part_count = MODEL_PARTS_MAX + 1;
    ck_assert_int_ne(model_index_check(m, m->bytes, &error), 0);
    free(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("split");
    TCase *tcase = tcase_create("split");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, any_part_opens_all);
    tcase_add_loop_test(tcase, wrong_parts, 0, sizeof wrongs / sizeof *wrongs);
    tcase_add_test(tcase, names);
    tcase_add_test(tcase, page_cache);
    tcase_add_test(tcase, tampered);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
