/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how much is measured, so that it ends within --minutes; written once, so that an
 * interrupted tuning continues with these amounts. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/file/replace.h"
#include "lib/json/json_file.h"
#include "procs/tools/tune/tune.h"

#define JOB_BYTES      4096
#define TEMPORARY      ".new"
#define PROFILE_SHARE  0.5 /* of --minutes */
#define PLAN_SHARE     0.4
#define MEASURING_MIN  0.5  /* of --minutes, for both, however long the rest takes */
#define ROUTING_SHARE  0.15 /* of the profile: the pass for statistics */
#define SWAPMOE_PASSES 18 /* evaluations of swapmoe's planner: 5, and 54 of a quarter of the text */
#define TOKENS_MAX     65536.0
#define ROUTING_MIN    8192.0
#define PLAN_MIN       4096.0 /* of the first system alone */
#define PLAN_MORE_MIN  8192.0
#define PLAN_WINDOWS   3.0 /* of a text, at the minimum: to plan on, and held out */
#define HALF_WINDOWS   2   /* of all texts, to plan on and held out, at the minimum each */
#define IMPORTANCE_MAX 8192.0
#define IMPORTANCE_MIN 1024.0
#define AS_EXPECTED    1.25 /* times that differ by less */
#define CONFIRM_S      20.0 /* measured run, without the loading of experts */

#define CELLS_MAX 1e6 /* experts of a model */

static const int passes[TUNE_SYSTEMS] = {
#define TUNE_SYSTEM(id, name, rule, routing, high, low, loss, last, passes, text, none)            \
    [TUNE_##id] = passes,
#include "procs/tools/tune/systems.tbl.h"
};

static const enum {
    SOME_TEXT,
    ALL_TEXT
} wants[TUNE_SYSTEMS] = {
#define TUNE_SYSTEM(id, name, rule, routing, high, low, loss, last, passes, text, none)            \
    [TUNE_##id] = text,
#include "procs/tools/tune/systems.tbl.h"
};

/* The numbers of a job file: one table for both directions. */
static const struct field {
    const char *name;
    size_t offset;
    double min, max;
    bool whole;
} fields[] = {
#define F(name, min, max, whole)                                                                   \
    {                                                                                              \
#name, offsetof(struct job, name), min, max, whole                                         \
    }
    F(fixed_s, 0, 1e7, false),
    F(token_s, 1e-12, 1e5, false),
    F(late, 0, 1, false),
    F(read_bytes_per_s, 0, 1e15, false),
    F(encode_bytes_per_s, 1, 1e15, false),
    F(expert_bytes, 1, 1e18, true),
    F(forms, 0, (1 << PRECISION__COUNT) - 1, true),
    F(forms_bytes, 0, 1e18, true),
    F(profile_tokens, TUNE_WINDOW_MIN *TUNE_WINDOWS_MIN, TOKENS_MAX, true),
    F(plan_tokens, TUNE_WINDOW_MIN *TUNE_WINDOWS_MIN, TOKENS_MAX, true),
    F(importance_tokens, 1, IMPORTANCE_MAX, true),
    F(importance_experts, 0, CELLS_MAX, true),
    F(layer_experts, 1, CELLS_MAX, true),
    F(group, 1, CELLS_MAX, true),
    F(groups, 1, CELLS_MAX, true),
    F(text_tokens, 0, 1e15, true),
    F(plan_seconds, 0, 1e8, false),
    F(profile_id, 0, 1e15, true),
    F(plan_id, 0, 1e15, true),
    F(machine.sample_bytes_per_s, 0, 1e15, false),
#undef F
};

static double pass_s(const struct job *j, double tokens)
{
    return j->fixed_s + j->token_s * tokens;
}

/* Of a measurement of importance: it begins at the layer that it changes. */
static double measurement_s(const struct job *j, double tokens)
{
    return j->late * pass_s(j, tokens);
}

static double importance_s(const struct job *j, double tokens)
{
    return pass_s(j, tokens) + j->groups * measurement_s(j, tokens);
}

/* Of an evaluation of a plan. */
static double evaluation_s(const struct job *j)
{
    return pass_s(j, j->plan_tokens / 2);
}

/* Tokens whose pass takes `seconds`, within bounds. */
static double tokens_within(const struct job *j, double most, double minimum, double seconds)
{
    double tokens = (seconds - j->fixed_s) / j->token_s;
    return tokens > most ? most : tokens < minimum ? minimum : tokens;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Groups twice as large, and so on, until the smallest amount of text fits, or a layer is one
 * group. */
static void choose_groups(struct job *j, double tokens, double seconds)
{
    while (j->group < j->layer_experts && importance_s(j, tokens) > seconds) {
        double layers = j->groups / ceil(j->layer_experts / j->group);
        j->group *= 2;
        j->groups = layers * ceil(j->layer_experts / j->group);
    }
}

/* Evaluations of the first `count` systems. */
static double passes_of(int count)
{
    double all = 0;
    for (int i = 0; i < count; i++)
        all += passes[i];
    return all;
}

/* Text for all systems, or, if they would get too little, for fewer of them, at last for the first
 * alone. Systems of ALL_TEXT get all of it, or are not planned. */
static void choose_plan(struct tune *t, double most, double seconds)
{
    struct job *j = &t->job;
    double least = fmax(PLAN_WINDOWS * (double)t->texts, 2 * HALF_WINDOWS);
    double windows = least * (double)t->window;
    double more = fmax(PLAN_MORE_MIN, windows), one = fmax(PLAN_MIN, windows), tokens = 0;
    for (int count = TUNE_SYSTEMS; count > 1 && tokens < smaller(most, more); count--) {
        tokens = 2 * tokens_within(j, most / 2, 0, seconds / passes_of(count));
        if (wants[count - 1] == ALL_TEXT && tokens < most)
            tokens = 0;
    }
    if (tokens < smaller(most, more))
        tokens = 2 * tokens_within(j, most / 2, smaller(most, one) / 2, seconds / passes_of(1));
    j->plan_tokens = tokens;
}

/* The profile reads every expert once for its norm. */
static double norms_s(const struct job *j)
{
    return j->expert_bytes / (j->read_bytes_per_s > 0 ? j->read_bytes_per_s : 1e9);
}

/* What does not depend on the amount of text. */
static void rest_times(const struct tune *t, struct stage_times *times)
{
    const struct job *j = &t->job;
    double rate = j->read_bytes_per_s > 0 ? j->read_bytes_per_s : 1e9;
    double bytes = (double)t->model_bytes;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    double encode_s = j->expert_bytes / (j->encode_bytes_per_s + 1) / (cpus > 0 ? (double)cpus : 1);
    times->forms =
        j->forms ? __builtin_popcount((unsigned)j->forms) * encode_s + 2 * j->forms_bytes / rate
                 : 0;
    times->pack = 2 * bytes / rate + 2 * j->expert_bytes / (j->encode_bytes_per_s + 1);
    times->confirm =
        CONFIRM_S + 4 * (double)(t->memory < (uint64_t)bytes ? (double)t->memory : bytes) / rate;
}

/* Time for profile and plan together. */
static double measuring_s(const struct tune *t)
{
    struct stage_times times;
    double all = (double)t->minutes * 60;
    rest_times(t, &times);
    double left = (all - times.forms - times.pack - times.confirm) / all;
    return all * fmin(PROFILE_SHARE + PLAN_SHARE, fmax(left, MEASURING_MIN));
}

static double profile_s(const struct tune *t)
{
    return measuring_s(t) * PROFILE_SHARE / (PROFILE_SHARE + PLAN_SHARE);
}

static double plan_s(const struct tune *t)
{
    return t->job.plan_seconds > 0 ? t->job.plan_seconds : measuring_s(t) - profile_s(t);
}

double job_importance_s(const struct tune *t)
{
    return fmax(1, profile_s(t) * (1 - ROUTING_SHARE) - norms_s(&t->job));
}

/* A domain's windows are divided alternately, and a single one is held out (plan/held.c). */
bool job_has_windows(const struct tune *t, uint64_t tokens)
{
    uint64_t windows = (uint64_t)smaller((double)tokens, TOKENS_MAX) / (uint64_t)t->window;
    uint64_t texts = t->texts > 0 ? t->texts : 1, planned = 0;
    for (uint64_t i = 0; i < texts; i++) {
        uint64_t has = windows / texts + (i < windows % texts);
        planned += has > 1 ? (has + 1) / 2 : 0;
    }
    return planned >= HALF_WINDOWS && windows - planned >= HALF_WINDOWS;
}

void job_choose(struct tune *t, uint64_t tokens)
{
    struct job *j = &t->job;
    j->text_tokens = (double)tokens;
    double have = (double)tokens, window = (double)t->window;
    double profile = profile_s(t), experts = j->importance_experts;
    double most = smaller(have, TOKENS_MAX);
    double importance = job_importance_s(t);
    j->profile_tokens = tokens_within(j, most, smaller(most, ROUTING_MIN), profile * ROUTING_SHARE);
    choose_groups(j, smaller(most, IMPORTANCE_MIN), importance);
    j->importance_tokens = smaller(most, IMPORTANCE_MAX);
    while (j->importance_tokens > smaller(most, IMPORTANCE_MIN) &&
           importance_s(j, j->importance_tokens) > importance)
        j->importance_tokens /= 2;
    double left =
        profile - norms_s(j) - pass_s(j, j->profile_tokens) - importance_s(j, j->importance_tokens);
    double alone = left > 0 ? floor(left / (measurement_s(j, j->importance_tokens) + 1e-9)) : 0;
    j->importance_experts = smaller(alone, experts);
    choose_plan(t, most, plan_s(t));
    j->importance_tokens = floor(j->importance_tokens); /* halves of an odd number */
    j->profile_tokens = fmax(1, floor(j->profile_tokens / window)) * window;
    j->plan_tokens = floor(j->plan_tokens / window) * window;
}

/* Seconds of `all` that are not for pack and the measured run. */
static double without_rest(const struct tune *t, double all)
{
    struct stage_times times;
    rest_times(t, &times);
    return all - times.pack - times.confirm;
}

/* What a profile with so many experts measured alone was expected to take. */
static double profile_with_s(const struct job *j, double alone)
{
    return pass_s(j, j->profile_tokens) + norms_s(j) + importance_s(j, j->importance_tokens) +
           alone * measurement_s(j, j->importance_tokens);
}

/* Its end is set beforehand: on a slow machine it measures fewer experts alone, and takes no
 * longer. */
bool job_replan(struct tune *t, double alone, double took, double left)
{
    struct job *j = &t->job;
    double expected = profile_with_s(j, alone);
    double factor = expected > 0 ? took / expected : 1;
    double seconds = without_rest(t, left), most = smaller(j->text_tokens, TOKENS_MAX);
    if (factor > 1 / AS_EXPECTED && factor < AS_EXPECTED)
        return false;
    j->fixed_s *= factor;
    j->token_s = fmax(j->token_s * factor, 1e-12);
    j->plan_seconds = fmax(seconds, 1);
    choose_plan(t, most, j->plan_seconds);
    j->plan_tokens = floor(j->plan_tokens / (double)t->window) * (double)t->window;
    return true;
}

bool job_has_time(const struct tune *t, enum tune_system next, enum tune_system was, double took,
                  double left)
{
    double expected = passes[was] * evaluation_s(&t->job);
    double factor = expected > 0 ? took / expected : 1;
    return factor * passes[next] * evaluation_s(&t->job) <= without_rest(t, left);
}

bool job_plans(const struct tune *t, enum tune_system system)
{
    return system == 0 || passes_of((int)system + 1) * evaluation_s(&t->job) <= plan_s(t);
}

double job_swapmoe_s(const struct tune *t)
{
    return SWAPMOE_PASSES * evaluation_s(&t->job);
}

void job_times(const struct tune *t, struct stage_times *times)
{
    const struct job *j = &t->job;
    rest_times(t, times);
    times->profile = profile_with_s(j, j->importance_experts);
    times->plan = 0;
    for (int i = 0; i < TUNE_SYSTEMS; i++)
        times->plan += job_plans(t, (enum tune_system)i) ? passes[i] * evaluation_s(j) : 0;
}

void job_keep_profile(struct job *j, const struct job *was)
{
    j->profile_tokens = was->profile_tokens;
    j->importance_tokens = was->importance_tokens;
    j->importance_experts = was->importance_experts;
    j->group = was->group;
    j->groups = was->groups;
    j->profile_id = was->profile_id;
}

static bool take(const json_t *object, const struct field *f, struct job *j)
{
    const json_t *value = json_object_get(object, f->name);
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= f->min && number <= f->max) ||
        (f->whole && floor(number) != number))
        return false;
    memcpy((char *)j + f->offset, &number, sizeof number);
    return true;
}

static bool take_all(const json_t *object, const struct tune *t, struct job *j)
{
    const char *cpu = json_string_value(json_object_get(object, "cpu"));
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (!take(object, &fields[i], j))
            return false;
    if (!cpu || strlen(cpu) >= sizeof j->machine.cpu)
        return false;
    strcpy(j->machine.cpu, cpu);
    /* whole windows, as job_choose makes them */
    return fmod(j->profile_tokens, (double)t->window) == 0 &&
           fmod(j->plan_tokens, (double)t->window) == 0;
}

enum job_state job_read(struct tune *t)
{
    struct error why;
    if (access(t->job_path, F_OK) != 0)
        return JOB_NONE;
    json_t *object = json_file(t->job_path, JOB_BYTES, &why);
    bool good = object && take_all(object, t, &t->job);
    json_decref(object);
    if (good)
        return JOB_GOOD;
    memset(&t->job, 0, sizeof t->job);
    return JOB_DAMAGED;
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
    json_object_set_new(object, "cpu", json_string(t->job.machine.cpu));
    snprintf(temporary, sizeof temporary, "%s" TEMPORARY, t->job_path);
    int status = json_dump_file(object, temporary, JSON_INDENT(1));
    json_decref(object);
    int why = status == 0 ? file_replace(temporary, t->job_path, true) : EIO;
    if (why == 0)
        return 0;
    unlink(temporary);
    return error_set_errno(error, ERR_IO, why, "cannot write %.200s", t->job_path);
}
