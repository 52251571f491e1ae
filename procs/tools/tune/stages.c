/* SPDX-License-Identifier: Apache-2.0 */
/* Has the functions that all stages share, and the stage of the profile. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/plan/plan.h"
#include "procs/tools/tune/tune.h"

void arguments_add(struct arguments *a, const char *option, const char *value)
{
    a->at[a->count++] = option;
    a->at[a->count++] = value;
}

void arguments_add_number(struct arguments *a, const char *option, double value)
{
    char *text = a->value[a->values++];
    snprintf(text, sizeof a->value[0], "%.15g", value);
    arguments_add(a, option, text);
}

void arguments_add_texts(struct arguments *a, const struct tune *t)
{
    for (size_t i = 0; i < t->texts; i++)
        arguments_add(a, "--text", t->text[i]);
    arguments_add_number(a, "--ctx-size", (double)t->window);
}

void stage_begin(struct tune *t, int number, const char *what, double *seconds)
{
    double all = t->left.profile + t->left.plan + t->left.pack + t->left.confirm;
    fprintf(stderr, "sluice tune: step %d of 4: %s, about %.1f minutes; %.1f until the end\n",
            number, what, *seconds / 60, all / 60);
    *seconds = 0;
}

int stage_run(struct tune *t, const char *name, const char *const argv[], bool silent, int allowed,
              struct error *error)
{
    int status = 0;
    char *out = NULL;
    if (model_unchanged(t, error) != 0 ||
        run_program(t, name, argv, silent ? &out : NULL, &status, error) != 0)
        return -1;
    free(out);
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

void forget_damaged(const char *what, const char *path)
{
    struct error why;
    struct plan *plan = access(path, F_OK) == 0 ? plan_read(path, &why) : NULL;
    if (!plan && access(path, F_OK) == 0 && why.code == ERR_BAD_INPUT) {
        fprintf(stderr, "sluice tune: the %s of an earlier run is damaged, and made again\n", what);
        forget(path);
    }
    free(plan);
}

double seconds_left(const struct tune *t)
{
    return (double)t->minutes * 60 - (double)(clock_now_ns() - t->started_ns) / NS_PER_S;
}

/* Experts that the profile measured alone. -1 with *error. */
static int measured_alone(const struct tune *t, double *count, struct error *error)
{
    struct plan *profile = plan_read(t->profile, error);
    if (!profile)
        return -1;
    *count = 0;
    for (uint64_t i = 0; i < (uint64_t)profile->layers * profile->experts; i++)
        *count += plan_has(profile, PLAN_ARRAY_importance_measured) &&
                  plan_importance_measured(profile)[i];
    free(profile);
    return 0;
}

/* A profile that was made at once shows how long measurements really take. */
static int replan(struct tune *t, uint64_t begun_ns, struct error *error)
{
    double took = (double)(clock_now_ns() - begun_ns) / NS_PER_S;
    double alone;
    if (access(t->plan, F_OK) == 0)
        return 0;
    if (measured_alone(t, &alone, error) != 0)
        return -1;
    if (!job_replan(t, alone, took, seconds_left(t)))
        return 0;
    job_times(t, &t->left);
    t->left.forms = t->left.profile = 0;
    fprintf(stderr, "sluice tune: the profile took %.1f minutes: %.0f tokens for the plan\n",
            took / 60, t->job.plan_tokens);
    return job_write(t, error);
}

int stage_profile(struct tune *t, struct error *error)
{
    struct arguments a = {.count = 0};
    uint64_t begun_ns = clock_now_ns();
    stage_begin(t, 1, "profile", &t->left.profile);
    forget_damaged("profile", t->profile);
    arguments_add(&a, "-m", t->measured);
    arguments_add_texts(&a, t);
    arguments_add(&a, "-o", t->profile);
    arguments_add_number(&a, "--memory", (double)memory_of_child(t));
    arguments_add_number(&a, "--tokens", t->job.profile_tokens);
    arguments_add_number(&a, "--importance-tokens", t->job.importance_tokens);
    arguments_add_number(&a, "--importance-group", t->job.group);
    arguments_add_number(&a, "--importance-experts", t->job.importance_experts);
    arguments_add_number(&a, "--importance-seconds", ceil(job_importance_s(t)));
    bool continued = access(t->profile, F_OK) == 0;
    if (stage_run(t, "profile", a.at, false, 0, error) != 0)
        return -1;
    return continued ? 0 : replan(t, begun_ns, error);
}
