/* SPDX-License-Identifier: Apache-2.0 */
/* The core on the CUDA device, whose kernels run as host code: every architecture gives the same bits as on the
 * host, in logits and in all that the source of weights gets. Memory that the core shares has addresses that fault,
 * so a kernel reads only what was copied to the device; copies to the host run late (tests/harness/cuda/memory.h). Short
 * form: every third model. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"
#include "lib/device/host/host.h"
#include "tests/golden/reference.h"
#include "tests/harness/cuda/fibres.h"
#include "tests/harness/cuda/memory.h"
#include "tests/unit/lib/device/run.h"

static uint32_t models, unsupported, seed;
static struct cuda_slot_counts all; /* of experts */

static struct device *open_device(const struct cuda_plan *plan)
{
    struct error error;
    struct device *d = cuda_device(gpu_kernels(), plan, &error);
    ck_assert_msg(d != NULL, "%s", error.text);
    fibres_seed(++seed);
    return d;
}

/* As an engine plans it: with space for the experts that a chunk pins. */
static struct cuda_plan plan_of(const struct image *image, uint32_t chunk)
{
    struct cuda_plan plan = {0};
    struct error error;
    cuda_plan_model(&plan, image->model, image->kv_type, RUN_CONTEXT, 0, 1);
    /* keys, values and states of all layers stay there, or of some */
    cuda_plan_kv(&plan, image->model, image->kv_type, RUN_CONTEXT, 0,
                 seed % 3 == 0 ? UINT64_MAX : plan.bytes[CUDA_KV] * (1 + seed % 3));
    while (cuda_plan_experts(&plan, image->model) <
           IMAGE_PIN_SLOTS * image->model->expert_slot_bytes_max)
        plan.bytes[CUDA_EXPERTS] += plan.slot_bytes;
    struct device *d = open_device(&plan);
    struct core_config config = {.model = image->model,
                                 .device = d,
                                 .threads = 1,
                                 .chunk = chunk,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    int rc = core_device_bytes(&config, &plan.bytes[CUDA_ACTIVATIONS], &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    d->ops->destroy(d); /* which called nothing of the driver */
    return plan;
}

/* The device computes with all types of the model. */
static bool computes_all(const struct device *d, const struct model_index *model)
{
    for (uint32_t i = 0; i < model->tensor_count; i++)
        if (!d->ops->computes(d, (enum tensor_type)model_index_tensors(model)[i].type))
            return false;
    return true;
}

static void compare(struct image *image, bool masked, const char *name)
{
    /* products have a kernel for up to 8 rows and one for more */
    struct run host = {
        .image = image, .masked = masked, .chunk = seed % 4 == 0 ? 9 : 2, .single = 2};
    struct run cuda = host;
    struct error error;
    struct cuda_plan plan = plan_of(image, host.chunk);
    cuda.device = open_device(&plan);
    cuda.content = 1;
    cuda_pointers(cuda.device, untagged);
    if (seed % 2 != 0)
        cuda_cooperate(cuda.device, host_device(kernel_ops_select("auto"), 2, 0, &error));
    fake_limit(cuda_plan_bytes(&plan));
    ck_assert_msg(cuda_reserve(cuda.device, &error) == 0, "%s", error.text);
    uint64_t want = run_hash(&host), have = run_hash(&cuda);
    struct cuda_slot_counts slots = cuda_slot_counts(cuda.device);
    all.evicted += slots.evicted;
    all.hits += slots.hits;
    all.on_host += slots.on_host;
    all.behind += slots.behind;
    ck_assert_msg(want == have, "%s%s, keys and values in %s: other results than on the host", name,
                  masked ? ", masked" : "", kv_type_info(image->kv_type)->name);
    fake_limit(0);
    cuda.device->ops->destroy(cuda.device);
    ck_assert_msg(fake_bytes() == 0, "%s: %zu bytes are left on the device", name, fake_bytes());
}

static void check_model(const char *path, const char *name)
{
    struct image image;
    const struct cuda_plan nothing = {0};
    struct device *d = open_device(&nothing);
    if (strcmp(name, "demo") == 0) { /* too large for threads that are fibres */
        d->ops->destroy(d);
        return;
    }
    image_open(&image, path, RUN_CONTEXT);
    bool computed = computes_all(d, image.model);
    d->ops->destroy(d);
    models++;
    unsupported += !computed;
    const char *every = getenv("SLUICE_LONG");
    if (computed && (models % 3 == 0 || (every && strcmp(every, "0") != 0)))
        compare(&image, models % 2 == 0, name);
    else if (!computed)
        printf("%s: has a type without kernels\n", name);
    image_close(&image);
}

START_TEST(every_architecture)
{
    golden_models(check_model);
    ck_assert_msg(all.evicted > 0 && all.hits > 0 && all.on_host > 0 && all.behind > 0,
                  "%llu experts replaced, %llu were there, %llu on the host, %llu copied later",
                  (unsigned long long)all.evicted, (unsigned long long)all.hits,
                  (unsigned long long)all.on_host, (unsigned long long)all.behind);
    ck_assert_msg(models - unsupported >= 30, "%u of %u models have unsupported types", unsupported,
                  models);
}
END_TEST

START_TEST(every_type_of_keys)
{
    static const char *const names[] = {"arch/qwen3moe_a.gguf", "arch/kimi_k2.gguf",
                                        "arch/oss_a.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint32_t type = 0; type < KV_TYPE__COUNT; type++) {
            struct image image;
            image_open(&image, golden_path(names[i]), RUN_CONTEXT);
            image.kv_type = (enum kv_type)type;
            compare(&image, type % 2 != 0, names[i]);
            image_close(&image);
        }
}
END_TEST

static void check_out_of_memory(const struct error *error, const char *part)
{
    char end[80];
    snprintf(end, sizeof end, " bytes for %s): out of memory", part);
    ck_assert_int_eq(error->code, ERR_NO_MEMORY);
    ck_assert_msg(strncmp(error->text, "out of GPU memory (", 19) == 0 && strstr(error->text, end),
                  "%s", error->text);
}

/* Failures before the first pass are errors. */
START_TEST(too_little_memory)
{
    struct image image;
    struct error error = {0};
    image_open(&image, golden_path("arch/qwen3moe_a.gguf"), RUN_CONTEXT);
    struct cuda_plan plan = plan_of(&image, 4);
    struct device *d = open_device(&plan);
    struct core_config config = {.model = image.model,
                                 .device = d,
                                 .source = image_source_on(&image, d),
                                 .threads = 1,
                                 .chunk = 4,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    fake_limit(plan.bytes[CUDA_WEIGHTS]);
    ck_assert_int_eq(cuda_reserve(d, &error), -1);
    check_out_of_memory(&error, "keys and values");
    d->ops->destroy(d);
    d = open_device(&plan);
    config.device = d;
    config.source = image_source_on(&image, d);
    fake_limit(cuda_plan_bytes(&plan) - 1);
    ck_assert_int_eq(cuda_reserve(d, &error), 0);
    ck_assert_ptr_null(core_create(&config, &error));
    check_out_of_memory(&error, "activations");
    fake_limit(0);
    d->ops->destroy(d);
    ck_assert_uint_eq(fake_bytes(), 0);
    image_close(&image);
}
END_TEST

/* ---- what an operation wrote of a sequence, and a later one reads, without a wait between them ---- */

#define CHANNELS 5
#define TAPS     3
#define STATE    ((TAPS - 1) * CHANNELS)
#define PARTS    (NOTES_MAX + 2 * DEVICE_SEQUENCES_MAX) /* more than are noted until a wait */

static struct device_at given(struct device *d, const void *from, size_t bytes)
{
    struct error error;
    struct device_at at;
    ck_assert_int_eq(d->ops->allocate(d, bytes, &at, &error), 0);
    d->ops->write(d, at, from, bytes);
    return at;
}

/* A row of each of as many sequences as a pass has, from their states on; what `from` NULL has: zeros. */
static void convolve(struct device *d, uint32_t first, float *states, bool begins,
                     struct device_at projected, struct device_at conv, struct device_at mix)
{
    struct device_row row[DEVICE_SEQUENCES_MAX];
    struct device_sequence sequence[DEVICE_SEQUENCES_MAX];
    for (uint32_t i = 0; i < DEVICE_SEQUENCES_MAX; i++) {
        float *state = states + (size_t)(first + i) * STATE;
        struct device_at at = device_share(d, d->is_host ? state : tagged(state),
                                           STATE * sizeof *state, DEVICE_SHARE_SEQUENCE);
        row[i] = (struct device_row){.sequence = i, .position = first};
        sequence[i] = (struct device_sequence){.state = begins ? (struct device_at){0} : at,
                                               .next_state = at};
    }
    const struct op_short_conv op = {.rows = DEVICE_SEQUENCES_MAX,
                                     .sequences = DEVICE_SEQUENCES_MAX,
                                     .row = row,
                                     .sequence = sequence,
                                     .taps = TAPS,
                                     .channels = CHANNELS,
                                     .conv = conv,
                                     .zeros = conv,
                                     .stride = 3 * CHANNELS,
                                     .projected = projected,
                                     .mix = device_rows_of_floats(mix, CHANNELS)};
    d->ops->short_conv(d, &op);
}

static void convolve_all(struct device *d, float *states)
{
    float x[DEVICE_SEQUENCES_MAX * 3 * CHANNELS], conv[TAPS * CHANNELS] = {0};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)(i % 97) / 7 - 5;
    struct device_at memory[] = {given(d, x, sizeof x), given(d, conv, sizeof conv),
                                 given(d, x, sizeof x)};
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t at = 0; at < PARTS; at += DEVICE_SEQUENCES_MAX) {
            d->ops->write(d, memory[0], x, sizeof x); /* the operation changes it */
            convolve(d, at, states, pass == 0, memory[0], memory[1], memory[2]);
            x[at % 7] += 1;
        }
    device_wait(d);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        d->ops->release(d, memory[i]);
    d->ops->destroy(d);
}

START_TEST(many_states_without_a_wait)
{
    static float want[PARTS * STATE], have[PARTS * STATE];
    struct error error;
    memset(have, 0xff, sizeof have);
    const struct cuda_plan plan = {
        .bytes[CUDA_KV] = (uint64_t)2 * DEVICE_SEQUENCES_MAX * DEVICE_ALIGN,
        .bytes[CUDA_EXPERTS] = DEVICE_SEQUENCES_MAX * DEVICE_ALIGN * 2}; /* scratch memory */
    struct device *d = open_device(&plan);
    ck_assert_int_eq(cuda_reserve(d, &error), 0);
    convolve_all(host_device(kernel_ops_select("auto"), 1, 0, &error), want);
    convolve_all(d, have);
    ck_assert_mem_eq(have, want, sizeof want);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_cuda");
    TCase *c = tcase_create("device_cuda");
    tcase_set_timeout(c, 900);
    tcase_add_test(c, every_architecture);
    tcase_add_test(c, every_type_of_keys);
    tcase_add_test(c, too_little_memory);
    tcase_add_test(c, many_states_without_a_wait);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
