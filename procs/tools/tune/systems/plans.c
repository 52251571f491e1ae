/* SPDX-License-Identifier: Apache-2.0 */
/* The plan: one file, extended by each system in turn and then by predicted speeds. None of it
 * depends on the budget: of fate, only shares do that its preset does not use. A system that cannot
 * keep the loss leaves a mark, so that it is not tried again. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "procs/tools/tune/tune.h"

#define MARK ".no-"

static const char *const none[TUNE_SYSTEMS] = {
#define TUNE_SYSTEM(id, name, rule, routing, high, low, loss, last, passes, text, none)            \
    [TUNE_##id] = none,
#include "procs/tools/tune/systems.tbl.h"
};

static void mark_path(const struct tune *t, enum tune_system system, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s" MARK "%s", t->plan, system_name(system));
}

static bool is_marked(const struct tune *t, enum tune_system system)
{
    char path[sizeof t->plan + 32];
    mark_path(t, system, path, sizeof path);
    return access(path, F_OK) == 0;
}

static int mark(const struct tune *t, enum tune_system system, struct error *error)
{
    char path[sizeof t->plan + 32];
    mark_path(t, system, path, sizeof path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set_errno(error, ERR_IO, errno, "cannot write %.200s", path);
    close(fd);
    return 0;
}

static struct plan *read_plan(const struct tune *t)
{
    struct error error;
    return access(t->plan, F_OK) == 0 ? plan_read(t->plan, &error) : NULL;
}

static bool has_system(const struct tune *t, const struct plan *plan, enum tune_system system)
{
    return plan && system_planned(plan, system, t->max_loss);
}

/* True: it was planned, was tried, or will not be. */
static bool look_at(struct tune *t, const struct plan *plan, enum tune_system system)
{
    struct system *s = &t->system[system];
    bool has = has_system(t, plan, system);
    const char *why = NULL;
    *s = (struct system){.planned = has};
    if (has)
        s->loss_high = system_loss(plan, system);
    if (has && system_precisions(plan, system) == 0)
        why = "its plan lowers no expert within this loss";
    else if (!has && is_marked(t, system))
        why = none[system];
    else if (!has && (t->no_time[system] || !job_plans(t, system)))
        why = "no time for it within --minutes";
    else if (!has && system_begins_with_edgemoe(system) && !has_system(t, plan, TUNE_EDGEMOE) &&
             is_marked(t, TUNE_EDGEMOE))
        why = "it begins with edgemoe's plan";
    if (why) {
        s->planned = false;
        snprintf(s->why, sizeof s->why, "%s", why);
    }
    return has || why;
}

static bool any_planned(const struct tune *t)
{
    for (int i = 0; i < TUNE_SYSTEMS; i++)
        if (t->system[i].planned)
            return true;
    return false;
}

/* The speeds of all planned systems: a plan that another one was added to has those of the
 * others. */
static bool are_predicted(const struct tune *t, const struct plan *plan)
{
    for (int i = 0; i < TUNE_SYSTEMS; i++)
        if (t->system[i].planned && !system_predicted(plan, (enum tune_system)i))
            return false;
    return true;
}

bool plans_are_done(struct tune *t)
{
    struct plan *plan = read_plan(t);
    bool done = true;
    for (int i = 0; i < TUNE_SYSTEMS; i++)
        done = look_at(t, plan, (enum tune_system)i) && done;
    if (any_planned(t))
        done = done && plan && are_predicted(t, plan);
    if (plan && plan_knows(plan, PLAN_drive_bytes_per_s))
        t->result.read_bytes_per_s = plan->scalar[PLAN_drive_bytes_per_s];
    free(plan);
    return done;
}

/* Extends the profile, or the plan of the systems before. */
static int run_plan(struct tune *t, const char *preset, bool measures, struct error *error)
{
    struct arguments a = {.count = 0};
    arguments_add(&a, "-m", t->measured);
    arguments_add(&a, "--profile", access(t->plan, F_OK) == 0 ? t->plan : t->profile);
    arguments_add_texts(&a, t);
    if (measures)
        arguments_add_number(&a, "--max-loss", t->max_loss);
    arguments_add(&a, "--preset", preset);
    arguments_add_number(&a, "--tokens", t->job.plan_tokens);
    arguments_add_number(&a, "--memory", (double)memory_of_child(t));
    arguments_add(&a, "-o", t->plan);
    return stage_run(t, "plan", a.at, !measures, measures ? error_exit_status(ERR_NO_PLAN) : 0,
                     error);
}

static int plan_system(struct tune *t, enum tune_system system, struct error *error)
{
    int status = run_plan(t, system_name(system), true, error);
    if (status < 0)
        return -1;
    struct plan *plan = read_plan(t);
    bool has = status == 0 && has_system(t, plan, system);
    free(plan);
    return has ? 0 : mark(t, system, error);
}

int stage_plan(struct tune *t, struct error *error)
{
    stage_begin(t, 2, "plan", &t->left.plan);
    forget_damaged("plan", t->plan);
    for (int i = 0; i < TUNE_SYSTEMS; i++) {
        struct plan *plan = read_plan(t);
        bool tried = look_at(t, plan, (enum tune_system)i);
        uint64_t begun_ns = clock_now_ns();
        free(plan);
        if (tried)
            continue;
        if (plan_system(t, (enum tune_system)i, error) != 0)
            return -1;
        double took = (double)(clock_now_ns() - begun_ns) / NS_PER_S;
        for (int next = i + 1; next < TUNE_SYSTEMS; next++)
            t->no_time[next] = !job_has_time(t, (enum tune_system)next, (enum tune_system)i, took,
                                             seconds_left(t));
    }
    if (plans_are_done(t))
        return 0;
    if (run_plan(t, "auto", false, error) != 0)
        return -1;
    if (plans_are_done(t))
        return 0;
    return error_set(error, ERR_FAILED, "the plan %.200s is incomplete", t->plan);
}
