/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that the CUDA device (kernels as host code) computes alone: logits, routes and host memory
 * are those of the host device, by launches of a graph and of nothing else. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/reference.h"
#include "tests/harness/cuda/memory.h"
#include "tests/harness/sample.h"
#include "tests/harness/tagged.h"
#include "tests/unit/lib/device/cuda_pair.h"

#define EVICTED 4
#define FILLED  60 /* tokens after which all experts are there */

/* Launches of kernels, but those of graphs. */
static uint64_t launches_of(struct pair *p, struct step t, uint64_t *graphs, uint64_t *copied)
{
    struct fake_counts before = fake_counts();
    *copied = pair_run(p, t);
    struct fake_counts after = fake_counts();
    *graphs = after.graphs - before.graphs;
    return after.launches - before.launches;
}

/* A token that is a launch of a graph, and nothing else. Bytes copied to the device. */
static uint64_t run_graph(struct pair *p, struct step t)
{
    uint64_t graphs, copied;
    t.rows = 1;
    uint64_t launches = launches_of(p, t, &graphs, &copied);
    ck_assert_msg(graphs == 1 && launches == 0, "position %u: %llu graphs, %llu launches",
                  t.position, (unsigned long long)graphs, (unsigned long long)launches);
    return copied;
}

/* Tokens from `position` on until one is a graph: the experts have come, and the operations have
 * run as they are. Returns the next position. */
static uint32_t run_until_graph(struct pair *p, uint32_t position)
{
    uint64_t graphs = 0, copied;
    for (uint32_t i = 0; i < FILLED && graphs == 0; i++)
        launches_of(p, (struct step){.position = position++, .rows = 1, .content = 1}, &graphs,
                    &copied);
    ck_assert_uint_eq(graphs, 1);
    return position;
}

static void run_alone(struct pair *p)
{
    pair_run(p, (struct step){.position = 0, .rows = 6, .content = 1});
    uint32_t at = run_until_graph(p, 6);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(run_graph(p, (struct step){.position = at++, .content = 1}), 0);
    /* another sequence in turns, and its prompt in between; rows are copied, but the graph is the
     * same */
    pair_run(p, (struct step){.sequence = 1, .position = 0, .rows = 5, .content = 2});
    for (uint32_t i = 0; i < 2; i++) {
        struct step other = {.sequence = 1, .position = 5 + i, .content = 2};
        uint64_t copied = run_graph(p, other);
        ck_assert(i == 0 || copied > 0);
        ck_assert_uint_gt(run_graph(p, (struct step){.position = at++, .content = 1}), 0);
    }
    /* other tokens instead of the last two, as far as states may be another's */
    if (model_recurrent_layers(&p->host.image.model->hparams) == 0)
        run_graph(p, (struct step){.position = at - 2, .content = 1, .log = 1});
    /* a token alone is no pass of some layers */
    pair_run(p, (struct step){.position = at, .rows = 1, .content = 1, .layers = 1});
    struct places_counts slots = cuda_slot_counts(p->cuda.device);
    ck_assert(slots.evicted == 0 && slots.uploaded > 0 && slots.hits > slots.uploaded);
}

static const struct {
    const char *file;
    enum kv_type type;
} alone_models[] = {
    {"arch/qwen3moe_a.gguf", KV_TYPE_F16},
    {"arch/olmoe_a_q8.gguf", KV_TYPE_Q8_0},
    {"arch/oss_a.gguf", KV_TYPE_Q4_0},
    {"arch/qwen35moe_a.gguf", KV_TYPE_F32},
    {"arch/lfm2moe_a.gguf", KV_TYPE_F16},
    {"arch/kimi_k2.gguf", KV_TYPE_Q8_0},
    {"arch/smallthinker_a.gguf", KV_TYPE_F16},
    {"arch/gemma4_a.gguf", KV_TYPE_F16},
    {"converted/granitehybrid-groups.gguf", KV_TYPE_F16},
    {"converted/mimo2-joined.gguf", KV_TYPE_F16},
    {"converted/cohere2moe-base.gguf", KV_TYPE_F16},
    {"converted/arctic-base.gguf", KV_TYPE_F16},
    {"converted/step35-base.gguf", KV_TYPE_F16},
    {"converted/laguna-element.gguf", KV_TYPE_F16},
    {"converted/afmoe-base.gguf", KV_TYPE_F16},
    {"converted/nemotron_h_moe-base.gguf", KV_TYPE_F16},
    {"converted/nemotron_h_moe-super.gguf", KV_TYPE_F16},
    {"converted/kimi-linear-base.gguf", KV_TYPE_F16},
    {"converted/kimi-k3-base.gguf", KV_TYPE_F16},
    {"converted/minimax-01-base.gguf", KV_TYPE_F16},
    {"converted/qwen4exp-no_table.gguf", KV_TYPE_F16},
    {"converted/jamba-base.gguf", KV_TYPE_F16},
};

START_TEST(alone)
{
    struct pair p;
    pair_open(&p, alone_models[_i].file, alone_models[_i].type, 0, UINT32_MAX, true);
    run_alone(&p);
    pair_close(&p);
}
END_TEST

static void check_alone(const char *path, const char *name)
{
    struct pair p;
    struct image image;
    bool computed = strcmp(name, "demo") != 0; /* too large for threads that are fibres */
    image_open(&image, path, PAIR_CONTEXT);
    for (uint32_t i = 0; i < image.model->tensor_count; i++)
        computed &= gpu_kernels()->alignment(
                        (enum tensor_type)model_index_tensors(image.model)[i].type) != 0;
    image_close(&image);
    const char *file = strstr(path, "arch/");
    if (!computed || !file)
        return;
    pair_open(&p, file, KV_TYPE_F16, 0, UINT32_MAX, true);
    run_alone(&p);
    pair_close(&p);
    printf("%s\n", name);
}

/* Long form only. */
START_TEST(every_architecture)
{
    if (test_long())
        golden_models(check_alone);
}
END_TEST

/* Rows that no pass has computed: any finite numbers. */
static void make_rows(struct side *s, uint32_t rows)
{
    for (uint32_t i = 0; i < s->image.model->hparams.layers; i++)
        for (int k = 0; k < 2; k++) {
            float *x = k ? s->memory[0].values[i] : s->memory[0].keys[i];
            size_t n = pair_side_bytes(s, i, k ? KV_SIDE_VALUES : KV_SIDE_KEYS) / sizeof *x;
            for (size_t e = 0; e < n / PAIR_CONTEXT * rows; e++)
                x[e] = (float)(e * 7919 % 1009) / 500 - 1;
        }
}

static const char *const longer_models[] = {"arch/qwen3moe_a.gguf", "arch/oss_a.gguf",
                                            "arch/qwen35moe_a.gguf"};

/* A graph has space for some segments of keys: it is recorded again when there are more. And a
 * window has few of them. The token that is recorded is the first of a content: what is copied
 * before it is no part of the graph. */
START_TEST(longer)
{
    struct pair p;
    uint32_t at = KERNEL_KEY_SEGMENT - 2;
    pair_open(&p, longer_models[_i], KV_TYPE_F32, 0, UINT32_MAX, true);
    pair_run(&p, (struct step){.position = 0, .rows = 1, .content = 1});
    run_until_graph(&p, 1);
    make_rows(&p.host, KERNEL_KEY_SEGMENT);
    make_rows(&p.cuda, KERNEL_KEY_SEGMENT);
    for (uint32_t i = 0; i < 5; i++) {
        uint64_t copied = run_graph(&p, (struct step){.position = at + i, .content = 2 + i / 2});
        ck_assert((i % 2 == 0) == (copied > 0));
    }
    ck_assert_uint_eq(cuda_graph_launches(p.cuda.device), 6);
    pair_close(&p);
}
END_TEST

/* Other experts, those of another precision, take all free slots and those of some experts. */
static void evict(const struct pair *p, uint32_t count)
{
    static float memory[8];
    const struct kernel_matrix matrix = {tagged(memory), sizeof memory, 8, 1, TENSOR_F32};
    struct device *d = p->cuda.device;
    const struct model_hparams *hp = &p->cuda.image.model->hparams;
    uint64_t end = cuda_slot_counts(d).evicted + count;
    for (uint32_t i = 0; cuda_slot_counts(d).evicted < end; i++) {
        ck_assert_uint_lt(i, hp->layers * hp->experts);
        device_lend(d, &matrix, device_content(PRECISION_INT8, hp->layers, 0, hp->experts, i, 0));
        device_wait(d);
    }
}

static bool has_all(const struct pair *p)
{
    const struct device *d = p->cuda.device;
    const struct model_hparams *hp = &p->cuda.image.model->hparams;
    bool all = true;
    for (uint32_t i = 0; i < hp->layers * hp->experts; i++)
        all &= d->ops->has(d, device_content(PRECISION_NATIVE, hp->layers, 0, hp->experts, i, 0));
    return all;
}

/* A token that is none of a graph. */
static void run_no_graph(struct pair *p, uint32_t position)
{
    uint64_t graphs, copied;
    launches_of(p, (struct step){.position = position, .rows = 1, .content = 1}, &graphs, &copied);
    ck_assert_uint_eq(graphs, 0);
}

/* What ends these tokens, until it is over: the source of experts has another rule or another
 * precision, experts lost their slots. */
START_TEST(not_alone)
{
    struct pair p;
    pair_open(&p, "arch/qwen3moe_a.gguf", KV_TYPE_F16, 0, UINT32_MAX, true);
    pair_run(&p, (struct step){.position = 0, .rows = 6, .content = 1});
    uint32_t at = run_until_graph(&p, 6);
    pair_agreed = false;
    run_no_graph(&p, at++);
    pair_agreed = true;
    run_graph(&p, (struct step){.position = at++, .content = 1});
    pair_served = PRECISION_INT8; /* the model has none */
    run_no_graph(&p, at++);
    pair_served = PRECISION_NATIVE;
    run_no_graph(&p, at++); /* they are found after it */
    run_graph(&p, (struct step){.position = at++, .content = 1});
    for (evict(&p, EVICTED); !has_all(&p);)
        run_no_graph(&p, at++);
    run_graph(&p, (struct step){.position = at++, .content = 1});
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_cuda_alone");
    TCase *c = tcase_create("device_cuda_alone");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, alone, 0, sizeof alone_models / sizeof *alone_models);
    tcase_add_test(c, every_architecture);
    tcase_add_loop_test(c, longer, 0, ARRAY_LEN(longer_models));
    tcase_add_test(c, not_alone);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
