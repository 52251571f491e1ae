/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the core: what it states and allocates before the first pass is what it uses, for every
 * architecture, and an error of the device is passed on. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/core/internal.h"
#include "lib/device/host/host.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define CONTEXT 32
#define CHUNK   7

/* The host, wrapped in a device that counts. The core allocates its vectors first, then its
 * scratch. */
struct counting {
    struct device device;
    struct device *host;
    struct {
        uint64_t base, bytes;
    } range[2];
    uint32_t allocations, fails_at; /* the number of the allocation; 0: none */
    uint64_t vector_bytes;          /* written to the first of them */
    enum tensor_type without;       /* has no kernels for it; TENSOR_F32: for all */
};

static struct counting *counting_of(struct device *d)
{
    return (struct counting *)(void *)d;
}

static void count_vector(struct counting *c, struct device_at to, uint64_t bytes)
{
    if (to.address < c->range[0].base || to.address >= c->range[0].base + c->range[0].bytes)
        return;
    ck_assert_uint_le(to.address + bytes, c->range[0].base + c->range[0].bytes);
    c->vector_bytes += bytes;
}

static int allocate(struct device *d, size_t bytes, struct device_at *out, struct error *error)
{
    struct counting *c = counting_of(d);
    if (c->allocations + 1 == c->fails_at)
        return error_set(error, ERR_UNAVAILABLE, "the device has no %zu bytes", bytes);
    ck_assert_uint_lt(c->allocations, ARRAY_LEN(c->range));
    ck_assert_int_eq(c->host->ops->allocate(c->host, bytes, out, error), 0);
    c->range[c->allocations].base = out->address;
    c->range[c->allocations++].bytes = bytes;
    return 0;
}

static void release(struct device *d, struct device_at at)
{
    counting_of(d)->host->ops->release(counting_of(d)->host, at);
}

static void write_bytes(struct device *d, struct device_at to, const void *from, size_t bytes)
{
    count_vector(counting_of(d), to, bytes);
    counting_of(d)->host->ops->write(counting_of(d)->host, to, from, bytes);
}

static void read_bytes(struct device *d, struct device_at from, void *to, size_t bytes)
{
    counting_of(d)->host->ops->read(counting_of(d)->host, from, to, bytes);
}

static bool computes(const struct device *d, enum tensor_type type)
{
    const struct counting *c = (const struct counting *)(const void *)d;
    return (c->without == TENSOR_F32 || type != c->without) &&
           c->host->ops->computes(c->host, type);
}

static size_t workspace(const struct device *d, const struct device_limits *limits)
{
    const struct device *host = ((const struct counting *)(const void *)d)->host;
    return host->ops->workspace(host, limits);
}

static void use_workspace(struct device *d, const struct device_limits *limits, struct device_at at)
{
    struct counting *c = counting_of(d);
    ck_assert(at.address >= c->range[1].base &&
              at.address + workspace(d, limits) <= c->range[1].base + c->range[1].bytes);
    c->host->ops->use_workspace(c->host, limits, at);
}

#define OP(name)                                                                                   \
    static void forward_##name(struct device *d, const struct op_##name *a)                        \
    {                                                                                              \
        struct device *host = counting_of(d)->host;                                                \
        host->ops->name(host, a);                                                                  \
    }
#include "lib/device/ops.tbl.h"

static void count_unpack(struct device *d, const struct op_unpack *a)
{
    count_vector(counting_of(d), a->y, (uint64_t)a->w.n * a->w.k * sizeof(float));
    forward_unpack(d, a);
}

static struct counting *counting_device(void)
{
    static struct device_ops table = {
        .name = "counting",
        .allocate = allocate,
        .release = release,
        .write = write_bytes,
        .read = read_bytes,
        .computes = computes,
        .workspace = workspace,
        .use_workspace = use_workspace,
#define OP(name) .name = forward_##name,
#include "lib/device/ops.tbl.h"
    };
    struct error error;
    struct counting *c = calloc(1, sizeof *c);
    table.unpack = count_unpack;
    ck_assert_ptr_nonnull(c);
    c->device = (struct device){.ops = &table, .is_host = true};
    c->host = host_device(kernel_ops_select("auto"), 2, 0, &error);
    ck_assert_ptr_nonnull(c->host);
    return c;
}

static void destroy(struct counting *c)
{
    c->host->ops->destroy(c->host);
    free(c);
}

static struct core *open_core(struct image *image, struct counting *c, struct error *error)
{
    static const enum tensor_type served[] = {TENSOR_C8, TENSOR_C4};
    struct core_config config = {.model = image->model,
                                 .device = &c->device,
                                 .source = image_source(image),
                                 .expert_types = served,
                                 .expert_type_count = ARRAY_LEN(served),
                                 .threads = 2,
                                 .chunk = CHUNK,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    return core_create(&config, error);
}

static void check_model(const char *path, const char *name)
{
    struct image image;
    struct error error;
    struct counting *c = counting_device();
    image_open(&image, path, CONTEXT);
    struct core *core = open_core(&image, c, &error);
    ck_assert_msg(core != NULL, "%s: %s", name, error.text);
    struct core_bytes stated = core_scratch_layout(core, core_chunk(core), NULL);
    struct core_memory memory = {core->scratch.device, core->scratch.host};
    core_scratch_layout(core, core_chunk(core), &memory);
    ck_assert_uint_eq(c->allocations, 2);
    ck_assert_msg(c->range[0].bytes == core_vector_floats(core) * sizeof(float) &&
                      c->vector_bytes == c->range[0].bytes,
                  "%s: %llu of %llu bytes of vectors are used", name,
                  (unsigned long long)c->vector_bytes, (unsigned long long)c->range[0].bytes);
    ck_assert_uint_eq(c->range[1].bytes, stated.device);
    ck_assert_uint_eq(core_scratch_bytes(core), stated.device + stated.host);
    core_destroy(core);
    image_close(&image);
    destroy(c);
}

START_TEST(every_architecture)
{
    golden_models(check_model);
    check_model(golden_path("converted/glm5-next-few.gguf"), "glm5-next");
    check_model(golden_path("converted/deepseek4-base.gguf"), "deepseek4");
    check_model(golden_path("converted/hy_v4-few.gguf"), "hy_v4");
    check_model(golden_path("converted/dots3note-few.gguf"), "dots3note");
}
END_TEST

START_TEST(errors_of_the_device)
{
    struct image image;
    image_open(&image, golden_demo_path(), CONTEXT);
    for (uint32_t at = 1; at <= 2; at++) {
        struct error error = {0};
        struct counting *c = counting_device();
        c->fails_at = at;
        ck_assert_ptr_null(open_core(&image, c, &error));
        ck_assert_int_eq(error.code, ERR_UNAVAILABLE);
        ck_assert_msg(strncmp(error.text, "the device has no ", 18) == 0, "%s", error.text);
        destroy(c);
    }
    image_close(&image);
}
END_TEST

/* A type of the model, and one of those that the source may serve. */
START_TEST(types_of_the_device)
{
    static const struct {
        enum tensor_type without;
        const char *text;
    } cases[] = {{TENSOR_Q8_0, "the device 'counting' does not compute with Q8_0"},
                 {TENSOR_C4, "the device 'counting' does not compute with C4"}};
    struct image image;
    image_open(&image, golden_demo_path(), CONTEXT);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error error = {0};
        struct counting *c = counting_device();
        c->without = cases[i].without;
        ck_assert_ptr_null(open_core(&image, c, &error));
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_str_eq(error.text, cases[i].text);
        destroy(c);
    }
    image_close(&image);
}
END_TEST

/* A GPU, so far. */
static void check_lacking(const char *file, bool mixing, const char *why)
{
    struct image image;
    struct error error = {0};
    struct counting *c = counting_device();
    c->device.lacks_mixing = mixing;
    c->device.lacks_tables = c->device.lacks_window = true;
    image_open(&image, golden_path(file), CONTEXT);
    ck_assert_ptr_null(open_core(&image, c, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_str_eq(error.text, why);
    destroy(c);
    image_close(&image);
}

START_TEST(device_without_mixed_streams)
{
    check_lacking("converted/glm5-next-base.gguf", true,
                  "the device 'counting' does not compute a residual of mixed streams");
}
END_TEST

START_TEST(device_without_entries)
{
    check_lacking("converted/deepseek4-base.gguf", false,
                  "the device 'counting' does not compute attention over entries, or experts by "
                  "token");
}
END_TEST

START_TEST(device_without_windows_of_latents)
{
    check_lacking("converted/dots3note-base.gguf", false,
                  "the device 'counting' does not compute MLA over a window, or with a norm of "
                  "rotated keys");
}
END_TEST

/* The weights of an image, but for an entry. */
struct other {
    struct weights_source source;
    uint32_t entry;
    void *data;
};

static const void *other_dense(void *self, uint32_t entry)
{
    const struct other *o = self;
    return entry == o->entry ? o->data : o->source.dense(o->source.self, entry);
}

/* One has an expert twice for a token, one an expert that is not there: other tokens are computed.
 * With such rows for most tokens, a table is refused. */
START_TEST(tables_of_experts)
{
    static const char *const why[] = {"has expert 1 for token 7, twice",
                                      "has expert 4 for token 7, which the model does not have"};
    struct image image;
    struct error error = {0};
    image_open(&image, golden_path("converted/deepseek4-base.gguf"), CONTEXT);
    uint32_t entry = model_entry_dense(image.model, 0, DENSE_EXPERT_TABLE);
    ck_assert_uint_ne(entry, ENTRY_NONE);
    ck_assert_uint_eq(image.model->hparams.experts, 4);
    size_t bytes = (size_t)image.model->hparams.vocab * 2 * sizeof(uint32_t);
    struct other other = {.source = image_source(&image), .entry = entry, .data = malloc(bytes)};
    ck_assert_ptr_nonnull(other.data);
    memcpy(other.data, offline_dense(image.file, entry), bytes);
    uint32_t *row = (uint32_t *)other.data + 7 * 2;
    row[0] = 1;
    row[1] = _i == 0 ? 1 : 4;
    struct core_config config = {.model = image.model,
                                 .ops = kernel_ops_select(NULL),
                                 .source = {.self = &other, .dense = other_dense},
                                 .threads = 1,
                                 .chunk = CHUNK,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    config.source.pin = image_source(&image).pin;
    struct core *core = core_create(&config, &error);
    ck_assert_msg(core != NULL, "%s", error.text);
    struct core_sequence s = image_sequence(&image);
    const uint32_t tokens[] = {6, 7};
    ck_assert_int_eq(core_forward(core, &s, tokens, 0, 2, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, why[_i]), "%s", error.text);
    core_destroy(core);
    for (uint32_t i = 0; i < image.model->hparams.vocab; i++)
        memcpy((uint32_t *)other.data + i * 2, row, 2 * sizeof *row);
    ck_assert_ptr_null(core_create(&config, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    image_close(&image);
    free(other.data);
}
END_TEST

/* A context may be shorter than a pool of positions, which then has no scores; without an indexer
 * that is computed, blocks mean nothing. */
START_TEST(rows_of_short_contexts)
{
    struct model_hparams h = {.index_heads = 4, .index_block = 8, .index_tail = 7};
    ck_assert_uint_eq(core_index_scores(&h, 5), 0);
    ck_assert_uint_eq(core_index_rows(&h, 5, 3), 3);
    h.index_heads = 0;
    h.index_block = 256;
    ck_assert_uint_eq(core_index_scores(&h, 128), 128);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core_memory");
    TCase *c = tcase_create("core_memory");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, every_architecture);
    tcase_add_test(c, errors_of_the_device);
    tcase_add_test(c, rows_of_short_contexts);
    tcase_add_test(c, types_of_the_device);
    tcase_add_test(c, device_without_mixed_streams);
    tcase_add_test(c, device_without_entries);
    tcase_add_test(c, device_without_windows_of_latents);
    tcase_add_loop_test(c, tables_of_experts, 0, 2);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
