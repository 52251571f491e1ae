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

/* The program ends with status 2 and one line, which contains `text`. */
static void ends(const char *text, const char *const argv[])
{
    struct command c;
    command_run(&c, NULL, END_MS, argv);
    CHECK(c.status == 2, "%s: status %d: %.300s", argv[0], c.status, c.err);
    CHECK(c.out_bytes == 0, "%s: unexpected output on stdout: %.100s", argv[0], c.out);
    CHECK(command_lines(c.err) == 1, "%s: %zu lines: %.400s", argv[0], command_lines(c.err), c.err);
    CHECK(!strstr(c.err, "assert") && !strstr(c.err, "panic"), "%s: %.300s", argv[0], c.err);
    CHECK(strstr(c.err, text), "%s: not '%s': %.300s", argv[0], text, c.err);
    if (strcmp(argv[0], "generate") == 0)
        test_note("%.*s", (int)strcspn(c.err, "\n"), c.err);
    command_free(&c);
}

/* A file or a store that no program accepts. */
static void rejected_for(const char *path, const char *text)
{
    ends(text, (const char *const[]){"generate", "-m", path, "-p", "x", "-n", "4", NULL});
    ends(text, (const char *const[]){"run", "--name=bad", "--log-level=error", "-m", path, NULL});
}

static void rejected(const char *path)
{
    rejected_for(path, "");
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

/* ---- tensor types ---- */

#define EXPERTS "blk.0.ffn_down_exps.weight" /* rows of 128 elements in the demo model */

/* Where the tensor table has the sizes and the type of EXPERTS. */
struct place {
    off_t sizes, type;
};

static struct place place_of_experts(int fd)
{
    uint64_t name_bytes;
    uint32_t dims;
    static const char name[] = EXPERTS;
    char *head = malloc(HEAD_BYTES);
    CHECK(head && pread(fd, head, HEAD_BYTES, 0) == HEAD_BYTES, "cannot read the model");
    const char *at = memmem(head, HEAD_BYTES, name, sizeof name - 1);
    CHECK(at, "no tensor %s", name);
    memcpy(&name_bytes, at - sizeof name_bytes, sizeof name_bytes);
    memcpy(&dims, at + sizeof name - 1, sizeof dims);
    CHECK(name_bytes == sizeof name - 1 && dims == 3,
          "the test does not find the tensor in the file");
    off_t sizes = at - head + (off_t)(sizeof name - 1 + sizeof dims);
    free(head);
    return (struct place){sizes, sizes + (off_t)(dims * sizeof(uint64_t))};
}

/* The demo model, to be changed. */
static int open_model(char path[PATH_MAX])
{
    path_in_dir(path, "types.gguf");
    make_model(path, 0, "", 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0, "cannot open %s", path);
    return fd;
}

static void put_type(int fd, uint32_t type)
{
    CHECK(pwrite(fd, &type, sizeof type, place_of_experts(fd).type) == sizeof type,
          "cannot write the type");
}

/* Types that only stores may have, that do not exist, and that were withdrawn. */
static void file_of_other_types(void)
{
    static const struct {
        uint32_t type;
        const char *name;
    } types[] = {
        {TENSOR_C8, "C8"},       {TENSOR_C4, "C4"}, {TENSOR_C2, "C2"},
        {TENSOR_G4, "G4"},       {TENSOR_G2, "G2"}, {4, "Q4_2 (withdrawn)"},
        {5, "Q4_3 (withdrawn)"}, {99, "unknown"},   {UINT32_MAX, "unknown"},
    };
    char path[PATH_MAX], reason[128];
    int fd = open_model(path);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        put_type(fd, types[i].type);
        snprintf(reason, sizeof reason, "tensor " EXPERTS " is of type %s (%" PRIu32 ")",
                 types[i].name, types[i].type);
        rejected_for(path, reason);
        ends(reason, (const char *const[]){"inspect", path, NULL});
    }
    close(fd);
}

/* Rows that are no multiple of the type's block: of a type whose block is larger, and of another
 * length. */
static void file_of_odd_rows(void)
{
    static const struct {
        uint32_t type;
        uint64_t row;
        const char *reason;
    } cases[] = {
        {TENSOR_Q4_K, 128, "rows of 128 elements do not fit type Q4_K"},
        {TENSOR_Q6_K, 384, "rows of 384 elements do not fit type Q6_K"},
        {TENSOR_IQ1_M, 128, "rows of 128 elements do not fit type IQ1_M"},
        {TENSOR_TQ2_0, 128, "rows of 128 elements do not fit type TQ2_0"},
        {TENSOR_Q1_0, 64, "rows of 64 elements do not fit type Q1_0"},
        {TENSOR_NVFP4, 96, "rows of 96 elements do not fit type NVFP4"},
        {TENSOR_MXFP4, 16, "rows of 16 elements do not fit type MXFP4"},
        {TENSOR_Q8_0, 127, "rows of 127 elements do not fit type Q8_0"},
    };
    char path[PATH_MAX], reason[128];
    int fd = open_model(path);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        put_type(fd, cases[i].type);
        CHECK(pwrite(fd, &cases[i].row, 8, place_of_experts(fd).sizes) == 8, "cannot write");
        snprintf(reason, sizeof reason, "tensor " EXPERTS ": %s", cases[i].reason);
        rejected_for(path, reason);
        ends(reason, (const char *const[]){"inspect", path, NULL});
    }
    close(fd);
}

/* Cuts a model of that type inside a block of an expert: 5 blocks and `into` bytes after the
 * tensor's start. */
static void cut_inside_block(const char *mix, const char *type, uint64_t block, uint64_t into)
{
    char path[PATH_MAX], reason[128];
    path_in_dir(path, "cut.gguf");
    json_decref(command_json(
        END_MS, (const char *const[]){"synth", "-q", "-o", path, "tiny", "layers=2", "hidden=256",
                                      "expert_inner=256", "vocab=600", "--type", mix, NULL}));
    json_t *doc =
        command_json(END_MS, (const char *const[]){"inspect", path, "--tensors", "--json", NULL});
    const json_t *tensor;
    const char *name = "";
    size_t i;
    uint64_t offset = 0;
    json_array_foreach(json_object_get(doc, "tensor_list"), i, tensor)
    {
        name = lookup_text(tensor, "name");
        if (strstr(name, "blk.1.") && strstr(name, "_exps") &&
            strcmp(lookup_text(tensor, "type"), type) == 0) {
            offset = lookup_u64(tensor, "offset");
            break;
        }
    }
    CHECK(offset > 0, "no experts of type %s in a model of %s", type, mix);
    snprintf(reason, sizeof reason, "the file ends inside tensor %s", name);
    CHECK(truncate(path, (off_t)(offset + 5 * block + into)) == 0, "%s", strerror(errno));
    rejected_for(path, reason);
    ends(reason, (const char *const[]){"inspect", path, NULL});
    json_decref(doc);
}

static void file_cut_inside_block(void)
{
    cut_inside_block("Q4_K_M", "Q4_K", 144, 72);
    cut_inside_block("MXFP4", "MXFP4", 17, 1);
    cut_inside_block("MXFP4", "MXFP4", 17, 16);
}

/* More elements than buffers of kernels have: heads and their size are allowed, their product is
 * not. */
static void file_of_long_rows(void)
{
    char path[PATH_MAX];
    path_in_dir(path, "long.gguf");
    json_decref(command_json(
        END_MS, (const char *const[]){"synth", "-q", "-o", path, "tiny", "layers=1", "hidden=256",
                                      "heads=1024", "kv_heads=1", "head_size=128",
                                      "expert_inner=256", "vocab=600", "--type", "Q4_K_M", NULL}));
    rejected_for(path, "attn_output.weight: rows of 131072 elements are not supported");
    unlink(path);
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
        generation_finish(generation_start(e, test_prompt(i), baseline_tokens()), 120000, &got);
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
        ROW(file_of_other_types),
        ROW(file_of_odd_rows),
        ROW(file_cut_inside_block),
        ROW(file_replaced),
        ROW(file_shrunk),
        ROW(file_of_long_rows),
        ROW(store_stripe_truncated),
        ROW(store_stripe_missing),
        ROW(store_stripe_exchanged),
        ROW(store_model_wrong),
        ROW(store_table_damaged),
        ROW(store_manifest_damaged),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
