/* SPDX-License-Identifier: Apache-2.0 */
/* Invalid model files and stores: one error line, the documented exit status, nothing left behind.
 * And a model file that changes while the engine runs. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/tensor/tensor_type.h"
#include "tests/scenario/baseline.h"
#include "tests/unit/lib/model/store_make.h"

#define END_MS     30000
#define HEAD_BYTES 1000000 /* includes the tensor table */

/* Writes the first `bytes` of the demo model (0: all) with `patch` at the start. */
static void make_model(const char *path, size_t bytes, const void *patch, size_t patch_bytes)
{
    int in = open(test_model(), O_RDONLY | O_CLOEXEC);
    int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(in >= 0 && out >= 0, "cannot copy %s", test_model());
    struct stat st;
    fstat(in, &st);
    char *buf = malloc((size_t)st.st_size);
    size_t n = bytes ? bytes : (size_t)st.st_size;
    CHECK(buf && read(in, buf, (size_t)st.st_size) == st.st_size, "cannot read the model");
    memcpy(buf, patch, patch_bytes);
    CHECK(write(out, buf, n) == (ssize_t)n, "cannot write %s", path);
    free(buf);
    close(in);
    close(out);
}

/* `sluice generate` on the file ends with status 2 and one line. */
static void rejected(const char *path)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "-m", path, "-p", "x", "-n", "4", NULL});
    CHECK(c.status == 2, "status %d: %.300s", c.status, c.err);
    CHECK(c.out_bytes == 0, "unexpected output on stdout: %.100s", c.out);
    CHECK(command_lines(c.err) == 1, "%zu lines: %.400s", command_lines(c.err), c.err);
    CHECK(!strstr(c.err, "assert") && !strstr(c.err, "panic"), "%.300s", c.err);
    test_note("%.*s", (int)strcspn(c.err, "\n"), c.err);
    command_free(&c);
    /* `sluice run` reports it too. */
    command_run(&c, NULL, END_MS,
                (const char *const[]){"run", "--name=bad", "--log-level=error", "-m", path, NULL});
    CHECK(c.status == 2, "run: status %d: %.300s", c.status, c.err);
    CHECK(command_lines(c.err) == 1, "run: %zu lines: %.400s", command_lines(c.err), c.err);
    command_free(&c);
}

static void file_truncated(void)
{
    static const size_t lengths[] = {3, 24, 1000, 100000, 1000000, 29000000};
    char path[PATH_MAX];
    path_in_dir(path, "truncated.gguf");
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        make_model(path, lengths[i], "", 0);
        rejected(path);
    }
}

static void file_empty(void)
{
    char path[PATH_MAX];
    path_in_dir(path, "empty.gguf");
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    rejected(path);
}

static void file_random(void)
{
    char path[PATH_MAX], bytes[65536];
    path_in_dir(path, "random.gguf");
    srand(7);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)rand();
    make_model(path, sizeof bytes, bytes, sizeof bytes);
    rejected(path);
}

static void file_directory(void)
{
    rejected(test_dir());
}

static void file_absent(void)
{
    char path[PATH_MAX];
    path_in_dir(path, "absent.gguf");
    rejected(path);
}

static void file_wrong_magic(void)
{
    char path[PATH_MAX];
    path_in_dir(path, "magic.gguf");
    make_model(path, 0, "GGML", 4);
    rejected(path);
}

static void file_absurd_counts(void)
{
    static const unsigned char head[24] = {'G',  'G',  'U',  'F',  3,    0,    0,    0,
                                           0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
                                           0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
    char path[PATH_MAX];
    path_in_dir(path, "absurd.gguf");
    make_model(path, 0, head, sizeof head);
    rejected(path);
}

/* A GGUF file with a tensor type that only stores may have. */
static void file_of_own_types(void)
{
    char path[PATH_MAX];
    uint64_t name_bytes;
    uint32_t dims, own = TENSOR_C8;
    static const char name[] = "blk.0.ffn_gate_exps.weight";
    path_in_dir(path, "own.gguf");
    make_model(path, 0, "", 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char *head = malloc(HEAD_BYTES);
    CHECK(fd >= 0 && head && read(fd, head, HEAD_BYTES) == HEAD_BYTES, "cannot read %s", path);
    const char *at = memmem(head, HEAD_BYTES, name, sizeof name - 1);
    CHECK(at, "no tensor %s", name);
    memcpy(&name_bytes, at - sizeof name_bytes, sizeof name_bytes);
    memcpy(&dims, at + name_bytes, sizeof dims);
    CHECK(name_bytes == sizeof name - 1 && dims == 3,
          "the test does not find the tensor in the file");
    off_t type = at - head + (off_t)(name_bytes + sizeof dims + dims * sizeof(uint64_t));
    free(head);
    for (; own <= TENSOR_G2; own++) {
        CHECK(pwrite(fd, &own, sizeof own, type) == sizeof own, "cannot write %s", path);
        rejected(path);
    }
    close(fd);
}

/* ---- stores ---- */

static void store_of_demo(char path[PATH_MAX], uint64_t seed)
{
    struct error error;
    struct store_make how = {.stripes = 2, .precision_mask = 1, .seed = seed};
    snprintf(path, PATH_MAX, "%s/store-%" PRIu64, test_dir(), seed);
    CHECK(store_make(test_model(), path, &how, &error) == 0, "%s", error.text);
}

static void member(char path[PATH_MAX], const char *store, const char *name)
{
    CHECK((size_t)snprintf(path, PATH_MAX, "%s/%s", store, name) < PATH_MAX, "too long");
}

/* Flips a bit of a member at an offset. */
static void flip(const char *store, const char *name, off_t at)
{
    char path[PATH_MAX], byte;
    member(path, store, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1, "%s: %s", path, strerror(errno));
    byte ^= 4;
    CHECK(pwrite(fd, &byte, 1, at) == 1, "%s: %s", path, strerror(errno));
    close(fd);
}

static void store_stripe_truncated(void)
{
    char store[PATH_MAX], path[PATH_MAX];
    store_of_demo(store, 0);
    member(path, store, "experts.1.bin");
    CHECK(truncate(path, 1000000) == 0, "%s", strerror(errno));
    rejected(store);
}

static void store_stripe_missing(void)
{
    char store[PATH_MAX], path[PATH_MAX];
    store_of_demo(store, 0);
    member(path, store, "experts.0.bin");
    CHECK(unlink(path) == 0, "%s", strerror(errno));
    rejected(store);
}

/* Stripes of another store, and stripes in the wrong order. */
static void store_stripe_exchanged(void)
{
    char store[PATH_MAX], other[PATH_MAX], from[PATH_MAX], to[PATH_MAX];
    store_of_demo(store, 0);
    store_of_demo(other, 1);
    member(from, other, "experts.1.bin");
    member(to, store, "experts.1.bin");
    CHECK(rename(from, to) == 0, "%s", strerror(errno));
    rejected(store);
    member(from, store, "experts.0.bin");
    CHECK(rename(from, to) == 0 && link(to, from) == 0, "%s", strerror(errno));
    rejected(store);
}

static void store_model_wrong(void)
{
    char store[PATH_MAX], path[PATH_MAX];
    store_of_demo(store, 0);
    flip(store, STORE_MODEL_FILE, 3000000); /* inside a dense tensor */
    rejected(store);
    member(path, store, STORE_MODEL_FILE);
    make_model(path, 0, "", 0); /* the whole model */
    rejected(store);
}

static void store_table_damaged(void)
{
    char store[PATH_MAX];
    store_of_demo(store, 0);
    flip(store, STORE_ENTRIES_FILE, 2000);
    rejected(store);
}

static void store_manifest_damaged(void)
{
    char store[PATH_MAX], path[PATH_MAX];
    store_of_demo(store, 0);
    flip(store, STORE_MANIFEST_FILE, 30);
    rejected(store);
    member(path, store, STORE_MANIFEST_FILE);
    CHECK(truncate(path, 700) == 0, "%s", strerror(errno));
    rejected(store);
    CHECK(unlink(path) == 0, "%s", strerror(errno)); /* as a killed packer leaves it */
    rejected(store);
}

/* ---- the file changes while the engine runs ---- */

/* After the change: the correct text or a named error; no process exits, the engine still
 * serves. */
static void still_there(struct engine *e, const char *what)
{
    struct text got;
    json_t *doc = engine_stats(e);
    uint64_t restarts = lookup_restarts(doc);
    json_decref(doc);
    for (unsigned i = 0; i < TEST_PROMPTS; i++) {
        generation_finish(generation_start(e, test_prompt(i), BASELINE_TOKENS), 120000, &got);
        if (got.error.code == ERR_NONE)
            text_check_same(baseline(i), &got, what);
        else
            test_note("%s: %s (%s)", what, got.error.text, error_name(got.error.code));
        text_free(&got);
    }
    doc = engine_stats(e);
    CHECK(lookup_restarts(doc) == restarts, "%s: a process exited", what);
    json_decref(doc);
}

static void file_replaced(void)
{
    char path[PATH_MAX], other[PATH_MAX];
    path_in_dir(path, "model.gguf");
    path_in_dir(other, "other.gguf");
    baseline(0);
    make_model(path, 0, "", 0);
    make_model(other, 0, "GGML", 4);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=12.5", "--load-timeout=3000", "-m",
                                          path, NULL});
    CHECK(rename(other, path) == 0, "rename: %s", strerror(errno));
    still_there(e, "file replaced");
    engine_stop(e);
}

static void file_shrunk(void)
{
    char path[PATH_MAX];
    path_in_dir(path, "model.gguf");
    baseline(0);
    make_model(path, 0, "", 0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=12.5", "--load-timeout=3000", "-m",
                                          path, NULL});
    CHECK(truncate(path, 8192) == 0, "truncate: %s", strerror(errno));
    still_there(e, "file shrunk");
    engine_stop_with(e, 1); /* the model changed in place */
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(file_truncated),
        ROW(file_empty),
        ROW(file_random),
        ROW(file_directory),
        ROW(file_absent),
        ROW(file_wrong_magic),
        ROW(file_absurd_counts),
        ROW(file_of_own_types),
        ROW(file_replaced),
        ROW(file_shrunk),
        ROW(store_stripe_truncated),
        ROW(store_stripe_missing),
        ROW(store_stripe_exchanged),
        ROW(store_model_wrong),
        ROW(store_table_damaged),
        ROW(store_manifest_damaged),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
