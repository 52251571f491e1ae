/* SPDX-License-Identifier: Apache-2.0 */
/* The core on the checked device: every architecture gives the same bits as on the host, in logits
 * and in all that the source of weights gets, although each pointer and address in the core's hands
 * faults, and operations run late. So the core reads no weight and no activation outside an
 * operation, and the table states what an operation reads and writes. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/device/pointers.h"
#include "tests/golden/reference.h"
#include "tests/unit/lib/device/run.h"

static uint64_t counts[DEVICE_OP__COUNT];

static void check_model(const char *path, const char *name)
{
    struct image image;
    image_open(&image, path, RUN_CONTEXT);
    for (int masked = 0; masked < 2; masked++) {
        struct run host = {.image = &image, .masked = masked, .chunk = RUN_CHUNK, .single = 4};
        struct run checked = host;
        checked.device = checked_device(kernel_ops_select("auto"), 2);
        checked.pending = checked_pending;
        uint64_t want = run_hash(&host), have = run_hash(&checked);
        ck_assert_msg(checked_faults(checked.device) == 0, "%s: %u faults, first: %s", name,
                      checked_faults(checked.device), checked_fault(checked.device));
        ck_assert_msg(want == have, "%s%s: other results than on the host", name,
                      masked ? ", masked" : "");
        for (int op = 0; op < DEVICE_OP__COUNT; op++)
            counts[op] += checked_count(checked.device, (enum device_op)op);
        checked.device->ops->destroy(checked.device);
    }
    image_close(&image);
}

START_TEST(every_architecture)
{
    golden_models(check_model);
    check_model(golden_path("converted/nemotron_h_moe-super.gguf"), "nemotron_h_moe-super");
    check_model(golden_path("converted/kimi-linear-base.gguf"), "kimi-linear");
    check_model(golden_path("converted/kimi-k3-limits.gguf"), "kimi-k3");
    check_model(golden_path("converted/qwen4exp-few.gguf"), "qwen4exp");
    check_model(golden_path("converted/jamba-base.gguf"), "jamba");
    check_model(golden_path("converted/glm5-next-few.gguf"), "glm5-next");
    check_model(golden_path("converted/deepseek4-base.gguf"), "deepseek4");
    check_model(golden_path("converted/hy_v4-few.gguf"), "hy_v4");
    check_model(golden_path("converted/dots3note-few.gguf"), "dots3note");
    check_model(golden_path("converted/deepseek32-few.gguf"), "deepseek32");
    check_model(golden_path("converted/glm-dsa-few.gguf"), "glm-dsa");
    check_model(golden_path("converted/minimax-m3-few.gguf"), "minimax-m3");
    for (int op = 0; op < DEVICE_OP__COUNT; op++)
        ck_assert_msg(counts[op] > 0, "no model needs the operation %s",
                      device_op_name((enum device_op)op));
}
END_TEST

/* A device without the operations of an indexer has such a model up to the tokens that are chosen,
 * also where the first layer has none. */
START_TEST(lacking_a_choice)
{
    struct image image;
    struct error error;
    struct device *d = checked_device(kernel_ops_select("auto"), 2);
    image_open(&image, golden_path("converted/minimax-m3-few.gguf"), RUN_CONTEXT);
    d->lacks_choice = true;
    for (uint32_t positions = 20; positions <= 21; positions++) {
        const struct core_config config = {.model = image.model,
                                           .device = d,
                                           .source = image_source_on(&image, d),
                                           .threads = 2,
                                           .chunk = 8,
                                           .positions = positions,
                                           .prefill_order =
                                               prefill_order_of(PREFILL_ORDER_POPULARITY)};
        struct core *core = core_create(&config, &error);
        ck_assert_msg((core != NULL) == (positions == 20), "%s", error.text);
        if (core)
            core_destroy(core);
    }
    ck_assert_msg(strstr(error.text, "sequences of up to 20 tokens"), "%s", error.text);
    d->ops->destroy(d);
    image_close(&image);
}
END_TEST

/* ---- the checked device itself ---- */

static struct device_at allocated(struct device *d, size_t bytes)
{
    struct error error;
    struct device_at at;
    ck_assert_int_eq(d->ops->allocate(d, bytes, &at, &error), 0);
    return at;
}

/* The kernel rejects the address, so a dereference would fault. */
START_TEST(addresses_are_no_pointers)
{
    struct device *d = checked_device(kernel_ops_select("auto"), 1);
    struct device_at at = allocated(d, 64);
    int end[2];
    char byte = 0;
    ck_assert_int_eq(pipe(end), 0);
    ck_assert_int_eq(write(end[1], device_pointer(at), 1), -1);
    ck_assert_int_eq(write(end[1], tagged(&byte), 1), -1);
    ck_assert_int_eq(write(end[1], &byte, 1), 1);
    close(end[0]);
    close(end[1]);
    d->ops->release(d, at);
    d->ops->destroy(d);
}
END_TEST

START_TEST(operations_run_at_a_wait)
{
    struct device *d = checked_device(kernel_ops_select("auto"), 1);
    struct device_at at = allocated(d, 4 * sizeof(float));
    float from[4] = {1, 2, 3, 4}, to[4];
    d->ops->write(d, at, from, sizeof from);
    d->ops->clear(d, &(struct op_clear){.bytes = sizeof(float), .y = at});
    memset(from, 0, sizeof from); /* was copied */
    ck_assert_uint_eq(checked_pending(d), 2);
    ck_assert_uint_eq(checked_count(d, DEVICE_OP_clear), 0);
    d->ops->read(d, at, to, sizeof to);
    ck_assert_uint_eq(checked_pending(d), 0);
    ck_assert_uint_eq(checked_count(d, DEVICE_OP_clear), 1);
    ck_assert(to[0] == 0 && to[1] == 2 && to[3] == 4);
    d->ops->release(d, at);
    d->ops->destroy(d);
}
END_TEST

/* One byte too many, memory that was released, and a pointer of the host. */
START_TEST(foreign_ranges_are_faults)
{
    struct device *d = checked_device(kernel_ops_select("auto"), 1);
    struct device_at at = allocated(d, 64);
    int own = 7;
    d->ops->clear(d, &(struct op_clear){.bytes = 64, .y = at});
    device_wait(d);
    ck_assert_uint_eq(checked_faults(d), 0);
    d->ops->clear(d, &(struct op_clear){.bytes = 65, .y = at});
    device_wait(d);
    ck_assert_uint_eq(checked_faults(d), 1);
    ck_assert_msg(strstr(checked_fault(d), "y of clear: 65 bytes"), "%s", checked_fault(d));
    d->ops->release(d, at);
    d->ops->clear(d, &(struct op_clear){.bytes = 64, .y = at});
    device_wait(d);
    ck_assert_uint_eq(checked_faults(d), 2);
    device_share(d, &own, sizeof own);
    ck_assert_uint_eq(checked_faults(d), 3);
    ck_assert_uint_eq(checked_count(d, DEVICE_OP_clear), 1);
    d->ops->destroy(d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device");
    TCase *c = tcase_create("checked");
    tcase_set_timeout(c, 280);
    tcase_add_test(c, addresses_are_no_pointers);
    tcase_add_test(c, operations_run_at_a_wait);
    tcase_add_test(c, foreign_ranges_are_faults);
    tcase_add_test(c, every_architecture);
    tcase_add_test(c, lacking_a_choice);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
