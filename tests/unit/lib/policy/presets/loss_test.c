/* SPDX-License-Identifier: Apache-2.0 */
/* Tests whether a measured loss holds: every condition of a measurement, changed one at a time. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/presets/auto.h"
#include "tests/unit/lib/policy/presets/loss_scene.h"

static const struct {
    const char *preset;
    double loss;
} matching[] = {{"default", 0},
                {"iq4", 0.02},
                {"auto-int4", 0.02},
                {"edgemoe", 0.03},
                {"auto-mixed", 0.03},
                {"hobbit", 0.04},
                {"auto-two-precision", 0.04},
                {"fate", 0.05},
                {"swapmoe", 0.06},
                {"auto-resident-first", 0.01},
                {"mixed-two", 0.045},
                {"mixed-two-resident-first", 0.035},
                {"auto-mixed-adaptive", 0.03},
                {"auto-two-precision-adaptive", 0.04},
                {"mixed-two-adaptive", 0.045},
                {"auto-two-precision-noprefetch", 0.04},
                {"drop", 0.015}};

START_TEST(same_conditions)
{
    double loss;
    struct error error;
    scene.preset = matching[_i].preset;
    int rc = loss_of_scene(&loss, &error);
    ck_assert_msg(rc == 0, "%s: %s", scene.preset, error.text);
    ck_assert_double_eq(loss, matching[_i].loss);
}
END_TEST

/* ---- one condition differs ---- */

static void other_method(void)
{
    store_of(QUANT_HQQ);
}

static void method_unknown(void)
{
    double *s = scene.plan->scalar;
    s[PLAN_uniform_method] = s[PLAN_edgemoe_method] = s[PLAN_hobbit_method] = (double)NAN;
    s[PLAN_fate_method] = s[PLAN_swap_share] = (double)NAN;
}

static void no_plan(void)
{
    free(scene.plan);
    scene.plan = NULL;
}

static void other_high(void)
{
    scene.plan->scalar[PLAN_hobbit_high] = PRECISION_INT4;
}

static void other_low(void)
{
    scene.plan->scalar[PLAN_hobbit_low] = PRECISION_INT4;
}

static void no_int2(void)
{
    scene.model.precision_mask &= ~(1u << PRECISION_INT2);
    scene.model.precision_entries[PRECISION_INT2] = 0;
}

static void few_int4(void)
{
    scene.model.precision_entries[PRECISION_INT4]--;
}

static void few_int4_and_native(void)
{
    few_int4();
    scene.model.precision_entries[PRECISION_NATIVE]--;
}

static void fewer_resident(void)
{
    scene.share = 0.4;
}

static void few_resident(void)
{
    scene.share = 0.1;
}

static void longer_chunk(void)
{
    scene.chunk = 257;
}

/* An older plan: its measurements had chunks of 256. */
static void longer_chunk_not_recorded(void)
{
    scene.plan->scalar[PLAN_fate_chunk] = (double)NAN;
    scene.chunk = 257;
}

/* An interval of 128 routes up to 42 tokens together, however long a chunk is. */
static void short_chunks_planned(void)
{
    scene.chunk = 512;
    scene.plan->scalar[PLAN_swap_chunk] = 16;
}

static void dense_int8(void)
{
    scene.dense.tensor.type = TENSOR_C8;
}

static void dense_planned(enum precision precision)
{
    double *s = scene.plan->scalar;
    s[PLAN_uniform_dense] = s[PLAN_edgemoe_dense] = s[PLAN_hobbit_dense] = precision;
    s[PLAN_fate_dense] = s[PLAN_swap_dense] = s[PLAN_reroute_dense] = precision;
    s[PLAN_mixed_dense] = s[PLAN_joint_dense] = s[PLAN_drop_dense] = precision;
}

static void dense_planned_int4(void)
{
    dense_planned(PRECISION_INT4);
}

static void dense_measured_int4(void)
{
    dense_int8();
    dense_planned_int4();
    scene.plan->scalar[PLAN_dense_loss_high] = 0.01;
}

static void kv_q4(void)
{
    scene.kv_type = KV_TYPE_Q4_0;
}

static void kv_planned(enum kv_type type)
{
    double *s = scene.plan->scalar;
    s[PLAN_uniform_kv_type] = s[PLAN_edgemoe_kv_type] = s[PLAN_hobbit_kv_type] = type;
    s[PLAN_fate_kv_type] = s[PLAN_swap_kv_type] = s[PLAN_reroute_kv_type] = type;
    s[PLAN_mixed_kv_type] = s[PLAN_joint_kv_type] = s[PLAN_drop_kv_type] = type;
}

static void kv_q4_planned_q8(void)
{
    kv_q4();
    kv_planned(KV_TYPE_Q8_0);
    scene.plan->scalar[PLAN_dense_loss_high] = 0.01;
}

/* A token takes 1 ms, the device reads an expert in 0.5 ms, and one of 1000 bytes with that limit
 * in 1 ms. */
static void with_times(void)
{
    scene.plan->scalar[PLAN_token_ns] = 1e6;
    scene.plan->scalar[PLAN_expert_read_ns] = 5e5;
}

static void throttled(void)
{
    with_times();
    scene.read_bytes_per_s = 1e6;
}

/* Six of eight experts at 1000 bytes, two at 500. */
static void throttled_mixed(void)
{
    throttled();
    scene.model.precision_entries[PRECISION_NATIVE] -= 2;
    scene.model.precision_slot_bytes[PRECISION_NATIVE] -= 2000;
}

static void throttled_without_times(void)
{
    scene.read_bytes_per_s = 1e12;
}

static void slower_than_recorded(void)
{
    with_times();
    scene.plan->scalar[PLAN_swap_reads_per_token] = 2.5;
}

static void more_threads(void)
{
    scene.plan->scalar[PLAN_threads] = 2;
    scene.threads = 3;
}

static void with_gpu(void)
{
    scene.gpu = true;
}

static const struct {
    const char *preset, *overrides;
    void (*change)(void);
    const char *reason;
} differing[] = {
    {"iq4", NULL, other_method, "int4 by method channel, and the store has hqq"},
    {"edgemoe", NULL, other_method, "int4 by method channel, and the store has hqq"},
    {"hobbit", NULL, other_method, "int2 by method channel, and the store has hqq"},
    {"fate", NULL, other_method, "int4 by method channel, and the store has hqq"},
    {"iq4", NULL, method_unknown, "does not record how its loss was measured"},
    {"edgemoe", NULL, method_unknown, "does not record how its loss was measured"},
    {"hobbit", NULL, method_unknown, "does not record how its loss was measured"},
    {"fate", NULL, method_unknown, "does not record how its loss was measured"},
    {"swapmoe", NULL, method_unknown, "does not record how its loss was measured"},
    {"iq4", NULL, no_plan,
     "its loss is not measured; measure it with 'sluice plan --preset edgemoe'"},
    {"edgemoe", NULL, no_plan, "needs a plan with a precision per expert"},
    {"iq2", NULL, NULL, "the plan has no loss for it"},
    {"iq4", NULL, few_int4_and_native, "all 8 experts at int4, and the store has 7"},
    {"edgemoe", NULL, no_int2, "the plan has experts at int2 and the model has not"},
    {"hobbit", "t1=0,t2=0", NULL, "measured with t1=0.578123, not 0"},
    {"hobbit", "t2=0.9", NULL, "measured with t2=0.95, not 0.9"},
    {"hobbit", "skip_renormalise=on", NULL, "measured with skip_renormalise=off, not on"},
    {"hobbit", "low=int4", NULL, "measured with low=int2, not int4"},
    {"hobbit", "high=int4", NULL, "measured with high=native, not int4"},
    {"hobbit", NULL, other_high, "measured with high=int4, not native"},
    {"hobbit", NULL, other_low, "measured with low=int4, not int2"},
    {"default", "precision=uniform-int2", NULL, "the plan has no loss for it"},
    {"fate", "low_fraction=0.5", NULL, "measured with low_fraction=0.125, not 0.5"},
    {"fate", "slow_device=on", NULL, "measured with slow_device=off, not on"},
    {"fate", "high=native", NULL, "measured with high=int4, not native"},
    {"swapmoe", "interval=96", NULL, "measured with interval=128, not 96"},
    {"swapmoe", "margin=0", NULL, "measured with margin=1, not 0"},
    {"swapmoe", "amortise=off", NULL, "amortise=on, not off"},
    {"swapmoe", "precision=uniform-int4", NULL, "precision=lossless, not uniform-int4"},
    {"swapmoe", NULL, fewer_resident, "with 50.0 % of the experts resident, not 40.0 %"},
    {"fate", NULL, longer_chunk, "chunks of 256 tokens, not 257; use --prefill-chunk 256"},
    {"fate", NULL, longer_chunk_not_recorded,
     "chunks of 256 tokens, not 257; use --prefill-chunk 256"},
    {"swapmoe", NULL, short_chunks_planned, "chunks of 16 tokens, not 42; use --prefill-chunk 16"},
    {"iq4", NULL, dense_int8, "with dense weights at native, not int8"},
    {"edgemoe", NULL, dense_int8, "with dense weights at native, not int8"},
    {"hobbit", NULL, dense_int8, "with dense weights at native, not int8"},
    {"fate", NULL, dense_int8, "with dense weights at native, not int8"},
    {"swapmoe", NULL, dense_int8, "with dense weights at native, not int8"},
    {"iq4", NULL, dense_planned_int4, "with dense weights at int4, not native"},
    {"edgemoe", NULL, dense_planned_int4, "with dense weights at int4, not native"},
    {"hobbit", NULL, dense_planned_int4, "with dense weights at int4, not native"},
    {"fate", NULL, dense_planned_int4, "with dense weights at int4, not native"},
    {"swapmoe", NULL, dense_planned_int4, "with dense weights at int4, not native"},
    {"default", NULL, dense_int8,
     "the loss of dense weights at int8 with --kv-type f16 is not measured"},
    {"default", NULL, dense_measured_int4, "with dense weights at int4, not int8"},
    {"pruned-freq", NULL, NULL, "no plan measures the loss of mask=frequency"},
    {"lod", "precision=drop", NULL, "measured with eviction=learned, not lru"},
    {"drop", "t2=0.8", NULL, "measured with t2=0.85, not 0.8"},
    {"drop", "skip_renormalise=on", NULL, "measured with skip_renormalise=off, not on"},
    {"drop", "prefetch=auto", NULL, "measured with prefetch=none, not auto"},
    {"default", "precision=drop", NULL, "measured with prefetch=none, not "},
    {"drop", "allocation=even", NULL, "measured with allocation=shared, not even"},
    {"drop", NULL, few_resident, "with 12.5 % of the experts resident, not 10.0 %"},
    {"drop", NULL, dense_int8, "with dense weights at native, not int8"},
    {"drop", NULL, kv_q4, "measured with --kv-type f16, not q4_0"},
    {"auto-resident-first", "precision=drop", NULL, "precision=lossless, not drop"},
    {"auto-resident-first", "nats=0.5", NULL, "measured with nats=0.4, not 0.5"},
    {"auto-resident-first", "eviction=lru", NULL, "measured with eviction=learned, not lru"},
    {"auto-resident-first", "allocation=even", NULL, "measured with allocation=shared, not even"},
    {"auto-resident-first", "precision=uniform-int4", NULL, "precision=lossless, not uniform-int4"},
    {"hobbit", "routing=resident-first,eviction=learned", NULL, "precision=lossless, not hobbit"},
    {"auto-resident-first", NULL, fewer_resident,
     "with 50.0 % of the experts resident, not 40.0 %"},
    {"auto-resident-first", NULL, dense_int8, "with dense weights at native, not int8"},
    {"auto-resident-first", NULL, kv_q4, "measured with --kv-type f16, not q4_0"},
    {"mixed-two-resident-first", "nats=0.4", NULL, "measured with nats=0.2, not 0.4"},
    {"mixed-two-resident-first", "t1=0.1", NULL, "measured with t1=0.25, not 0.1"},
    {"mixed-two-resident-first", "t2=0.9", NULL, "measured with t2=1, not 0.9"},
    {"mixed-two-resident-first", "skip_renormalise=on", NULL, "with skip_renormalise=off, not on"},
    {"mixed-two-resident-first", "eviction=lru", NULL, "with eviction=learned, not lru"},
    {"mixed-two-resident-first", "allocation=even", NULL, "with allocation=shared, not even"},
    {"mixed-two-resident-first", "prefetch=idle", NULL, "with prefetch=none, not idle"},
    {"mixed-two-resident-first", NULL, few_resident, "20.0 % of the experts resident, not 10.0 %"},
    {"mixed-two-resident-first", NULL, other_method, "int4 by method channel, and the store has"},
    {"mixed-two-resident-first", NULL, dense_int8, "with dense weights at native, not int8"},
    {"mixed-two-resident-first", NULL, kv_q4, "measured with --kv-type f16, not q4_0"},
    {"default", NULL, kv_q4, "dense weights at native with --kv-type q4_0 is not measured"},
    {"default", NULL, kv_q4_planned_q8,
     "measured with --kv-type q8_0, not q4_0; use --kv-type q8_0"},
    {"iq4", NULL, kv_q4, "measured with --kv-type f16, not q4_0; use --kv-type f16"},
    {"edgemoe", NULL, kv_q4, "measured with --kv-type f16, not q4_0"},
    {"hobbit", NULL, kv_q4, "measured with --kv-type f16, not q4_0"},
    {"fate", NULL, kv_q4, "measured with --kv-type f16, not q4_0"},
    {"swapmoe", NULL, kv_q4, "measured with --kv-type f16, not q4_0"},
    {"iq4", NULL, kv_q4_planned_q8, "measured with --kv-type q8_0, not q4_0"},
    {"swapmoe", NULL, throttled,
     "a storage device that reads 2 experts while a token is computed, not 1"},
    {"swapmoe", NULL, throttled_without_times,
     "the plan has no times to compare a throttle with; run 'sluice profile' and "
     "'sluice plan --preset swapmoe' again"},
    {"swapmoe", NULL, throttled_mixed, "reads 2 experts while a token is computed, not 1.14286"},
    {"swapmoe", NULL, slower_than_recorded, "reads 2.5 experts while a token is computed, not 2"},
    {"swapmoe", NULL, more_threads, "measured with 2 threads, not 3; use --threads 2"},
    {"swapmoe", NULL, with_gpu, "measured with GPU off, not on"},
    {"swapmoe", "prefetch=idle", NULL, "measured with prefetch=none, not idle"},
    {"swapmoe", "preload=none", NULL, "measured with preload=all, not none"},
    {"swapmoe", "count_only=on", NULL, "measured with count_only=off, not on"},
};

/* The KV cache of the measurement, or one with more bits; a lossless preset has the loss of the
 * cache alone. */
START_TEST(same_kv_type)
{
    static const struct {
        enum kv_type served, measured;
    } cases[] = {
        {KV_TYPE_Q4_0, KV_TYPE_Q4_0}, {KV_TYPE_Q8_0, KV_TYPE_Q4_0}, {KV_TYPE_F16, KV_TYPE_Q4_0}};
    struct error error;
    scene.plan->scalar[PLAN_dense_loss_high] = 0.004;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double loss;
        scene.preset = matching[_i].preset;
        scene.kv_type = cases[i].served;
        kv_planned(cases[i].measured);
        int rc = loss_of_scene(&loss, &error);
        ck_assert_msg(rc == 0, "%s: %s", scene.preset, error.text);
        bool lossless_kv = scene.kv_type == KV_TYPE_F16;
        ck_assert_double_eq(loss, matching[_i].loss > 0 ? matching[_i].loss
                                  : lossless_kv         ? 0
                                                        : 0.004);
    }
}
END_TEST

/* As fast as in the measurement, or faster: a limit above what a token needs, fewer threads. */
START_TEST(same_pace)
{
    double loss;
    struct error error;
    scene.preset = "swapmoe";
    with_times();
    scene.read_bytes_per_s = 3e6;
    scene.plan->scalar[PLAN_swap_reads_per_token] = 2;
    scene.chunk = 4096; /* the interval limits it */
    scene.plan->scalar[PLAN_threads] = 4;
    ck_assert_msg(loss_of_scene(&loss, &error) == 0, "%s", error.text);
    ck_assert_double_eq(loss, 0.06);
}
END_TEST

/* An expert that lacks the precision is served at the model's own, which loses less. */
START_TEST(native_replaces_a_lower_precision)
{
    double loss;
    struct error error;
    scene.preset = "iq4";
    few_int4();
    ck_assert_msg(loss_of_scene(&loss, &error) == 0, "%s", error.text);
}
END_TEST

/* Where int4 is not smaller than the model's experts, fate's higher precision is that of the model,
 * and the store has int2 only; with a share of 0 it has int4 only. */
START_TEST(fate_has_the_precisions_of_its_plan)
{
    static const struct {
        enum precision high, low;
    } cases[] = {{PRECISION_NATIVE, PRECISION_INT2}, {PRECISION_INT4, PRECISION_INT4}};
    double loss;
    struct error error;
    scene.preset = "fate";
    scene.plan->scalar[PLAN_fate_high] = cases[_i].high;
    scene.plan->scalar[PLAN_fate_low] = cases[_i].low;
    for (uint32_t p = PRECISION_INT8; p < PRECISION__COUNT; p++)
        if (p != cases[_i].high && p != cases[_i].low) {
            scene.model.precision_mask &= ~(1u << p);
            scene.model.precision_entries[p] = 0;
        }
    ck_assert_msg(loss_of_scene(&loss, &error) == 0, "%s", error.text);
    ck_assert_double_eq(loss, 0.05);
}
END_TEST

/* A store with the higher precisions of mixed-two alone can serve it, with its loss, but not at the
 * speed that the plan predicts. */
START_TEST(low_precisions_of_the_plan)
{
    static const char *const presets[] = {"mixed-two", "mixed-two-resident-first", "iq4"};
    double loss;
    struct error error;
    struct knobs k;
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        bool has_low = i < 2;
        store_of(QUANT_CHANNEL);
        scene.preset = presets[i];
        ck_assert_int_eq(knobs_resolve(scene.preset, "", NULL, &k, &error), 0);
        ck_assert(preset_low_present(&k, scene.plan, &scene.model));
        no_int2();
        scene.model.precision_first[PRECISION_INT2] = ENTRY_NONE;
        ck_assert(preset_low_present(&k, scene.plan, &scene.model) == !has_low);
        ck_assert_msg(loss_of_scene(&loss, &error) == 0, "%s", error.text);
    }
}
END_TEST

/* What is smaller than what was measured holds, too: a larger T2 leaves out less. And mixed-two
 * with cache-aware routing by hand is what was planned as both together. */
START_TEST(settings_by_hand)
{
    static const struct {
        const char *preset, *overrides;
        double loss;
    } cases[] = {{"drop", "t2=0.9", 0.015},
                 {"default", "precision=drop,prefetch=none,t2=0.95", 0.015},
                 {"auto-resident-first", "nats=0.2", 0.01},
                 {"mixed-two", "routing=resident-first", 0.035},
                 {"mixed-two", "routing=resident-first,nats=0.1", 0.035}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double loss;
        struct error error;
        scene.preset = cases[i].preset;
        scene.overrides = cases[i].overrides;
        ck_assert_msg(loss_of_scene(&loss, &error) == 0, "%s: %s", scene.preset, error.text);
        ck_assert_double_eq(loss, cases[i].loss);
    }
}
END_TEST

START_TEST(other_conditions)
{
    double loss;
    struct error error;
    scene.preset = differing[_i].preset;
    scene.overrides = differing[_i].overrides;
    if (differing[_i].change)
        differing[_i].change();
    ck_assert_msg(loss_of_scene(&loss, &error) == -1, "%s: accepted, not '%s'", scene.preset,
                  differing[_i].reason);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, differing[_i].reason), "%s: '%s', not '%s'", scene.preset,
                  error.text, differing[_i].reason);
}
END_TEST

/* A store and a plan with the same dense precision; a lossless preset has the loss of the dense
 * weights. */
START_TEST(same_dense_precision)
{
    double loss;
    struct error error;
    scene.preset = matching[_i].preset;
    dense_int8();
    dense_planned(PRECISION_INT8);
    scene.plan->scalar[PLAN_dense_loss_high] = 0.01;
    int rc = loss_of_scene(&loss, &error);
    ck_assert_msg(rc == 0, "%s: %s", scene.preset, error.text);
    ck_assert_double_eq(loss, matching[_i].loss > 0 ? matching[_i].loss : 0.01);
}
END_TEST

/* ---- losses at a capacity ---- */

static const struct {
    const char *preset, *overrides;
    double planned; /* share; NAN: every access a miss */
    double share;
    const char *why; /* NULL: it holds */
} at_shares[] = {
    {"mixed-two", NULL, NAN, 0.1, NULL},
    {"mixed-two", "eviction=lru,prefetch=idle", NAN, 0.1, NULL},
    {"mixed-two", NULL, 0.25, 0.25, NULL},
    {"mixed-two", NULL, 0.25, 0.2, "measured with 25.0 % of the experts resident, not 20.0 %"},
    {"mixed-two", "eviction=lru", 0.25, 0.5, "measured with eviction=learned, not lru"},
    {"mixed-two", "allocation=even", 0.25, 0.5, "measured with allocation=shared, not "},
    {"mixed-two", "prefetch=idle", 0.25, 0.5, "measured with prefetch=none, not idle"},
    {"mixed-two", "t1=0.2", NAN, 0.5, "measured with t1=0.375, not 0.2"},
    {"mixed-two", "t2=0.9", NAN, 0.5, "measured with t2=1, not 0.9"},
    {"mixed-two", "skip_renormalise=on", NAN, 0.5, "measured with skip_renormalise=off"},
    {"hobbit", NULL, 0.25, 0.5, "measured with eviction=learned, not hobbit"},
    {"auto-two-precision", NULL, 0.25, 0.5, "measured with prefetch=none"},
    {"auto-two-precision-noprefetch", NULL, 0.25, 0.5, NULL},
    {"auto-two-precision-noprefetch", NULL, 0.25, 0.2, "measured with 25.0 % of the experts"},
};

START_TEST(losses_at_a_capacity)
{
    double loss;
    struct error error;
    scene.preset = at_shares[_i].preset;
    scene.overrides = at_shares[_i].overrides;
    scene.share = at_shares[_i].share;
    scene.plan->scalar[PLAN_mixed_share] = scene.plan->scalar[PLAN_hobbit_share] =
        at_shares[_i].planned;
    int rc = loss_of_scene(&loss, &error);
    if (!at_shares[_i].why)
        ck_assert_msg(rc == 0, "%s: %s", scene.preset, error.text);
    else
        ck_assert_msg(rc != 0 && strstr(error.text, at_shares[_i].why), "%s: %s", scene.preset,
                      rc ? error.text : "accepted");
}
END_TEST

/* auto.tbl.h names the scalar from which preset_loss takes the loss of each lossy candidate. */
START_TEST(candidates_have_the_same_loss)
{
    double loss;
    struct error error;
    scene.plan->scalar[PLAN_uniform_int8_loss_high] = 0.01;
    scene.plan->scalar[PLAN_uniform_int2_loss_high] = 0.07;
    scene.model.precision_mask |= 1u << PRECISION_INT8;
    scene.model.precision_entries[PRECISION_INT8] = LAYERS * EXPERTS;
    scene.model.precision_slot_bytes[PRECISION_INT8] = (uint64_t)900 * LAYERS * EXPERTS;
    scene.model.precision_method[PRECISION_INT8] = QUANT_CHANNEL;
    for (uint32_t c = 0; c < auto_candidates(); c++) {
        scene.preset = preset_at(auto_preset(c))->name;
        ck_assert_msg(loss_of_scene(&loss, &error) == 0, "%s: %s", scene.preset, error.text);
        ck_assert_msg(auto_allowed(scene.plan, c, loss > 0 ? loss : 1), "%s", scene.preset);
        ck_assert_msg(loss > 0 ? !auto_allowed(scene.plan, c, loss * 0.999) : auto_lossless(c),
                      "%s", scene.preset);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("loss");
    TCase *c = tcase_create("loss");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, same_conditions, 0, (int)ARRAY_LEN(matching));
    tcase_add_loop_test(c, losses_at_a_capacity, 0, (int)ARRAY_LEN(at_shares));
    tcase_add_loop_test(c, same_kv_type, 0, (int)ARRAY_LEN(matching));
    tcase_add_test(c, same_pace);
    tcase_add_test(c, native_replaces_a_lower_precision);
    tcase_add_test(c, low_precisions_of_the_plan);
    tcase_add_loop_test(c, fate_has_the_precisions_of_its_plan, 0, 2);
    tcase_add_test(c, settings_by_hand);
    tcase_add_loop_test(c, other_conditions, 0, (int)ARRAY_LEN(differing));
    tcase_add_loop_test(c, same_dense_precision, 0, (int)ARRAY_LEN(matching));
    tcase_add_test(c, candidates_have_the_same_loss);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
