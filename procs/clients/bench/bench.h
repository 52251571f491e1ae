/* What the parts of bench share: arms (engines with other parameters), the tests each runs, what
 * was measured. */
#ifndef SLUICE_CLIENTS_BENCH_BENCH_H
#define SLUICE_CLIENTS_BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/statistics.h"
#include "procs/clients/common/session.h"
#include "procs/clients/common/stream.h"

#define BENCH_VARIANTS_MAX    64u
#define BENCH_VARIED_MAX      8u /* parameters with a list of values */
#define BENCH_VALUES_MAX      32u
#define BENCH_COMPARISONS_MAX 32u
#define BENCH_REPETITIONS_MAX STATISTICS_SAMPLES_MAX
#define BENCH_LABEL_BYTES     160u

enum bench_test { TEST_PREFILL, TEST_DECODE, TEST__COUNT };

/* One run of one test in one arm. */
struct sample {
    double tps;      /* of the prompt, or of the new tokens */
    double ms;       /* spent computing and waiting: prefill and decode together */
    double stall_ms; /* of it waiting for experts; NAN: not known */
    double tokens;   /* all tokens that were computed in it */
    double bytes_read;
    double hits, hits_inflight, misses, skipped, low_precision;
    double peak_memory, arena, restarts;
    char preset[32];  /* it ran under: auto says what it chose */
    json_t *counters; /* by service and name, what they grew by meanwhile; owned */
    json_t *slices; /* --interleave: [tokens, ms] of each, in the order of time; owned, else NULL */
};

struct variant {
    struct params params;
    char label[BENCH_LABEL_BYTES];       /* the parameters that tell it from the others */
    struct sample *samples[TEST__COUNT]; /* one per repetition */
};

struct comparison {
    uint32_t a, b; /* indexes of arms */
};

struct bench {
    const char *model;
    int64_t prompt, tokens, repetitions, warmup;
    int64_t warmup_tokens; /* of the decode test in a warm-up round; < 0: as many as measured */
    int64_t slice_tokens;  /* tokens of a turn; 0: each arm decodes from beginning to end */
    int64_t seed;
    double stay;
    bool cold, verbose;
    uint32_t *text_ids; /* of --text, NULL: a made-up stream */
    size_t text_count;
    const char *text_path;
    struct variant *variants;
    uint32_t variant_count;
    struct comparison comparisons[BENCH_COMPARISONS_MAX];
    uint32_t comparison_count;
    uint32_t *order;  /* arms as they ran, repetitions * variant_count */
    json_t *snapshot; /* of the last engine: the model's description */
};

/* ---- arms.c ---- */

/* Takes the parameters that may have lists (--budget, --resident-experts, --preset, --throttle, --threads,
 * and --vary NAME=V1,V2), and --variant NAME=V;NAME=V, out of argv, before params_take_args sees it. */
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

/* Every combination of the listed values, over every --variant, over the base parameters becomes an
 * arm. */
int variants_make(struct bench *b, const struct varied *v, const struct params *base,
                  struct error *error);
void variants_free(struct bench *b);

/* "1,2": arms by their number. */
int comparison_add(struct bench *b, const char *text, struct error *error);

bool test_wanted(const struct bench *b, enum bench_test test);
void test_name(const struct bench *b, enum bench_test test, char name[32]);

/* ---- measure.c ---- */

/* Tokens of one repetition or round of warm-up. */
struct tokens {
    uint32_t *ids; /* of the prefill test: the prompt and the token after it; then of the decode
                      test: a prompt of one and the new tokens. Freed by who asked for them */
    size_t count[TEST__COUNT];
};

/* Starts an arm's engine; the document is the bench's from then on. number: of the arm. */
int variant_open(struct bench *b, const struct variant *variant, uint32_t number, struct session *s,
                 struct error *error);
int variant_warm_up(const struct bench *b, struct session *s, struct error *error);
/* warmup: number of such a round, from 1; 0: the tokens that are measured. */
int repetition_tokens(const struct bench *b, int64_t repetition, int64_t warmup, struct tokens *t,
                      struct error *error);
/* One test from beginning to end. out NULL: not measured. */
int run_test(const struct bench *b, struct session *s, const struct tokens *t, enum bench_test test,
             struct sample *out, struct error *error);

/* The same in pieces. sequence_ended: -1 when it was cancelled; the result is freed then. */
int sequence_start(const struct bench *b, struct session *s, const struct tokens *t,
                   enum bench_test test, uint64_t *id, struct error *error);
int sequence_ended(struct stream_result *result, struct error *error);
void sample_take(struct sample *out, const struct stream_result *result, const json_t *before,
                 const json_t *after, enum bench_test test);

/* All repetitions of all arms. Telling about it on stderr. */
int measure_all(struct bench *b, struct error *error);

/* Made-up tokens, or those of the text, for one repetition; `vocab` of the model. */
int stream_check(const struct bench *b, struct error *error);

/* ---- turns.c ---- */

/* One repetition of all arms, their decoding in turns of b->turn tokens. */
int interleave_repetition(struct bench *b, int64_t repetition, struct error *error);

/* ---- report.c ---- */

enum report { REPORT_MD, REPORT_CSV, REPORT_JSON };
int report_print(const struct bench *b, enum report form);

/* The first arm whose arena holds every expert; -1 when there is none. */
int report_resident(const struct bench *b);

#endif
