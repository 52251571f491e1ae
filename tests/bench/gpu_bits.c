/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a module of kernels on its GPU against those of the CPU, bit for bit; for tests/bench/gpu.sh.
 *
 *   gpu_bits MODULE device          the GPU's number, name, bytes of memory, compute capability; status 3: none
 *   gpu_bits MODULE kernels         products of every type of weights
 *   gpu_bits MODULE models [EVERY]  every EVERY-th golden model through the core: logits, routes, keys and values
 *
 * In tests SLUICE_TEST_GPU=1 states that MODULE needs no driver. */
#include <stdio.h>

#include "lib/cuda/module.h"
#include "lib/device/host/host.h"
#include "tests/golden/reference.h"
#include "tests/unit/lib/device/cuda_run.h"
#include "tests/unit/lib/kernels/kernel_test.h"

enum { GPUS_MAX = 16, ROWS_MAX = 67, OUTPUTS = 193, NONE = 3 };

static const struct gpu_kernels *module;
static unsigned every = 1, models, compared, same, unsupported, different;

/* ---- the device ---- */

static int print_devices(void)
{
    struct gpu_device device[GPUS_MAX];
    struct error error;
    if (getenv("SLUICE_TEST_GPU")) {
        printf("0\tmemory of the process\t0\t0.0\n");
        return 0;
    }
    int count = gpu_devices(device, GPUS_MAX, &error);
    if (count <= 0)
        printf("%s\n", count < 0 ? error.text : "the driver has no GPU");
    for (int i = 0; i < count && i < GPUS_MAX; i++)
        printf("%d\t%s\t%llu\t%u.%u\n", i, device[i].name,
               (unsigned long long)device[i].memory_bytes, device[i].major, device[i].minor);
    return count > 0 ? 0 : NONE;
}

static void check_status(int status, const char *what)
{
    ck_assert_msg(status == 0, "%s: %s (%d)", what, module->text(status), status);
}

static void *on_device(const void *from, size_t bytes)
{
    void *to;
    check_status(module->allocate(bytes, &to), "memory");
    check_status(module->upload(to, from, bytes, NULL), "a copy");
    return to;
}

/* ---- products ---- */

static struct kernel_matrix random_matrix(enum tensor_type type, uint32_t k)
{
    struct kernel_matrix m = {.k = k, .n = OUTPUTS, .type = type};
    uint64_t row;
    ck_assert(tensor_type_row_bytes((uint32_t)type, k, &row));
    m.row_bytes = align_up(row, module->alignment(type));
    uint8_t *data = test_alloc(m.row_bytes * m.n);
    for (uint32_t j = 0; j < m.n; j++)
        test_weights(type, data + j * m.row_bytes, row);
    m.data = data;
    return m;
}

/* Rows of activations as the module wants them: a multiple of 64 bytes apart. */
static uint8_t *spread(const uint8_t *rows, size_t stride, size_t aligned, uint32_t count)
{
    uint8_t *to = test_alloc(aligned * count);
    for (uint32_t r = 0; r < count; r++)
        memcpy(to + r * aligned, rows + r * stride, stride);
    return to;
}

static bool product_is_same(const struct kernel_matrix *m, const float *x, uint32_t rows)
{
    const struct kernel_ops *cpu = kernel_ops_of(ISA_GENERIC);
    size_t stride, bytes = (size_t)rows * OUTPUTS * sizeof(float);
    uint8_t *act = test_prepare(cpu, m->type, x, m->k, rows, &stride);
    size_t aligned = align_up(stride, 64);
    float *want = test_alloc(bytes), *have = test_alloc(bytes);
    cpu->matmul(m, 0, OUTPUTS, act, stride, rows, want, OUTPUTS);
    uint8_t *copy = spread(act, stride, aligned, rows);
    struct kernel_matrix w = *m;
    w.data = on_device(m->data, m->row_bytes * m->n);
    void *a = on_device(copy, aligned * rows), *y;
    check_status(module->allocate(bytes, &y), "memory");
    check_status(module->matmul(&w, 0, OUTPUTS, a, aligned, rows, y, OUTPUTS, NULL), "a product");
    check_status(module->download(have, y, bytes, NULL), "a copy");
    check_status(module->wait(NULL), "a product");
    bool equal = memcmp(want, have, bytes) == 0;
    check_status(module->release(y) | module->release(a) |
                     module->release((void *)(uintptr_t)w.data),
                 "memory");
    free(copy);
    free(act);
    free(want);
    free(have);
    return equal;
}

START_TEST(kernels)
{
    static const uint32_t row_counts[] = {1, 2, 8, 9, ROWS_MAX};
    for (size_t t = 0; t < TEST_TYPES; t++) {
        enum tensor_type type = test_types[t];
        if (module->alignment(type) == 0)
            continue;
        struct kernel_matrix m = random_matrix(type, 9 * 256);
        float *x = test_alloc((size_t)m.k * ROWS_MAX * sizeof *x);
        test_fill(x, (size_t)m.k * ROWS_MAX);
        for (size_t r = 0; r < ARRAY_LEN(row_counts); r++) {
            bool equal = product_is_same(&m, x, row_counts[r]);
            same += equal;
            different += !equal;
            if (!equal)
                printf("not ok product of %s, %u rows\n", tensor_type_info((uint32_t)type)->name,
                       row_counts[r]);
        }
        free(x);
        free((void *)(uintptr_t)m.data);
    }
    printf("%u products have the bits of the CPU, %u do not\n", same, different);
    ck_assert(same > 0);
}
END_TEST

/* ---- models ---- */

/* Pointers that the core shares are tagged in runs of this kind (tests/harness/tagged.h). */
static int upload(void *to, const void *from, size_t bytes, void *stream)
{
    return module->upload(to, untagged(from), bytes, stream);
}

static int download(void *to, const void *from, size_t bytes, void *stream)
{
    return module->download(untagged(to), from, bytes, stream);
}

static struct device *open_device(const struct cuda_plan *plan)
{
    static struct gpu_kernels untagging;
    struct error error;
    untagging = *module;
    untagging.upload = upload;
    untagging.download = download;
    struct device *d = cuda_device(&untagging, kernel_ops_select("auto"), plan, &error);
    ck_assert_msg(d != NULL, "%s", error.text);
    return d;
}

static bool has_kernels(const struct model_index *model)
{
    for (uint32_t i = 0; i < model->tensor_count; i++)
        if (module->alignment((enum tensor_type)model_index_tensors(model)[i].type) == 0)
            return false;
    return true;
}

static void compare(struct image *image, const char *name)
{
    struct run host = {.image = image,
                       .masked = compared % 2 == 0,
                       .chunk = compared % 4 == 0 ? 9 : 2,
                       .single = 2};
    struct run gpu = host;
    struct error error;
    struct cuda_plan plan =
        cuda_run_plan(image, host.chunk, compared % 2 == 0 ? 0 : 2, open_device);
    gpu.device = open_device(&plan);
    gpu.content = 1;
    cuda_pointers(gpu.device, untagged);
    if (compared++ % 3 == 1)
        cuda_cooperate(gpu.device, host_device(kernel_ops_select("auto"), 2, 0, &error));
    ck_assert_msg(cuda_reserve(gpu.device, &error) == 0, "%s: %s", name, error.text);
    bool equal = run_hash(&host) == run_hash(&gpu);
    same += equal;
    different += !equal;
    printf("%s %s\n", equal ? "ok" : "not ok", name);
    gpu.device->ops->destroy(gpu.device);
}

static void check_model(const char *path, const char *name)
{
    struct image image;
    if (strcmp(name, "demo") == 0) /* generated by engines in gpu.sh */
        return;
    if (models++ % every != 0)
        return;
    image_open(&image, path, RUN_CONTEXT);
    if (has_kernels(image.model))
        compare(&image, name);
    else
        unsupported++;
    image_close(&image);
}

START_TEST(golden)
{
    golden_models(check_model);
    printf("%u models have the bits of the CPU, %u do not, %u have a type without kernels\n", same,
           different, unsupported);
    ck_assert(same > 0);
}
END_TEST

/* In this process: a GPU does not survive a fork. */
static int run(const TTest *test)
{
    Suite *suite = suite_create("gpu_bits");
    TCase *cases = tcase_create("gpu_bits");
    tcase_add_test(cases, test);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 && different == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct error error;
    const char *what = argc > 2 ? argv[2] : "";
    if (strcmp(what, "device") == 0)
        return print_devices();
    if (argc < 3 || (strcmp(what, "kernels") != 0 && strcmp(what, "models") != 0)) {
        fprintf(stderr, "usage: gpu_bits MODULE device|kernels|models [EVERY]\n");
        return 2;
    }
    every = argc > 3 && atoi(argv[3]) > 0 ? (unsigned)atoi(argv[3]) : 1;
    module = gpu_module_open(argv[1], &error);
    if (!module || module->select(0) != 0) {
        printf("%s\n", module ? "GPU 0 cannot be used" : error.text);
        return NONE;
    }
    test_seed(21);
    return run(strcmp(what, "kernels") == 0 ? kernels : golden);
}
