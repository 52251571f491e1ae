/* SPDX-License-Identifier: Apache-2.0 */
/* Records of tunings: which one is found, limits, damaged ones; the hash of a model file. */
#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/tunings/tunings.h"

#define MODEL_BYTES 3000000

static char dir[64], model[PATH_MAX], store[PATH_MAX], plan[PATH_MAX], directory[PATH_MAX];
static struct tuning found;
static struct error error;
static char reported[400];

static void take_line(void *arg, const char *line)
{
    (void)arg;
    snprintf(reported, sizeof reported, "%s", line);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

static void change_byte(const char *path, off_t at)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "x", 1, at), 1);
    close(fd);
}

static void hash_of(uint8_t hash[TUNINGS_HASH_BYTES])
{
    ck_assert_msg(tunings_hash(model, hash, &error) == 0, "%s", error.text);
}

static void make_files(void)
{
    char manifest[PATH_MAX + 16];
    uint8_t hash[TUNINGS_HASH_BYTES];
    snprintf(dir, sizeof dir, "/tmp/sluice-tunings-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("XDG_CACHE_HOME", dir, 1);
    snprintf(model, sizeof model, "%s/model.gguf", dir);
    snprintf(plan, sizeof plan, "%s/plan", dir);
    snprintf(store, sizeof store, "%s/store", dir);
    snprintf(manifest, sizeof manifest, "%s/manifest.json", store);
    ck_assert_int_eq(mkdir(store, 0700), 0);
    write_text(manifest, "{}");
    write_text(plan, "{}");
    write_text(model, "GGUF");
    ck_assert_int_eq(truncate(model, MODEL_BYTES), 0);
    hash_of(hash);
    ck_assert_int_eq(tunings_directory(hash, directory, &error), 0);
    reported[0] = 0;
}

static int remove_one(const char *name, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(name);
}

static void remove_files(void)
{
    ck_assert_int_eq(nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void record(double max_loss, uint64_t budget, const char *preset)
{
    static struct tuning t;
    t = (struct tuning){.model_bytes = MODEL_BYTES,
                        .max_loss = max_loss,
                        .budget = budget,
                        .loss_high = max_loss / 2};
    strcpy(t.model, model);
    strcpy(t.plan, plan);
    strcpy(t.store, store);
    strcpy(t.preset, preset);
    ck_assert_msg(tunings_write(directory, &t, &error) == 0, "%s", error.text);
}

static const char *find(double max_loss, uint64_t budget)
{
    int n = tunings_find(model, max_loss, budget, take_line, NULL, &found, &error);
    ck_assert_msg(n >= 0, "%s", error.text);
    return n ? found.preset : "";
}

START_TEST(nearest_of_those_allowed)
{
    ck_assert_str_eq(find(5, 1000), "");
    record(1, 1000, "one");
    record(2, 1000, "two");
    record(2, 1200, "two-larger");
    record(9, 1000, "nine");
    record(2, 0, "default-budget");
    ck_assert_str_eq(find(0.5, 1000), "");
    ck_assert_str_eq(find(1, 1000), "one");
    ck_assert_str_eq(find(5, 1000), "two");
    ck_assert_str_eq(find(5, 1190), "two-larger");
    ck_assert_str_eq(find(5, 1400), "two-larger");
    ck_assert_str_eq(find(5, 2000), "");
    ck_assert_str_eq(find(5, 500), "");
    ck_assert_str_eq(find(5, 0), "default-budget");
    record(2, 1000, "replaced");
    ck_assert_str_eq(find(5, 1000), "replaced");
    ck_assert_str_eq(reported, "");
}
END_TEST

START_TEST(what_is_gone_or_damaged_is_ignored)
{
    char path[PATH_MAX + 32];
    record(1, 1000, "one");
    snprintf(path, sizeof path, "%s/tuning-2-1000.json", directory);
    write_text(path, "{\"format\": \"sluice-tuning\"");
    ck_assert_str_eq(find(5, 1000), "one");
    ck_assert_ptr_nonnull(strstr(reported, "is ignored"));
    ck_assert_int_eq(unlink(path), 0);
    reported[0] = 0;
    ck_assert_int_eq(unlink(plan), 0);
    ck_assert_str_eq(find(5, 1000), "");
    ck_assert_ptr_nonnull(strstr(reported, "gone"));
}
END_TEST

START_TEST(another_model_has_another_directory)
{
    uint8_t before[TUNINGS_HASH_BYTES], after[TUNINGS_HASH_BYTES];
    static const off_t places[] = {0, 1 << 20, MODEL_BYTES - 1, MODEL_BYTES};
    record(1, 1000, "one");
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        hash_of(before);
        change_byte(model, places[i]);
        hash_of(after);
        ck_assert_msg(memcmp(before, after, sizeof after) != 0 || places[i] == 1 << 20,
                      "the byte at %lld does not count", (long long)places[i]);
    }
    ck_assert_str_eq(find(5, 1000), "");
    ck_assert_int_ne(tunings_hash(dir, before, &error), 0);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
}
END_TEST

START_TEST(all_parts_of_a_split_file_count)
{
    uint8_t before[TUNINGS_HASH_BYTES], after[TUNINGS_HASH_BYTES];
    char second[PATH_MAX];
    snprintf(second, sizeof second, "%s/m-00002-of-00002.gguf", dir);
    snprintf(model, sizeof model, "%s/m-00001-of-00002.gguf", dir);
    write_text(model, "one");
    ck_assert_int_ne(tunings_hash(model, before, &error), 0);
    write_text(second, "two");
    hash_of(before);
    strcpy(model, second); /* by the name of any part */
    hash_of(after);
    ck_assert_mem_eq(before, after, sizeof after);
    change_byte(second, 1);
    hash_of(after);
    ck_assert_int_ne(memcmp(before, after, sizeof after), 0);
}
END_TEST

static unsigned count;

static void visit(void *arg, const char *hash, const char *path, const struct tuning *t)
{
    (void)arg, (void)path, (void)t;
    ck_assert_uint_eq(strlen(hash), 2 * TUNINGS_HASH_BYTES);
    count++;
}

START_TEST(their_number_is_limited)
{
    for (unsigned i = 1; i <= TUNINGS_OF_A_MODEL + 5; i++)
        record(1, 1000 * i, "one");
    count = 0;
    ck_assert_int_eq(tunings_each(visit, take_line, NULL, &error), 0);
    ck_assert_uint_eq(count, TUNINGS_OF_A_MODEL);
    ck_assert_str_eq(reported, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tunings");
    TCase *tests = tcase_create("tunings");
    tcase_add_checked_fixture(tests, make_files, remove_files);
    tcase_add_test(tests, nearest_of_those_allowed);
    tcase_add_test(tests, what_is_gone_or_damaged_is_ignored);
    tcase_add_test(tests, another_model_has_another_directory);
    tcase_add_test(tests, all_parts_of_a_split_file_count);
    tcase_add_test(tests, their_number_is_limited);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
