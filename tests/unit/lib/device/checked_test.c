/* SPDX-License-Identifier: Apache-2.0 */
/* The core on the checked device: every architecture gives the same bits as on the host, in logits and in all
 * that the source of weights gets, although each pointer and address in the core's hands faults, and operations run
 * late. So the core reads no weight and no activation outside an operation, and the table states what an
 * operation reads and writes. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"
#include "tests/unit/lib/device/checked.h"

#define CONTEXT 64
#define CHUNK   11
#define TOKENS  (3 * CHUNK + 4) /* chunks, one of them layer by layer; then one by one */

struct run {
    struct image *image;
    struct weights_source file;
    struct device *checked; /* NULL: on the host */
    bool masked;
    XXH64_state_t *hash;
    uint32_t early; /* experts given back while operations were pending */
};

static uint64_t counts[DEVICE_OP__COUNT];

/* A pointer as this run has it. */
static void *pointer(const struct run *r, const void *memory)
{
    return r->checked ? checked_pointer(memory) : (void *)memory;
}

static void note(struct run *r, const void *data, size_t bytes)
{
    XXH64_update(r->hash, data, bytes);
}

static void note_rows(struct run *r, const float *x, uint32_t rows, size_t stride, uint32_t n)
{
    for (uint32_t i = 0; i < rows; i++)
        note(r, x + i * stride, n * sizeof *x);
}

static const void *dense(void *self, uint32_t entry)
{
    struct run *r = self;
    return pointer(r, r->file.dense(r->file.self, entry));
}

static uint64_t pin_limit(void *self)
{
    struct run *r = self;
    return r->file.pin_limit(r->file.self);
}

static bool resident(void *self, uint32_t layer, uint32_t expert)
{
    struct run *r = self;
    return r->file.resident(r->file.self, layer, expert);
}

static void pin(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count)
{
    struct run *r = self;
    r->file.pin(r->file.self, step, items, count);
    for (uint32_t i = 0; i < count; i++)
        for (int m = 0; m < EXPERT__COUNT; m++)
            items[i]->matrix[m].data = pointer(r, items[i]->matrix[m].data);
}

static int wait(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count, struct error *error)
{
    struct run *r = self;
    return r->file.wait(r->file.self, step, items, count, error);
}

static void unpin(void *self, const struct expert_step *step, struct expert_item *item)
{
    struct run *r = self;
    r->early += r->checked && checked_pending(r->checked) > 0;
    r->file.unpin(r->file.self, step, item);
}

/* All experts but one, which varies. */
static bool mask(void *self, const struct expert_step *step, bool *allowed)
{
    const struct run *r = self;
    const struct model_hparams *hp = &r->image->model->hparams;
    if (!r->masked || hp->experts == hp->experts_used)
        return false;
    for (uint32_t i = 0; i < hp->experts; i++)
        allowed[i] = i != (step->position + step->layer) % hp->experts;
    return true;
}

static void choice(void *self, const struct expert_step *step, const float *importance)
{
    struct run *r = self;
    (void)step;
    note(r, importance, r->image->model->hparams.experts * sizeof *importance);
}

static void gate_input(void *self, const struct expert_step *step, const float *x, uint32_t n)
{
    (void)step;
    note(self, x, n * sizeof *x);
}

static void logits(void *self, const struct expert_step *step, const float *z, uint32_t experts)
{
    (void)step;
    note(self, z, experts * sizeof *z);
}

static void next_counts(void *self, const struct expert_step *step, const float *next,
                        uint32_t experts)
{
    (void)step;
    note(self, next, (size_t)2 * experts * sizeof *next);
}

static void rows_of(void *self, const struct expert_step *step, const float *x, size_t stride,
                    uint32_t n)
{
    note_rows(self, x, step->rows, stride, n);
}

static void routed(void *self, const struct expert_step *step, const struct route *routes)
{
    struct run *r = self;
    note(r, routes, (size_t)step->rows * r->image->model->hparams.experts_used * sizeof *routes);
}

static struct core *open_core(struct run *r)
{
    struct error error;
    struct core_config config = {.model = r->image->model,
                                 .device = r->checked,
                                 .ops = kernel_ops_select("auto"),
                                 .source = {.self = r,
                                            .dense = dense,
                                            .pin_limit = pin_limit,
                                            .resident = resident,
                                            .pin = pin,
                                            .wait = wait,
                                            .unpin = unpin,
                                            .mask = mask,
                                            .choice = choice,
                                            .gate_input = gate_input,
                                            .logits = logits,
                                            .next_counts = next_counts,
                                            .layer_inputs = rows_of,
                                            .gate_inputs = rows_of,
                                            .routed = routed},
                                 .threads = 2,
                                 .chunk = CHUNK,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    r->file = image_source(r->image);
    struct core *core = core_create(&config, &error);
    ck_assert_msg(core != NULL, "%s", error.text);
    return core;
}

/* Logits of all rows of a pass. */
static void note_output(struct run *r, struct core *core, uint32_t rows)
{
    uint32_t vocab = r->image->model->hparams.vocab;
    for (uint32_t row = 0; row < rows; row++)
        note(r, core_output(core, row, 1), vocab * sizeof(float));
}

/* A chunk in two halves of its layers. */
static void run_layers(struct run *r, struct core *core, const struct core_sequence *sequence,
                       const uint32_t *tokens, uint32_t at)
{
    const struct model_hparams *hp = &r->image->model->hparams;
    struct core_row row[CHUNK];
    struct error error;
    struct core_pass pass = {sequence, 1, row, CHUNK};
    float *x = calloc((size_t)CHUNK * hp->hidden, sizeof *x);
    uint32_t half = hp->layers / 2;
    for (uint32_t i = 0; i < CHUNK; i++)
        row[i] = (struct core_row){.position = at + i, .token = tokens[at + i]};
    ck_assert(x && core_pass_layers(core, &pass, 0, half, x, &error) == 0);
    note(r, x, (size_t)CHUNK * hp->hidden * sizeof *x);
    ck_assert(core_pass_layers(core, &pass, half, hp->layers - half, x, &error) == 0);
    free(x);
}

static void run_text(struct run *r, struct core *core, const struct core_sequence *sequence)
{
    uint32_t tokens[TOKENS + 1], vocab = r->image->model->hparams.vocab;
    float scores[CHUNK];
    struct error error;
    for (uint32_t i = 0; i <= TOKENS; i++)
        tokens[i] = i * 7919 % vocab;
    for (uint32_t at = 0, n; at < TOKENS; at += n) {
        n = at < 3 * CHUNK ? CHUNK : 1;
        if (at == CHUNK)
            run_layers(r, core, sequence, tokens, at);
        else
            ck_assert_int_eq(core_forward(core, sequence, tokens + at, at, n, &error), 0);
        note_output(r, core, n);
        core_score(core, 0, n, tokens + at + 1, scores);
        note(r, scores, n * sizeof *scores);
    }
}

/* Keys, values and states of an earlier run must not serve this one. */
static void forget_sequence(const struct image *image, const struct core_sequence *s)
{
    const struct model_hparams *hp = &image->model->hparams;
    enum kv_type type = image->kv_type;
    memset(image->state, 0xff, (size_t)model_state_bytes(hp));
    for (uint32_t i = 0; i < hp->layers; i++) {
        memset(s->keys[i], 0xff, (size_t)model_kv_bytes(hp, i, KV_SIDE_KEYS, type, CONTEXT));
        memset(s->values[i], 0xff, (size_t)model_kv_bytes(hp, i, KV_SIDE_VALUES, type, CONTEXT));
    }
}

/* Hash of all that the run gives. */
static uint64_t hash_of(struct run *r, const char *name)
{
    const struct model_hparams *hp = &r->image->model->hparams;
    struct core_sequence sequence = image_sequence(r->image);
    void *keys[MODEL_LAYERS_MAX], *values[MODEL_LAYERS_MAX];
    forget_sequence(r->image, &sequence);
    for (uint32_t i = 0; i < hp->layers; i++) {
        keys[i] = pointer(r, sequence.keys[i]);
        values[i] = pointer(r, sequence.values[i]);
    }
    sequence.keys = keys;
    sequence.values = values;
    sequence.state = sequence.next_state = pointer(r, r->image->state);
    r->hash = XXH64_createState();
    ck_assert_ptr_nonnull(r->hash);
    XXH64_reset(r->hash, 0);
    struct core *core = open_core(r);
    run_text(r, core, &sequence);
    core_destroy(core);
    uint64_t hash = XXH64_digest(r->hash);
    XXH64_freeState(r->hash);
    if (r->checked)
        ck_assert_msg(checked_faults(r->checked) == 0, "%s: %u faults, first: %s", name,
                      checked_faults(r->checked), checked_fault(r->checked));
    ck_assert_msg(r->early == 0, "%s: %u experts were given back early", name, r->early);
    return hash;
}

static void check_model(const char *path, const char *name)
{
    struct image image;
    image_open(&image, path, CONTEXT);
    for (int masked = 0; masked < 2; masked++) {
        struct run host = {.image = &image, .masked = masked}, checked = host;
        checked.checked = checked_device(kernel_ops_select("auto"), 2);
        uint64_t want = hash_of(&host, name), have = hash_of(&checked, name);
        ck_assert_msg(want == have, "%s%s: other results than on the host", name,
                      masked ? ", masked" : "");
        for (int op = 0; op < DEVICE_OP__COUNT; op++)
            counts[op] += checked_count(checked.checked, (enum device_op)op);
        checked.checked->ops->destroy(checked.checked);
    }
    image_close(&image);
}

START_TEST(every_architecture)
{
    golden_models(check_model);
    for (int op = 0; op < DEVICE_OP__COUNT; op++)
        ck_assert_msg(counts[op] > 0, "no model needs the operation %s",
                      device_op_name((enum device_op)op));
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
    ck_assert_int_eq(write(end[1], (const void *)(uintptr_t)at.address, 1), -1);
    ck_assert_int_eq(write(end[1], checked_pointer(&byte), 1), -1);
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
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
