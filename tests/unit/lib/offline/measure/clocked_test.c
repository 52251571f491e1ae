/* SPDX-License-Identifier: Apache-2.0 */
/* Quality loss with a simulated clock, and recorded logits. Oracles: the simulator over the trace
 * of the same text; the servings without residency, in cases where residency has no effect. */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/offline/measure/clocked.h"
#include "lib/offline/measure/routing_trace.h"
#include "lib/offline/measure/serving.h"
#include "lib/tensor/precision.h"

#define DEMO   SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf"
#define TEXT   SLUICE_SOURCE_DIR "/tests/golden/data/heldout/tales.txt"
#define WINDOW 40
#define CELLS  256

static struct offline_model *model;
static struct offline_text text;
static char directory[64], path[96];

static void setup(void)
{
    struct error error = {0};
    const char *paths[] = {TEXT};
    snprintf(directory, sizeof directory, "/tmp/clocked_test_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/a.logits", directory);
    model = offline_open(DEMO, model_index_build, &error);
    ck_assert_msg(model != NULL, "%s", error.text);
    ck_assert_int_eq(
        offline_text_load(offline_index(model), paths, 1, WINDOW, 3 * WINDOW, &text, &error), 0);
    ck_assert_uint_eq(text.windows, 3);
}

static void teardown(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(directory), 0); /* no other file was left */
    offline_text_free(&text);
    offline_close(model);
}

static struct offline_evaluation base(uint32_t threads)
{
    return (struct offline_evaluation){.model = model, .text = &text, .threads = threads};
}

static struct offline_losses served(const struct serving *s)
{
    struct error error = {0};
    struct offline_evaluation e = base(2);
    struct offline_losses l;
    ck_assert_msg(serving_evaluate(&e, s, &l, NULL, &error) == 0, "%s", error.text);
    return l;
}

/* How the windows are decoded. */
static struct {
    uint32_t threads, segment, streams, score_from;
    bool compare;
} how = {2, 3, 0, 0, false};

/* What was reported. */
static struct offline_progress first, last;

static void take_progress(void *arg, const struct offline_progress *p)
{
    (void)arg;
    first = first.of ? first : *p;
    last = *p;
}

static struct offline_losses clocked(const char *preset, const char *settings, double share,
                                     struct sim_config *config, struct sim_stats *f)
{
    struct error error = {0};
    struct offline_evaluation e = base(how.threads);
    struct offline_losses l;
    struct knobs knobs;
    e.segment = how.segment;
    e.streams = how.streams;
    e.compare = how.compare;
    e.score_from = how.score_from;
    e.progress = take_progress;
    first = (struct offline_progress){0};
    uint64_t all = serving_bytes(model, NULL, QUANT_CHANNEL);
    ck_assert_msg(knobs_resolve(preset, NULL, settings, &knobs, &error) == 0, "%s", error.text);
    clocked_config(model, &knobs, NULL, QUANT_CHANNEL, (uint64_t)(share * (double)all), config);
    config->storage.bytes_per_s = 5e8;
    ck_assert_msg(clocked_evaluate(&e, config, QUANT_CHANNEL, &l, f, &error) == 0, "%s",
                  error.text);
    return l;
}

static void same(struct offline_losses a, struct offline_losses b)
{
    ck_assert_uint_eq(a.windows, b.windows);
    for (uint32_t w = 0; w < a.windows; w++)
        ck_assert_msg(a.nll[w] == b.nll[w], "window %u: %.17g, %.17g", w, a.nll[w], b.nll[w]);
    offline_losses_free(&a);
    offline_losses_free(&b);
}

/* Lossless text, and the same hits, bytes and times as the simulator over the trace. */
START_TEST(lod_matches_sim)
{
    struct error error = {0};
    struct sim_config config;
    struct sim_stats f;
    struct sim_result r;
    struct trace trace;
    const struct serving native = {.kind = SERVE_NATIVE};
    same(clocked("lod", NULL, 0.3, &config, &f), served(&native));
    ck_assert_int_eq(offline_trace(model, &text, QUANT_CHANNEL, 2, &trace, &error), 0);
    ck_assert_int_eq(sim_run(&trace, 0, 0, &config, false, &r, &error), 0);
    const struct sim_stats *want = &r.phase[SIM_DECODE];
    ck_assert_uint_eq(f.accesses, 3 * WINDOW * 32);
    ck_assert_uint_eq(f.accesses, want->accesses);
    ck_assert_uint_eq(f.hits, want->hits);
    ck_assert_uint_eq(f.misses, want->misses);
    ck_assert_uint_eq(f.demand_bytes, want->demand_bytes);
    ck_assert(f.stall_ns == want->stall_ns && f.compute_ns == want->compute_ns);
    ck_assert(f.hits > 0 && f.misses > 0);
    trace_free(&trace);
}
END_TEST

START_TEST(one_precision_whatever_is_resident)
{
    struct sim_config config;
    struct sim_stats f;
    uint8_t precision[CELLS];
    memset(precision, PRECISION_INT4, sizeof precision);
    const struct serving int4 = {
        .kind = SERVE_PRECISIONS, .method = QUANT_CHANNEL, .precision = precision};
    same(clocked("iq4", NULL, 0.2, &config, &f), served(&int4));
}
END_TEST

/* With no residency every access is a miss: the worst case. With everything resident in the high
 * precision there is no loss. In between, the loss is in between. */
START_TEST(hobbit_between_its_ends)
{
    struct sim_config config;
    struct sim_stats f;
    const struct serving native = {.kind = SERVE_NATIVE};
    const struct serving worst = {
        .kind = SERVE_POLICY,
        .method = QUANT_CHANNEL,
        .policy = {.rule = PRECISION_RULE_HOBBIT, .low = PRECISION_INT2, .t1 = 0.4f, .t2 = 0.8f}};
    const char *thresholds = "t1=0.4,t2=0.8,prediction=none,prefetch=none";
    char settings[128];
    snprintf(settings, sizeof settings, "%s,allocation=transient", thresholds);
    same(clocked("hobbit", settings, 0.2, &config, &f), served(&worst));
    ck_assert_uint_eq(f.hits, 0);
    ck_assert(f.skipped > 0 && f.low_precision_accesses > 0);
    snprintf(settings, sizeof settings, "%s,preload=all,allocation=shared", thresholds);
    same(clocked("hobbit", settings, 1.0, &config, &f), served(&native));
    ck_assert_uint_eq(f.hits, f.accesses);
    struct offline_losses some = clocked("hobbit", thresholds, 0.4, &config, &f);
    ck_assert(f.hits > 0 && f.hits < f.accesses);
    offline_losses_free(&some);
}
END_TEST

/* The loss of resident-first is a matter of what is resident at each token. Where all experts are,
 * or none may be replaced, the bits are those of the model, as they are for many tokens at once. At
 * a capacity in between, fewer bytes are read than losslessly, and the loss differs with the
 * capacity. */
START_TEST(resident_first_depends_on_residency)
{
    struct sim_config config;
    struct sim_stats f, lossless;
    const struct serving native = {.kind = SERVE_NATIVE};
    const char *policy = "routing=resident-first,nats=0.8";
    same(clocked("resident", policy, 1.0, &config, &f), served(&native));
    ck_assert_uint_eq(f.rerouted, 0);
    same(clocked("lod", "routing=resident-first,nats=0", 0.3, &config, &f), served(&native));
    same(clocked("lod", "routing=resident-first,exact_ranks=4", 0.3, &config, &f), served(&native));
    struct offline_losses exact = clocked("lod", NULL, 0.3, &config, &lossless);
    struct offline_losses few = clocked("lod", policy, 0.3, &config, &f);
    ck_assert(f.rerouted > 100 && f.rerouted < f.accesses);
    ck_assert_uint_eq(f.accesses, lossless.accesses);
    ck_assert_uint_lt(f.demand_bytes * 10, lossless.demand_bytes * 9);
    struct offline_losses more = clocked("lod", policy, 0.6, &config, &f);
    for (uint32_t w = 0; w < exact.windows; w++) {
        ck_assert(few.nll[w] != exact.nll[w]);
        ck_assert(few.nll[w] != more.nll[w]);
    }
    offline_losses_free(&exact);
    offline_losses_free(&few);
    offline_losses_free(&more);
}
END_TEST

static void same_counts(const struct sim_stats *a, const struct sim_stats *b)
{
#define COUNT(name, meaning) ck_assert_uint_eq(a->name, b->name);
#define REAL(name, meaning)  ck_assert(fabs(a->name - b->name) <= 1e-9 * fabs(a->name));
#include "lib/sim/results.tbl.h"
}

static const struct {
    const char *preset, *settings;
} lossy[] = {{"lod", "routing=resident-first,nats=0.8,eviction=learned"},
             {"hobbit", "t1=0.4,t2=0.8,skip_renormalise=on"}};

/* Segments that are decoded together, each with a cache of its own, give what they give one after
 * another: losses to the last bit, what was compared with the lossless model, and what was read. */
static void check_abreast(int which, uint32_t segment, uint32_t streams, uint32_t threads)
{
    const char *preset = lossy[which].preset, *settings = lossy[which].settings;
    struct sim_config config;
    struct sim_stats one, all;
    how.segment = segment;
    how.compare = true;
    how.streams = 1;
    how.threads = 1;
    struct offline_losses a = clocked(preset, settings, 0.3, &config, &one);
    how.streams = streams;
    how.threads = threads;
    struct offline_losses b = clocked(preset, settings, 0.3, &config, &all);
    ck_assert_mem_eq(a.reference_nll, b.reference_nll, a.windows * sizeof *a.reference_nll);
    ck_assert_mem_eq(a.kld, b.kld, (size_t)a.windows * a.scored * sizeof *a.kld);
    ck_assert_mem_eq(a.same, b.same, a.windows * sizeof *a.same);
    ck_assert_uint_eq(a.skipped, b.skipped);
    ck_assert_mem_eq(a.accesses, b.accesses, sizeof a.accesses);
    ck_assert(a.kld[5] > 0 && one.misses > 0);
    same(a, b);
    same_counts(&one, &all);
}

/* Progress is counted in tokens: windows end together. */
START_TEST(abreast_is_one_after_another)
{
    check_abreast(_i, 1, 0, 1);
    ck_assert_uint_eq(first.done, 3);
    ck_assert(last.done == 3 * WINDOW && last.of == last.done);
}
END_TEST

/* More segments than there are streams, the last one shorter; rows that are context. */
START_TEST(segments_follow_each_other)
{
    struct error error = {0};
    const char *paths[] = {TEXT};
    offline_text_free(&text);
    ck_assert_int_eq(
        offline_text_load(offline_index(model), paths, 1, WINDOW, 9 * WINDOW, &text, &error), 0);
    ck_assert_uint_eq(text.windows, 9);
    how.score_from = 5;
    check_abreast(_i, 2, 2, 2);
    ck_assert_uint_eq(last.of, 9 * WINDOW);
}
END_TEST

static struct sim_stats replayed(const struct trace *trace, const char *policy)
{
    struct error error = {0};
    struct sim_config config;
    struct sim_result r;
    struct knobs knobs;
    uint64_t all = serving_bytes(model, NULL, QUANT_CHANNEL);
    ck_assert_int_eq(knobs_resolve("lod", NULL, policy, &knobs, &error), 0);
    clocked_config(model, &knobs, NULL, QUANT_CHANNEL, all * 3 / 10, &config);
    ck_assert_msg(sim_run(trace, 0, 0, &config, false, &r, &error) == 0, "%s", error.text);
    return r.phase[SIM_DECODE];
}

/* A trace of the text has the candidates: what is read falls with nats, and without any the
 * accesses are those recorded. */
START_TEST(candidates_of_the_text)
{
    struct error error = {0};
    struct trace trace;
    ck_assert_int_eq(offline_trace_predicted(model, &text, QUANT_CHANNEL, 1, 2, &trace, &error), 0);
    ck_assert_msg(trace_check(&trace.header, trace.records, trace.count, &error) == 0, "%s",
                  error.text);
    struct sim_stats exact = replayed(&trace, "routing=exact"),
                     none = replayed(&trace, "routing=resident-first,nats=0"),
                     some = replayed(&trace, "routing=resident-first,nats=0.4"),
                     more = replayed(&trace, "routing=resident-first,nats=1.6");
    ck_assert_mem_eq(&exact, &none, sizeof exact);
    ck_assert_uint_eq(some.accesses, exact.accesses);
    ck_assert(some.rerouted > 100 && more.rerouted > some.rerouted);
    ck_assert(some.demand_bytes < exact.demand_bytes && more.demand_bytes < some.demand_bytes);
    trace_free(&trace);
}
END_TEST

/* A capacity below one layer's experts, and masks, are rejected with one line. */
START_TEST(what_cannot_be_modelled)
{
    struct error error = {0};
    struct offline_evaluation e = base(1);
    struct offline_losses l;
    struct sim_config config;
    struct sim_stats f;
    struct knobs knobs;
    ck_assert_int_eq(knobs_resolve("lod", NULL, NULL, &knobs, &error), 0);
    clocked_config(model, &knobs, NULL, QUANT_CHANNEL, 1000, &config);
    ck_assert_int_eq(clocked_evaluate(&e, &config, QUANT_CHANNEL, &l, &f, &error), -1);
    ck_assert_int_eq(error.code, ERR_BUDGET_TOO_SMALL);
    ck_assert_int_eq(knobs_resolve("pruned", NULL, NULL, &knobs, &error), 0);
    clocked_config(model, &knobs, NULL, QUANT_CHANNEL, 1u << 30, &config);
    ck_assert_int_eq(clocked_evaluate(&e, &config, QUANT_CHANNEL, &l, &f, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
}
END_TEST

/* ---- recorded logits ---- */

static void record(void)
{
    struct error error = {0};
    struct offline_evaluation e = base(2);
    struct offline_losses l;
    e.record = logits_create(path, &text, offline_index(model)->hparams.vocab, offline_hash(model),
                             &error);
    ck_assert_msg(e.record != NULL, "%s", error.text);
    ck_assert_int_eq(offline_evaluate(&e, &l, &error), 0);
    ck_assert_msg(logits_commit(e.record, &error) == 0, "%s", error.text);
    logits_close(e.record);
    offline_losses_free(&l);
}

static struct logits_file *recorded(const struct offline_text *t, struct error *error)
{
    return logits_open(path, t, offline_index(model)->hparams.vocab, error);
}

/* Against its own record a model has no loss; another model has the same loss as in a direct
 * comparison. */
START_TEST(against_a_record)
{
    struct error error = {0};
    uint8_t precision[CELLS];
    struct offline_losses own, direct, against;
    record();
    struct offline_evaluation e = base(2);
    e.against = recorded(&text, &error);
    ck_assert_msg(e.against != NULL, "%s", error.text);
    ck_assert_int_eq(offline_evaluate(&e, &own, &error), 0);
    size_t n = (size_t)own.windows * own.scored;
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(own.kld[i] < 1e-6f, "token %zu: %g", i, (double)own.kld[i]);
    for (uint32_t w = 0; w < own.windows; w++)
        ck_assert_double_eq_tol(own.nll[w], own.reference_nll[w], 1e-2);
    memset(precision, PRECISION_INT2, sizeof precision);
    e.precision = precision;
    ck_assert_int_eq(offline_evaluate(&e, &against, &error), 0);
    logits_close(e.against);
    e.against = NULL;
    e.compare = true;
    ck_assert_int_eq(offline_evaluate(&e, &direct, &error), 0);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(fabsf(against.kld[i] - direct.kld[i]) < 1e-3f * direct.kld[i] + 1e-4f,
                      "token %zu: %g, %g", i, (double)against.kld[i], (double)direct.kld[i]);
    ck_assert(own.top1_same + 2 >= n && against.top1_same < n);
    offline_losses_free(&own);
    offline_losses_free(&against);
    offline_losses_free(&direct);
}
END_TEST

static const struct {
    long at; /* offset of the byte to change; -1: the last byte is removed */
    const char *line;
} damages[] = {
    {0, "not a logits record"},
    {offsetof(struct logits_header, version), "not a logits record"},
    {offsetof(struct logits_header, vocab), "another vocabulary"},
    {offsetof(struct logits_header, window), "another --ctx-size"},
    {offsetof(struct logits_header, windows), "another text"},
    {offsetof(struct logits_header, text_hash), "another text"},
    {offsetof(struct logits_header, row_bytes), "not have the size"},
    {-1, "not have the size"},
};

START_TEST(damaged_record)
{
    struct error error = {0};
    uint8_t byte;
    record();
    int fd = open(path, O_RDWR);
    long at = damages[_i].at;
    if (at < 0) {
        ck_assert_int_eq(ftruncate(fd, lseek(fd, 0, SEEK_END) - 1), 0);
    } else {
        ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
        byte ^= 1;
        ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
    ck_assert_ptr_null(recorded(&text, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, damages[_i].line) != NULL, "error: %s", error.text);
}
END_TEST

START_TEST(damaged_row)
{
    struct error error = {0};
    static const float bad[] = {1, NAN, INFINITY};
    float *row = calloc(offline_index(model)->hparams.vocab, sizeof *row);
    record();
    struct logits_file *f = recorded(&text, &error);
    ck_assert_int_eq(logits_read(f, 1, 3, row, &error), 0);
    off_t at = (off_t)(sizeof(struct logits_header) +
                       (WINDOW - 1 + 3) * (8 + 2ul * offline_index(model)->hparams.vocab));
    int fd = open(path, O_WRONLY);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_int_eq(pwrite(fd, &bad[i], sizeof bad[i], at), sizeof bad[i]);
        ck_assert_int_eq(logits_read(f, 1, 3, row, &error), -1);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_msg(strstr(error.text, "row 3 of window 1") != NULL, "%s", error.text);
    }
    close(fd);
    logits_close(f);
    free(row);
}
END_TEST

/* An incomplete record leaves no file, and keeps an older record. */
START_TEST(never_half_a_record)
{
    struct error error = {0};
    record();
    uint32_t vocab = offline_index(model)->hparams.vocab;
    struct logits_file *f = logits_create(path, &text, vocab, offline_hash(model), &error);
    ck_assert_ptr_nonnull(f);
    logits_close(f);
    f = recorded(&text, &error);
    ck_assert_msg(f != NULL, "%s", error.text);
    logits_close(f);
}
END_TEST

/* The stated time is never beyond a limit, except for what is done in any case. */
START_TEST(time_left)
{
    ck_assert_uint_eq(offline_left_ns(10, 0, 200, UINT64_MAX), 2000);
    ck_assert_uint_eq(offline_left_ns(10, 0, 200, 500), 500);
    ck_assert_uint_eq(offline_left_ns(10, 70, 200, 500), 700);
    ck_assert_uint_eq(offline_left_ns(10, 70, 200, 0), 700);
    ck_assert_uint_eq(offline_left_ns(10, 0, 0, 500), 0);
}
END_TEST

/* For other programs: NumPy's header, as numpy.save writes it for such an array, then the
 * logits. */
START_TEST(logits_for_numpy)
{
    static const char before[] = "\x93NUMPY\x01\0v\0{'descr': '<f4', 'fortran_order': False, "
                                 "'shape': (3, 39, 4096), }";
    struct error error = {0};
    char header[128];
    struct offline_losses l;
    uint32_t vocab = offline_index(model)->hparams.vocab;
    ck_assert_uint_eq(vocab, 4096);
    struct offline_evaluation e = base(2);
    e.npy = logits_create_npy(path, &text, vocab, &error);
    ck_assert_msg(e.npy != NULL, "%s", error.text);
    ck_assert_int_eq(offline_evaluate(&e, &l, &error), 0);
    ck_assert_msg(logits_commit(e.npy, &error) == 0, "%s", error.text);
    logits_close(e.npy);
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fread(header, 1, sizeof header, f), sizeof header);
    ck_assert_mem_eq(header, before, sizeof before - 1);
    for (size_t i = sizeof before - 1; i + 1 < sizeof header; i++)
        ck_assert_int_eq(header[i], ' ');
    ck_assert_int_eq(header[sizeof header - 1], '\n');
    float *row = malloc(vocab * sizeof *row);
    for (uint32_t w = 0; w < text.windows; w++) {
        double nll = 0;
        for (uint32_t i = 0; i + 1 < WINDOW; i++) {
            double sum = 0;
            ck_assert_uint_eq(fread(row, sizeof *row, vocab, f), vocab);
            for (uint32_t t = 0; t < vocab; t++)
                sum += exp((double)row[t]);
            nll += log(sum) - (double)row[offline_window(&text, w)[i + 1]];
        }
        ck_assert_double_eq_tol(nll, l.nll[w], 1e-6);
    }
    ck_assert_int_eq(fgetc(f), EOF);
    fclose(f);
    free(row);
    offline_losses_free(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("clocked");
    TCase *c = tcase_create("clocked");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 240);
    tcase_add_test(c, time_left);
    tcase_add_test(c, lod_matches_sim);
    tcase_add_test(c, one_precision_whatever_is_resident);
    tcase_add_test(c, hobbit_between_its_ends);
    tcase_add_test(c, resident_first_depends_on_residency);
    tcase_add_loop_test(c, abreast_is_one_after_another, 0, 2);
    tcase_add_loop_test(c, segments_follow_each_other, 0, 2);
    tcase_add_test(c, candidates_of_the_text);
    tcase_add_test(c, what_cannot_be_modelled);
    tcase_add_test(c, against_a_record);
    tcase_add_loop_test(c, damaged_record, 0, (int)ARRAY_LEN(damages));
    tcase_add_test(c, damaged_row);
    tcase_add_test(c, never_half_a_record);
    tcase_add_test(c, logits_for_numpy);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
