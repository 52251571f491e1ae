/* SPDX-License-Identifier: Apache-2.0 */
/* Messages about the work of a planner: what it measures at most before it begins, and how far it
 * is. */
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/clock.h"
#include "procs/tools/plan/planning.h"

#define PROGRESS_NS (3 * NS_PER_S)

static bool is_time(struct planning *p)
{
    uint64_t now = clock_now_ns();
    if (now - p->progress_ns < PROGRESS_NS)
        return false;
    p->progress_ns = now;
    return true;
}

void planning_progress(struct planning *p, const char *what, uint64_t done, uint64_t of)
{
    if (is_time(p))
        fprintf(stderr, "sluice plan: %s %" PRIu64 " of %" PRIu64 "\n", what, done, of);
}

/* A quarter of the text takes a quarter of the time, if it was not measured yet. */
static uint64_t expected_ns(const struct planning *p, uint32_t whole, uint32_t some)
{
    uint64_t each = p->some_ns             ? p->some_ns
                    : p->text.windows != 0 ? p->whole_ns * p->some.windows / p->text.windows
                                           : 0;
    return whole * p->whole_ns + some * each;
}

void planning_begin(struct planning *p, const char *name, uint32_t whole, uint32_t some)
{
    char text[OFFLINE_TEXT_BYTES];
    p->stage = (struct planning_stage){
        .name = name, .whole = whole, .some = some, .started_ns = clock_now_ns()};
    if (whole + some == 0)
        return;
    uint64_t ns = expected_ns(p, whole, some);
    fprintf(stderr, "sluice plan: %s: at most %u measurements of %u windows and %u of %u%s%s\n",
            name, whole, p->text.windows, some, p->some.windows, ns ? ", about " : "",
            ns ? offline_duration_text(ns, text) : "");
}

static void steps_done(void *arg, const struct offline_progress *progress)
{
    struct planning *p = arg;
    const struct planning_stage *s = &p->stage;
    char text[OFFLINE_TEXT_BYTES], left[OFFLINE_TEXT_BYTES];
    if (!is_time(p))
        return;
    uint32_t all = s->whole + s->some, done = s->done < all ? s->done : all;
    double each = done ? (double)(clock_now_ns() - s->started_ns) / (done + 1) : 0;
    fprintf(stderr, "sluice plan: %s: measurement %u of at most %u: %s%s%s%s\n", s->name, done + 1,
            all, offline_progress_text(progress, text), done ? "; all of them: at most " : "",
            done ? offline_duration_text((uint64_t)(each * (all - done)), left) : "",
            done ? " left" : "");
}

/* Once per preset: the measurements of one are alike. */
static void announced(void *arg, const struct offline_estimate *estimate)
{
    struct planning *p = arg;
    char text[OFFLINE_TEXT_BYTES];
    if (p->stage.announced)
        return;
    p->stage.announced = true;
    fprintf(stderr, "sluice plan: %s: each of them: %s\n", p->stage.name ? p->stage.name : "text",
            offline_estimate_text(estimate, text));
}

struct offline_evaluation planning_evaluation(struct planning *p, const struct offline_text *text)
{
    return (struct offline_evaluation){.model = p->model,
                                       .text = text,
                                       .threads = (uint32_t)p->threads,
                                       .dense = p->dense,
                                       .kv_type = p->kv_type,
                                       .progress = steps_done,
                                       .announce = announced,
                                       .arg = p};
}
