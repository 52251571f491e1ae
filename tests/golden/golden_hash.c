/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of logits, stored in data/hashes.json: the same on every instruction set, for any number
 * of threads and any chunk size. A change of the arithmetic (lib/kernels/ARITHMETIC.md) changes
 * them; it is then a decision: count up KERNEL_ARITHMETIC, and store what
 *
 *   golden_hash --print > tests/golden/data/hashes.json
 *
 * prints. Models: the demo model, the small models of every architecture, and random models of
 * every mix of tensor types, which `sluice synth` makes (data/type_losses.json lists the mixes; a
 * hash of each file shows whether it makes the same one). bits_test.c has hashes of every tensor
 * type. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/index/model_index.h"
#include "lib/offline/offline.h"
#include "tests/golden/reference.h"
#include "tests/harness/sample.h"

#define TOKENS    75 /* crosses an attention tile, not a multiple of any chunk below */
#define VOCAB_MIN 100

static const struct {
    uint32_t threads, chunk;
} cases[] = {{1, TOKENS}, {2, 7}, {1, 1}, {3, 64}};
#define MIX_CASES 2 /* of them, for a mix: the generic kernels take seconds */

static const char *const lists[] = {"arch/arch.json",     "arch/scaled.json", "arch/numpy.json",
                                    "arch/mla.json",      "arch/gemma4.json", "arch/oss.json",
                                    "arch/recurrent.json"};

/* Rows of one and of two super-blocks. */
static const char *const mix_shape[] = {
    "tiny",      "layers=1",       "hidden=512",       "heads=4",   "kv_heads=2", "head_size=128",
    "experts=6", "experts_used=2", "expert_inner=256", "vocab=600", "skew=0.3",   "locality=0.4",
};

static json_t *stored, *found;
static bool print;

static uint64_t hash_of(struct offline_model *m, const struct kernel_ops *ops, uint32_t threads,
                        uint32_t chunk)
{
    const struct offline_runner_config config = {
        .ops = ops, .threads = threads, .chunk = chunk, .context = TOKENS};
    struct error error;
    struct offline_runner *r = offline_runner_create(m, &config, &error);
    sl_assert(r);
    struct core *core = offline_core(r);
    uint32_t vocab = offline_index(m)->hparams.vocab, tokens[TOKENS];
    XXH64_state_t *state = XXH64_createState();
    sl_assert(vocab >= VOCAB_MIN && state);
    XXH64_reset(state, 0);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 7919 % vocab;
    for (uint32_t at = 0, n; at < TOKENS; at += n) {
        n = TOKENS - at < chunk ? TOKENS - at : chunk;
        sl_assert(core_forward(core, offline_sequence(r), tokens + at, at, n, &error) == 0);
        for (uint32_t row = 0; row < n; row++)
            XXH64_update(state, core_output(core, row, 1), vocab * sizeof(float));
    }
    uint64_t hash = XXH64_digest(state);
    XXH64_freeState(state);
    offline_runner_destroy(r);
    return hash;
}

/* In a run with --print: keeps the hash; true when it is done. */
static bool printed(const char *section, const char *key, const char *text)
{
    if (print)
        json_object_set_new(json_object_get(found, section), key, json_string(text));
    return print;
}

static const char *stored_hash(const char *section, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(stored, section), key));
    return text ? text : "stored";
}

static unsigned cases_met; /* after the first of a model and set */

static void check_model(struct offline_model *m, const char *key, size_t case_count)
{
    char text[32];
    const char *want = stored_hash("models", key);
    for (int isa = ISA__COUNT - 1; isa >= 0; isa--) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        for (size_t i = 0; ops && i < case_count; i++) {
            if (i > 0 && !test_sample(EVERY_hash_cases, &cases_met))
                continue;
            uint64_t hash = hash_of(m, ops, cases[i].threads, cases[i].chunk);
            snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
            if (printed("models", key, text))
                return;
            golden_check(strcmp(want, text) == 0,
                         "%s, %s, %u threads, chunk %u: hash of the logits is %s, not %s", key,
                         ops->name, cases[i].threads, cases[i].chunk, text, want);
        }
    }
}

static void check_file(const char *path, const char *name, size_t case_count)
{
    struct error error;
    struct offline_model *m = offline_open(path, model_index_build, &error);
    sl_assert(m);
    check_model(m, name, case_count);
    offline_close(m);
}

/* Of a file that a program of this tree made. */
static void check_bytes(const char *path, const char *key)
{
    FILE *f = fopen(path, "rb");
    char text[32], piece[4096];
    XXH64_state_t *state = XXH64_createState();
    sl_assert(f && state);
    XXH64_reset(state, 0);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        XXH64_update(state, piece, n);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)XXH64_digest(state));
    XXH64_freeState(state);
    fclose(f);
    if (!printed("files", key, text))
        golden_check(strcmp(stored_hash("files", key), text) == 0,
                     "%s: another file was made: %s, not %s", key, text, stored_hash("files", key));
}

static void check_list(const char *list)
{
    json_t *models = golden_json(list), *item;
    size_t i;
    json_array_foreach(models, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        char file[160], key[128];
        for (int q8 = 0; q8 <= json_is_true(json_object_get(item, "q8")); q8++) {
            snprintf(key, sizeof key, "%s%s", name, q8 ? "_q8" : "");
            snprintf(file, sizeof file, "arch/%s.gguf", key);
            if (q8)
                check_bytes(golden_path(file), key);
            check_file(golden_path(file), key, ARRAY_LEN(cases));
        }
    }
    sl_assert(i > 0);
    json_decref(models);
}

static bool synth(const char *path, const char *mix)
{
    const char *args[6 + ARRAY_LEN(mix_shape) + 1] = {SLUICE_SYNTH, "-q", "-o", path};
    size_t n = 4;
    for (size_t i = 0; i < ARRAY_LEN(mix_shape); i++)
        args[n++] = mix_shape[i];
    args[n++] = "--type";
    args[n++] = mix;
    posix_spawn_file_actions_t quiet; /* its summary, from the hashes that --print prints */
    pid_t pid;
    int status;
    sl_assert(posix_spawn_file_actions_init(&quiet) == 0 &&
              posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) ==
                  0);
    int rc = posix_spawn(&pid, args[0], &quiet, NULL, (char *const *)(uintptr_t)args, environ);
    sl_assert(rc == 0);
    posix_spawn_file_actions_destroy(&quiet);
    while (waitpid(pid, &status, 0) < 0)
        sl_assert(errno == EINTR);
    golden_check(status == 0, "synth of %s: status %d", mix, status);
    return status == 0;
}

static void check_mixes(void)
{
    char dir[] = "/tmp/golden-hash-XXXXXX", path[64];
    sl_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/mix.gguf", dir);
    json_t *doc = golden_json("type_losses.json"), *unused;
    const char *mix;
    sl_assert(json_object_size(json_object_get(doc, "mixes")) > 30);
    json_object_foreach(json_object_get(doc, "mixes"), mix, unused)
    {
        if (synth(path, mix)) {
            check_bytes(path, mix);
            check_file(path, mix, MIX_CASES);
        }
        unlink(path);
    }
    json_decref(doc);
    rmdir(dir);
}

int main(int argc, char **argv)
{
    log_init("golden", LOG_LEVEL_INFO);
    print = argc > 1 && strcmp(argv[1], "--print") == 0;
    if (print)
        found = json_pack("{s:i, s:{}, s:{}}", "arithmetic", KERNEL_ARITHMETIC, "models", "files");
    else
        stored = golden_json("hashes.json");
    golden_check(print ||
                     json_integer_value(json_object_get(stored, "arithmetic")) == KERNEL_ARITHMETIC,
                 "hashes.json is of another version of the arithmetic");
    check_bytes(SLUICE_F16_MODEL, "demo F16");
    check_file(SLUICE_F16_MODEL, "demo F16", ARRAY_LEN(cases));
    check_file(golden_demo_path(), "demo Q8_0", ARRAY_LEN(cases));
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        check_list(lists[i]);
    check_mixes();
    if (print)
        return json_dumpf(found, stdout, JSON_INDENT(1)) == 0 && putchar('\n') != EOF ? 0 : 1;
    json_decref(stored);
    return golden_result("golden hash");
}
