/* SPDX-License-Identifier: Apache-2.0 */
/* Runs passes on the host device and on the CUDA device, and compares everything they leave. */
#include "tests/unit/lib/device/cuda_pair.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "tests/golden/reference.h"
#include "tests/harness/cuda/fibres.h"
#include "tests/harness/cuda/memory.h"
#include "tests/harness/tagged.h"

static uint32_t seed;

size_t pair_side_bytes(const struct side *s, uint32_t layer, enum kv_side side)
{
    return (size_t)model_kv_bytes(&s->image.model->hparams, layer, side, s->image.kv_type,
                                  PAIR_CONTEXT);
}

size_t pair_state_bytes(const struct side *s)
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
            m->keys[i] = made(pair_side_bytes(s, i, KV_SIDE_KEYS));
            m->values[i] = made(pair_side_bytes(s, i, KV_SIDE_VALUES));
        }
        for (int i = 0; i < 3; i++)
            m->state[i] = made(pair_state_bytes(s));
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

void pair_copy_memory(const struct side *s, struct memory *to, const struct memory *from)
{
    for (uint32_t i = 0; i < s->image.model->hparams.layers; i++) {
        memcpy(to->keys[i], from->keys[i], pair_side_bytes(s, i, KV_SIDE_KEYS));
        memcpy(to->values[i], from->values[i], pair_side_bytes(s, i, KV_SIDE_VALUES));
    }
    for (int i = 0; i < 3; i++)
        memcpy(to->state[i], from->state[i], pair_state_bytes(s));
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

bool pair_agreed;
enum precision pair_served;

static bool serves(void *self, enum precision *precision)
{
    (void)self;
    *precision = pair_served;
    return pair_agreed;
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
    image_open(&s->image, golden_path(file), PAIR_CONTEXT);
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
                                 .chunk = PAIR_CHUNK,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    config.source.whole_on_device = alone ? serves : NULL;
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

void pair_open(struct pair *p, const char *file, enum kv_type type, uint32_t ring, uint32_t layers,
               bool alone)
{
    struct error error;
    struct gpu_layout layout = {0};
    struct image image;
    *p = (struct pair){.ring = ring};
    pair_agreed = true;
    pair_served = PRECISION_NATIVE;
    image_open(&image, golden_path(file), PAIR_CONTEXT);
    gpu_layout_model(&layout, gpu_kernels(), image.model, type, PAIR_CONTEXT, ring, 1);
    for (uint32_t i = 0; i < image.model->hparams.layers; i++) /* others are evicted by these */
        layout.sizes.bytes[PRECISION_INT8][i] = layout.slot_bytes;
    uint64_t bytes = layout.bytes[CUDA_KV];
    do
        gpu_layout_kv(&layout, image.model, type, PAIR_CONTEXT, ring, bytes += DEVICE_ALIGN);
    while (layout.kv_layers < layers && layout.kv_layers < image.model->hparams.layers);
    layout.bytes[CUDA_EXPERTS] +=
        image.model->hparams.layers * image.model->hparams.experts * layout.slot_bytes;
    image_close(&image);
    fibres_seed(++seed);
    struct device *d = cuda_device(gpu_kernels(), kernel_ops_select("auto"), &layout, &error);
    ck_assert(d && cuda_reserve(d, &error) == 0);
    cuda_pointers(d, untagged);
    open_side(&p->host, file, type, NULL, false);
    open_side(&p->cuda, file, type, d, alone);
}

void pair_close(struct pair *p)
{
    close_side(&p->host);
    close_side(&p->cuda);
    ck_assert_uint_eq(fake_bytes(), 0);
}

/* ---- a pass on both ---- */

static void *shared(const struct side *s, void *memory)
{
    return s->device ? tagged(memory) : memory;
}

void pair_run_side(struct side *s, const struct pair *p, const struct step *t)
{
    struct memory *m = &s->memory[t->sequence];
    void *keys[MODEL_LAYERS_MAX], *values[MODEL_LAYERS_MAX];
    struct core_row row[PAIR_CHUNK];
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
                                   .token = (t->log * 31 + (t->position + i) * 7919) % hp->vocab,
                                   .prefill = core_rows_prefill(t->rows)};
    const struct core_pass pass = {
        .sequences = &view, .sequence_count = 1, .row = row, .rows = t->rows};
    float *x = made((size_t)t->rows * model_residual_floats(hp) * sizeof *x);
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
            ck_assert_mem_eq(a->keys[i], b->keys[i], pair_side_bytes(&p->host, i, KV_SIDE_KEYS));
            ck_assert_mem_eq(a->values[i], b->values[i],
                             pair_side_bytes(&p->host, i, KV_SIDE_VALUES));
        }
        for (int i = 0; i < 3; i++)
            ck_assert_mem_eq(a->state[i], b->state[i], pair_state_bytes(&p->host));
    }
}

/* Floats of new rows in all layers, and of the states; a GPU computes no indexer. */
static uint64_t new_bytes(const struct pair *p, uint32_t rows)
{
    const struct model_hparams *hp = &p->host.image.model->hparams;
    uint64_t floats = model_state_floats(hp, hp->layers);
    for (uint32_t i = 0; i < hp->layers; i++) {
        struct layer_attention a = model_attention_of(hp, i);
        floats -= model_pool_floats(hp, i);
        floats +=
            (uint64_t)rows * a.kv_heads * (a.key_size + (a.values_in_keys ? 0 : a.value_size));
    }
    return floats * sizeof(float);
}

uint64_t pair_run(struct pair *p, struct step t)
{
    uint32_t vocab = p->host.image.model->hparams.vocab;
    struct cuda_copied before = cuda_copied(p->cuda.device);
    p->host.noted.count = p->cuda.noted.count = 0;
    pair_run_side(&p->host, p, &t);
    pair_run_side(&p->cuda, p, &t);
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
