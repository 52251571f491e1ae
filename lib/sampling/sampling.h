/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling parameters: the table, and the values of one request. */
#ifndef SLUICE_SAMPLING_SAMPLING_H
#define SLUICE_SAMPLING_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* X(type, field, json, default, min, max, help): the only list of sampling parameters. The JSON of
 * submit, the options of generate and /set of repl are generated from it. */
#define SAMPLING_PARAMS(X)                                                                         \
    X(double, temperature, "temperature", 0.8, 0.0, 100.0, "0 is greedy")                          \
    X(int64_t, top_k, "top_k", 40, 0, 1000000, "keep the k most probable tokens; 0 = all")         \
    X(double, top_p, "top_p", 0.95, 0.0, 1.0, "keep the smallest set with this total probability") \
    X(double, min_p, "min_p", 0.05, 0.0, 1.0, "drop tokens below min_p times the best one")        \
    X(double, repeat_penalty, "repeat_penalty", 1.0, 0.01, 100.0,                                  \
      "divide logits of recent tokens; 1 = off")                                                   \
    X(int64_t, repeat_last_n, "repeat_last_n", 64, 0, 4096, "tokens the penalties apply to")       \
    X(double, presence_penalty, "presence_penalty", 0.0, -2.0, 2.0,                                \
      "subtracted from logits of recent tokens")                                                   \
    X(double, frequency_penalty, "frequency_penalty", 0.0, -2.0, 2.0,                              \
      "subtracted once per occurrence of a recent token")                                          \
    X(int64_t, seed, "seed", -1, -1, INT64_MAX, "-1 = random")

struct sampling {
#define X(type, field, json, def, min, max, help) type field;
    SAMPLING_PARAMS(X)
#undef X
};

void sampling_defaults(struct sampling *s);

/* Sets one parameter from text (an option's argument, /set of repl). `name` is the JSON name; '-'
 * counts as '_'. -1 with ERR_BAD_INPUT: unknown name, not a number, out of range. */
int sampling_set(struct sampling *s, const char *name, const char *text, struct error *error);

enum sampling_type { SAMPLING_double, SAMPLING_int64_t };

/* A row of the table at run time. */
struct sampling_param {
    const char *name; /* JSON name */
    enum sampling_type type;
    size_t offset; /* in struct sampling */
    double real_min, real_max;
    int64_t int_min, int_max;
};

/* All rows; *count is set. */
const struct sampling_param *sampling_params(size_t *count);
const struct sampling_param *
sampling_param_named(const char *name); /* '-' counts as '_'; NULL: unknown */

/* Checks the range and sets one parameter. -1 with ERR_BAD_INPUT. */
int sampling_set_real(struct sampling *s, const struct sampling_param *p, double value,
                      struct error *error);
int sampling_set_int(struct sampling *s, const struct sampling_param *p, int64_t value,
                     struct error *error);

#endif
