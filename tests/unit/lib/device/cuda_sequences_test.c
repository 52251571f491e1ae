/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, values and states that stay on the CUDA device (kernels as host code): two sequences in turns, prompts that begin
 * with rows of an earlier one, checkpoints of states, passes that end early, and memory that the host changed. Logits,
 * and everything that the sequences have in host memory, are those of the host device; and only what is not on the device
 * is copied. And tokens that the device computes alone: the same, by launches of a graph and of nothing else. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/core/core.h"
#include "lib/device/cuda/cuda.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"
#include "tests/harness/cuda/fibres.h"
#include "tests/harness/cuda/memory.h"
#include "tests/harness/tagged.h"

#define CONTEXT    576
#define CHUNK      8
#define ROUTES_MAX 2048
#define BEGIN      126 /* where sequences continue that the host has begun: a tile and a ring end soon */

static uint32_t seed;

/* A sequence in host memory. Passes write another state than they read, as an engine does. */
struct memory {
    void *keys[MODEL_LAYERS_MAX], *values[MODEL_LAYERS_MAX];
    uint8_t *state[3]; /* of the last pass, of the next, a checkpoint */
    uint32_t now;
};

/* Routes of a pass, layer by layer. */
struct noted {
    struct route route[ROUTES_MAX];
    uint32_t count;
};

/* A device with its core, and two sequences. */
struct side {
    struct noted noted;
    struct image image;
    struct device *device;
    struct core *core;
    struct memory memory[2];
};

struct pair {
    struct side host, cuda;
    uint32_t ring;
};

static size_t side_bytes(const struct side *s, uint32_t layer, enum kv_side side)
{
    return (size_t)model_kv_bytes(&s->image.model->hparams, layer, side, s->image.kv_type, CONTEXT);
}

static size_t state_bytes(const struct side *s)
{
    return (size_t)model_state_bytes(&s->image.model->hparams);
}

static void *made(size_t bytes)
{
    void *memory = malloc(bytes + 1);
    sl_assert(memory);
    return memset(memory, 0xff, bytes + 1);
}

static void make_memory(struct side *s)
{
    for (int q = 0; q < 2; q++) {
        struct memory *m = &s->memory[q];
        for (uint32_t i = 0; i < s->image.model->hparams.layers; i++) {
            m->keys[i] = made(side_bytes(s, i, KV_SIDE_KEYS));
            m->values[i] = made(side_bytes(s, i, KV_SIDE_VALUES));
        }
        for (int i = 0; i < 3; i++)
            m->state[i] = made(state_bytes(s));
    }
}

static void free_memory(struct side *s)
{
    for (int q = 0; q < 2; q++) {
        for (uint32_t i = 0; i < s->image.model->hparams.layers; i++) {
            free(s->memory[q].keys[i]);
            free(s->memory[q].values[i]);
        }
        for (int i = 0; i < 3; i++)
            free(s->memory[q].state[i]);
    }
}

static void copy_memory(const struct side *s, struct memory *to, const struct memory *from)
{
    for (uint32_t i = 0; i < s->image.model->hparams.layers; i++) {
        memcpy(to->keys[i], from->keys[i], side_bytes(s, i, KV_SIDE_KEYS));
        memcpy(to->values[i], from->values[i], side_bytes(s, i, KV_SIDE_VALUES));
    }
    for (int i = 0; i < 3; i++)
        memcpy(to->state[i], from->state[i], state_bytes(s));
    to->now = from->now;
}

static void note_routes(void *arg, const struct expert_step *step, const struct route *routes)
{
    struct side *s = arg;
    uint32_t n = step->rows * s->image.model->hparams.experts_used;
    sl_assert(s->noted.count + n <= ROUTES_MAX);
    memcpy(s->noted.route + s->noted.count, routes, n * sizeof *routes);
    s->noted.count += n;
}

static bool agreed;
static enum precision served;

static bool serves(void *self, enum precision *precision)
{
    (void)self;
    *precision = served;
    return agreed;
}

static void used(void *self, const struct expert_step *step, const struct route *routes)
{
    const struct image *image = self;
    image->routed(image->routed_arg, step, routes);
}

static void open_side(struct side *s, const char *file, enum kv_type type, struct device *device,
                      bool alone)
{
    struct error error;
    image_open(&s->image, golden_path(file), CONTEXT);
    s->image.kv_type = type;
    s->image.routed = note_routes;
    s->image.routed_arg = s;
    s->device = device;
    make_memory(s);
    struct core_config config = {.model = s->image.model,
                                 .device = device,
                                 .ops = kernel_ops_select("auto"),
                                 .source = image_source_on(&s->image, device),
                                 .threads = 1,
                                 .chunk = CHUNK,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    config.source.alone = alone ? serves : NULL;
    config.source.used = used;
    s->core = core_create(&config, &error);
    ck_assert_msg(s->core != NULL, "%s", error.text);
}

static void close_side(struct side *s)
{
    core_destroy(s->core);
    if (s->device)
        s->device->ops->destroy(s->device);
    free_memory(s);
    image_close(&s->image);
}

/* With the parts of so many layers on the device, of all layers of UINT32_MAX. alone: tokens may be computed so. */
static void open_pair(struct pair *p, const char *file, enum kv_type type, uint32_t ring,
                      uint32_t layers, bool alone)
{
    struct error error;
    struct cuda_plan plan = {0};
    struct image image;
    *p = (struct pair){.ring = ring};
    agreed = true;
    served = PRECISION_NATIVE;
    image_open(&image, golden_path(file), CONTEXT);
    cuda_plan_model(&plan, image.model, type, CONTEXT, ring, 1);
    uint64_t bytes = plan.bytes[CUDA_KV];
    do
        cuda_plan_kv(&plan, image.model, type, CONTEXT, ring, bytes += DEVICE_ALIGN);
    while (plan.kv_layers < layers && plan.kv_layers < image.model->hparams.layers);
    plan.bytes[CUDA_EXPERTS] +=
        image.model->hparams.layers * image.model->hparams.experts * plan.slot_bytes;
    image_close(&image);
    fibres_seed(++seed);
    struct device *d = cuda_device(gpu_kernels(), kernel_ops_select("auto"), &plan, &error);
    ck_assert(d && cuda_reserve(d, &error) == 0);
    cuda_pointers(d, untagged);
    open_side(&p->host, file, type, NULL, false);
    open_side(&p->cuda, file, type, d, alone);
}

static void close_pair(struct pair *p)
{
    close_side(&p->host);
    close_side(&p->cuda);
    ck_assert_uint_eq(fake_bytes(), 0);
}

/* ---- a pass on both ---- */

struct step {
    uint32_t sequence, position, rows;
    uint64_t content;
    uint32_t log;    /* which tokens */
    uint32_t layers; /* 0: all; else it ends after so many */
};

static void *shared(const struct side *s, void *memory)
{
    return s->device ? tagged(memory) : memory;
}

static void run_side(struct side *s, const struct pair *p, const struct step *t)
{
    struct memory *m = &s->memory[t->sequence];
    void *keys[MODEL_LAYERS_MAX], *values[MODEL_LAYERS_MAX];
    struct core_row row[CHUNK];
    struct error error;
    const struct model_hparams *hp = &s->image.model->hparams;
    for (uint32_t i = 0; i < hp->layers; i++) {
        keys[i] = shared(s, m->keys[i]);
        values[i] = shared(s, m->values[i]);
    }
    struct core_sequence view = {.sequence = 1,
                                 .kv_type = s->image.kv_type,
                                 .keys = keys,
                                 .values = values,
                                 .ring = p->ring,
                                 .content = t->content,
                                 .state = shared(s, m->state[m->now]),
                                 .next_state = shared(s, m->state[1 - m->now])};
    for (uint32_t i = 0; i < t->rows; i++)
        row[i] = (struct core_row){.position = t->position + i,
                                   .token = (t->log * 31 + (t->position + i) * 7919) % hp->vocab};
    const struct core_pass pass = {&view, 1, row, t->rows};
    float *x = made((size_t)t->rows * hp->hidden * sizeof *x);
    int status = t->layers > 0 ? core_pass_layers(s->core, &pass, 0, t->layers, x, &error)
                               : core_pass(s->core, &pass, &error);
    free(x);
    ck_assert_int_eq(status, 0);
    if (t->layers == 0)
        m->now = 1 - m->now;
}

static void check_memory(const struct pair *p)
{
    for (int q = 0; q < 2; q++) {
        const struct memory *a = &p->host.memory[q], *b = &p->cuda.memory[q];
        for (uint32_t i = 0; i < p->host.image.model->hparams.layers; i++) {
            ck_assert_mem_eq(a->keys[i], b->keys[i], side_bytes(&p->host, i, KV_SIDE_KEYS));
            ck_assert_mem_eq(a->values[i], b->values[i], side_bytes(&p->host, i, KV_SIDE_VALUES));
        }
        for (int i = 0; i < 3; i++)
            ck_assert_mem_eq(a->state[i], b->state[i], state_bytes(&p->host));
    }
}

/* Floats of new rows in all layers, and of the states. */
static uint64_t new_bytes(const struct pair *p, uint32_t rows)
{
    const struct model_hparams *hp = &p->host.image.model->hparams;
    uint64_t floats = model_recurrent_layers(hp) * model_state_floats(hp);
    for (uint32_t i = 0; i < hp->layers; i++) {
        struct layer_attention a = model_attention_of(hp, i);
        floats +=
            (uint64_t)rows * a.kv_heads * (a.key_size + (a.values_in_keys ? 0 : a.value_size));
    }
    return floats * sizeof(float);
}

/* Copied to the device. */
static uint64_t run(struct pair *p, struct step t)
{
    uint32_t vocab = p->host.image.model->hparams.vocab;
    struct cuda_copied before = cuda_copied(p->cuda.device);
    p->host.noted.count = p->cuda.noted.count = 0;
    run_side(&p->host, p, &t);
    run_side(&p->cuda, p, &t);
    struct cuda_copied after = cuda_copied(p->cuda.device);
    if (t.layers == 0) {
        ck_assert_mem_eq(core_output(p->host.core, t.rows - 1, 1),
                         core_output(p->cuda.core, t.rows - 1, 1), vocab * sizeof(float));
        ck_assert_uint_eq(after.kv_to_host - before.kv_to_host, new_bytes(p, t.rows));
        ck_assert_uint_eq(p->host.noted.count, p->cuda.noted.count);
        ck_assert_mem_eq(p->host.noted.route, p->cuda.noted.route,
                         p->host.noted.count * sizeof *p->host.noted.route);
    }
    check_memory(p);
    return after.kv_to_device - before.kv_to_device;
}

static void checkpoint(struct pair *p, bool restore)
{
    struct side *const sides[] = {&p->host, &p->cuda};
    for (int i = 0; i < 2; i++) {
        struct memory *m = &sides[i]->memory[0];
        uint8_t *now = m->state[m->now];
        memcpy(restore ? now : m->state[2], restore ? m->state[2] : now, state_bytes(sides[i]));
    }
}

/* What was on the device at `position` and is now the host's alone must be copied; in layers without a window. */
static void run_all(struct pair *p, bool kept)
{
    uint64_t copied = run(p, (struct step){.position = 0, .rows = 6, .content = 1});
    checkpoint(p, false);
    copied += run(p, (struct step){.position = 6, .rows = 1, .content = 1});
    copied += run(p, (struct step){.position = 7, .rows = 1, .content = 1});
    ck_assert_msg(!kept || copied == 0, "%llu bytes copied again", (unsigned long long)copied);
    /* another one in between */
    run(p, (struct step){.sequence = 1, .position = 0, .rows = 5, .content = 2});
    copied = run(p, (struct step){.position = 8, .rows = 1, .content = 1});
    ck_assert_uint_gt(copied, 0);
    copied = run(p, (struct step){.position = 9, .rows = 1, .content = 1});
    ck_assert(!kept || copied == 0);
    /* other tokens from row 6 on, and a pass that ends early before */
    checkpoint(p, true);
    run(p, (struct step){.position = 6, .rows = 3, .content = 1, .log = 1, .layers = 1});
    run(p, (struct step){.position = 6, .rows = 2, .content = 1, .log = 2});
    copied = run(p, (struct step){.position = 8, .rows = 1, .content = 1, .log = 2});
    ck_assert(!kept || copied == 0);
    /* the host has written rows: those of the other sequence */
    copy_memory(&p->host, &p->host.memory[0], &p->host.memory[1]);
    copy_memory(&p->cuda, &p->cuda.memory[0], &p->cuda.memory[1]);
    copied = run(p, (struct step){.position = 5, .rows = 4, .content = 3});
    ck_assert_uint_gt(copied, 0);
    copied = run(p, (struct step){.position = 9, .rows = 1, .content = 3});
    ck_assert(!kept || copied == 0);
    /* of a predecessor */
    copied = run(p, (struct step){.sequence = 1, .position = 5, .rows = 1, .content = 4});
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
            open_pair(&p, models[i].file, models[i].type, 0, kept ? UINT32_MAX : i % 2, false);
            run_all(&p, kept);
            close_pair(&p);
        }
}
END_TEST

START_TEST(states)
{
    static const char *const files[] = {"arch/qwen35moe_a.gguf", "arch/lfm2moe_a.gguf"};
    struct pair p;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (int kept = 0; kept < 2; kept++) {
            open_pair(&p, files[i], KV_TYPE_F16, 0, kept ? UINT32_MAX : 1 - (uint32_t)i % 2, false);
            run_all(&p, kept);
            close_pair(&p);
        }
}
END_TEST

/* Begun by the host; in a ring that begins again, and without one, where a cut needs rows that were not in the window. */
START_TEST(windows)
{
    struct pair p;
    for (int i = 0; i < 4; i++) {
        bool kept = i % 2 != 0, ring = i < 2;
        open_pair(&p, "arch/oss_a.gguf", KV_TYPE_F16, ring ? KV_TILE : 0, kept ? UINT32_MAX : 0,
                  false);
        for (uint32_t at = 0, n; at < BEGIN; at += n) {
            n = BEGIN - at < CHUNK ? BEGIN - at : CHUNK;
            run_side(&p.host, &p, &(struct step){.position = at, .rows = n});
        }
        copy_memory(&p.cuda, &p.cuda.memory[0], &p.host.memory[0]);
        uint64_t copied = run(&p, (struct step){.position = BEGIN, .rows = 4, .content = 1});
        ck_assert_uint_gt(copied, 0);
        copied = run(&p, (struct step){.position = BEGIN + 4, .rows = 1, .content = 1});
        ck_assert(!kept || copied == 0);
        run(&p, (struct step){.position = BEGIN + 2, .rows = 1, .content = 1, .log = 1});
        if (!ring)
            run(&p, (struct step){.position = BEGIN / 2, .rows = 2, .content = 1, .log = 1});
        close_pair(&p);
    }
}
END_TEST

/* ---- tokens that the device computes alone ---- */

#define EVICTED 4
#define FILLED  60 /* tokens after which all experts are there */

/* Launches of kernels, but those of graphs. */
static uint64_t launches_of(struct pair *p, struct step t, uint64_t *graphs, uint64_t *copied)
{
    struct fake_counts before = fake_counts();
    *copied = run(p, t);
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

/* Tokens from `position` on until one is a graph: the experts have come, and the operations have run as they are. Returns
 * the next position. */
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
    run(p, (struct step){.position = 0, .rows = 6, .content = 1});
    uint32_t at = run_until_graph(p, 6);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(run_graph(p, (struct step){.position = at++, .content = 1}), 0);
    /* another sequence in turns, and its prompt in between; rows are copied, but the graph is the same */
    run(p, (struct step){.sequence = 1, .position = 0, .rows = 5, .content = 2});
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
    run(p, (struct step){.position = at, .rows = 1, .content = 1, .layers = 1});
    struct places_counts slots = cuda_slot_counts(p->cuda.device);
    ck_assert(slots.evicted == 0 && slots.uploaded > 0 && slots.hits > slots.uploaded);
}

static const struct {
    const char *file;
    enum kv_type type;
} alone_models[] = {
    {"arch/qwen3moe_a.gguf", KV_TYPE_F16},     {"arch/olmoe_a_q8.gguf", KV_TYPE_Q8_0},
    {"arch/oss_a.gguf", KV_TYPE_Q4_0},         {"arch/qwen35moe_a.gguf", KV_TYPE_F32},
    {"arch/lfm2moe_a.gguf", KV_TYPE_F16},      {"arch/kimi_k2.gguf", KV_TYPE_Q8_0},
    {"arch/smallthinker_a.gguf", KV_TYPE_F16}, {"arch/gemma4_a.gguf", KV_TYPE_F16},
};

START_TEST(alone)
{
    struct pair p;
    open_pair(&p, alone_models[_i].file, alone_models[_i].type, 0, UINT32_MAX, true);
    run_alone(&p);
    close_pair(&p);
}
END_TEST

static void check_alone(const char *path, const char *name)
{
    struct pair p;
    struct image image;
    bool computed = strcmp(name, "demo") != 0; /* too large for threads that are fibres */
    image_open(&image, path, CONTEXT);
    for (uint32_t i = 0; i < image.model->tensor_count; i++)
        computed &= gpu_kernels()->alignment(
                        (enum tensor_type)model_index_tensors(image.model)[i].type) != 0;
    image_close(&image);
    const char *file = strstr(path, "arch/");
    if (!computed || !file)
        return;
    open_pair(&p, file, KV_TYPE_F16, 0, UINT32_MAX, true);
    run_alone(&p);
    close_pair(&p);
    printf("%s\n", name);
}

/* Long form only. */
START_TEST(every_architecture)
{
    const char *every = getenv("SLUICE_LONG");
    if (every && strcmp(every, "0") != 0)
        golden_models(check_alone);
}
END_TEST

/* Rows that no pass has computed: any finite numbers. */
static void make_rows(struct side *s, uint32_t rows)
{
    for (uint32_t i = 0; i < s->image.model->hparams.layers; i++)
        for (int k = 0; k < 2; k++) {
            float *x = k ? s->memory[0].values[i] : s->memory[0].keys[i];
            size_t n = side_bytes(s, i, k ? KV_SIDE_VALUES : KV_SIDE_KEYS) / sizeof *x;
            for (size_t e = 0; e < n / CONTEXT * rows; e++)
                x[e] = (float)(e * 7919 % 1009) / 500 - 1;
        }
}

static const char *const longer_models[] = {"arch/qwen3moe_a.gguf", "arch/oss_a.gguf",
                                            "arch/qwen35moe_a.gguf"};

/* A graph has space for some segments of keys: it is recorded again when there are more. And a window has few of them. The
 * token that is recorded is the first of a content: what is copied before it is no part of the graph. */
START_TEST(longer)
{
    struct pair p;
    uint32_t at = KERNEL_KEY_SEGMENT - 2;
    open_pair(&p, longer_models[_i], KV_TYPE_F32, 0, UINT32_MAX, true);
    run(&p, (struct step){.position = 0, .rows = 1, .content = 1});
    run_until_graph(&p, 1);
    make_rows(&p.host, KERNEL_KEY_SEGMENT);
    make_rows(&p.cuda, KERNEL_KEY_SEGMENT);
    for (uint32_t i = 0; i < 5; i++) {
        uint64_t copied = run_graph(&p, (struct step){.position = at + i, .content = 2 + i / 2});
        ck_assert((i % 2 == 0) == (copied > 0));
    }
    ck_assert_uint_eq(cuda_graph_launches(p.cuda.device), 6);
    close_pair(&p);
}
END_TEST

/* Other experts, those of another precision, take all free slots and those of some experts. */
static void evict(const struct pair *p, uint32_t count)
{
    static float memory[8];
    struct device *d = p->cuda.device;
    const struct model_hparams *hp = &p->cuda.image.model->hparams;
    uint64_t end = cuda_slot_counts(d).evicted + count;
    for (uint32_t i = 0; cuda_slot_counts(d).evicted < end; i++) {
        ck_assert_uint_lt(i, hp->layers * hp->experts);
        device_lend(d, tagged(memory), sizeof memory,
                    device_content(PRECISION_INT8, hp->layers, 0, hp->experts, i, 0));
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

/* What ends these tokens, until it is over: the source of experts has another rule or another precision, experts lost their
 * slots. */
START_TEST(not_alone)
{
    struct pair p;
    open_pair(&p, "arch/qwen3moe_a.gguf", KV_TYPE_F16, 0, UINT32_MAX, true);
    run(&p, (struct step){.position = 0, .rows = 6, .content = 1});
    uint32_t at = run_until_graph(&p, 6);
    agreed = false;
    run_no_graph(&p, at++);
    agreed = true;
    run_graph(&p, (struct step){.position = at++, .content = 1});
    served = PRECISION_INT8; /* the model has none */
    run_no_graph(&p, at++);
    served = PRECISION_NATIVE;
    run_no_graph(&p, at++); /* they are found after it */
    run_graph(&p, (struct step){.position = at++, .content = 1});
    for (evict(&p, EVICTED); !has_all(&p);)
        run_no_graph(&p, at++);
    run_graph(&p, (struct step){.position = at++, .content = 1});
    close_pair(&p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_cuda_sequences");
    TCase *c = tcase_create("device_cuda_sequences");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, turns);
    tcase_add_test(c, states);
    tcase_add_test(c, windows);
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
