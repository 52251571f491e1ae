/* SPDX-License-Identifier: Apache-2.0 */
/* A chain on two GPUs of the harness, and on one of them and the host: the bits of the host, for
 * models of several architectures. Each GPU has the memory of its layout and no more; memory of the
 * other one faults, and a call without the right selection fails (tests/harness/cuda/memory.h). */
#include <check.h>

#include "lib/base/assert.h"
#include "tests/golden/reference.h"
#include "tests/harness/cuda/fibres.h"
#include "tests/harness/cuda/memory.h"
#include "tests/unit/lib/device/cuda_run.h"

#define CHUNK 2

static struct device *open_device(const struct gpu_layout *layout)
{
    struct error error;
    struct device *d = cuda_device(gpu_kernels(), kernel_ops_select("auto"), layout, &error);
    ck_assert_msg(d != NULL, "%s", error.text);
    return d;
}

static struct device *gpu(struct image *image, uint32_t number, uint32_t first, uint32_t end,
                          bool prefetch)
{
    struct gpu_layout layout = {.number = number, .first_layer = first, .end_layer = end};
    struct error error;
    layout =
        cuda_run_layout_part(layout, gpu_kernels(), image, CHUNK, number == 0 ? 1 : 0, open_device);
    struct device *d = open_device(&layout);
    if (prefetch)
        cuda_prefetch(d);
    ck_assert_int_eq(fake_select((int)number), 0);
    fake_limit(gpu_layout_bytes(&layout));
    ck_assert_msg(cuda_reserve(d, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(cuda_bytes(d, CUDA_WEIGHTS), layout.bytes[CUDA_WEIGHTS]);
    return d;
}

static uint64_t hash_of(struct image *image, const struct chain_part *parts, uint32_t count)
{
    struct run run = {.image = image,
                      .parts = parts,
                      .part_count = count,
                      .content = 1,
                      .chunk = CHUNK,
                      .single = 1};
    return run_hash(&run);
}

static void close_all(const struct chain_part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (parts[i].device)
            parts[i].device->ops->destroy(parts[i].device);
    ck_assert_uint_eq(fake_bytes(), 0);
    for (int i = FAKE_GPUS - 1; i >= 0; i--) {
        ck_assert_int_eq(fake_select(i), 0);
        fake_limit(0);
    }
}

static const char *const names[] = {"arch/qwen3moe_a.gguf", "arch/qwen35moe_a.gguf",
                                    "arch/oss_a.gguf"};

START_TEST(two_gpus)
{
    struct image image;
    image_open(&image, golden_path(names[_i]), RUN_CONTEXT);
    uint32_t layers = image.model->hparams.layers;
    const struct chain_part host = {.layers = layers};
    struct chain_part parts[2] = {{.layers = 1}, {.layers = layers - 1}};
    uint64_t want = hash_of(&image, &host, 1);
    fibres_seed((uint32_t)_i);
    parts[0].device = gpu(&image, 0, 0, 1, _i % 2 == 0);
    parts[1].device = gpu(&image, 1, 1, layers, _i % 2 == 0);
    ck_assert(hash_of(&image, parts, 2) == want);
    /* its only layer is followed by one of the other GPU: nothing is copied ahead */
    ck_assert_uint_eq(cuda_slot_counts(parts[0].device).ahead, 0);
    close_all(parts, 2);
    image_close(&image);
}
END_TEST

/* The first layers, on the second GPU; and the last ones. */
START_TEST(gpu_and_host)
{
    struct image image;
    image_open(&image, golden_path(names[_i]), RUN_CONTEXT);
    uint32_t layers = image.model->hparams.layers;
    const struct chain_part host = {.layers = layers};
    struct chain_part parts[2] = {{.layers = layers - 1}, {.layers = 1}};
    uint32_t on_gpu = (uint32_t)_i % 2;
    uint64_t want = hash_of(&image, &host, 1);
    fibres_seed((uint32_t)_i);
    parts[on_gpu].device = on_gpu == 0 ? gpu(&image, 1, 0, layers - 1, true)
                                       : gpu(&image, 1, layers - 1, layers, true);
    ck_assert(hash_of(&image, parts, 2) == want);
    close_all(parts, 2);
    image_close(&image);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_cuda_parts");
    TCase *c = tcase_create("device_cuda_parts");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, two_gpus, 0, ARRAY_LEN(names));
    tcase_add_loop_test(c, gpu_and_host, 0, ARRAY_LEN(names));
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
