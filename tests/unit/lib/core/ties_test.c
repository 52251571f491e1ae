/* SPDX-License-Identifier: Apache-2.0 */
/* Equal scores of an indexer, in a whole pass: of a file whose scores are equal, the positions that
 * attention is over are those of a plain implementation of the rule (the larger score, then the
 * lower position), the logits are those of that choice and not of another one, and all instruction
 * sets have the same bits, in any chunks. */
#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/device/host/host.h"
#include "lib/device/pointers.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define TOKENS   75
#define CONTEXT  128
#define VOCAB    384
#define LIST_MAX 64

/* ---- files ---- */

static char path[PATH_MAX];

/* A copy of a file of tests/golden, in which dense tensors are overwritten. */
static void copy_file(const char *name)
{
    char from[128];
    size_t bytes;
    const char *directory = getenv("TMPDIR");
    snprintf(from, sizeof from, "converted/%s.gguf", name);
    snprintf(path, sizeof path, "%s/ties-XXXXXX", directory ? directory : "/tmp");
    char *data = golden_text(from, &bytes);
    int fd = mkstemp(path);
    ck_assert(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && close(fd) == 0);
    free(data);
}

/* Zeros as the first `bytes` of the tensor of every layer that has one. 0: all of them. */
static void clear(const struct model_index *m, enum dense_role role, size_t bytes)
{
    static const char zeros[65536];
    uint32_t cleared = 0;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    for (uint32_t layer = 0; layer < m->hparams.layers; layer++) {
        uint32_t entry = model_entry_dense(m, layer, role);
        if (entry == ENTRY_NONE)
            continue;
        const struct model_entry *e = &model_index_entries(m)[entry];
        size_t n = bytes ? bytes : (size_t)e->payload_bytes;
        off_t at = (off_t)(e->extent[0].file_offset + e->extent[0].head_bytes);
        ck_assert(n <= sizeof zeros && n <= e->payload_bytes);
        ck_assert_int_eq(pwrite(fd, zeros, n, at), (ssize_t)n);
        cleared++;
    }
    ck_assert(fd >= 0 && close(fd) == 0 && cleared > 0);
}

/* Heads count nothing: all scores are 0. */
static void no_weights(const struct model_index *m)
{
    clear(m, DENSE_INDEX_WEIGHTS, 0);
}

/* Keys without their rotated elements. In layer 0 equal tokens have equal keys. */
static void no_positions(const struct model_index *m)
{
    size_t bytes = m->hparams.rope_dims * sizeof(float);
    ck_assert_uint_lt(m->hparams.rope_dims, m->hparams.index_size);
    clear(m, DENSE_INDEX_K_NORM, bytes);
    clear(m, DENSE_INDEX_K_NORM_BIAS, bytes);
}

static void make_file(const char *name, void (*change)(const struct model_index *m))
{
    struct image image;
    copy_file(name);
    image_open(&image, path, CONTEXT);
    change(image.model);
    image_close(&image);
}

/* ---- the choice ---- */

enum rule { OWN, PLAIN, HIGHER };

static struct {
    const struct device_ops *host;
    enum rule rule;
    uint32_t lists, ties, different; /* all; with an equal score left out; with unequal scores */
} w;

/* Whether position a is chosen before position b. */
static bool before(const float *score, uint32_t a, uint32_t b, bool higher)
{
    if (score[a] != score[b])
        return score[a] > score[b];
    return higher ? a > b : a < b;
}

/* A position is chosen if fewer than k others are before it. */
static uint32_t plain_choice(const float *score, uint32_t n, uint32_t k, bool higher, uint32_t *at)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t better = 0;
        for (uint32_t j = 0; j < n; j++)
            better += j != i && before(score, j, i, higher);
        if (better < k)
            at[count++] = i;
    }
    return count;
}

static void count_ties(const float *score, uint32_t n, const uint32_t *at, uint32_t count)
{
    bool tie = false, different = false;
    for (uint32_t i = 0, next = 0; i < n; i++) {
        bool chosen = next < count && at[next] == i;
        next += chosen;
        different |= score[i] != score[0];
        for (uint32_t c = 0; c < count && !chosen; c++)
            tie |= score[at[c]] == score[i];
    }
    w.lists++;
    w.ties += tie;
    w.different += tie && different;
}

/* The operation, compared with the plain choice or replaced by it. */
static void choose_positions(struct device *d, const struct op_choose_positions *a)
{
    const float *score = device_pointer(a->score);
    uint32_t *at = device_pointer(a->at), *count = device_pointer(a->count);
    uint32_t(*want)[LIST_MAX] = calloc(a->rows, sizeof *want), number[CONTEXT];
    ck_assert(want && a->rows <= CONTEXT && a->list_stride <= LIST_MAX && a->shape.unit == 1);
    for (uint32_t r = 0; r < a->rows; r++) {
        const float *line = score + r * a->stride;
        uint32_t seen = a->row[r].position + 1;
        number[r] = plain_choice(line, seen, a->choice.k, w.rule == HIGHER, want[r]);
        if (seen > a->choice.k)
            count_ties(line, seen, want[r], number[r]);
    }
    if (w.rule == OWN)
        w.host->choose_positions(d, a);
    for (uint32_t r = 0; r < a->rows; r++) {
        uint32_t *list = at + (size_t)r * a->list_stride;
        if (w.rule == OWN) {
            ck_assert_uint_eq(count[r], number[r]);
            ck_assert(memcmp(list, want[r], number[r] * sizeof *list) == 0);
        }
        memcpy(list, want[r], number[r] * sizeof *list);
        count[r] = number[r];
    }
    free(want);
}

/* ---- passes ---- */

/* The logits of all tokens: five of them, repeated, and some others. */
static void compute(enum kernel_isa isa, uint32_t threads, uint32_t chunk, enum rule rule,
                    float logits[TOKENS][VOCAB])
{
    static struct device_ops table;
    struct image image;
    struct error error;
    uint32_t tokens[TOKENS];
    image_open(&image, path, CONTEXT);
    struct device *device = host_device(kernel_ops_of(isa), threads, 0, &error);
    ck_assert(device && image.model->hparams.vocab == VOCAB);
    w.host = device->ops;
    w.rule = rule;
    table = *device->ops;
    table.choose_positions = choose_positions;
    device->ops = &table;
    struct core_config config = {.model = image.model,
                                 .device = device,
                                 .ops = kernel_ops_of(isa),
                                 .source = image_source(&image),
                                 .threads = threads,
                                 .chunk = chunk,
                                 .positions = CONTEXT,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    struct core *core = core_create(&config, &error);
    ck_assert_msg(core != NULL, "%s", error.text);
    struct core_sequence s = image_sequence(&image);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i % 9 == 8 ? 200 + i : 100 + i * 7 % 5;
    for (uint32_t at = 0, n; at < TOKENS; at += n) {
        n = TOKENS - at < chunk ? TOKENS - at : chunk;
        ck_assert_msg(core_forward(core, &s, tokens + at, at, n, &error) == 0, "%s", error.text);
        for (uint32_t r = 0; r < n; r++)
            memcpy(logits[at + r], core_output(core, r, 1), sizeof logits[0]);
    }
    core_destroy(core);
    w.host->destroy(device);
    image_close(&image);
}

static const struct {
    uint32_t threads, chunk;
} cases[] = {{1, 1}, {2, 7}, {2, 64}};

static void check_file(void (*change)(const struct model_index *m), const char *name, bool mixed)
{
    static float want[TOKENS][VOCAB], have[TOKENS][VOCAB];
    make_file(name, change);
    compute(ISA_GENERIC, 1, 16, PLAIN, want);
    w.lists = w.ties = w.different = 0;
    for (int isa = 0; isa < ISA__COUNT; isa++)
        for (size_t i = 0; i < ARRAY_LEN(cases) && kernel_ops_of((enum kernel_isa)isa); i++) {
            compute((enum kernel_isa)isa, cases[i].threads, cases[i].chunk, OWN, have);
            ck_assert_msg(memcmp(want, have, sizeof want) == 0, "%s: %s, %u threads, chunks of %u",
                          name, kernel_isa_name((uint64_t)isa), cases[i].threads, cases[i].chunk);
        }
    ck_assert_msg(w.ties > 0 && (mixed ? w.different > 0 : w.ties == w.lists),
                  "%s: %u lists, of %u an equal score is left out, in %u others are unequal", name,
                  w.lists, w.ties, w.different);
    compute(ISA_GENERIC, 1, 16, HIGHER, have);
    ck_assert_msg(memcmp(want, have, sizeof want) != 0, "%s: ties decide nothing", name);
    unlink(path);
}

/* All scores are equal: the first positions are chosen. */
START_TEST(all_equal)
{
    check_file(no_weights, "glm-dsa-few", false);
    check_file(no_weights, "deepseek32-few", false);
}
END_TEST

/* Of repeated tokens some are chosen and others not. */
START_TEST(repeated_tokens)
{
    check_file(no_positions, "glm-dsa-few", true);
    check_file(no_positions, "deepseek32-few", true);
}
END_TEST

static void tell_skipped(void)
{
    char names[128] = "";
    size_t n = 0;
    for (int isa = 0; isa < ISA__COUNT; isa++)
        if (!kernel_ops_of((enum kernel_isa)isa))
            n += (size_t)snprintf(names + n, sizeof names - n, " %s",
                                  kernel_isa_name((uint64_t)isa));
    if (n > 0)
        printf("SKIP ties: this CPU lacks%s\n", names);
    fflush(stdout); /* before the tests fork */
}

int main(void)
{
    Suite *suite = suite_create("core_ties");
    TCase *t = tcase_create("core_ties");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, all_equal);
    tcase_add_test(t, repeated_tokens);
    suite_add_tcase(suite, t);
    tell_skipped();
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
