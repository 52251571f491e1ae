/* SPDX-License-Identifier: Apache-2.0 */
/* A store and a plan whose measured losses hold, for the tests that change one condition. */
#ifndef SLUICE_TESTS_LOSS_SCENE_H
#define SLUICE_TESTS_LOSS_SCENE_H

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "lib/policy/presets/loss.h"
#include "lib/policy/presets/planned.h"
#include "lib/tensor/quant_method.h"

#define LAYERS  2u
#define EXPERTS 4u

/* The dense weights of the model: one matrix. */
struct one_dense {
    struct model_index index;
    struct model_tensor tensor;
    struct model_entry entry;
};

struct scene { /* files and parameters that match the plan, before the change of a case */
    union {
        struct model_index model;
        struct one_dense dense;
    };
    struct plan *plan;
    const char *preset, *overrides;
    double share;
    uint64_t chunk, threads;
    enum kv_type kv_type;
    double read_bytes_per_s;
    bool gpu;
};

static struct scene scene;

/* A store with native, int4 and int2 by `method`. */
static void store_of(enum quant_method method)
{
    struct model_index *m = &scene.model;
    *m = (struct model_index){.hparams = {.layers = LAYERS, .experts = EXPERTS, .experts_used = 2},
                              .precision_mask = 1u << PRECISION_NATIVE | 1u << PRECISION_INT4 |
                                                1u << PRECISION_INT2};
    m->dense_count = 1;
    m->tensors_offset = offsetof(struct one_dense, tensor);
    m->entries_offset = offsetof(struct one_dense, entry);
    scene.dense.tensor = (struct model_tensor){.type = TENSOR_Q8_0};
    static const uint64_t bytes[PRECISION__COUNT] = {1000, 0, 500, 250};
    for (uint32_t t = 0, first = 0; t < PRECISION__COUNT; t++) {
        m->precision_first[t] = m->precision_mask >> t & 1 ? first : ENTRY_NONE;
        first += m->precision_mask >> t & 1 ? LAYERS * EXPERTS : 0;
        m->precision_entries[t] = m->precision_mask >> t & 1 ? LAYERS * EXPERTS : 0;
        m->precision_slot_bytes[t] = bytes[t] * m->precision_entries[t];
        m->precision_method[t] = (uint8_t)(m->precision_entries[t] && t ? method : QUANT_COPY);
    }
}

static void setup(void)
{
    static const uint8_t hash[PLAN_HASH_BYTES] = {1};
    struct error error;
    scene = (struct scene){.share = 0.5, .chunk = 256, .threads = 2, .kv_type = KV_TYPE_F16};
    store_of(QUANT_CHANNEL);
    struct plan *p = scene.plan = plan_create(
        LAYERS, EXPERTS, 2, hash,
        plan_array_bit(PLAN_ARRAY_width) | plan_array_bit(PLAN_ARRAY_mixed_high) |
            plan_array_bit(PLAN_ARRAY_mixed_low) | plan_array_bit(PLAN_ARRAY_joint_high) |
            plan_array_bit(PLAN_ARRAY_joint_low),
        0, &error);
    ck_assert_ptr_nonnull(p);
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) {
        plan_width(p)[i] = i % 2 ? PRECISION_INT2 : PRECISION_INT4;
        plan_mixed_high(p)[i] = PRECISION_INT4;
        plan_mixed_low(p)[i] = PRECISION_INT2;
        plan_joint_high(p)[i] = PRECISION_INT4;
        plan_joint_low(p)[i] = PRECISION_INT2;
    }
    double *s = p->scalar;
    s[PLAN_uniform_int4_loss_high] = 0.02;
    s[PLAN_edgemoe_loss_high] = 0.03;
    s[PLAN_hobbit_loss_high] = 0.04;
    s[PLAN_fate_loss_high] = 0.05;
    s[PLAN_swap_loss_high] = 0.06;
    s[PLAN_mixed_loss_high] = 0.045;
    s[PLAN_mixed_t1] = 0.375;
    s[PLAN_uniform_method] = s[PLAN_edgemoe_method] = QUANT_CHANNEL;
    s[PLAN_hobbit_method] = s[PLAN_fate_method] = s[PLAN_mixed_method] = QUANT_CHANNEL;
    s[PLAN_hobbit_t1] = 0.578123456789;
    s[PLAN_hobbit_t2] = 0.95;
    s[PLAN_hobbit_skip_renormalise] = 0;
    s[PLAN_hobbit_high] = PRECISION_NATIVE;
    s[PLAN_fate_prefill_int2] = 0.125;
    s[PLAN_fate_high] = PRECISION_INT4;
    s[PLAN_fate_low] = s[PLAN_hobbit_low] = PRECISION_INT2;
    s[PLAN_swap_interval] = 128;
    s[PLAN_swap_margin] = s[PLAN_mixed_t2] = 1;
    s[PLAN_fate_chunk] = s[PLAN_swap_chunk] = 256;
    s[PLAN_swap_share] = s[PLAN_reroute_share] = 0.5;
    s[PLAN_reroute_nats] = 0.4;
    s[PLAN_reroute_loss_high] = 0.01;
    s[PLAN_joint_loss_high] = 0.035;
    s[PLAN_joint_t1] = 0.25;
    s[PLAN_joint_t2] = 1;
    s[PLAN_joint_nats] = s[PLAN_joint_share] = 0.2;
    s[PLAN_joint_method] = QUANT_CHANNEL;
    s[PLAN_drop_loss_high] = 0.015;
    s[PLAN_drop_t2] = 0.85;
    s[PLAN_drop_share] = 0.125;
}

static void teardown(void)
{
    free(scene.plan);
}

/* 0 and the loss, or -1 and the error, of the scene as the supervisor computes it. */
static int loss_of_scene(double *loss, struct error *error)
{
    struct knobs k;
    struct precision_policy policy;
    ck_assert_msg(planned_knobs(scene.plan, scene.preset, scene.overrides, &k, error) == 0, "%s",
                  error->text);
    if (preset_servable(&k, scene.plan, &scene.model, &policy, error) != 0)
        return -1;
    const struct served served = {.knobs = &k,
                                  .policy = &policy,
                                  .plan = scene.plan,
                                  .model = &scene.model,
                                  .resident_share = scene.share,
                                  .prefill_chunk = scene.chunk,
                                  .threads = scene.threads,
                                  .kv_type = scene.kv_type,
                                  .read_bytes_per_s = scene.read_bytes_per_s,
                                  .gpu = scene.gpu};
    return preset_loss(&served, loss, error);
}

#endif
