/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices that get the layout of the device while others are uploaded and read: what is read is
 * what the host had, in any order of the streams. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/device/cuda/internal.h"
#include "tests/harness/cuda/fibres.h"
#include "tests/harness/cuda/memory.h"
#include "tests/harness/tagged.h"
#include "tests/unit/lib/kernels/kernel_test.h"

enum { SEEDS = 12, STEPS = 24, EXPERTS = 5, SLOTS = 2, K = 512, N = 3, FLOATS = K * N };

static const enum tensor_type types[] = {TENSOR_Q8_0, TENSOR_Q6_K, TENSOR_Q4_K, TENSOR_MXFP4,
                                         TENSOR_C4,   TENSOR_F16,  TENSOR_Q4_0};

static float want[STEPS * FLOATS], have[STEPS * FLOATS];

static struct kernel_matrix random_matrix(enum tensor_type type, uint32_t k, uint32_t n)
{
    struct kernel_matrix m = {.k = k, .n = n, .type = type};
    ck_assert(tensor_type_row_bytes((uint32_t)type, k, &m.row_bytes));
    uint8_t *data = test_alloc(m.row_bytes * n);
    for (uint32_t row = 0; row < n; row++)
        test_weights(type, data + row * m.row_bytes, m.row_bytes);
    m.data = data;
    return m;
}

static struct kernel_matrix shared(struct kernel_matrix m)
{
    m.data = tagged(m.data);
    return m;
}

struct side {
    struct device *device;
    struct device_at workspace, y;
};

static struct side open_side(uint64_t weights, uint32_t seed)
{
    const struct device_limits limits = {.rows = 64, .experts = EXPERTS, .top_k = 1};
    struct error error;
    struct side s;
    struct gpu_layout layout = {.layers = 1, .experts = EXPERTS, .top_k = 1};
    layout.slot_bytes = align_up(gpu_kernels()->row_bytes(TENSOR_F16, K) * N, SLABS_ALIGN);
    expert_sizes_fill(&layout.sizes, 1, EXPERTS, layout.slot_bytes);
    layout.bytes[CUDA_WEIGHTS] = CUDA_STAGING_BYTES + weights;
    layout.bytes[CUDA_EXPERTS] = SLOTS * layout.slot_bytes;
    fibres_seed(seed);
    struct device *d = s.device =
        cuda_device(gpu_kernels(), kernel_ops_select("auto"), &layout, &error);
    ck_assert_ptr_nonnull(d);
    cuda_pointers(d, untagged);
    ck_assert_int_eq(cuda_reserve(d, &error), 0);
    ck_assert_int_eq(d->ops->allocate(d, d->ops->workspace(d, &limits), &s.workspace, &error), 0);
    d->ops->use_workspace(d, &limits, s.workspace);
    ck_assert_int_eq(d->ops->allocate(d, sizeof have, &s.y, &error), 0);
    return s;
}

static void close_side(struct side *s)
{
    s->device->ops->release(s->device, s->workspace);
    s->device->ops->release(s->device, s->y);
    s->device->ops->destroy(s->device);
    ck_assert_uint_eq(fake_bytes(), 0);
}

/* Rows [first, first + N) as floats from number `at` on: on the device when they are read, and of
 * the host now. */
static void unpack(struct side *s, const struct device_matrix *there, const struct kernel_matrix *m,
                   uint32_t first, size_t at)
{
    struct op_unpack op = {.w = *there, .stride = 1, .row_stride = m->k};
    op.w.data = device_offset(there->data, first * there->row_bytes);
    op.w.n = N;
    op.y = device_floats_at(s->y, at);
    s->device->ops->unpack(s->device, &op);
    for (uint32_t row = 0; row < N; row++)
        kernel_ops_of(ISA_GENERIC)->row_to_f32(m, first + row, want + at + (size_t)row * m->k);
}

static void compare(struct side *s, size_t floats)
{
    s->device->ops->read(s->device, s->y, have, floats * sizeof *have);
    ck_assert_mem_eq(have, want, floats * sizeof *have);
}

/* Slots get other experts while the operations with those before have not run. */
START_TEST(experts)
{
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        struct side s = open_side(0, seed);
        struct cuda *c = (struct cuda *)(void *)s.device;
        for (uint32_t step = 0; step < STEPS; step++) {
            uint32_t expert = step * 3 % EXPERTS; /* replaced before its next use */
            struct kernel_matrix m = random_matrix(types[step % ARRAY_LEN(types)], K, N),
                                 host = shared(m);
            struct device_matrix there =
                device_lend(s.device, &host, device_content(0, 1, 0, EXPERTS, expert, 0));
            cuda_await(c, device_pointer(there.data));
            unpack(&s, &there, &m, 0, step * FLOATS);
            device_give_back(s.device);
            memset((void *)(uintptr_t)m.data, 0xff, m.row_bytes * N);
            free((void *)(uintptr_t)m.data);
        }
        compare(&s, STEPS * FLOATS);
        close_side(&s);
    }
}
END_TEST

START_TEST(weights)
{
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        struct side s = open_side(STEPS * align_up(2 * FLOATS, DEVICE_ALIGN), seed);
        struct kernel_matrix m[STEPS];
        for (uint32_t step = 0; step < STEPS; step++) {
            m[step] = random_matrix(types[step % ARRAY_LEN(types)], K, N);
            struct kernel_matrix host = shared(m[step]);
            struct device_matrix there = device_weights(s.device, &host);
            unpack(&s, &there, &m[step], 0, step * FLOATS);
        }
        compare(&s, STEPS * FLOATS);
        for (uint32_t step = 0; step < STEPS; step++)
            free((void *)(uintptr_t)m[step].data);
        close_side(&s);
    }
}
END_TEST

/* More than the staging memory: pieces with whole rows. */
START_TEST(large)
{
    enum { WIDE = 3872, ROWS = 530 };
    struct kernel_matrix m = random_matrix(TENSOR_Q8_0, WIDE, ROWS), host = shared(m);
    uint32_t piece = (uint32_t)(CUDA_STAGING_BYTES / m.row_bytes);
    struct side s = open_side(2 * MIB + MIB, 1);
    ck_assert(piece > N && piece + N < ROWS);
    struct device_matrix there = device_weights(s.device, &host);
    ck_assert_uint_eq(there.row_bytes, align_up(m.row_bytes, 16));
    ck_assert_uint_gt(there.row_bytes, m.row_bytes);
    const uint32_t first[] = {0, piece - 2, ROWS - N};
    for (uint32_t i = 0; i < ARRAY_LEN(first); i++)
        unpack(&s, &there, &m, first[i], (size_t)i * N * WIDE);
    compare(&s, (size_t)ARRAY_LEN(first) * N * WIDE);
    ck_assert_uint_ge(cuda_copied(s.device).to_device, m.row_bytes * ROWS);
    free((void *)(uintptr_t)m.data);
    close_side(&s);
}
END_TEST

/* What has no data: the sizes of rows, and nothing is copied. */
START_TEST(shapes)
{
    struct side s = open_side(0, 1);
    struct kernel_matrix m = {.row_bytes = 34 * K / 32, .k = K, .n = N, .type = TENSOR_Q8_0};
    uint64_t before = cuda_copied(s.device).to_device;
    struct device_matrix there = device_shape(s.device, m);
    ck_assert(there.data.address == 0 && there.k == K && there.n == N);
    ck_assert_uint_eq(there.row_bytes, gpu_kernels()->row_bytes(TENSOR_Q8_0, K));
    ck_assert_uint_eq(cuda_copied(s.device).to_device, before);
    close_side(&s);
}
END_TEST

/* Those of which every expert has a slot; none of which there are no experts. */
START_TEST(precisions_with_slots_for_all)
{
    struct gpu_layout layout = {.layers = 2, .experts = 8, .top_k = 2, .slot_bytes = 1024};
    layout.sizes = (struct expert_sizes){.experts = layout.experts};
    for (uint32_t l = 0; l < layout.layers; l++) {
        layout.sizes.bytes[PRECISION_INT8][l] = 1024;
        layout.sizes.bytes[PRECISION_INT4][l] = 512;
    }
    layout.bytes[CUDA_EXPERTS] = 24 * 1024;
    ck_assert_uint_eq(gpu_layout_precisions(&layout), 1u << PRECISION_INT8 | 1u << PRECISION_INT4);
    layout.bytes[CUDA_EXPERTS] = 10 * 1024;
    ck_assert_uint_eq(gpu_layout_precisions(&layout), 1u << PRECISION_INT4);
    ck_assert_uint_ge(gpu_layout_places(&layout), 2 * gpu_layout_lent_max(&layout));
    layout.bytes[CUDA_EXPERTS] = 2 * 1024;
    ck_assert_uint_eq(gpu_layout_precisions(&layout), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_cuda_uploads");
    TCase *c = tcase_create("uploads");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, experts);
    tcase_add_test(c, weights);
    tcase_add_test(c, large);
    tcase_add_test(c, shapes);
    tcase_add_test(c, precisions_with_slots_for_all);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
