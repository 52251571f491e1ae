/* SPDX-License-Identifier: Apache-2.0 */
/* profile and plan. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/plan/plan.h"
#include "procs/tools/tune/tune.h"

#define ARGS_MAX    (2 * TUNE_TEXTS_MAX + 40)
#define VALUE_BYTES 32

struct arguments {
    const char *at[ARGS_MAX];
    size_t count;
    char value[8][VALUE_BYTES];
    size_t values;
};

static void add(struct arguments *a, const char *option, const char *value)
{
    a->at[a->count++] = option;
    a->at[a->count++] = value;
}

static void add_number(struct arguments *a, const char *option, double value)
{
    char *text = a->value[a->values++];
    snprintf(text, VALUE_BYTES, "%.10g", value);
    add(a, option, text);
}

static void add_texts(struct arguments *a, const struct tune *t)
{
    for (size_t i = 0; i < t->texts; i++)
        add(a, "--text", t->text[i]);
    add_number(a, "--ctx-size", (double)t->window);
}

void stage_begin(struct tune *t, int number, const char *what, double *seconds)
{
    double all = t->left.profile + t->left.plan + t->left.pack + t->left.confirm;
    fprintf(stderr, "sluice tune: step %d of 4: %s, about %.1f minutes; %.1f until the end\n",
            number, what, *seconds / 60, all / 60);
    *seconds = 0;
}

int stage_run(struct tune *t, const char *name, const char *const argv[], int allowed,
              struct error *error)
{
    int status = 0;
    if (model_unchanged(t, error) != 0 || run_program(t, name, argv, NULL, &status, error) != 0)
        return -1;
    if (model_unchanged(t, error) != 0) /* the reason of a failure, too */
        return -1;
    if (status != 0 && status != allowed)
        return error_set(error, status == 2 ? ERR_BAD_INPUT : ERR_FAILED,
                         "%s failed (see its message above); nothing is recorded", name);
    return status;
}

/* PATH, and what belongs to it: PATH.HASH.tables, PATH.measured. */
static void forget(const char *path)
{
    char directory[PATH_MAX + 64];
    snprintf(directory, sizeof directory, "%s", path);
    char *name = strrchr(directory, '/');
    *name++ = 0;
    size_t n = strlen(name);
    DIR *dir = opendir(directory);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (strncmp(e->d_name, name, n) == 0)
            unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        closedir(dir);
}

void profile_forget(const struct tune *t)
{
    char all[PATH_MAX + 64];
    snprintf(all, sizeof all, "%s/profile-%016llx", t->directory, (unsigned long long)t->key);
    forget(all);
}

/* A damaged profile or plan is made again. */
static void forget_damaged(const char *what, const char *path)
{
    struct error why;
    struct plan *plan = access(path, F_OK) == 0 ? plan_read(path, &why) : NULL;
    if (!plan && access(path, F_OK) == 0 && why.code == ERR_BAD_INPUT) {
        fprintf(stderr, "sluice tune: the %s of an earlier run is damaged, and made again\n", what);
        forget(path);
    }
    free(plan);
}

int stage_profile(struct tune *t, struct error *error)
{
    struct arguments a = {.count = 0};
    stage_begin(t, 1, "profile", &t->left.profile);
    forget_damaged("profile", t->profile);
    add(&a, "-m", t->model);
    add_texts(&a, t);
    add(&a, "-o", t->profile);
    add_number(&a, "--memory", (double)t->memory);
    add_number(&a, "--tokens", t->job.profile_tokens);
    add_number(&a, "--importance-tokens", t->job.importance_tokens);
    add_number(&a, "--importance-experts", t->job.importance_experts);
    return stage_run(t, "profile", a.at, 0, error);
}

/* Of a plan that is there: whether it has precisions for this loss. */
bool plan_is_done(struct tune *t)
{
    struct error error;
    struct plan *plan = access(t->plan, F_OK) == 0 ? plan_read(t->plan, &error) : NULL;
    bool done = plan && plan_width(plan) && plan_knows(plan, PLAN_edgemoe_loss_high) &&
                plan->scalar[PLAN_edgemoe_loss_high] * 100 <= t->max_loss;
    if (done)
        t->result.loss_high = fmax(0, plan->scalar[PLAN_edgemoe_loss_high] * 100);
    if (plan && plan_knows(plan, PLAN_drive_bytes_per_s))
        t->result.read_bytes_per_s = plan->scalar[PLAN_drive_bytes_per_s];
    free(plan);
    return done;
}

bool plan_lowers(const struct tune *t)
{
    struct error error;
    struct plan *plan = plan_read(t->plan, &error);
    const uint8_t *width = plan ? plan_width(plan) : NULL;
    size_t cells = width ? (size_t)plan->layers * plan->experts : 0;
    bool lowers = false;
    for (size_t i = 0; i < cells && !lowers; i++)
        lowers = width[i] != PRECISION_NATIVE;
    free(plan);
    return lowers;
}

int stage_plan(struct tune *t, struct error *error)
{
    struct arguments a = {.count = 0};
    stage_begin(t, 2, "plan", &t->left.plan);
    if (plan_is_done(t))
        return 1;
    forget_damaged("plan", t->plan);
    add(&a, "-m", t->model);
    add(&a, "--profile", t->profile);
    add_texts(&a, t);
    add_number(&a, "--max-loss", t->max_loss);
    add(&a, "--preset", "edgemoe");
    add_number(&a, "--tokens", t->job.plan_tokens);
    add_number(&a, "--memory", (double)t->memory);
    add(&a, "-o", t->plan);
    int none = error_exit_status(ERR_NO_PLAN), status = stage_run(t, "plan", a.at, none, error);
    if (status == none)
        return 0;
    if (status != 0)
        return -1;
    return plan_is_done(t) ? 1 : 0;
}
