/* SPDX-License-Identifier: Apache-2.0 */
/* How much is measured, so that it ends within --minutes; written once, so that an interrupted tuning continues with the
 * same. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/file/replace.h"
#include "lib/json/json_file.h"
#include "procs/tools/tune/tune.h"

#define JOB_BYTES       4096
#define TEMPORARY       ".new"
#define VALUE_MAX       1e18
#define PROFILE_SHARE   0.5 /* of --minutes */
#define PLAN_SHARE      0.4
#define ROUTING_SHARE   0.15 /* of the profile: the pass for statistics */
#define PLAN_PASSES     36   /* about as many evaluations as the search of precisions takes */
#define TOKENS_MAX      65536.0
#define PLAN_TOKENS_MIN 8192.0
#define IMPORTANCE_MAX  8192.0
#define IMPORTANCE_MIN  1024.0
#define CONFIRM_S       20.0 /* measured run, without the loading of experts */

static const struct field {
    const char *name;
    size_t offset;
} fields[] = {{"fixed_s", offsetof(struct job, fixed_s)},
              {"token_s", offsetof(struct job, token_s)},
              {"read_bytes_per_s", offsetof(struct job, read_bytes_per_s)},
              {"encode_bytes_per_s", offsetof(struct job, encode_bytes_per_s)},
              {"expert_bytes", offsetof(struct job, expert_bytes)},
              {"profile_tokens", offsetof(struct job, profile_tokens)},
              {"plan_tokens", offsetof(struct job, plan_tokens)},
              {"importance_tokens", offsetof(struct job, importance_tokens)},
              {"importance_experts", offsetof(struct job, importance_experts)},
              {"groups", offsetof(struct job, groups)}};

static double pass_s(const struct job *j, double tokens)
{
    return j->fixed_s + j->token_s * tokens;
}

/* The largest of `from`, from / 2, ... that takes at most `seconds` in `passes` passes, but not below `minimum`. */
static double tokens_within(const struct job *j, double from, double minimum, double passes,
                            double seconds)
{
    while (from > minimum && passes * pass_s(j, from) > seconds)
        from /= 2;
    return from;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

void job_choose(struct tune *t, uint64_t tokens)
{
    struct job *j = &t->job;
    double have = (double)tokens, all = (double)t->minutes * 60, window = (double)t->window;
    double profile = all * PROFILE_SHARE, experts = j->importance_experts;
    double most = smaller(have, TOKENS_MAX);
    j->profile_tokens =
        tokens_within(j, most, smaller(most, PLAN_TOKENS_MIN), 1, profile * ROUTING_SHARE);
    j->importance_tokens =
        tokens_within(j, smaller(most, IMPORTANCE_MAX), smaller(most, IMPORTANCE_MIN),
                      j->groups + 1, profile * (1 - ROUTING_SHARE));
    double left =
        profile - pass_s(j, j->profile_tokens) - (j->groups + 1) * pass_s(j, j->importance_tokens);
    double alone = left > 0 ? floor(left / (pass_s(j, j->importance_tokens) + 1e-9)) : 0;
    j->importance_experts = smaller(alone, experts);
    j->plan_tokens =
        tokens_within(j, most, smaller(most, PLAN_TOKENS_MIN), PLAN_PASSES, all * PLAN_SHARE);
    j->profile_tokens = floor(j->profile_tokens / window) * window;
    j->plan_tokens = floor(j->plan_tokens / window) * window;
}

void job_times(const struct tune *t, struct stage_times *times)
{
    const struct job *j = &t->job;
    double rate = j->read_bytes_per_s > 0 ? j->read_bytes_per_s : 1e9;
    double bytes = (double)t->model_stat.st_size;
    times->profile = pass_s(j, j->profile_tokens) +
                     (1 + j->groups + j->importance_experts) * pass_s(j, j->importance_tokens);
    times->plan = PLAN_PASSES * pass_s(j, j->plan_tokens);
    times->pack = 2 * bytes / rate + 2 * j->expert_bytes / (j->encode_bytes_per_s + 1);
    times->confirm =
        CONFIRM_S + 4 * (double)(t->memory < (uint64_t)bytes ? (double)t->memory : bytes) / rate;
}

bool job_read(struct tune *t)
{
    struct error why;
    if (access(t->job_path, F_OK) != 0)
        return false;
    json_t *object = json_file(t->job_path, JOB_BYTES, &why);
    bool good = object != NULL;
    for (size_t i = 0; good && i < ARRAY_LEN(fields); i++) {
        const json_t *value = json_object_get(object, fields[i].name);
        double number = json_number_value(value);
        good = json_is_number(value) && number >= 0 && number <= VALUE_MAX;
        memcpy((char *)&t->job + fields[i].offset, &number, sizeof number);
    }
    json_decref(object);
    if (good)
        return true;
    fprintf(stderr, "sluice tune: %s is damaged: measuring again\n", t->job_path);
    memset(&t->job, 0, sizeof t->job);
    return false;
}

int job_write(const struct tune *t, struct error *error)
{
    char temporary[sizeof t->job_path + sizeof TEMPORARY];
    json_t *object = json_object();
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        double number;
        memcpy(&number, (const char *)&t->job + fields[i].offset, sizeof number);
        json_object_set_new(object, fields[i].name, json_real(number));
    }
    snprintf(temporary, sizeof temporary, "%s" TEMPORARY, t->job_path);
    int status = json_dump_file(object, temporary, JSON_INDENT(1));
    json_decref(object);
    int why = status == 0 ? file_replace(temporary, t->job_path, true) : EIO;
    if (why == 0)
        return 0;
    unlink(temporary);
    return error_set_errno(error, ERR_IO, why, "cannot write %.200s", t->job_path);
}
