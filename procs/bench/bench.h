/* What the parts of bench share: arms (engines with other parameters), the tests each runs, what
 * was measured. */
#ifndef SLUICE_BENCH_BENCH_H
#define SLUICE_BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/statistics.h"
#include "procs/client/session.h"

#define BENCH_ARMS_MAX        64u
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
    double stall_ms; /* of it waiting for experts */
    double tokens;   /* all tokens that were computed in it */
    double bytes_read;
    double hits, late, misses, skipped, low_tier;
    double peak_memory, arena, restarts;
    char system[32];  /* it ran under: auto says what it chose */
    json_t *counters; /* by service and name, what they grew by meanwhile; owned */
};

struct arm {
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
    int64_t seed;
    double stay;
    bool cold, verbose;
    uint32_t *text_ids; /* of --text, NULL: a made-up stream */
    size_t text_count;
    const char *text_path;
    struct arm *arms;
    uint32_t arm_count;
    struct comparison comparisons[BENCH_COMPARISONS_MAX];
    uint32_t comparison_count;
    uint32_t *order;  /* arms as they ran, repetitions * arm_count */
    json_t *document; /* of the last engine: the model's description */
};

/* ---- arms.c ---- */

/* Takes the parameters that may have lists (--budget, --experts, --system, --throttle, --threads,
 * and --vary NAME=V1,V2), and --arm NAME=V;NAME=V, out of argv, before params_take_args sees it. */
struct varied {
    struct {
        char name[32];
        char values[512];
    } list[BENCH_VARIED_MAX];
    uint32_t count;
    const char *arm[BENCH_ARMS_MAX]; /* borrowed from argv */
    uint32_t arm_count;
};
int varied_take_args(struct varied *v, int *argc, char **argv, struct error *error);

/* Every combination of the listed values, over every --arm, over the base parameters becomes an
 * arm. */
int arms_make(struct bench *b, const struct varied *v, const struct params *base,
              struct error *error);
void arms_free(struct bench *b);

/* "1,2": arms by their number. */
int comparison_add(struct bench *b, const char *text, struct error *error);

bool test_wanted(const struct bench *b, enum bench_test test);
void test_name(const struct bench *b, enum bench_test test, char name[32]);

/* ---- measure.c ---- */

/* All repetitions of all arms. Telling about it on stderr. */
int measure_all(struct bench *b, struct error *error);

/* Made-up tokens, or those of the text, for one repetition; `vocab` of the model. */
int stream_check(const struct bench *b, struct error *error);

/* ---- report.c ---- */

enum report { REPORT_MD, REPORT_CSV, REPORT_JSON };
int report_print(const struct bench *b, enum report form);

/* The first arm whose arena holds every expert; -1 when there is none. */
int report_resident(const struct bench *b);

#endif
