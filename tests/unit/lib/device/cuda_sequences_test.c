/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, values and states that stay on the CUDA device (kernels as host code): two sequences in
 * turns, prompts that begin with rows of an earlier one, checkpoints of states, passes that end
 * early, and memory that the host changed. Logits, and everything that the sequences have in host
 * memory, are those of the host device; and only what is not on the device is copied. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/lib/device/cuda_pair.h"

#define BEGIN 126 /* where sequences continue that the host has begun: a tile and a ring end soon */

static void checkpoint(struct pair *p, bool restore)
{
    struct side *const sides[] = {&p->host, &p->cuda};
    for (int i = 0; i < 2; i++) {
        struct memory *m = &sides[i]->memory[0];
        uint8_t *now = m->state[m->now];
        memcpy(restore ? now : m->state[2], restore ? m->state[2] : now,
               pair_state_bytes(sides[i]));
    }
}

/* What was on the device at `position` and is now the host's alone must be copied; in layers
 * without a window. */
static void run_all(struct pair *p, bool kept)
{
    uint64_t copied = pair_run(p, (struct step){.position = 0, .rows = 6, .content = 1});
    checkpoint(p, false);
    copied += pair_run(p, (struct step){.position = 6, .rows = 1, .content = 1});
    copied += pair_run(p, (struct step){.position = 7, .rows = 1, .content = 1});
    ck_assert_msg(!kept || copied == 0, "%llu bytes copied again", (unsigned long long)copied);
    /* another one in between */
    pair_run(p, (struct step){.sequence = 1, .position = 0, .rows = 5, .content = 2});
    copied = pair_run(p, (struct step){.position = 8, .rows = 1, .content = 1});
    ck_assert_uint_gt(copied, 0);
    copied = pair_run(p, (struct step){.position = 9, .rows = 1, .content = 1});
    ck_assert(!kept || copied == 0);
    /* other tokens from row 6 on, and a pass that ends early before */
    checkpoint(p, true);
    pair_run(p, (struct step){.position = 6, .rows = 3, .content = 1, .log = 1, .layers = 1});
    pair_run(p, (struct step){.position = 6, .rows = 2, .content = 1, .log = 2});
    copied = pair_run(p, (struct step){.position = 8, .rows = 1, .content = 1, .log = 2});
    ck_assert(!kept || copied == 0);
    /* the host has written rows: those of the other sequence */
    pair_copy_memory(&p->host, &p->host.memory[0], &p->host.memory[1]);
    pair_copy_memory(&p->cuda, &p->cuda.memory[0], &p->cuda.memory[1]);
    copied = pair_run(p, (struct step){.position = 5, .rows = 4, .content = 3});
    ck_assert_uint_gt(copied, 0);
    copied = pair_run(p, (struct step){.position = 9, .rows = 1, .content = 3});
    ck_assert(!kept || copied == 0);
    /* of a predecessor */
    copied = pair_run(p, (struct step){.sequence = 1, .position = 5, .rows = 1, .content = 4});
    ck_assert_uint_gt(copied, 0);
}

static const struct {
    const char *file;
    enum kv_type type;
} models[] = {{"arch/qwen3moe_a.gguf", KV_TYPE_F16},
              {"arch/qwen3moe_a.gguf", KV_TYPE_Q4_0},
              {"arch/kimi_k2.gguf", KV_TYPE_Q8_0},
              {"arch/oss_a.gguf", KV_TYPE_F32}};

START_TEST(turns)
{
    struct pair p;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int kept = 0; kept < 2; kept++) {
            pair_open(&p, models[i].file, models[i].type, 0, kept ? UINT32_MAX : i % 2, false);
            run_all(&p, kept);
            pair_close(&p);
        }
}
END_TEST

START_TEST(states)
{
    static const char *const files[] = {"arch/qwen35moe_a.gguf",
                                        "arch/lfm2moe_a.gguf",
                                        "converted/granitehybrid-groups.gguf",
                                        "converted/nemotron_h_moe-super.gguf",
                                        "converted/kimi-linear-base.gguf",
                                        "converted/kimi-k3-base.gguf",
                                        "converted/minimax-01-base.gguf",
                                        "converted/jamba-base.gguf"};
    struct pair p;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (int kept = 0; kept < 2; kept++) {
            pair_open(&p, files[i], KV_TYPE_F16, 0, kept ? UINT32_MAX : 1 - (uint32_t)i % 2, false);
            run_all(&p, kept);
            pair_close(&p);
        }
}
END_TEST

/* Begun by the host; in a ring that begins again, and without one, where a cut needs rows that were
 * not in the window. Chunks: four rows in two of them. */
static const struct {
    const char *file;
    uint32_t ring;
} windowed[] = {{"arch/oss_a.gguf", KV_TILE}, {"converted/llama4-chunk.gguf", 2 * KV_TILE}};

START_TEST(windows)
{
    struct pair p;
    for (int i = 0; i < 4; i++) {
        bool kept = i % 2 != 0, ring = i < 2;
        pair_open(&p, windowed[_i].file, KV_TYPE_F16, ring ? windowed[_i].ring : 0,
                  kept ? UINT32_MAX : 0, false);
        for (uint32_t at = 0, n; at < BEGIN; at += n) {
            n = BEGIN - at < PAIR_CHUNK ? BEGIN - at : PAIR_CHUNK;
            pair_run_side(&p.host, &p, &(struct step){.position = at, .rows = n});
        }
        pair_copy_memory(&p.cuda, &p.cuda.memory[0], &p.host.memory[0]);
        uint64_t copied = pair_run(&p, (struct step){.position = BEGIN, .rows = 4, .content = 1});
        ck_assert_uint_gt(copied, 0);
        copied = pair_run(&p, (struct step){.position = BEGIN + 4, .rows = 1, .content = 1});
        ck_assert(!kept || copied == 0);
        pair_run(&p, (struct step){.position = BEGIN + 2, .rows = 1, .content = 1, .log = 1});
        if (!ring)
            pair_run(&p, (struct step){.position = BEGIN / 2, .rows = 2, .content = 1, .log = 1});
        pair_close(&p);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_cuda_sequences");
    TCase *c = tcase_create("device_cuda_sequences");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, turns);
    tcase_add_test(c, states);
    tcase_add_loop_test(c, windows, 0, sizeof windowed / sizeof *windowed);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
