/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a module of kernels on its GPU against those of the CPU, bit for bit; for
 * tests/bench/gpu.sh.
 *
 *   gpu_bits MODULE device          the GPU's number, name, bytes of memory, compute capability;
 *                                   status 3: none
 *   gpu_bits MODULE kernels         products of every type of weights, one by one and of several
 *                                   matrices in a launch
 *   gpu_bits MODULE models [EVERY]  every EVERY-th golden model through the core: logits, routes,
 *                                   keys and values; and again with all experts on the GPU, by
 *                                   launches of a graph
 *
 * In tests SLUICE_TEST_GPU=1 states that MODULE needs no driver. */
#include <stdio.h>

#include "lib/cuda/module.h"
#include "lib/device/host/host.h"
#include "tests/golden/reference.h"
#include "tests/unit/lib/device/cuda_run.h"
#include "tests/unit/lib/kernels/kernel_test.h"

enum {
    GPUS_MAX = 16,
    ROWS_MAX = 67,
    OUTPUTS = 193,
    JOBS = 3,
    JOB_OUTPUTS = 61,
    ALONE = 8,
    NONE = 3
};

static const struct gpu_kernels *module;
static unsigned every = 1, models, compared, same, unsupported, different;
static unsigned long long graphs;

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

/* Memory of the GPU, until free_memory. */
static void *memory[8];
static size_t memories;

static void *new_memory(size_t bytes)
{
    ck_assert_uint_lt(memories, ARRAY_LEN(memory));
    check_status(module->allocate(bytes, &memory[memories]), "memory");
    return memory[memories++];
}

static void *on_device(const void *from, size_t bytes)
{
    void *to = new_memory(bytes);
    check_status(module->upload(to, from, bytes, NULL), "a copy");
    return to;
}

static void free_memory(void)
{
    while (memories > 0)
        check_status(module->release(memory[--memories]), "memory");
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

/* On the GPU, with the layout of rows there. */
static struct kernel_matrix matrix_on_device(const struct kernel_matrix *m)
{
    struct kernel_matrix file = *m, w = *m;
    file.data = w.data = on_device(m->data, m->row_bytes * m->n);
    if (!module->rearranged(m->type))
        return w;
    w.row_bytes = module->row_bytes(m->type, m->k);
    void *to = new_memory(w.row_bytes * m->n);
    check_status(module->rearrange(&file, to, w.row_bytes, NULL), "a layout of weights");
    w.data = to;
    return w;
}

/* Rows in the form that the type reads, as the module wants them: a multiple of 64 bytes apart. */
static uint8_t *prepared(enum tensor_type type, const float *x, uint32_t k, uint32_t rows,
                         size_t *aligned)
{
    size_t stride;
    uint8_t *act = test_prepare(kernel_ops_of(ISA_GENERIC), type, x, k, rows, &stride);
    *aligned = align_up(stride, 64);
    uint8_t *to = test_alloc(*aligned * rows);
    for (uint32_t r = 0; r < rows; r++)
        memcpy(to + r * *aligned, act + r * stride, stride);
    free(act);
    return to;
}

/* What the GPU computed is what the CPU did; frees both. */
static bool is_same(float *want, const float *result, size_t bytes)
{
    float *have = test_alloc(bytes);
    check_status(module->download(have, result, bytes, NULL), "a copy");
    check_status(module->wait(NULL), "a product");
    bool equal = memcmp(want, have, bytes) == 0;
    free_memory();
    free(want);
    free(have);
    return equal;
}

static bool product_is_same(const struct kernel_matrix *m, const float *x, uint32_t rows)
{
    size_t stride, bytes = (size_t)rows * OUTPUTS * sizeof(float);
    uint8_t *act = prepared(m->type, x, m->k, rows, &stride);
    float *want = test_alloc(bytes), *y = new_memory(bytes);
    kernel_ops_of(ISA_GENERIC)->matmul(m, 0, OUTPUTS, act, stride, rows, want, OUTPUTS);
    const struct kernel_matrix w = matrix_on_device(m);
    void *a = on_device(act, stride * rows);
    free(act);
    check_status(module->matmul(&w, 0, OUTPUTS, a, stride, rows, y, OUTPUTS, NULL), "a product");
    return is_same(want, y, bytes);
}

/* Jobs as of a batch of experts: parts of the matrix, with up to `most` rows by number. */
static bool jobs_are_same(const struct kernel_matrix *m, const float *x, uint32_t most)
{
    const uint32_t rows[JOBS] = {(most + 1) / 2, most, 1};
    uint32_t index[2 * ROWS_MAX + 2], pairs = 0;
    struct gpu_job job[JOBS];
    size_t stride, bytes = (size_t)(rows[0] + most + 1) * JOB_OUTPUTS * sizeof(float);
    uint8_t *act = prepared(m->type, x, m->k, ROWS_MAX, &stride);
    float *want = test_alloc(bytes), *y = new_memory(bytes);
    const struct kernel_matrix w = matrix_on_device(m);
    for (uint32_t j = 0; j < JOBS; j++) {
        struct kernel_matrix part = *m;
        part.data = (const uint8_t *)m->data + j * JOB_OUTPUTS * m->row_bytes;
        part.n = JOB_OUTPUTS;
        job[j] = (struct gpu_job){(const uint8_t *)w.data + j * JOB_OUTPUTS * w.row_bytes,
                                  y + (size_t)pairs * JOB_OUTPUTS, pairs, rows[j]};
        for (uint32_t r = 0; r < rows[j]; r++, pairs++) {
            index[pairs] = (pairs * 29 + 5) % ROWS_MAX;
            kernel_ops_of(ISA_GENERIC)
                ->matmul(&part, 0, JOB_OUTPUTS, act + index[pairs] * stride, stride, 1,
                         want + (size_t)pairs * JOB_OUTPUTS, JOB_OUTPUTS);
        }
    }
    const struct gpu_products p = {.w = {NULL, w.row_bytes, w.k, JOB_OUTPUTS, w.type},
                                   .x = on_device(act, stride * ROWS_MAX),
                                   .index = on_device(index, pairs * sizeof *index),
                                   .jobs = on_device(job, sizeof job),
                                   .x_stride = stride,
                                   .y_stride = JOB_OUTPUTS,
                                   .n_end = JOB_OUTPUTS,
                                   .rows = most,
                                   .count = JOBS};
    free(act);
    check_status(module->products(&p, NULL), "products");
    return is_same(want, y, bytes);
}

static void count_product(bool equal, enum tensor_type type, const char *what, uint32_t rows)
{
    same += equal;
    different += !equal;
    if (!equal)
        printf("not ok %s of %s, %u rows\n", what, tensor_type_info((uint32_t)type)->name, rows);
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
            count_product(product_is_same(&m, x, row_counts[r]), type, "product", row_counts[r]);
            m.k = 3 * 256; /* of each row its start */
            count_product(jobs_are_same(&m, x, row_counts[r]), type, "products", row_counts[r]);
            m.k = 9 * 256;
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

static struct device *open_device(const struct gpu_layout *layout)
{
    static struct gpu_kernels untagging;
    struct error error;
    untagging = *module;
    untagging.upload = upload;
    untagging.download = download;
    struct device *d = cuda_device(&untagging, kernel_ops_select("auto"), layout, &error);
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

/* Opens the GPU's device, runs both, and destroys it. */
static bool compare(struct run *host, struct run *gpu, const char *name, const char *how)
{
    struct error error;
    gpu->content = 1;
    cuda_pointers(gpu->device, untagged);
    ck_assert_msg(cuda_reserve(gpu->device, &error) == 0, "%s: %s", name, error.text);
    bool equal = run_hash(host) == run_hash(gpu);
    unsigned long long launches = cuda_graph_launches(gpu->device);
    graphs += launches;
    printf("%s %s%s: %llu tokens by a graph\n", equal ? "ok" : "not ok", name, how, launches);
    gpu->device->ops->destroy(gpu->device);
    return equal && (launches > 0) == gpu->alone;
}

static bool compare_passes(struct image *image, const char *name)
{
    struct run host = {.image = image,
                       .masked = compared % 2 == 0,
                       .chunk = compared % 4 == 0 ? 9 : 2,
                       .single = 2};
    struct run gpu = host;
    struct error error;
    struct gpu_layout layout =
        cuda_run_layout(module, image, host.chunk, compared % 2 == 0 ? 0 : 2, open_device);
    gpu.device = open_device(&layout);
    if (compared++ % 3 == 1)
        cuda_cooperate(gpu.device, host_device(kernel_ops_select("auto"), 2, 0, &error));
    return compare(&host, &gpu, name, "");
}

/* With all experts, keys, values and states on the GPU. */
static bool compare_alone(struct image *image, const char *name)
{
    const struct model_hparams *hp = &image->model->hparams;
    struct run host = {.image = image, .alone = true, .chunk = 2, .single = ALONE}, gpu = host;
    struct gpu_layout layout = cuda_run_layout(module, image, host.chunk, 0, open_device);
    layout.bytes[CUDA_EXPERTS] = hp->layers * hp->experts * layout.slot_bytes;
    gpu.device = open_device(&layout);
    return compare(&host, &gpu, name, ", all experts there");
}

static void check_model(const char *path, const char *name)
{
    struct image image;
    if (strcmp(name, "demo") == 0) /* generated by engines in gpu.sh */
        return;
    if (models++ % every != 0)
        return;
    image_open(&image, path, RUN_CONTEXT);
    if (has_kernels(image.model)) {
        bool passes = compare_passes(&image, name), alone = compare_alone(&image, name);
        same += passes && alone;
        different += !(passes && alone);
    } else {
        unsupported++;
    }
    image_close(&image);
}

START_TEST(golden)
{
    golden_models(check_model);
    printf("%u models have the bits of the CPU, %u do not, %u have a type without kernels; %llu "
           "tokens by a graph\n",
           same, different, unsupported, graphs);
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
