/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of logits, stored in data/hashes.json: the same on every instruction set, for any number
 * of threads and any chunk size. A change of the arithmetic (lib/kernels/ARITHMETIC.md) changes
 * them; it is then a decision: count up KERNEL_ARITHMETIC, and store what
 *
 *   golden_hash --print > tests/golden/data/hashes.json
 *
 * prints. Models: the demo model and the small models of every architecture. bits_test.c has
 * hashes of every tensor type. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/index/model_index.h"
#include "lib/offline/offline.h"
#include "tests/golden/reference.h"

#define TOKENS    75 /* crosses an attention tile, not a multiple of any chunk below */
#define VOCAB_MIN 100

static const struct {
    uint32_t threads, chunk;
} cases[] = {{1, 1}, {1, TOKENS}, {2, 7}, {3, 64}};

static const char *const lists[] = {"arch/arch.json",     "arch/scaled.json", "arch/numpy.json",
                                    "arch/mla.json",      "arch/gemma4.json", "arch/oss.json",
                                    "arch/recurrent.json"};

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

static void check_model(struct offline_model *m, const char *key)
{
    char text[32];
    const json_t *want = json_object_get(json_object_get(stored, "models"), key);
    for (int isa = ISA__COUNT - 1; isa >= 0; isa--) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        for (size_t i = 0; ops && i < ARRAY_LEN(cases); i++) {
            uint64_t hash = hash_of(m, ops, cases[i].threads, cases[i].chunk);
            snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
            if (print) {
                json_object_set_new(json_object_get(found, "models"), key, json_string(text));
                return;
            }
            golden_check(want && strcmp(json_string_value(want), text) == 0,
                         "%s, %s, %u threads, chunk %u: hash of the logits is %s, not %s", key,
                         ops->name, cases[i].threads, cases[i].chunk, text,
                         want ? json_string_value(want) : "stored");
        }
    }
}

static void check_file(const char *path, const char *name)
{
    struct error error;
    struct offline_model *m = offline_open(path, model_index_build, &error);
    sl_assert(m);
    check_model(m, name);
    offline_close(m);
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
            check_file(golden_path(file), key);
        }
    }
    sl_assert(i > 0);
    json_decref(models);
}

int main(int argc, char **argv)
{
    log_init("golden", LOG_LEVEL_INFO);
    print = argc > 1 && strcmp(argv[1], "--print") == 0;
    if (print)
        found = json_pack("{s:i, s:{}}", "arithmetic", KERNEL_ARITHMETIC, "models");
    else
        stored = golden_json("hashes.json");
    golden_check(print ||
                     json_integer_value(json_object_get(stored, "arithmetic")) == KERNEL_ARITHMETIC,
                 "hashes.json is of another version of the arithmetic");
    check_file(golden_path("tiny-books-moe-f16.gguf"), "demo F16");
    check_file(golden_demo_path(), "demo Q8_0");
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        check_list(lists[i]);
    if (print)
        return json_dumpf(found, stdout, JSON_INDENT(1)) == 0 && putchar('\n') != EOF ? 0 : 1;
    json_decref(stored);
    return golden_result("golden hash");
}
