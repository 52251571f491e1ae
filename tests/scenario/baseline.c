/* SPDX-License-Identifier: Apache-2.0 */
/* Generates reference texts once per build and model, and compares texts with them. The programs of
 * a build share them through a file: the texts belong to the bytes of the model and of the programs
 * that compute, whose hashes the file states. */
#include "tests/scenario/baseline.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"

#define DISTINCT_MIN (baseline_tokens() / 4)

static struct text texts[TEST_PROMPTS], firsts[TEST_PROMPTS]; /* firsts: of fewer tokens */
static bool made;

/* A text that repeats a few tokens may hide an error. The demo model's do, after a sentence. */
static void check_varies(const struct text *t, unsigned prompt)
{
    size_t distinct = 0;
    for (size_t i = 0; i < t->count; i++) {
        size_t first = 0;
        while (t->ids[first] != t->ids[i])
            first++;
        distinct += first == i;
    }
    test_note("prompt %u: %zu different tokens of %zu", prompt, distinct, t->count);
    CHECK(test_demo() || distinct >= DISTINCT_MIN, "too few different tokens");
}

static void generate(size_t tokens, struct text of[TEST_PROMPTS])
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=100", "--threads=1", NULL});
    for (unsigned p = 0; p < TEST_PROMPTS; p++)
        engine_generate(e, test_prompt(p), tokens, &of[p]);
    engine_stop(e);
}

/* ---- the file ---- */

static void hash_file(const char *path, XXH64_state_t *state)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0, "cannot open %s", path);
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    CHECK(bytes != MAP_FAILED, "cannot map %s", path);
    XXH64_update(state, bytes, (size_t)st.st_size);
    munmap(bytes, (size_t)st.st_size);
}

/* The hash of these files, up to a NULL, in hexadecimal. */
static void hash_files(const char *const paths[], char hash[17])
{
    XXH64_state_t *state = XXH64_createState();
    CHECK(state, "no memory");
    XXH64_reset(state, 0);
    for (; *paths; paths++)
        hash_file(*paths, state);
    snprintf(hash, 17, "%016llx", (unsigned long long)XXH64_digest(state));
    XXH64_freeState(state);
}

static void hash_programs(char hash[17])
{
    static const char *const names[] = {"run",   "inspect", "compute",
                                        "cache", "loader",  "predictor"};
    static char path[ARRAY_LEN(names)][PATH_MAX];
    const char *paths[ARRAY_LEN(names) + 1] = {0};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path[i], PATH_MAX, "%s/sluice-%s", test_libexec(), names[i]);
        if (access(path[i], X_OK) != 0)
            test_skip("%s is not built", path[i]);
        paths[i] = path[i];
    }
    hash_files(paths, hash);
}

static bool read_text(const json_t *row, struct text *t)
{
    const json_t *ids = json_object_get(row, "ids");
    t->count = json_array_size(ids);
    t->text = strdup(lookup_text(row, "text"));
    t->ids = calloc(t->count + 1, sizeof *t->ids);
    CHECK(t->text && t->ids, "no memory");
    for (size_t i = 0; i < t->count; i++)
        t->ids[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
    return t->count == baseline_tokens();
}

/* False if there is no such file, or it is of other programs. */
static bool read_texts(const char *path, const char *programs)
{
    json_t *doc = json_load_file(path, 0, NULL);
    const json_t *rows = json_object_get(doc, "texts");
    bool good = doc && strcmp(lookup_text(doc, "programs"), programs) == 0 &&
                json_array_size(rows) == TEST_PROMPTS;
    for (unsigned p = 0; good && p < TEST_PROMPTS; p++)
        good = read_text(json_array_get(rows, p), &texts[p]);
    json_decref(doc);
    return good;
}

/* Complete under another name before it has this one: others read it at any time. */
static void write_texts(const char *path, const char *programs)
{
    char part[PATH_MAX + 16];
    json_t *rows = json_array();
    for (unsigned p = 0; p < TEST_PROMPTS; p++) {
        json_t *ids = json_array();
        for (size_t i = 0; i < texts[p].count; i++)
            json_array_append_new(ids, json_integer(texts[p].ids[i]));
        json_array_append_new(rows, json_pack("{s:o, s:s}", "ids", ids, "text", texts[p].text));
    }
    json_t *doc = json_pack("{s:s, s:o}", "programs", programs, "texts", rows);
    snprintf(part, sizeof part, "%s.%d", path, (int)getpid());
    if (!doc || json_dump_file(doc, part, JSON_COMPACT) != 0 || rename(part, path) != 0)
        test_note("cannot write %s: every program generates the texts", path);
    json_decref(doc);
}

static void make(void)
{
    char path[PATH_MAX], model[17], programs[17];
    hash_files((const char *const[]){test_model(), NULL}, model);
    hash_programs(programs);
    mkdir(SLUICE_BASELINES, 0777);
    snprintf(path, sizeof path, SLUICE_BASELINES "/%s.json", model);
    if (!read_texts(path, programs)) {
        generate(baseline_tokens(), texts);
        write_texts(path, programs);
    }
    for (unsigned p = 0; p < TEST_PROMPTS; p++)
        check_varies(&texts[p], p);
    made = true;
}

unsigned baseline_tokens(void)
{
    return test_amount(AMOUNT_baseline_tokens);
}

const struct text *baseline(unsigned i)
{
    if (!made)
        make();
    return &texts[i];
}

static void compare(struct engine *e, unsigned i, const struct text *expected, const char *what)
{
    struct text got;
    char name[128];
    engine_generate(e, test_prompt(i), expected->count, &got);
    snprintf(name, sizeof name, "%s, prompt %u", what, i);
    text_check_same(expected, &got, name);
    text_free(&got);
}

/* Fewer tokens may end within a character, so their text is not one with its end cut off. */
void baseline_compare_first(struct engine *e, unsigned i, size_t tokens, const char *what)
{
    struct text expected = *baseline(i);
    CHECK(tokens <= expected.count, "a text has %zu tokens", expected.count);
    if (!firsts[i].text)
        generate(tokens, firsts);
    expected.count = tokens;
    expected.text = firsts[i].text;
    CHECK(firsts[i].count == tokens && expected.text[0], "%zu tokens without a text", tokens);
    compare(e, i, &expected, what);
}

void baseline_compare(struct engine *e, unsigned i, const char *what)
{
    compare(e, i, baseline(i), what);
}
