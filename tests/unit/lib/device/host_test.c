/* SPDX-License-Identifier: Apache-2.0 */
/* The host as a device: long operations report their progress often enough for the heartbeat, on
 * processors whose kernels are slow, too. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/device/host/host.h"
#include "lib/device/host/pool.h"
#include "lib/device/pointers.h"

enum { K = 1024, N = 4096, ROWS = 512 };

/* Multiplications that the portable kernels make in about a second. */
#define SECOND_WORK ((uint64_t)1 << 30)

static struct {
    pthread_t thread;
    unsigned calls, others;
} reports;

static void alive(void *self)
{
    (void)self;
    reports.calls++;
    reports.others += !pthread_equal(pthread_self(), reports.thread);
}

static struct device *device_of(const char *isa, uint32_t threads)
{
    struct error error;
    struct device *d = host_device(kernel_ops_select(isa), threads, 0, &error);
    ck_assert_ptr_nonnull(d);
    d->alive = alive;
    reports.thread = pthread_self();
    reports.calls = reports.others = 0;
    return d;
}

static struct device *device_with(uint32_t threads)
{
    return device_of("auto", threads);
}

static void *zeros(size_t bytes)
{
    void *p = aligned_alloc(64, align_up(bytes, 64));
    ck_assert_ptr_nonnull(p);
    return memset(p, 0, bytes);
}

static struct device_matrix matrix_of(const void *data)
{
    return (struct device_matrix){.data = device_address(data),
                                  .row_bytes = K * sizeof(float),
                                  .k = K,
                                  .n = N,
                                  .type = TENSOR_F32};
}

static void multiply(struct device *d, uint32_t rows)
{
    float *w = zeros(sizeof(float) * K * N), *x = zeros(sizeof(float) * K * rows);
    float *y = zeros(sizeof(float) * N * rows);
    struct device_product product = {.w = matrix_of(w), .y = device_address(y), .y_stride = N};
    d->ops->products(d, &(struct op_products){.rows = rows,
                                              .x = device_rows_of_floats(device_address(x), K),
                                              .count = 1,
                                              .product = &product});
    free(w);
    free(x);
    free(y);
}

START_TEST(products_report)
{
    struct device *d = device_with(1);
    multiply(d, ROWS);
    ck_assert_uint_ge(reports.calls, 2 * (uint64_t)ROWS * K * N / SECOND_WORK);
    ck_assert_uint_eq(reports.others, 0);
    d->ops->destroy(d);
}
END_TEST

START_TEST(portable_kernels_report_more_often)
{
    enum { FEW = 64 };
    struct device *d = device_of("generic", 1);
    multiply(d, FEW);
    ck_assert_uint_ge(reports.calls, 32 * (uint64_t)FEW * K * N / SECOND_WORK);
    d->ops->destroy(d);
}
END_TEST

START_TEST(a_token_reports_nothing)
{
    struct device *d = device_with(1);
    multiply(d, 1);
    ck_assert_uint_eq(reports.calls, 0);
    d->ops->destroy(d);
}
END_TEST

/* Rows are divided where few outputs of all of them are too many; the results are those of one
 * call. */
START_TEST(rows_are_divided)
{
    enum { OUTPUTS = 16, MANY = 4096 };
    struct device *d = device_of("generic", 1);
    float *w = zeros(sizeof(float) * K * OUTPUTS), *x = zeros(sizeof(float) * K * MANY);
    float *y = zeros(sizeof(float) * OUTPUTS * MANY), *want = zeros(sizeof(float) * OUTPUTS * MANY);
    for (uint32_t i = 0; i < K * OUTPUTS; i++)
        w[i] = (float)(i % 23) - 11;
    for (uint32_t i = 0; i < K * MANY; i++)
        x[i] = (float)(i % 101) / 7 - 7;
    struct kernel_matrix m = {
        .data = w, .row_bytes = K * sizeof(float), .k = K, .n = OUTPUTS, .type = TENSOR_F32};
    struct device_product product = {
        .w = device_matrix_at(&m, device_address(w)), .y = device_address(y), .y_stride = OUTPUTS};
    d->ops->products(d, &(struct op_products){.rows = MANY,
                                              .x = device_rows_of_floats(device_address(x), K),
                                              .count = 1,
                                              .product = &product});
    ck_assert_uint_gt(reports.calls, 1);
    kernel_ops_select("generic")->matmul(&m, 0, OUTPUTS, x, K * sizeof(float), MANY, want, OUTPUTS);
    ck_assert_mem_eq(y, want, sizeof(float) * OUTPUTS * MANY);
    free(w);
    free(x);
    free(y);
    free(want);
    d->ops->destroy(d);
}
END_TEST

/* gate and up of `jobs` experts of `rows` rows each. */
static void compute_experts(struct device *d, uint32_t jobs, uint32_t rows)
{
    uint32_t all = jobs * rows;
    float *w = zeros(sizeof(float) * K * N), *x = zeros(sizeof(float) * K * all);
    float *gate = zeros(sizeof(float) * N * all), *up = zeros(sizeof(float) * N * all);
    uint32_t *pair_row = zeros(sizeof *pair_row * all);
    struct device_limits limits = {.rows = all,
                                   .experts = jobs,
                                   .top_k = 1,
                                   .expert_width = K,
                                   .gather_forms = 1u << FORM_F32};
    void *workspace = zeros(d->ops->workspace(d, &limits));
    d->ops->use_workspace(d, &limits, device_address(workspace));
    struct device_job *job = zeros(sizeof *job * jobs);
    for (uint32_t i = 0; i < jobs; i++) {
        job[i] = (struct device_job){.rows = rows, .pair_base = i * rows, .inner_base = i * rows};
        job[i].matrix[EXPERT_GATE] = job[i].matrix[EXPERT_UP] = matrix_of(w);
    }
    for (uint32_t r = 0; r < all; r++)
        pair_row[r] = r;
    d->ops->expert_gate_up(
        d, &(struct op_expert_gate_up){.rows = all,
                                       .n = N,
                                       .x = device_rows_of_floats(device_address(x), K),
                                       .jobs = jobs,
                                       .job = job,
                                       .pairs = all,
                                       .pair_row = pair_row,
                                       .inner_rows = all,
                                       .gate = device_address(gate),
                                       .up = device_address(up)});
    free(w);
    free(x);
    free(gate);
    free(up);
    free(pair_row);
    free(workspace);
    free(job);
}

/* Also of one row each, whose products report nothing. */
START_TEST(experts_report)
{
    struct device *d = device_with(1);
    compute_experts(d, 1, ROWS);
    ck_assert_uint_ge(reports.calls, 4 * (uint64_t)ROWS * K * N / SECOND_WORK);
    reports.calls = 0;
    compute_experts(d, 8, 1);
    ck_assert_uint_ge(reports.calls, 8);
    d->ops->destroy(d);
}
END_TEST

/* Whichever parts it runs. */
START_TEST(only_the_caller_reports)
{
    struct device *d = device_with(2);
    for (int i = 0; i < 8; i++)
        compute_experts(d, 1, ROWS);
    ck_assert_uint_gt(reports.calls, 0);
    ck_assert_uint_eq(reports.others, 0);
    d->ops->destroy(d);
}
END_TEST

/* ---- attention at depth ---- */

enum { HEADS = 8, KV_HEADS = 2, SIZE = 128, INPUT = 64, LONG_ROWS = 33, POSITIONS = 16384 };

static float *pattern(size_t n, uint32_t every)
{
    float *x = zeros(sizeof *x * n);
    for (size_t i = 0; i < n; i++)
        x[i] = ((float)(i % every) - (float)every / 2) / (float)every;
    return x;
}

static struct device_matrix projection(const float *w, uint32_t n)
{
    return (struct device_matrix){.data = device_address(w),
                                  .row_bytes = INPUT * sizeof(float),
                                  .k = INPUT,
                                  .n = n,
                                  .type = TENSOR_F32};
}

/* Keys or values of F16, between 2^-4 and 2^-3. */
static void *cache_of(void)
{
    size_t n = (size_t)POSITIONS * KV_HEADS * SIZE;
    uint16_t *p = zeros(n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint16_t)(0x2c00 + i * 7919 % 1024);
    return p;
}

/* The last `rows` positions; the caller frees the result. */
static float *attend_with(const char *isa, uint32_t rows)
{
    struct device *d = device_of(isa, 2);
    uint32_t q_size = HEADS * SIZE, kv_size = KV_HEADS * SIZE;
    float *w = pattern((size_t)INPUT * q_size, 89), *x = pattern((size_t)INPUT * rows, 61);
    float *q = zeros(sizeof *q * q_size * rows), *mix = zeros(sizeof *mix * q_size * rows);
    float *k = zeros(sizeof *k * kv_size * rows), *v = zeros(sizeof *v * kv_size * rows);
    void *keys = cache_of(), *values = cache_of();
    struct device_row row[LONG_ROWS];
    ck_assert_uint_le(rows, LONG_ROWS);
    for (uint32_t r = 0; r < rows; r++)
        row[r] = (struct device_row){.position = POSITIONS - rows + r};
    struct device_sequence sequence = {
        .keys = device_address(keys), .values = device_address(values), .kv_type = KV_TYPE_F16};
    struct device_limits limits = {.rows = rows, .attention_floats = HEADS * (SIZE + 2)};
    void *workspace = zeros(d->ops->workspace(d, &limits) + 64);
    d->ops->use_workspace(d, &limits, device_address(workspace));
    d->ops->attention(
        d,
        &(struct op_attention){
            .rows = rows,
            .sequences = 1,
            .row = row,
            .sequence = &sequence,
            .shape = {.heads = HEADS, .kv_heads = KV_HEADS, .key_size = SIZE, .value_size = SIZE},
            .heads = {.scale = {.base = 0.25f}},
            .x = device_rows_of_floats(device_address(x), INPUT),
            .w_q = projection(w, q_size),
            .w_k = projection(w, kv_size),
            .w_v = projection(w, kv_size),
            .q = device_address(q),
            .k = device_address(k),
            .v = device_address(v),
            .mix = device_rows_of_floats(device_address(mix), q_size)});
    free(w);
    free(x);
    free(q);
    free(k);
    free(v);
    free(keys);
    free(values);
    free(workspace);
    d->ops->destroy(d);
    return mix;
}

/* With the portable kernels, whose steps are shorter, rows are divided and attention is a phase of
 * its own, of more parts; with others it is part of the phase of a group of heads. The results are
 * the same. */
START_TEST(attention_at_depth_is_divided)
{
    float *divided = attend_with("generic", LONG_ROWS);
    ck_assert_uint_gt(reports.calls, 0);
    ck_assert_uint_eq(reports.others, 0);
    float *whole = attend_with("auto", LONG_ROWS);
    ck_assert_mem_eq(divided, whole, sizeof(float) * HEADS * SIZE * LONG_ROWS);
    ck_assert(whole[0] != 0 && whole[0] != whole[1]);
    free(divided);
    free(whole);
}
END_TEST

/* Also of one row, which is many multiplications for them, and none that count for others. */
START_TEST(a_row_at_depth_reports)
{
    float *portable = attend_with("generic", 1);
    ck_assert_uint_gt(reports.calls, 0);
    ck_assert_uint_eq(reports.others, 0);
    float *fast = attend_with("auto", 1);
    if (kernel_ops_select("auto")->isa != ISA_GENERIC)
        ck_assert_uint_eq(reports.calls, 0);
    ck_assert_mem_eq(portable, fast, sizeof(float) * HEADS * SIZE);
    free(portable);
    free(fast);
}
END_TEST

enum { LATENT_HEADS = 3, LATENT_ROWS = 75, NOPE = 32, ROPE = 16, RANK = 128, VALUE = 24 };

static struct device_matrix latent_matrix(const float *w, uint32_t k, uint32_t n)
{
    return (struct device_matrix){.data = device_address(w),
                                  .row_bytes = k * sizeof(float),
                                  .k = k,
                                  .n = n,
                                  .type = TENSOR_F32};
}

/* The last `rows` positions with latents; the caller frees the result. The matrix of queries is
 * divided by its scale, a power of two, so that the result is the same with any. */
static float *latent_with(const char *isa, uint32_t threads, uint32_t rows, float scale)
{
    const struct device_latent shape = {.heads = LATENT_HEADS,
                                        .nope = NOPE,
                                        .rope = ROPE,
                                        .value = VALUE,
                                        .rank = RANK,
                                        .key = RANK + ROPE,
                                        .scale = {.base = 0.25f}};
    struct device *d = device_of(isa, threads);
    const uint32_t q_size = LATENT_HEADS * (NOPE + ROPE), mix_size = LATENT_HEADS * VALUE;
    float *w = pattern((size_t)LATENT_HEADS * RANK * INPUT, 89);
    float *w_q = pattern((size_t)INPUT * q_size, 89);
    for (size_t i = 0; i < (size_t)INPUT * q_size; i++)
        w_q[i] /= scale;
    float *x = pattern((size_t)INPUT * rows, 61), *angles = pattern((size_t)ROPE * rows, 53);
    float *mix = zeros(sizeof *mix * mix_size * rows);
    void *keys = cache_of();
    struct device_row row[LATENT_ROWS];
    ck_assert_uint_le(rows, LATENT_ROWS);
    for (uint32_t r = 0; r < rows; r++)
        row[r] = (struct device_row){.position = POSITIONS - rows + r};
    struct device_sequence sequence = {.keys = device_address(keys), .kv_type = KV_TYPE_F16};
    struct device_limits limits = {.rows = rows,
                                   .latent = shape,
                                   .nope_forms = 1u << FORM_F32,
                                   .latent_forms = 1u << FORM_F32};
    void *workspace = zeros(d->ops->workspace(d, &limits) + 64);
    d->ops->use_workspace(d, &limits, device_address(workspace));
    d->ops->latent_attention(d, &(struct op_latent_attention){
                                    .rows = rows,
                                    .sequences = 1,
                                    .row = row,
                                    .sequence = &sequence,
                                    .shape = shape,
                                    .x = device_rows_of_floats(device_address(x), INPUT),
                                    .q = latent_matrix(w_q, INPUT, q_size),
                                    .q_scale = device_address(&scale),
                                    .k_b = latent_matrix(w, NOPE, LATENT_HEADS * RANK),
                                    .v_b = latent_matrix(w, RANK, LATENT_HEADS * VALUE),
                                    .angle_stride = ROPE,
                                    .angles = device_address(angles),
                                    .mix = device_rows_of_floats(device_address(mix), mix_size)});
    free(w);
    free(w_q);
    free(x);
    free(angles);
    free(keys);
    free(workspace);
    d->ops->destroy(d);
    return mix;
}

/* Blocks of 64 rows, and of fewer with the portable kernels: 75 rows are 2 and more of them. One
 * row is not divided. */
START_TEST(latents_at_depth_are_divided)
{
    static const uint32_t counts[] = {1, 64, LATENT_ROWS};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        float *portable = latent_with("generic", 1, counts[i], 1);
        ck_assert_uint_ge(reports.calls,
                          1); /* of two threads, the other may have all of the work */
        float *fast = latent_with("auto", 2, counts[i], 0.25f);
        ck_assert_uint_eq(reports.others, 0);
        size_t n = (size_t)LATENT_HEADS * VALUE * counts[i];
        ck_assert_mem_eq(portable, fast, n * sizeof *fast);
        for (size_t at = 0; at < n; at++)
            ck_assert(fast[at] != 0);
        free(portable);
        free(fast);
    }
}
END_TEST

/* The caller waits for the last part of another thread, and reports nothing meanwhile. */
START_TEST(parts_are_bounded)
{
    struct error error;
    struct pool *pool = pool_create(3, 0, SECOND_WORK, &error);
    ck_assert_ptr_nonnull(pool);
    ck_assert_uint_eq(pool_parts(pool, 1), 3);
    for (uint64_t work = SECOND_WORK; work <= 1024 * SECOND_WORK; work *= 4) {
        uint32_t parts = pool_parts(pool, work);
        ck_assert_uint_eq(parts % 3, 0);
        ck_assert_uint_le(work / parts, 2 * SECOND_WORK);
    }
    pool_destroy(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host");
    TCase *t = tcase_create("progress");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, products_report);
    tcase_add_test(t, portable_kernels_report_more_often);
    tcase_add_test(t, a_token_reports_nothing);
    tcase_add_test(t, rows_are_divided);
    tcase_add_test(t, experts_report);
    tcase_add_test(t, only_the_caller_reports);
    tcase_add_test(t, attention_at_depth_is_divided);
    tcase_add_test(t, a_row_at_depth_reports);
    tcase_add_test(t, latents_at_depth_are_divided);
    tcase_add_test(t, parts_are_bounded);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
