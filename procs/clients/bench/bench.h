/* SPDX-License-Identifier: Apache-2.0 */
/* sluice bench: declarations shared by its files: variants (engines with different parameters), the
 * tests each runs, the results. */
#ifndef SLUICE_CLIENTS_BENCH_BENCH_H
#define SLUICE_CLIENTS_BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/statistics.h"
#include "lib/rates/rates.h"
#include "procs/clients/common/session.h"
#include "procs/clients/common/stream.h"

#define BENCH_VARIANTS_MAX    64u
#define BENCH_VARIED_MAX      8u /* maximum parameters with a list of values */
#define BENCH_VALUES_MAX      32u
#define BENCH_COMPARISONS_MAX 32u
#define BENCH_REPETITIONS_MAX STATISTICS_SAMPLES_MAX
#define BENCH_LABEL_BYTES     160u
#define BENCH_DEPTHS_MAX      16u
#define BENCH_TESTS_MAX       (2 * BENCH_DEPTHS_MAX)
#define BENCH_PARALLEL_MAX    64u
#define BENCH_TOKENS_MAX      60000 /* of a sequence: they are sent in one request */

enum test_kind { TEST_PREFILL, TEST_DECODE, TEST__COUNT };

/* A test: prefill or decode after a context of `depth` tokens. */
struct test {
    enum test_kind kind;
    int64_t depth;
};

/* Result of one test in one variant and repetition. */
struct sample {
    double tps;      /* of the prompt or of the new tokens */
    double ms;       /* compute and stall time, prefill and decode together */
    double stall_ms; /* of `ms`, stalled on experts; NAN: unknown */
    double tokens;   /* all tokens computed */
    double cpu_tps;  /* of them, per second of CPU time of compute; 0: unknown */
    double bytes_read;
    double hits, hits_inflight, misses, skipped, low_precision;
    double peak_memory, arena, restarts;
    char preset[32];  /* preset that ran; for auto the chosen one */
    json_t *counters; /* growth of all counters, by service and name; owned */
    json_t *slices;   /* --interleave: [tokens, ms] of each slice in time order; owned, else NULL */
};

struct variant {
    struct params params;
    bool free;                     /* the decode test samples any token, not those of the grammar */
    char label[BENCH_LABEL_BYTES]; /* the parameters that differ from other variants */
    struct sample *samples[BENCH_TESTS_MAX]; /* per test, one per repetition */
};

struct comparison {
    uint32_t a, b; /* indexes of variants */
};

struct bench {
    const char *model;
    int64_t prompt, tokens, repetitions, warmup;
    int64_t depth[BENCH_DEPTHS_MAX]; /* of -d, in the order given */
    uint32_t depth_count;
    struct test test[BENCH_TESTS_MAX]; /* in run order */
    uint32_t test_count;
    int64_t warmup_tokens; /* of the decode test in a warm-up round; < 0: same as measured */
    uint32_t sequences, sequences_max; /* that decode together: in the engine that was opened last,
                                        * and in any variant */
    bool free;                         /* the variant of the engine that was opened last */
    int64_t slice_tokens; /* tokens per slice; 0: each variant decodes without interruption */
    int64_t seed;
    double stay;
    bool cold, verbose;
    uint32_t *text_ids; /* of --text, NULL: synthetic tokens */
    size_t text_count;
    const char *text_path;
    struct grammar_source grammar; /* that sampled tokens of the decode test keep to; NONE: the
                                    * tokens are forced, not sampled */
    struct variant *variants;
    uint32_t variant_count;
    struct comparison comparisons[BENCH_COMPARISONS_MAX];
    uint32_t comparison_count;
    uint32_t *order;  /* variants in run order, repetitions * variant_count */
    json_t *snapshot; /* of the last engine, for the model's description */
};

/* ---- variants.c ---- */

/* Removes from argv the options that may have lists of values (--budget, --resident-experts,
 * --preset, --throttle, --threads, --vary NAME=V1,V2) and --variant NAME=V;NAME=V. NAME may also be
 * "grammar", whose values are on and off. Call it before params_take_args. -1 with *error. */
struct varied {
    struct {
        char name[32];
        char values[512];
    } list[BENCH_VARIED_MAX];
    uint32_t count;
    const char *variant[BENCH_VARIANTS_MAX]; /* borrowed from argv */
    uint32_t variant_count;
};
int varied_take_args(struct varied *v, int *argc, char **argv, struct error *error);

/* Makes a variant of every combination of the listed values, for every --variant, on top of the
 * base parameters. */
int variants_make(struct bench *b, const struct varied *v, const struct params *base,
                  struct error *error);
void variants_free(struct bench *b);

/* Adds a comparison "A,B" of two variants by number, from 1. */
int comparison_add(struct bench *b, const char *text, struct error *error);

/* The depths of "4096,16384". */
int depths_parse(struct bench *b, const char *text, struct error *error);
/* Makes the list of tests from depths and sizes. */
void tests_make(struct bench *b);
int64_t tests_deepest(const struct bench *b);
#define TEST_NAME_BYTES 48
void test_name(const struct bench *b, const struct test *test, char name[TEST_NAME_BYTES]);

/* ---- measure.c ---- */

/* Tokens of one repetition or warm-up round. */
struct tokens {
    uint32_t *ids; /* the context of the deepest test; prefill test: the prompt and one more token;
                    * decode test: a prompt of one token and the new tokens */
    uint32_t *request; /* the tokens of one request: context and test */
    size_t context, count[TEST__COUNT];
    bool free; /* of the variant */
};
void tokens_free(struct tokens *t);

/* Starts the engine of a variant and takes b->snapshot from it. number: index of the variant. */
int variant_open(struct bench *b, const struct variant *variant, uint32_t number, struct session *s,
                 struct error *error);
int variant_warm_up(const struct bench *b, struct session *s, struct error *error);
/* session_stats, with the CPU time of each process as a further counter, cpu_ns. */
json_t *stats_with_cpu(struct session *s);
/* Makes the tokens of a repetition. warmup: number of the warm-up round, from 1; 0: the measured
 * tokens. */
int repetition_tokens(const struct bench *b, int64_t repetition, int64_t warmup, struct tokens *t,
                      struct error *error);
/* Computes the context of a test: the engine keeps its keys and values for the test. */
int context_fill(const struct bench *b, struct session *s, const struct tokens *t,
                 const struct test *test, struct error *error);
/* Runs one test, the context included. out NULL: not measured. */
int run_test(const struct bench *b, struct session *s, const struct tokens *t,
             const struct test *test, struct sample *out, struct error *error);

/* parallel.c. run_test of b->sequences sequences, which decode together. *out has the speed of
 * all. */
int run_together(const struct bench *b, struct session *s, const struct tokens *t,
                 const struct test *test, struct sample *out, struct error *error);
/* Of every decode test a table with rows and experts per pass, and with the least time of such a
 * pass (lib/rates), if a variant has several. */
void parallel_report(const struct bench *b);

/* bound.c. What doctor measured of this machine with the model, for a variant. False: nothing, or
 * the model cannot be read. */
struct bound {
    struct rates_model model;
    struct rates_machine machine;
};
bool bound_open(const struct bench *b, const struct variant *v, const struct test *test,
                struct bound *out);
void bound_close(struct bound *bound);

/* run_test in steps. number: which of the sequences that decode together. sequence_ended: -1 when
 * the sequence did not complete; it then frees the result. */
int sequence_start(const struct bench *b, struct session *s, const struct tokens *t,
                   const struct test *test, uint32_t number, uint64_t *id, struct error *error);
int sequence_ended(struct stream_result *result, struct error *error);
/* -1 when the engine did not keep the test's context. */
int sample_take(struct sample *out, const struct stream_result *result, const json_t *before,
                const json_t *after, const struct test *test, struct error *error);

/* Runs all repetitions of all variants; progress goes to stderr. */
int measure_all(struct bench *b, struct error *error);

/* Checks that the text of --text or --ids has enough tokens for one repetition. */
int stream_check(const struct bench *b, struct error *error);

/* ---- interleave.c ---- */

/* Runs one repetition of all variants, decoding in interleaved slices of b->slice_tokens tokens. */
int interleave_repetition(struct bench *b, int64_t repetition, struct error *error);

/* ---- report.c ---- */

enum report { REPORT_MD, REPORT_CSV, REPORT_JSON };
int report_print(const struct bench *b, enum report form);

/* Index of the first variant whose arena holds every expert; -1: none. */
int report_resident(const struct bench *b);

#endif
