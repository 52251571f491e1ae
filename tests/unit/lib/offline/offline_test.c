/* SPDX-License-Identifier: Apache-2.0 */
/* The offline model and what is computed with it: losses, intervals, servings, the planner's
 * network. Oracles are trivial cases: a mask of all experts, native precisions, data with a known
 * interval. */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/offline/internal.h"
#include "lib/offline/measure/serving.h"
#include "lib/tensor/precision.h"
#include "procs/tools/plan/network.h"

#define DEMO   SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf"
#define TEXT   SLUICE_SOURCE_DIR "/tests/golden/data/heldout/tales.txt"
#define WINDOW 48
#define CELLS  256

static struct offline_model *model;
static struct offline_text text;

static void setup(void)
{
    struct error error = {0};
    const char *paths[] = {TEXT};
    model = offline_open(DEMO, model_index_build, &error);
    ck_assert_msg(model != NULL, "%s", error.text);
    ck_assert_msg(
        offline_text_load(offline_index(model), paths, 1, WINDOW, 3 * WINDOW, &text, &error) == 0,
        "%s", error.text);
    ck_assert_uint_eq(text.windows, 3);
}

static void teardown(void)
{
    offline_text_free(&text);
    offline_close(model);
}

static struct offline_losses run(const struct serving *s, uint32_t threads, bool compare,
                                 struct serving_report *report)
{
    struct error error = {0};
    struct offline_evaluation e = {
        .model = model, .text = &text, .threads = threads, .compare = compare};
    struct offline_losses losses;
    ck_assert_msg(serving_evaluate(&e, s, &losses, report, &error) == 0, "%s", error.text);
    return losses;
}

static void same(const struct offline_losses *a, const struct offline_losses *b)
{
    ck_assert_uint_eq(a->windows, b->windows);
    for (uint32_t w = 0; w < a->windows; w++)
        ck_assert_msg(a->nll[w] == b->nll[w], "window %u: %.17g, %.17g", w, a->nll[w], b->nll[w]);
}

START_TEST(threads_change_nothing)
{
    const struct serving native = {.kind = SERVE_NATIVE};
    struct offline_losses one = run(&native, 1, true, NULL), three = run(&native, 3, false, NULL);
    same(&one, &three);
    for (uint32_t i = 0; i < one.windows * one.scored; i++)
        ck_assert(one.kld[i] < 1e-9f);
    ck_assert_uint_eq(one.top1_same, (uint64_t)one.windows * one.scored);
    for (uint32_t w = 0; w < one.windows; w++)
        ck_assert_uint_eq(one.same[w], one.scored);
    offline_losses_free(&one);
    offline_losses_free(&three);
}
END_TEST

/* Dense matrices at int8 change little, at int4 more; the lossless model of a comparison keeps its
 * own. Norms and routers are those of the file. */
START_TEST(dense_precisions)
{
    const struct serving native = {.kind = SERVE_NATIVE};
    const struct model_index *m = offline_index(model);
    struct offline_losses want = run(&native, 2, false, NULL);
    uint64_t bytes = m->dense_bytes;
    double worst = 0;
    for (enum precision p = PRECISION_INT8; p <= PRECISION_INT4; p++) {
        struct error error = {0};
        struct offline_evaluation e = {
            .model = model, .text = &text, .threads = 2, .compare = true, .dense = p};
        struct offline_losses got;
        ck_assert_int_eq(serving_evaluate(&e, &native, &got, NULL, &error), 0);
        double off = fabs(offline_mean_nll(&got) - offline_mean_nll(&want));
        ck_assert_msg(off > worst && off < 0.2, "%s: %g nats", precision_name(p), off);
        for (uint32_t w = 0; w < want.windows; w++)
            ck_assert(got.reference_nll[w] == want.nll[w]);
        const struct model_index *lower = offline_index_at(model, p);
        ck_assert_int_eq(model_dense_precision(lower), p);
        ck_assert_uint_lt(lower->dense_bytes, bytes);
        uint32_t router = model_entry_dense(m, 0, DENSE_ROUTER);
        ck_assert_ptr_eq(offline_dense_at(model, router, p), offline_dense(model, router));
        worst = off;
        bytes = lower->dense_bytes;
        offline_losses_free(&got);
    }
    ck_assert_int_eq(model_dense_precision(m), PRECISION_NATIVE);
    ck_assert_ptr_eq(offline_index_at(model, PRECISION_NATIVE), m);
    offline_losses_free(&want);
}
END_TEST

/* Servings that change nothing are bit-identical to the lossless model. */
START_TEST(servings_of_everything)
{
    const struct serving native = {.kind = SERVE_NATIVE};
    struct offline_losses want = run(&native, 2, false, NULL);
    uint8_t precision[CELLS] = {0};
    bool all[CELLS];
    uint32_t keep[8];
    float norm[CELLS];
    for (int i = 0; i < CELLS; i++) {
        all[i] = true;
        norm[i] = 1;
    }
    for (int i = 0; i < 8; i++)
        keep[i] = 32;
    const struct serving servings[] = {
        {.kind = SERVE_PRECISIONS, .precision = precision},
        {.kind = SERVE_MASK, .allowed = all},
        {.kind = SERVE_POLICY,
         .policy = {.rule = PRECISION_RULE_HOBBIT, .low = PRECISION_INT2, .t1 = 1, .t2 = 1}},
        {.kind = SERVE_SWAPMOE,
         .allowed = all,
         .keep = keep,
         .norm = norm,
         .interval = 16,
         .chunk = 16},
    };
    for (size_t i = 0; i < sizeof servings / sizeof *servings; i++) {
        struct serving_report report;
        struct offline_losses got = run(&servings[i], 2, false, &report);
        same(&want, &got);
        ck_assert_uint_eq(report.swapped, 0);
        ck_assert_uint_eq(report.need[1] + report.skipped, 0);
        offline_losses_free(&got);
    }
    offline_losses_free(&want);
}
END_TEST

/* In chunks longer than the interval, too; up to what the device reads meanwhile, one at a time. */
START_TEST(replacements_follow_chunks_and_storage)
{
    bool low[CELLS];
    uint32_t keep[8];
    for (int i = 0; i < CELLS; i++)
        low[i] = i % 32 < 16;
    for (int i = 0; i < 8; i++)
        keep[i] = 16;
    struct serving s = {.kind = SERVE_SWAPMOE,
                        .allowed = low,
                        .keep = keep,
                        .interval = 8,
                        .before_routing = 0.25,
                        .segment = UINT32_MAX};
    for (s.chunk = 1; s.chunk <= 64; s.chunk *= 8) {
        struct serving_report free, slow, stopped;
        s.pairs_per_token = 0;
        struct offline_losses l = run(&s, 2, false, &free);
        uint64_t tokens = (uint64_t)l.windows * (l.scored + 1);
        offline_losses_free(&l);
        s.pairs_per_token = 0.05;
        l = run(&s, 2, false, &slow);
        offline_losses_free(&l);
        s.pairs_per_token = 1e-9;
        l = run(&s, 2, false, &stopped);
        offline_losses_free(&l);
        ck_assert_uint_gt(free.swapped, slow.swapped);
        ck_assert_uint_gt(slow.swapped, 0);
        ck_assert_uint_le(slow.swapped, tokens / 20);
        ck_assert_uint_eq(stopped.swapped, 0);
    }
}
END_TEST

/* The sets follow the interval, not the chunk: longer passes than a third of it give the same
 * losses. */
START_TEST(sets_change_inside_a_chunk)
{
    bool low[CELLS];
    uint32_t keep[8];
    for (int i = 0; i < CELLS; i++)
        low[i] = i % 32 < 16;
    for (int i = 0; i < 8; i++)
        keep[i] = 16;
    struct serving s = {.kind = SERVE_SWAPMOE,
                        .allowed = low,
                        .keep = keep,
                        .interval = 32,
                        .chunk = 10,
                        .segment = UINT32_MAX};
    struct serving_report want_report, report;
    struct offline_losses want = run(&s, 2, false, &want_report);
    ck_assert_uint_gt(want_report.swapped, 0);
    for (s.chunk = 11; s.chunk <= 64; s.chunk += 11) {
        struct offline_losses got = run(&s, 2, false, &report);
        same(&want, &got);
        ck_assert_uint_eq(report.swapped, want_report.swapped);
        offline_losses_free(&got);
    }
    offline_losses_free(&want);
}
END_TEST

START_TEST(fewer_bits_lose_more)
{
    uint8_t precision[CELLS];
    double before = 0;
    uint64_t bytes = UINT64_MAX;
    for (enum precision t = PRECISION_INT8; t < PRECISION__COUNT; t++) {
        memset(precision, t, sizeof precision);
        const struct serving s = {
            .kind = SERVE_PRECISIONS, .method = QUANT_CHANNEL, .precision = precision};
        struct offline_losses l = run(&s, 2, true, NULL);
        double kld = 0;
        for (uint32_t i = 0; i < l.windows * l.scored; i++)
            kld += (double)l.kld[i];
        ck_assert_msg(kld > 2 * before, "%g after %g", kld, before);
        before = kld;
        ck_assert_uint_lt(serving_bytes(model, precision, QUANT_CHANNEL), bytes);
        bytes = serving_bytes(model, precision, QUANT_CHANNEL);
        offline_losses_free(&l);
    }
}
END_TEST

/* Thresholds at 0: rank 0 is high, all others low or, with T2 = 0, skipped. */
START_TEST(hobbit_counts)
{
    struct serving s = {.kind = SERVE_POLICY, .policy = {.rule = PRECISION_RULE_HOBBIT, .t2 = 1}};
    struct serving_report r;
    struct offline_losses low = run(&s, 2, false, &r);
    uint64_t tokens = (uint64_t)text.windows * WINDOW * 8;
    ck_assert_uint_eq(r.need[0], tokens);
    ck_assert_uint_eq(r.need[1], 3 * tokens);
    s.policy.t2 = 0;
    struct offline_losses none = run(&s, 2, false, &r);
    ck_assert_uint_eq(r.need[0], tokens);
    ck_assert_uint_eq(r.skipped, 3 * tokens);
    ck_assert(offline_perplexity(&none) > offline_perplexity(&low));
    offline_losses_free(&low);
    offline_losses_free(&none);
}
END_TEST

/* Fate: in chunks the least popular share of a layer's experts is low; one chunk per window has
 * every expert once per layer. */
START_TEST(fate_counts)
{
    struct serving s = {.kind = SERVE_POLICY,
                        .policy = {.rule = PRECISION_RULE_FATE,
                                   .high = PRECISION_INT4,
                                   .low = PRECISION_INT2,
                                   .low_fraction = 0.25f}};
    struct serving_report r, all_high, chunks;
    struct offline_losses some = run(&s, 2, false, &r);
    s.policy.low_fraction = 0;
    struct offline_losses none = run(&s, 2, false, &all_high);
    uint64_t items = r.need[0] + r.need[1];
    ck_assert_uint_eq(r.skipped, 0);
    ck_assert_uint_eq(all_high.need[1], 0);
    ck_assert_uint_gt(all_high.need[0], 0);
    ck_assert(r.need[1] > items / 5 && r.need[1] <= items / 4);
    ck_assert(offline_perplexity(&some) != offline_perplexity(&none));
    s.policy.low_fraction = 0.25f;
    s.chunk = WINDOW / 2;
    struct offline_losses halves = run(&s, 2, false, &chunks);
    ck_assert(chunks.need[0] + chunks.need[1] > items); /* both halves access most experts */
    offline_losses_free(&some);
    offline_losses_free(&none);
    /* the precisions are the policy's */
    const struct serving native = {.kind = SERVE_NATIVE};
    s.chunk = 0;
    s.policy.high = s.policy.low = PRECISION_NATIVE;
    struct offline_losses exact = run(&s, 2, false, NULL), want = run(&native, 2, false, NULL);
    same(&want, &exact);
    offline_losses_free(&want);
    offline_losses_free(&exact);
    offline_losses_free(&halves);
}
END_TEST

/* Copies the demo model to `path`, a template of mkstemp. */
static void copy_demo(char *path)
{
    int from = open(DEMO, O_RDONLY), to = mkstemp(path);
    ssize_t n;
    ck_assert(from >= 0 && to >= 0);
    while ((n = sendfile(to, from, NULL, 1 << 20)) > 0)
        ;
    ck_assert_int_eq(n, 0);
    close(from);
    close(to);
}

/* The last byte of the last expert is missing: no zero takes its place. */
START_TEST(file_that_becomes_shorter)
{
    char path[] = "offline_XXXXXX";
    struct error error = {0};
    copy_demo(path);
    struct offline_model *m = offline_open_within(path, model_index_build, 64 * MIB, &error);
    ck_assert_msg(m != NULL, "%s", error.text);
    const struct model_hparams *hp = &offline_index(m)->hparams;
    uint64_t end = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < hp->layers * hp->experts; i++) {
        const struct model_entry *e = &model_index_entries(offline_index(
            m))[model_entry_expert(offline_index(m), i / hp->experts, i % hp->experts)];
        for (int part = 0; part < EXPERT__COUNT; part++) {
            const struct model_extent *x = &e->extent[part];
            if (x->file_offset + x->head_bytes + x->payload_bytes > end) {
                end = x->file_offset + x->head_bytes + x->payload_bytes;
                last = i;
            }
        }
    }
    uint32_t layer = last / hp->experts, expert = last % hp->experts;
    ck_assert_int_eq(truncate(path, (off_t)end - 1), 0);
    ck_assert(offline_expert_norm(m, layer, expert, &error) < 0);
    ck_assert_int_eq(error.code, ERR_GONE);
    offline_close(m);
    unlink(path);
}
END_TEST

START_TEST(largest_of_a_layer)
{
    const float value[6] = {3, 1, 3, 0, 5, 4};
    const uint32_t keep[2] = {2, 1};
    bool allowed[6];
    serving_largest(value, 2, 3, keep, allowed);
    const bool want[6] = {true, false, true, false, true, false};
    ck_assert_int_eq(memcmp(allowed, want, sizeof want), 0);
}
END_TEST

/* Windows that all lose 1 % have an interval of width 0. For scattered ones it contains the mean
 * and is about as wide as the normal approximation. */
START_TEST(intervals)
{
    double a[200], b[200];
    struct random random;
    random_seed(&random, 7, 0);
    for (int i = 0; i < 200; i++) {
        a[i] = 300 + 50 * random_unit(&random);
        b[i] = a[i] + 100 * log(1.01);
    }
    struct offline_interval x = offline_loss_interval(a, b, 200, 100, 0.95);
    ck_assert(fabs(x.value - 0.01) < 1e-9 && x.high - x.low < 1e-9);
    double sum = 0, square = 0;
    for (int i = 0; i < 200; i++) {
        double d = (double)random_normal(&random);
        b[i] = a[i] + d;
        sum += d / 200;
        square += d * d / 200;
    }
    x = offline_loss_interval(a, b, 200, 100, 0.95);
    double wide = 2 * 1.96 * sqrt((square - sum * sum) / 200) / 100;
    ck_assert(x.low < x.value && x.value < x.high);
    ck_assert(fabs((x.high - x.low) / wide - 1) < 0.15);
}
END_TEST

/* The loss falls with every share, in one layer ten times as fast: the network learns it, and the
 * search gives that layer the maximum. */
START_TEST(network_and_search)
{
    enum { LAYERS = 6, SAMPLES = 60, SHARE_MAX = 16, TOTAL = 48 };
    static struct network net;
    double x[SAMPLES * LAYERS], y[SAMPLES];
    struct random random;
    uint32_t v[LAYERS], sum = 0;
    random_seed(&random, 3, 0);
    for (int i = 0; i < SAMPLES; i++) {
        random_shares(&random, LAYERS, 2, SHARE_MAX, TOTAL, v);
        y[i] = 0;
        for (int l = 0; l < LAYERS; l++) {
            x[i * LAYERS + l] = (double)v[l] / SHARE_MAX;
            y[i] += (l == 4 ? 1.0 : 0.1) / (1 + v[l]);
        }
    }
    double spread = 0, mean = 0;
    for (int i = 0; i < SAMPLES; i++)
        mean += y[i] / SAMPLES;
    for (int i = 0; i < SAMPLES; i++)
        spread += (y[i] - mean) * (y[i] - mean) / SAMPLES;
    ck_assert(network_fit(&net, LAYERS, x, y, SAMPLES, 1) < 0.3 * sqrt(spread));
    const struct genetic g = {.net = &net,
                              .layers = LAYERS,
                              .min = 2,
                              .max = SHARE_MAX,
                              .generations = 300,
                              .total = TOTAL,
                              .seed = 1};
    genetic_search(&g, v);
    for (int l = 0; l < LAYERS; l++) {
        sum += v[l];
        ck_assert(v[l] >= 2 && v[l] <= SHARE_MAX);
        ck_assert(l == 4 || v[4] > v[l]);
    }
    ck_assert_uint_eq(sum, TOTAL);
}
END_TEST

/* Windows know their file, also where they are thinned out or chosen; a file without a window has
 * none. */
START_TEST(windows_of_files)
{
    static const char *const paths[] = {TEXT, SLUICE_SOURCE_DIR "/tests/unit/lib.cmake",
                                        "/dev/null",
                                        SLUICE_SOURCE_DIR "/tests/golden/data/heldout/drama.txt"};
    struct error error;
    struct offline_text all, few;
    ck_assert_int_eq(offline_text_load(offline_index(model), paths, 4, WINDOW, 0, &all, &error), 0);
    ck_assert_int_eq(
        offline_text_load(offline_index(model), paths, 4, WINDOW, 9 * WINDOW, &few, &error), 0);
    uint32_t count[4] = {0}, wanted = 0;
    uint8_t *role = calloc(all.windows, 1);
    for (uint32_t w = 0; w < all.windows; w++) {
        ck_assert(w == 0 || all.path[w] >= all.path[w - 1]);
        count[all.path[w]]++;
        role[w] = w % 3 == 1;
    }
    ck_assert(count[0] > 100 && count[1] > 10 && count[2] == 0 && count[3] > 100);
    ck_assert(few.windows == 9 && few.path[0] == 0 && few.path[8] == 3);
    struct offline_text chosen = offline_text_chosen(&all, role, 1);
    for (uint32_t w = 0; w < all.windows; w++) {
        if (!role[w])
            continue;
        ck_assert_uint_eq(chosen.path[wanted], all.path[w]);
        ck_assert_mem_eq(offline_window(&chosen, wanted++), offline_window(&all, w),
                         WINDOW * sizeof(uint32_t));
    }
    ck_assert_uint_eq(chosen.windows, wanted);
    offline_text_free(&chosen);
    offline_text_free(&all);
    offline_text_free(&few);
    free(role);
}
END_TEST

/* Mapped only if it fits; else a bound, of a full cgroup, too, where 0 would be none. */
START_TEST(memory_without_a_bound)
{
    static const struct {
        uint64_t needed, available, bound;
        bool mappable;
    } rows[] = {{3 * GIB, 4 * GIB, 0, true},
                {3 * GIB + 1, 4 * GIB, 4 * GIB / 8 * 7, true},
                {3 * GIB, 4 * GIB, 4 * GIB / 8 * 7, false},
                {GIB, 512 * MIB, 256 * MIB, true},
                {GIB, 100 * MIB, 50 * MIB, true},
                {GIB, 1, 1, true},
                {GIB, 0, 1, true},
                {GIB, 0, 1, false},
                {GIB, UINT64_MAX, 0, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t bound =
            offline_default_memory(rows[i].needed, rows[i].mappable, rows[i].available);
        ck_assert_msg(bound == rows[i].bound, "row %zu: %llu", i, (unsigned long long)bound);
    }
}
END_TEST

/* The bound that is stated as the minimum leaves what it is for, and not a page more than that. */
START_TEST(what_a_bound_leaves)
{
    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 45; bytes = bytes * 3 + 7) {
        uint64_t bound = offline_with_fixed(bytes), left = bound - offline_fixed_bytes(bound);
        ck_assert_msg(left >= bytes && left - bytes <= PAGE_BYTES, "%llu of %llu: %llu are left",
                      (unsigned long long)bytes, (unsigned long long)bound,
                      (unsigned long long)left);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("offline");
    TCase *c = tcase_create("model"), *pure = tcase_create("pure");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 240);
    tcase_add_test(c, dense_precisions);
    tcase_add_test(c, threads_change_nothing);
    tcase_add_test(c, servings_of_everything);
    tcase_add_test(c, replacements_follow_chunks_and_storage);
    tcase_add_test(c, sets_change_inside_a_chunk);
    tcase_add_test(c, fewer_bits_lose_more);
    tcase_add_test(c, hobbit_counts);
    tcase_add_test(c, fate_counts);
    tcase_add_test(c, windows_of_files);
    tcase_add_test(pure, file_that_becomes_shorter);
    tcase_add_test(pure, largest_of_a_layer);
    tcase_add_test(pure, intervals);
    tcase_add_test(pure, memory_without_a_bound);
    tcase_add_test(pure, what_a_bound_leaves);
    tcase_add_test(pure, network_and_search);
    tcase_set_timeout(pure, 60);
    suite_add_tcase(s, c);
    suite_add_tcase(s, pure);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
