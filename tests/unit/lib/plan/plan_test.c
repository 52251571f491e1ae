/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: written plans are read back; damaged files and blobs are rejected with one line. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/plan/plan.h"

#define LAYERS  3
#define EXPERTS 5
#define USED    2

static const uint8_t hash[PLAN_HASH_BYTES] = {1, 2,  3,  4,  5,  6,  7,  8,
                                              9, 10, 11, 12, 13, 14, 15, 255};
static char directory[64], path[128];

static void setup(void)
{
    snprintf(directory, sizeof directory, "/tmp/plan_test_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/a.plan", directory);
}

static void teardown(void)
{
    DIR *dir = opendir(directory);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    ck_assert_int_eq(rmdir(directory), 0);
}

/* Files of tables, the last one's path in `file`. */
static int tables_find(char file[512])
{
    int count = 0;
    DIR *dir = opendir(directory);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".tables")) {
            snprintf(file, 512, "%s/%s", directory, entry->d_name);
            count++;
        }
    closedir(dir);
    return count;
}

static struct plan *sample(void)
{
    struct error error = {0};
    uint64_t arrays = plan_array_bit(PLAN_ARRAY_frequency) | plan_array_bit(PLAN_ARRAY_width) |
                      plan_array_bit(PLAN_ARRAY_virtual_experts) |
                      plan_array_bit(PLAN_ARRAY_recall_gate) | plan_array_bit(PLAN_ARRAY_prev1) |
                      plan_array_bit(PLAN_ARRAY_pair_first) | plan_array_bit(PLAN_ARRAY_pair_cells);
    struct plan *p = plan_create(LAYERS, EXPERTS, USED, hash, arrays, 2, &error);
    ck_assert_msg(p != NULL, "%s", error.text);
    for (int i = 0; i < LAYERS * EXPERTS; i++) {
        plan_frequency(p)[i] = (float)i / 16;
        plan_width(p)[i] = (uint8_t)(i % 4);
    }
    for (int i = 0; i < LAYERS * EXPERTS * EXPERTS; i++)
        plan_prev1(p)[i] = (uint16_t)(i * 800);
    uint32_t *first = plan_pair_first(p);
    for (int i = 0; i <= LAYERS * EXPERTS * EXPERTS; i++)
        first[i] = i > 60 ? 2 : 0;
    plan_pair_cells(p)[0] = (struct plan_cell){4, 9};
    plan_pair_cells(p)[1] = (struct plan_cell){1, 3};
    plan_recall_gate(p)[1] = 0.75f; /* 0 and 2 stay unknown */
    p->scalar[PLAN_hobbit_t1] = 0.625;
    p->text_hash = 0xfedcba9876543210ull;
    ck_assert_int_eq(plan_check(p, p->bytes, &error), 0);
    return p;
}

static char *slurp(const char *file, size_t *bytes)
{
    FILE *f = fopen(file, "rb");
    ck_assert_ptr_nonnull(f);
    char *text = malloc(1 << 20);
    *bytes = fread(text, 1, (1 << 20) - 1, f);
    text[*bytes] = 0;
    fclose(f);
    return text;
}

START_TEST(written_is_read)
{
    struct error error = {0};
    struct plan *p = sample();
    ck_assert_msg(plan_write(p, path, &error) == 0, "%s", error.text);
    struct plan *q = plan_read(path, &error);
    ck_assert_msg(q != NULL, "%s", error.text);
    ck_assert_uint_eq(q->bytes, p->bytes);
    /* NaN is not equal to itself, and the bits of a NaN are not specified */
    ck_assert_int_eq(memcmp(q->model_hash, hash, sizeof hash), 0);
    ck_assert_uint_eq(q->text_hash, p->text_hash);
    ck_assert_uint_eq(plan_arrays(q), plan_arrays(p));
    ck_assert_int_eq(memcmp(plan_frequency(p), plan_frequency(q), LAYERS * EXPERTS * 4), 0);
    ck_assert_int_eq(memcmp(plan_width(p), plan_width(q), LAYERS * EXPERTS), 0);
    ck_assert_int_eq(memcmp(plan_prev1(p), plan_prev1(q), LAYERS * EXPERTS * EXPERTS * 2), 0);
    ck_assert_int_eq(memcmp(plan_pair_cells(p), plan_pair_cells(q), 8), 0);
    ck_assert(isnan(plan_recall_gate(q)[0]) && plan_recall_gate(q)[1] == 0.75f);
    ck_assert(q->scalar[PLAN_hobbit_t1] == 0.625 && !plan_knows(q, PLAN_hobbit_t2));
    ck_assert_uint_eq(plan_virtual_experts(q)[0], 0); /* the minimum of its bounds */
    free(p);
    free(q);
}
END_TEST

START_TEST(extended_plan_keeps_values)
{
    struct error error = {0};
    struct plan *p = sample();
    struct plan *q = plan_extended(p, plan_array_bit(PLAN_ARRAY_norm), p->cells, &error);
    ck_assert(plan_has(q, PLAN_ARRAY_norm) && !plan_has(p, PLAN_ARRAY_norm));
    ck_assert(isnan(plan_norm(q)[0]));
    ck_assert_int_eq(memcmp(plan_prev1(p), plan_prev1(q), LAYERS * EXPERTS * EXPERTS * 2), 0);
    ck_assert_int_eq(plan_check(q, q->bytes, &error), 0);
    free(p);
    free(q);
}
END_TEST

/* A plan of a version with so many candidates of auto, whose times count up. */
static struct plan *parse_auto(uint32_t elements, struct error *error)
{
    static char text[1 << 16];
    size_t n = (size_t)sprintf(
        text,
        "{\"format\": \"sluice-plan\", \"version\": 1, \"model_hash\": \"%032d\", "
        "\"text_hash\": \"%016d\", \"layers\": 1, \"experts\": 2, \"experts_used\": 1, "
        "\"cells\": 0, \"scalars\": {}, \"arrays\": {\"auto_ns\": [",
        0, 0);
    for (uint32_t i = 0; i < elements; i++)
        n += (size_t)sprintf(text + n, "%s%u", i ? "," : "", i);
    n += (size_t)sprintf(text + n, "]}}");
    return plan_parse(text, n, NULL, 0, error);
}

/* The predictions of an older plan are those of the same candidates; those that it lacks are not
 * predicted. */
START_TEST(fewer_candidates_of_auto)
{
    uint32_t cells = PLAN_AUTO_SHARES * PLAN_AUTO_BANDWIDTHS;
    struct error error = {0};
    struct plan *p = parse_auto(cells * 24, &error);
    ck_assert_msg(p != NULL, "%s", error.text);
    const float *ns = plan_auto_ns(p);
    ck_assert(ns[plan_auto_at(0, 0, 23)] == 23 && ns[plan_auto_at(0, 1, 0)] == 24);
    ck_assert(ns[plan_auto_at(6, 5, 23)] == (float)(cells * 24 - 1));
    for (uint32_t c = 24; c < PLAN_AUTO_CANDIDATES; c++)
        ck_assert(isnan(ns[plan_auto_at(0, 0, c)]) && isnan(ns[plan_auto_at(6, 5, c)]));
    free(p);
    static const uint32_t wrong[] = {0, 24, PLAN_AUTO_SHARES * PLAN_AUTO_BANDWIDTHS * 24 + 1,
                                     PLAN_AUTO_SHARES * PLAN_AUTO_BANDWIDTHS *
                                         (PLAN_AUTO_CANDIDATES + 1)};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        ck_assert_ptr_null(parse_auto(wrong[i], &error));
        ck_assert_ptr_nonnull(strstr(error.text, "auto_ns does not have"));
    }
}
END_TEST

/* Replacing `from` by `to` makes a file that is rejected with this line. */
static const struct {
    const char *from, *to, *line;
} damages[] = {
    {"sluice-plan", "sluice-plum", "not a plan"},
    {"\"version\": 1", "\"version\": 2", "unsupported plan version"},
    {"01020304", "0102030g", "model_hash"},
    {"\"layers\": 3", "\"layers\": 0", "layers"},
    {"\"layers\": 3", "\"layers\": 4", "elements"},
    {"\"experts\": 5", "\"experts\": 70000", "layers"},
    {"\"experts_used\": 2", "\"experts_used\": 6", "experts_used"},
    {"\"cells\": 2", "\"cells\": 3", "size"},
    {"\"cells\": 2", "\"cells\": -1", "cells"},
    {"hobbit_t1", "hobbit_t9", "unknown scalar 'hobbit_t9'"},
    {"0.625", "1.625", "hobbit_t1 is not from 0 to 1"},
    {"\"width\"", "\"widths\"", "unknown array 'widths'"},
    {"0.0625", "-0.625", "frequency[1] is not from 0 to 1"},
    {"0.0625", "\"x\"", "frequency[1]"},
    {"\"a.plan.", "\"../a.", "file name"},
    {"\"a.plan.", "\"b.plan.", "cannot open"},
    {"\"prev1\"", "\"pair_first\"", "duplicate array"},
    {"}", "", "line"},
};

START_TEST(damaged_file)
{
    struct error error = {0};
    struct plan *p = sample();
    ck_assert_int_eq(plan_write(p, path, &error), 0);
    free(p);
    size_t bytes;
    char *text = slurp(path, &bytes), *at = strstr(text, damages[_i].from);
    ck_assert_msg(at != NULL, "%s is in no plan", damages[_i].from);
    FILE *f = fopen(path, "wb");
    fprintf(f, "%.*s%s%s", (int)(at - text), text, damages[_i].to, at + strlen(damages[_i].from));
    fclose(f);
    ck_assert_ptr_null(plan_read(path, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, damages[_i].line) != NULL, "%s", error.text);
    ck_assert_msg(strstr(error.text, path) != NULL && !strchr(error.text, '\n'), "%s", error.text);
    free(text);
}
END_TEST

/* A process that is killed after the tables and before the plan were renamed leaves the old plan.
 * The next write removes what it left. */
START_TEST(killed_between_renames)
{
    struct error error = {0};
    struct plan *p = sample();
    char tables[512], old[512];
    size_t bytes, same_bytes;
    ck_assert_int_eq(plan_write(p, path, &error), 0);
    ck_assert_int_eq(tables_find(old), 1);
    char *text = slurp(path, &bytes), *old_tables = slurp(old, &same_bytes);
    plan_prev1(p)[0] = 7;
    ck_assert_int_eq(plan_write(p, path, &error), 0);
    ck_assert_int_eq(tables_find(tables), 1); /* those of the first were removed */
    ck_assert_str_ne(tables, old);
    FILE *f = fopen(path, "wb"); /* the state in between: the old plan, both tables */
    fwrite(text, 1, bytes, f);
    fclose(f);
    f = fopen(old, "wb");
    fwrite(old_tables, 1, same_bytes, f);
    fclose(f);
    struct plan *q = plan_read(path, &error);
    ck_assert_msg(q != NULL, "%s", error.text);
    ck_assert_uint_eq(plan_prev1(q)[0], 0);
    ck_assert_int_eq(plan_write(q, path, &error), 0);
    ck_assert_int_eq(tables_find(tables), 1);
    ck_assert_str_eq(tables, old);
    free(p);
    free(q);
    free(text);
    free(old_tables);
}
END_TEST

START_TEST(damaged_tables)
{
    struct error error = {0};
    struct plan *p = sample();
    ck_assert_int_eq(plan_write(p, path, &error), 0);
    free(p);
    char tables[512];
    ck_assert_int_eq(tables_find(tables), 1);
    int fd = open(tables, O_RDWR);
    uint8_t byte;
    ck_assert_int_eq(pread(fd, &byte, 1, 20), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, 20), 1);
    ck_assert_ptr_null(plan_read(path, &error));
    ck_assert_msg(strstr(error.text, "belongs to another plan") != NULL, "%s", error.text);
    ck_assert_int_eq(ftruncate(fd, 19), 0);
    ck_assert_ptr_null(plan_read(path, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    close(fd);
}
END_TEST

/* Each byte of the head and of the small arrays is changed in turn: the plan is rejected or every
 * number is in bounds. Memory errors are left to the sanitizers. */
START_TEST(tampered_blob)
{
    struct error error = {0};
    struct plan *p = sample(), *copy = malloc(p->bytes);
    unsigned rejected = 0;
    for (size_t i = 0; i < p->bytes; i++) {
        memcpy(copy, p, p->bytes);
        ((uint8_t *)copy)[i] ^= 0x80;
        if (plan_check(copy, p->bytes, &error) != 0) {
            ck_assert_int_eq(error.code, ERR_BAD_INPUT);
            rejected++;
        }
    }
    ck_assert_uint_gt(rejected, 100);
    ck_assert_int_eq(plan_check(p, p->bytes - 1, &error), -1);
    plan_pair_cells(p)[0].expert = EXPERTS;
    ck_assert_int_eq(plan_check(p, p->bytes, &error), -1);
    plan_pair_cells(p)[0].expert = 0;
    plan_pair_first(p)[3] = 7;
    ck_assert_int_eq(plan_check(p, p->bytes, &error), -1);
    free(copy);
    free(p);
}
END_TEST

START_TEST(another_model)
{
    struct error error = {0};
    struct plan *p = sample();
    struct model_index *m = calloc(1, sizeof *m);
    m->hparams.layers = LAYERS;
    m->hparams.experts = EXPERTS;
    m->hparams.experts_used = USED;
    ck_assert_int_eq(plan_matches(p, m, hash, "a.plan", &error), 0);
    uint8_t other[PLAN_HASH_BYTES] = {0};
    ck_assert_int_eq(plan_matches(p, m, other, "a.plan", &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(error.text, "a.plan is for another model"));
    m->hparams.experts++;
    ck_assert_int_eq(plan_matches(p, m, hash, "a.plan", &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "3 layers of 5 experts"));
    free(m);
    free(p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plan");
    TCase *c = tcase_create("plan");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, written_is_read);
    tcase_add_test(c, extended_plan_keeps_values);
    tcase_add_test(c, fewer_candidates_of_auto);
    tcase_add_loop_test(c, damaged_file, 0, (int)(sizeof damages / sizeof *damages));
    tcase_add_test(c, damaged_tables);
    tcase_add_test(c, killed_between_renames);
    tcase_add_test(c, tampered_blob);
    tcase_add_test(c, another_model);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
