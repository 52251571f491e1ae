/* SPDX-License-Identifier: Apache-2.0 */
/* Stores with real processes: the same text as from the GGUF file, for any number of stripes and
 * any mix of precisions, also while loaders are killed. Damaged bytes never affect a text, only the
 * sequences that need them fail. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "shm/directory/directory.h"
#include "shm/segment/inherited_fds.h"
#include "tests/scenario/baseline.h"
#include "tests/unit/lib/model/store_make.h"

#define FINISH_MS 120000

static void make_store(char path[PATH_MAX], struct store_make how)
{
    struct error error;
    snprintf(path, PATH_MAX, "%s/store", test_dir());
    CHECK(store_make(test_model(), path, &how, &error) == 0, "%s", error.text);
}

/* ---- one text -------------------------------------------------------------------------------- */

static void same_text(const struct store_make *how, const char *const options[])
{
    char path[PATH_MAX];
    const char *all[16] = {"-m", path};
    make_store(path, *how);
    for (size_t i = 0; options[i]; i++)
        all[2 + i] = options[i];
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, all);
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, options[0]);
    json_t *doc = engine_stats(e);
    uint64_t verified = lookup_counter(doc, "loader", "checksums_verified");
    uint64_t failed = lookup_counter(doc, "loader", "checksums_failed");
    uint64_t summed = lookup_counter(doc, "loader", "checksum_bytes");
    uint64_t ns = lookup_counter(doc, "loader", "checksum_ns");
    uint64_t evictions = lookup_counter(doc, "cache", "evictions");
    uint64_t restarts = lookup_restarts(doc);
    json_decref(doc);
    CHECK(verified > 0 && failed == 0, "%" PRIu64 " correct checksums, %" PRIu64 " wrong", verified,
          failed);
    CHECK(evictions > 0, "nothing was evicted: the budget is too large for the test");
    CHECK(restarts == 0, "%" PRIu64 " restarts", restarts);
    test_note("%u stripes, %s: %" PRIu64 " shards verified, %.2f ms of the loader per MiB",
              how->stripes, options[0], verified,
              (double)ns / 1e6 / ((double)summed / (double)MIB));
    engine_pid(e, "loader", how->stripes - 1, 0); /* the last loader: one per stripe */
    engine_stop(e);
}

#define CASE(name, how, ...)                                                                       \
    static void name(void)                                                                         \
    {                                                                                              \
        static const struct store_make made = how;                                                 \
        same_text(&made, (const char *const[]){__VA_ARGS__, NULL});                                \
    }
#define HOW(...)                                                                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

CASE(one_stripe, HOW(.stripes = 1, .precision_mask = 1), "--resident-experts=25")
CASE(two_stripes, HOW(.stripes = 2, .precision_mask = 1), "--resident-experts=25")
CASE(three_stripes, HOW(.stripes = 3, .precision_mask = 1), "--resident-experts=12.5",
     "--backend=pread")
CASE(sixteen_stripes, HOW(.stripes = 16, .precision_mask = 1), "--resident-experts=50",
     "--io-size=8192")
CASE(native_among_others, HOW(.stripes = 2, .precision_mask = 7), "--resident-experts=25")
CASE(scattered_over_precisions, HOW(.stripes = 2, .precision_mask = 13, .scattered = true),
     "--resident-experts=25")
CASE(without_native, HOW(.stripes = 1, .precision_mask = 4), "--preset=iq4",
     "--resident-experts=25")
CASE(page_cache, HOW(.stripes = 2, .precision_mask = 1), "--resident-experts=25", "--direct-io=off")
CASE(spread_over_two, HOW(.stripes = 2, .precision_mask = 1, .spread = true),
     "--resident-experts=25")
CASE(spread_over_five, HOW(.stripes = 5, .precision_mask = 5, .spread = true, .scattered = true),
     "--resident-experts=12.5", "--backend=pread")
CASE(explicit_loaders, HOW(.stripes = 2, .precision_mask = 1), "--resident-experts=25",
     "--loaders=5")

/* Prefetches load the precision that will be requested: the other precision is never read, so
 * nothing is evicted. */
static void hints_name_the_precision(void)
{
    char path[PATH_MAX];
    make_store(path, (struct store_make){.stripes = 1, .precision_mask = 5});
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--preset=iq4", "--resident-experts=100",
                                          "--policy=prefetch=idle,prediction=next-layer", NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "iq4 with prefetch");
    uint64_t prefetches = engine_counter(e, "cache", "prefetches");
    uint64_t evictions = engine_counter(e, "cache", "evictions");
    CHECK(prefetches > 0, "nothing was prefetched");
    CHECK(evictions == 0, "%" PRIu64 " evictions although all of int4 fits", evictions);
    engine_stop(e);
}

/* bench tokenises a text with the store's own tokenizer. */
static void bench_of_a_text(void)
{
    char path[PATH_MAX], text[PATH_MAX];
    struct command c;
    make_store(path, (struct store_make){.stripes = 1, .precision_mask = 1});
    snprintf(text, sizeof text, "%s/text", test_dir());
    FILE *f = fopen(text, "we");
    CHECK(f, "cannot write %s", text);
    for (int i = 0; i < 8; i++)
        fputs("It was a dark and stormy night, and the king had three sons. ", f);
    fclose(f);
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"bench", "-m", path, "-p", "0", "-n", "8", "-r", "1",
                                      "--text", text, "-o", "csv", NULL});
    CHECK(c.status == 0, "status %d: %.200s", c.status, c.err);
    CHECK(strstr(c.out, "tg8"), "no rate: %.200s", c.out);
    command_free(&c);
}

/* The loaders of the stripes are killed in turn during generations. */
static void loaders_killed(void)
{
    char path[PATH_MAX];
    make_store(path, (struct store_make){.stripes = 2, .precision_mask = 3, .scattered = true});
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", NULL});
    for (unsigned round = 0; round < 4; round++) {
        unsigned number = round % 2, prompt = round % TEST_PROMPTS;
        pid_t pid = engine_pid(e, "loader", number, 0);
        struct generation *g = generation_start(e, test_prompt(prompt), baseline_tokens());
        uint64_t deadline = deadline_in(FINISH_MS);
        while (generation_tokens(g) < baseline_tokens() * (round + 1) / 5 && !generation_done(g))
            CHECK(deadline_tick(deadline), "no tokens");
        CHECK(kill(pid, SIGKILL) == 0, "loader %u exited on its own", number);
        engine_pid(e, "loader", number, pid);
        struct text got;
        generation_finish(g, FINISH_MS, &got);
        text_check_same(baseline(prompt), &got, "a loader killed");
        text_free(&got);
    }
    CHECK(engine_counter(e, "loader", "checksums_failed") == 0, "wrong sums");
    engine_stop(e);
}

/* inspect reports the contents of the store, whose name may be relative. */
static void described(void)
{
    char path[PATH_MAX], relative[PATH_MAX + 64];
    make_store(path, (struct store_make){.stripes = 3, .precision_mask = 5, .scattered = true});
    snprintf(relative, sizeof relative, "../../../../../../../../../../../..%s", path);
    struct command c;
    command_run(&c, NULL, FINISH_MS, (const char *const[]){"inspect", "--json", relative, NULL});
    CHECK(c.status == 0, "status %d: %.300s", c.status, c.err);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    json_t *precisions = json_object_get(doc, "precisions"),
           *stripes = json_object_get(doc, "stripes");
    CHECK(json_array_size(precisions) == 2 && json_array_size(stripes) == 3, "%.400s", c.out);
    json_int_t experts = 0, bytes = 0;
    for (size_t i = 0; i < 2; i++) {
        json_t *precision = json_array_get(precisions, i);
        CHECK(strcmp(json_string_value(json_object_get(precision, "precision")),
                     i ? "int4" : "native") == 0,
              "%.400s", c.out);
        experts += json_integer_value(json_object_get(precision, "experts"));
        bytes += json_integer_value(json_object_get(precision, "bytes"));
    }
    CHECK(experts == 8 * 32, "%d experts", (int)experts);
    CHECK(bytes == json_integer_value(json_object_get(doc, "expert_bytes")), "%.400s", c.out);
    for (size_t i = 0; i < 3; i++) {
        char name[PATH_MAX + 32];
        struct stat st;
        json_t *stripe = json_array_get(stripes, i);
        snprintf(name, sizeof name, "%s/experts.%zu.bin", path, i);
        CHECK(strcmp(json_string_value(json_object_get(stripe, "path")), name) == 0, "%.400s",
              c.out);
        CHECK(stat(name, &st) == 0 &&
                  st.st_size == json_integer_value(json_object_get(stripe, "bytes")),
              "%s", name);
    }
    json_decref(doc);
    command_free(&c);
    command_run(&c, NULL, FINISH_MS, (const char *const[]){"inspect", path, NULL});
    CHECK(c.status == 0 && strstr(c.out, "128 experts, Q8_0") && strstr(c.out, "experts.2.bin"),
          "%.1000s", c.out);
    command_free(&c);
}

/* Copies of the stripes in other places, by --devices. */
static void stripes_copied(void)
{
    char path[PATH_MAX], copy[PATH_MAX + 16], storages[2 * PATH_MAX + 80];
    make_store(path, (struct store_make){.stripes = 2, .precision_mask = 1});
    snprintf(copy, sizeof copy, "%s-copy", path);
    struct error error;
    CHECK(store_make(test_model(), copy, &(struct store_make){.stripes = 2, .precision_mask = 1},
                     &error) == 0,
          "%s", error.text);
    snprintf(storages, sizeof storages, "--devices=%s/experts.0.bin,%s/experts.1.bin", copy, copy);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", storages, NULL});
    baseline_compare(e, 1, "stripes copied");
    engine_stop(e);
}

/* ---- mirrors --------------------------------------------------------------------------------- */

static void flip(const char *store, uint32_t stripes);

/* One expert is damaged in its stripe: it is read from the mirror, and the device stays in use. */
static void wrong_bytes_are_in_the_mirror(void)
{
    char path[PATH_MAX];
    make_store(path, (struct store_make){.stripes = 2, .precision_mask = 1, .mirrored = true});
    flip(path, 2);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "a damaged stripe with a mirror");
    json_t *doc = engine_stats(e);
    uint64_t failed = lookup_counter(doc, "loader", "checksums_failed");
    uint64_t moved = lookup_counter(doc, "loader", "parts_failed_over");
    uint64_t quarantined = lookup_counter(doc, "loader", "quarantined");
    json_decref(doc);
    CHECK(moved > 0 && failed == 2 * moved,
          "%" PRIu64 " wrong checksums, %" PRIu64 " read from the mirror", failed, moved);
    CHECK(quarantined == 0, "the device was quarantined for one damaged expert");
    engine_stop(e);
}

static uint64_t read_by_second(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t bytes = lookup_u64(lookup_process(doc, "loader", 1), "counters.bytes_published");
    json_decref(doc);
    return bytes;
}

/* A stripe that is missing at the start, and one that is truncated while the engine runs. */
static void missing_stripes_are_in_the_mirror(void)
{
    char path[PATH_MAX], stripe[PATH_MAX + 32];
    make_store(path, (struct store_make){
                         .stripes = 2, .precision_mask = 1, .mirrored = true, .spread = true});
    snprintf(stripe, sizeof stripe, "%s/experts.0.bin", path);
    CHECK(unlink(stripe) == 0, "%s", strerror(errno));
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", NULL});
    baseline_compare(e, 0, "a stripe is missing");
    snprintf(stripe, sizeof stripe, "%s/experts.1.bin", path);
    CHECK(truncate(stripe, 8192) == 0, "%s", strerror(errno));
    uint64_t before = read_by_second(e);
    baseline_compare(e, 1, "a stripe was cut");
    CHECK(read_by_second(e) > before + 8192, "its loader did not read the mirror");
    json_t *doc = engine_stats(e);
    CHECK(lookup_restarts(doc) == 0, "a process exited");
    json_decref(doc);
    engine_stop(e);
}

/* Without a mirror, a missing stripe makes the start fail with its name. */
static void missing_stripes_are_named(void)
{
    char path[PATH_MAX], stripe[PATH_MAX + 32];
    struct command c;
    make_store(path, (struct store_make){.stripes = 2, .precision_mask = 1, .spread = true});
    snprintf(stripe, sizeof stripe, "%s/experts.1.bin", path);
    CHECK(unlink(stripe) == 0, "%s", strerror(errno));
    command_run(&c, NULL, FINISH_MS, (const char *const[]){"inspect", path, NULL});
    CHECK(c.status == 2 && strstr(c.err, "experts.1.bin"), "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

/* ---- damaged bytes --------------------------------------------------------------------------- */

/* The damaged expert: the long prompts access it, SPARING does not. This depends on the demo model;
 * the test checks both. */
#define BAD_LAYER  4u
#define BAD_EXPERT 9u
#define SPARING    "The"

/* Flips a bit in the middle of an expert's first page in stripe 0. */
static void flip(const char *store, uint32_t stripes)
{
    char path[PATH_MAX + 32];
    uint64_t record;
    unsigned char byte;
    snprintf(path, sizeof path, "%s/" STORE_ENTRIES_FILE, store);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t at = (off_t)(sizeof(struct store_entries_head) +
                       (BAD_LAYER * 32 + BAD_EXPERT) * 8 * (1 + (uint64_t)stripes));
    CHECK(fd >= 0 && pread(fd, &record, 8, at) == 8, "%s: %s", path, strerror(errno));
    close(fd);
    snprintf(path, sizeof path, "%s/experts.0.bin", store);
    fd = open(path, O_RDWR | O_CLOEXEC);
    off_t where = (off_t)record + 2000;
    CHECK(fd >= 0 && pread(fd, &byte, 1, where) == 1, "%s: %s", path, strerror(errno));
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, where) == 1, "%s: %s", path, strerror(errno));
    close(fd);
}

static void expect_checksum_error(struct generation *g)
{
    struct text got;
    char name[64];
    generation_finish(g, FINISH_MS, &got);
    snprintf(name, sizeof name, "expert %u of layer %u", BAD_EXPERT, BAD_LAYER);
    CHECK(got.error.code == ERR_IO, "%s: %s", error_name(got.error.code), got.error.text);
    CHECK(strstr(got.error.text, "checksum") && strstr(got.error.text, name), "%s", got.error.text);
    CHECK(!strchr(got.error.text, '\n'), "more than one line: %s", got.error.text);
    test_note("%s", got.error.text);
    text_free(&got);
}

static void byte_flipped(void)
{
    char path[PATH_MAX];
    struct text sparing, got;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=100", "--threads=1", NULL});
    engine_generate(e, SPARING, 2, &sparing);
    engine_stop(e);

    make_store(path, (struct store_make){.stripes = 2, .precision_mask = 1});
    flip(path, 2);
    e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", NULL});
    /* Four clients at once: those that need the expert get an error, the others the correct
     * text. */
    struct generation *g[] = {
        generation_start(e, test_prompt(1), 100), generation_start(e, SPARING, 2),
        generation_start(e, test_prompt(2), 100), generation_start(e, SPARING, 2)};
    for (size_t i = 0; i < ARRAY_LEN(g); i++) {
        if (i % 2 == 0) {
            expect_checksum_error(g[i]);
            continue;
        }
        generation_finish(g[i], FINISH_MS, &got);
        text_check_same(&sparing, &got, "text of another client");
        text_free(&got);
    }
    json_t *doc = engine_stats(e);
    uint64_t failed = lookup_counter(doc, "loader", "checksums_failed");
    uint64_t rereads = lookup_counter(doc, "loader", "checksum_rereads");
    uint64_t restarts = lookup_restarts(doc);
    json_decref(doc);
    CHECK(failed >= 4 && failed == 2 * rereads,
          "%" PRIu64 " wrong checksums, %" PRIu64 " read again", failed, rereads);
    CHECK(restarts == 0, "%" PRIu64 " restarts", restarts);
    text_free(&sparing);
    engine_stop(e);
}

/* ---- damaged in memory ----------------------------------------------------------------------- */

/* Overwrites bytes of every expert in memory, through the descriptor of the loader; their
 * number. */
static uint64_t damage(pid_t loader)
{
    unsigned char wrong[256];
    memset(wrong, 0x7f, sizeof wrong);
    char path[64];
    struct stat st;
    uint64_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)loader,
             INHERITED_SEGMENTS + SEGMENT_DIRECTORY);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0, "%s: %s", path, strerror(errno));
    char *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(base != MAP_FAILED, "%s", strerror(errno));
    close(fd);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)loader, INHERITED_SEGMENTS + SEGMENT_ARENA);
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0, "%s: %s", path, strerror(errno));
    const struct directory_head *head = (const void *)base;
    struct directory_entry *entries = (void *)(base + head->entries_offset);
    for (uint32_t i = head->dense_count; i < head->entry_count; i++) {
        if (entry_state_of(atomic_load(&entries[i].word)) != ENTRY_READY)
            continue;
        off_t at = (off_t)atomic_load(&entries[i].arena_offset) + 1024;
        CHECK(pwrite(fd, wrong, sizeof wrong, at) == sizeof wrong, "%s", strerror(errno));
        count++;
    }
    close(fd);
    munmap(base, (size_t)st.st_size);
    return count;
}

static void wait_dropped(struct engine *e, uint64_t count)
{
    uint64_t deadline = deadline_in(FINISH_MS), dropped;
    while ((dropped = engine_counter(e, "cache", "experts_damaged")) < count)
        CHECK(deadline_tick(deadline), "%" PRIu64 " of %" PRIu64 " damaged experts were noticed",
              dropped, count);
    CHECK(dropped == count, "%" PRIu64 " dropped, %" PRIu64 " damaged", dropped, count);
}

/* A process that may write the arena damages experts, and ends by a signal of the kernel. */
static void damaged_in_memory(const char *service, bool cache_killed)
{
    char path[PATH_MAX];
    make_store(path, (struct store_make){.stripes = 2, .precision_mask = 1});
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e,
                 (const char *const[]){"-m", path, "--resident-experts=100", "--keep-kv=0", NULL});
    baseline_compare(e, 0, "before the damage");
    pid_t cache = engine_pid(e, "cache", 0, 0), victim = engine_pid(e, service, 0, 0);
    uint64_t count = damage(engine_pid(e, "loader", 0, 0));
    CHECK(count >= 50, "only %" PRIu64 " experts are in memory", count);
    CHECK(kill(victim, SIGSEGV) == 0, "%s exited on its own", service);
    engine_pid(e, service, 0, victim);
    if (cache_killed) { /* perhaps in the middle of the verification: its successor starts again */
        CHECK(kill(cache, SIGKILL) == 0, "the cache exited on its own");
        engine_pid(e, "cache", 0, cache);
    }
    wait_dropped(e, count); /* the counter is that of both */
    baseline_compare(e, 0, "after the damage");
    engine_stop(e);
}

static void loader_damages_experts(void)
{
    damaged_in_memory("loader", false);
}

static void cache_damages_experts(void)
{
    damaged_in_memory("cache", false);
}

static void damage_is_found_by_a_successor(void)
{
    damaged_in_memory("loader", true);
}

/* After kill -9 nothing suggests a wild write, and nothing is compared. */
static void killed_loader_is_trusted(void)
{
    char path[PATH_MAX];
    make_store(path, (struct store_make){.stripes = 2, .precision_mask = 1});
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=100", NULL});
    baseline_compare(e, 0, "before");
    pid_t loader = engine_pid(e, "loader", 0, 0);
    CHECK(kill(loader, SIGKILL) == 0, "the loader exited on its own");
    engine_pid(e, "loader", 0, loader);
    baseline_compare(e, 0, "after");
    CHECK(engine_counter(e, "cache", "experts_rechecked") == 0, "experts were compared");
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(one_stripe),
        ROW(two_stripes),
        ROW(three_stripes),
        ROW(sixteen_stripes),
        ROW(spread_over_two),
        ROW(spread_over_five),
        ROW(wrong_bytes_are_in_the_mirror),
        ROW(missing_stripes_are_in_the_mirror),
        ROW(missing_stripes_are_named),
        ROW(native_among_others),
        ROW(scattered_over_precisions),
        ROW(hints_name_the_precision),
        ROW(without_native),
        ROW(page_cache),
        ROW(explicit_loaders),
        ROW(bench_of_a_text),
        ROW(loaders_killed),
        ROW(stripes_copied),
        ROW(described),
        ROW(byte_flipped),
        ROW(loader_damages_experts),
        ROW(cache_damages_experts),
        ROW(damage_is_found_by_a_successor),
        ROW(killed_loader_is_trusted),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
