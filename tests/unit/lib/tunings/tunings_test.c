/* SPDX-License-Identifier: Apache-2.0 */
/* Records of tunings: which one is found, limits, damaged ones; the hash of a model file; stores
 * that no record uses; the lock; the lines of a start. */
#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
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

/* A copy has the same hash, but the store reads the file that it was made of. */
START_TEST(the_model_of_a_store_has_moved)
{
    char copy[PATH_MAX], first[PATH_MAX];
    record(1, 1000, "one");
    strcpy(first, model);
    snprintf(copy, sizeof copy, "%s/copy.gguf", dir);
    write_text(copy, "GGUF");
    ck_assert_int_eq(truncate(copy, MODEL_BYTES), 0);
    strcpy(model, copy);
    ck_assert_str_eq(find(5, 1000), "one");
    change_byte(first, 0);
    ck_assert_str_eq(find(5, 1000), "");
    ck_assert_ptr_nonnull(strstr(reported, "no longer at"));
}
END_TEST

static unsigned count;

static void visit(void *arg, const char *hash, const char *path, const struct tuning *t)
{
    (void)arg, (void)path, (void)t;
    ck_assert_uint_eq(strlen(hash), 2 * TUNINGS_HASH_BYTES);
    count++;
}

/* Two copies have a record each: that of the file that is started is found. One of a file that was
 * renamed is replaced. */
START_TEST(copies_keep_their_records)
{
    char copy[PATH_MAX], first[PATH_MAX], away[PATH_MAX];
    strcpy(first, model);
    snprintf(copy, sizeof copy, "%s/copy.gguf", dir);
    snprintf(away, sizeof away, "%s/renamed.gguf", dir);
    write_text(copy, "GGUF");
    ck_assert_int_eq(truncate(copy, MODEL_BYTES), 0);
    record(1, 1000, "first");
    strcpy(model, copy);
    record(1, 1000, "copy");
    record(2, 1100, "other");
    ck_assert_str_eq(find(1, 1000), "copy");
    ck_assert_str_eq(find(5, 1000), "other");
    strcpy(model, first);
    ck_assert_str_eq(find(1, 1000), "first");
    ck_assert_str_eq(find(5, 1000), "first");
    count = 0;
    ck_assert_int_eq(tunings_each(visit, take_line, NULL, &error), 0);
    ck_assert_uint_eq(count, 3);
    ck_assert_int_eq(rename(first, away), 0);
    strcpy(model, away);
    record(1, 1000, "renamed");
    count = 0;
    ck_assert_int_eq(tunings_each(visit, take_line, NULL, &error), 0);
    ck_assert_uint_eq(count, 3);
    ck_assert_str_eq(find(1, 1000), "renamed");
    ck_assert_str_eq(reported, "");
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
    char second[PATH_MAX], first[PATH_MAX];
    snprintf(second, sizeof second, "%s/m-00002-of-00002.gguf", dir);
    snprintf(model, sizeof model, "%s/m-00001-of-00002.gguf", dir);
    write_text(model, "one");
    ck_assert_int_ne(tunings_hash(model, before, &error), 0);
    write_text(second, "two");
    hash_of(before);
    strcpy(model, second); /* by the name of any part */
    hash_of(after);
    ck_assert_mem_eq(before, after, sizeof after);
    snprintf(first, sizeof first, "%s/m-00001-of-00002.gguf", dir);
    snprintf(model, sizeof model, "%s/link.gguf", dir);
    ck_assert_int_eq(symlink(first, model), 0);
    hash_of(after);
    ck_assert_mem_eq(before, after, sizeof after);
    change_byte(second, 1);
    hash_of(after);
    ck_assert_int_ne(memcmp(before, after, sizeof after), 0);
}
END_TEST

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

/* ---- stores ---- */

static struct tuning_store seen;
static char seen_path[PATH_MAX];

static void see(void *arg, const struct tuning_store *s)
{
    (void)arg;
    seen = *s;
    snprintf(seen_path, sizeof seen_path, "%s", s->path);
    count++;
}

static unsigned stores_noted(void)
{
    count = 0;
    tunings_stores(directory, see, NULL);
    return count;
}

/* A noted store with a file of its own, and one of its user. */
static void make_store(const char *name)
{
    char path[PATH_MAX + 32];
    snprintf(store, sizeof store, "%s/%s", dir, name);
    ck_assert_int_eq(mkdir(store, 0700), 0);
    ck_assert_msg(tunings_store_note(directory, store, &error) == 0, "%s", error.text);
    snprintf(path, sizeof path, "%s/manifest.json", store);
    write_text(path, "12345");
}

START_TEST(stores_that_no_record_uses)
{
    char first[PATH_MAX];
    make_store("a b.gguf.tuned-0123456789abcdef");
    ck_assert_uint_eq(stores_noted(), 1);
    ck_assert_str_eq(seen_path, store);
    ck_assert(seen.use == TUNING_STORE_UNUSED && seen.bytes == 5 && seen.files == 1);
    record(1, 1000, "one");
    ck_assert(stores_noted() == 1 && seen.use == TUNING_STORE_USED);
    strcpy(first, store);
    make_store("a b.gguf.tuned-fedcba9876543210");
    tunings_prune(directory, store, take_line, NULL);
    ck_assert_str_eq(reported, "");
    ck_assert_uint_eq(stores_noted(), 2);
    tunings_prune(directory, NULL, take_line, NULL);
    ck_assert_ptr_nonnull(strstr(reported, "which no tuning uses"));
    ck_assert(access(store, F_OK) != 0 && access(first, F_OK) == 0);
    ck_assert_uint_eq(stores_noted(), 1);
    record(1, 1000, "one"); /* of the store that is gone: the first has no record now */
    tunings_prune(directory, NULL, take_line, NULL);
    ck_assert(stores_noted() == 0 && access(first, F_OK) != 0);
}
END_TEST

/* A store that is in use may be that of a record that cannot be read. */
START_TEST(what_cannot_be_judged_is_kept)
{
    char path[PATH_MAX + 32];
    static const char *const damaged[] = {"", "{\"format\": \"sluice-tuning\"}"};
    make_store("m.tuned-0123456789abcdef");
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/tuning-1-1000.json", directory);
        if (i < 2)
            write_text(path, damaged[i]);
        else /* one that cannot be opened */
            ck_assert_int_eq(symlink("/none", path), 0);
        ck_assert(stores_noted() == 1 && seen.use == TUNING_STORE_UNKNOWN);
        reported[0] = 0;
        tunings_prune(directory, NULL, take_line, NULL);
        ck_assert_ptr_nonnull(strstr(reported, "is kept"));
        ck_assert(stores_noted() == 1 && access(store, F_OK) == 0 && seen.files == 1);
        ck_assert_int_eq(unlink(path), 0);
    }
    tunings_prune(directory, NULL, take_line, NULL);
    ck_assert(stores_noted() == 0 && access(store, F_OK) != 0);
}
END_TEST

START_TEST(only_files_of_a_store_are_removed)
{
    char path[PATH_MAX + 32];
    uint64_t bytes;
    make_store("m.tuned-0123456789abcdef");
    snprintf(path, sizeof path, "%s/letter.txt", store);
    write_text(path, "mine");
    ck_assert_int_eq(tunings_store_drop(directory, store, &bytes), 0);
    ck_assert_uint_eq(bytes, 5);
    ck_assert_int_eq(access(path, F_OK), 0);
    ck_assert_uint_eq(stores_noted(), 0);
    snprintf(path, sizeof path, "%s/store", dir); /* no name of a tuned store */
    ck_assert_int_ne(tunings_store_note(directory, path, &error), 0);
    ck_assert_int_eq(tunings_store_drop(directory, path, &bytes), 0);
    snprintf(path, sizeof path, "%s/store/manifest.json", dir);
    ck_assert_int_eq(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/store-0123456789abcdef", directory); /* damaged notes */
    write_text(path, "../../m.tuned-0123456789abcdef");
    ck_assert_uint_eq(stores_noted(), 0);
    write_text(path, "/tmp/store");
    ck_assert_uint_eq(stores_noted(), 0);
}
END_TEST

/* ---- lock ---- */

/* A child that holds the lock until it is killed; `leave`: a child of its own that has inherited
 * it. */
static pid_t hold(bool leave, pid_t *left)
{
    struct tunings_lock lock;
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (tunings_lock(directory, NULL, &lock, &error) != 0)
            _exit(1);
        bool stage = leave && fork() == 0;
        if (stage)
            close(lock.own);
        pid_t self = stage ? getpid() : 0;
        /* Of the two, the stage writes, when it has what a stage has. */
        if (leave == stage && write(ends[1], &self, sizeof self) != sizeof self)
            _exit(1);
        for (;;)
            pause();
    }
    ck_assert_int_eq(read(ends[0], left, sizeof *left), sizeof *left);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

START_TEST(the_lock_ends_with_its_holder)
{
    struct tunings_lock lock;
    pid_t left, pid = hold(false, &left);
    ck_assert_int_ne(tunings_lock(directory, NULL, &lock, &error), 0);
    ck_assert_int_eq(error.code, ERR_BUSY);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_msg(tunings_lock(directory, NULL, &lock, &error) == 0, "%s", error.text);
    tunings_unlock(&lock);

    volatile sig_atomic_t stop = 1;
    pid = hold(true, &left);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_ne(tunings_lock(directory, &stop, &lock, &error), 0);
    ck_assert_int_eq(error.code, ERR_CANCELLED);
    kill(left, SIGKILL);
    ck_assert_msg(tunings_lock(directory, NULL, &lock, &error) == 0, "%s", error.text);
    tunings_unlock(&lock);
}
END_TEST

static bool sleeps(pid_t pid)
{
    char path[64], text[512] = "", *end;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
    }
    return (end = strrchr(text, ')')) != NULL && end[2] == 'S';
}

/* A program between fork and exec has both locks of a tuning that was killed, and is killed soon
 * after it. */
START_TEST(a_lock_that_was_forked_is_waited_for)
{
    struct tunings_lock lock;
    pid_t left, holder = hold(false, &left), self = getpid();
    pid_t killer = fork();
    if (killer == 0) {
        while (!sleeps(self))
            continue;
        kill(holder, SIGKILL);
        _exit(0);
    }
    ck_assert_msg(tunings_lock(directory, NULL, &lock, &error) == 0, "%s", error.text);
    tunings_unlock(&lock);
    ck_assert_int_eq(waitpid(killer, NULL, 0), killer);
    ck_assert_int_eq(waitpid(holder, NULL, 0), holder);
}
END_TEST

/* ---- start ---- */

static char lines[2][20000];
static unsigned line_count;

static void take_all_lines(void *arg, const char *line)
{
    (void)arg;
    if (line_count < 2)
        snprintf(lines[line_count], sizeof lines[0], "%s", line);
    line_count++;
}

static int start(void)
{
    struct tuning_start s = {
        .command = "run", .model = model, .max_loss = 1, .budget = 1000, .say = take_all_lines};
    line_count = 0;
    return tuning_offer(&s, &found, &error);
}

START_TEST(the_command_is_quoted)
{
    static const char *const names[][2] = {{"plain.gguf", "plain.gguf --budget"},
                                           {"a b.gguf", "a b.gguf' --budget"},
                                           {"it's.gguf", "it'\\''s.gguf' --budget"},
                                           {"$(x);.gguf", "$(x);.gguf' --budget"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(model, sizeof model, "%s/%s", dir, names[i][0]);
        write_text(model, "GGUF");
        ck_assert_int_eq(start(), 0);
        ck_assert_uint_eq(line_count, 1);
        ck_assert_msg(strstr(lines[0], names[i][1]), "%s", lines[0]);
        bool quoted = strstr(lines[0], "-m '") != NULL;
        ck_assert_msg(quoted == (i > 0), "%s", lines[0]);
    }
}
END_TEST

START_TEST(names_of_cpus)
{
    static const char *const files[][2] = {
        {"processor\t: 0\nmodel name\t: AMD EPYC 9R14\nflags\t: fpu\n", "AMD EPYC 9R14"},
        {"processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n"
         "processor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n",
         "ARM 0x41 0xd0b"},
        {"model name\t: a\x01\xff b\n", "a b"},
        {"CPU implementer\n", ""},
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char name[TUNINGS_CPU_BYTES];
        char text[256];
        strcpy(text, files[i][0]);
        FILE *f = fmemopen(text, strlen(text) > 0 ? strlen(text) : 1, "r");
        ck_assert_ptr_nonnull(f);
        tunings_cpu_of(f, name);
        fclose(f);
        ck_assert_str_eq(name, files[i][1]);
    }
}
END_TEST

START_TEST(another_cpu_is_reported)
{
    static struct tuning t;
    char cpu[TUNINGS_CPU_BYTES];
    tunings_cpu(cpu);
    record(1, 1000, "one");
    ck_assert_int_eq(start(), 1);
    ck_assert_uint_eq(line_count, 1); /* the record states none */
    t = found;
    strcpy(t.cpu, cpu);
    ck_assert_int_eq(tunings_write(directory, &t, &error), 0);
    ck_assert(start() == 1 && line_count == 1);
    strcpy(t.cpu, "another");
    ck_assert_int_eq(tunings_write(directory, &t, &error), 0);
    ck_assert(start() == 1 && line_count == (cpu[0] ? 2 : 1));
    ck_assert(!cpu[0] || strstr(lines[1], "another CPU (another)"));
}
END_TEST

/* The loss of a tuning holds for the text that it was made with. */
START_TEST(domain_is_reported)
{
    static struct tuning t;
    record(1, 1000, "one");
    ck_assert_int_eq(start(), 1);
    ck_assert(!found.domain[0] && !strstr(lines[0], "only"));
    t = found;
    strcpy(t.domain, "prose");
    ck_assert_int_eq(tunings_write(directory, &t, &error), 0);
    ck_assert_int_eq(start(), 1);
    ck_assert_str_eq(found.domain, "prose");
    ck_assert_msg(strstr(lines[0], "loss at most 0.50 % on text such as 'prose' only"), "%s",
                  lines[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tunings");
    TCase *tests = tcase_create("tunings");
    tcase_add_checked_fixture(tests, make_files, remove_files);
    tcase_add_test(tests, nearest_of_those_allowed);
    tcase_add_test(tests, what_is_gone_or_damaged_is_ignored);
    tcase_add_test(tests, the_model_of_a_store_has_moved);
    tcase_add_test(tests, copies_keep_their_records);
    tcase_add_test(tests, another_model_has_another_directory);
    tcase_add_test(tests, all_parts_of_a_split_file_count);
    tcase_add_test(tests, their_number_is_limited);
    tcase_add_test(tests, stores_that_no_record_uses);
    tcase_add_test(tests, what_cannot_be_judged_is_kept);
    tcase_add_test(tests, only_files_of_a_store_are_removed);
    tcase_add_test(tests, the_lock_ends_with_its_holder);
    tcase_add_test(tests, a_lock_that_was_forked_is_waited_for);
    tcase_add_test(tests, the_command_is_quoted);
    tcase_add_test(tests, names_of_cpus);
    tcase_add_test(tests, another_cpu_is_reported);
    tcase_add_test(tests, domain_is_reported);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
