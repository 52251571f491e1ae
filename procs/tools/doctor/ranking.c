/* SPDX-License-Identifier: Apache-2.0 */
/* Section "auto": the ranking that the preset auto uses (lib/policy/presets/auto.h). Which
 * candidates can run here is the supervisor's answer (`sluice-run --print-memory`); predictions and
 * losses are the plan's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "lib/plan/plan.h"
#include "lib/policy/presets/auto.h"
#include "lib/policy/presets/presets.h"
#include "procs/tools/doctor/doctor.h"

struct ranking {
    struct auto_view view;
    const json_t *candidates;             /* of the memory estimate */
    uint32_t order[PLAN_AUTO_CANDIDATES]; /* usable and predicted, fastest first */
    uint32_t count;
};

static const char *name_of(uint32_t candidate)
{
    return preset_at(auto_preset(candidate))->name;
}

/* NULL: it can run here. The supervisor is another program, so that its list is looked up by name:
 * one that is not in it cannot run. */
static const char *why_not(const struct ranking *r, uint32_t candidate)
{
    size_t i;
    const json_t *row;
    json_array_foreach(r->candidates, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "preset"));
        if (name && strcmp(name, name_of(candidate)) == 0)
            return json_string_value(json_object_get(row, "why"));
    }
    return "the engine does not know it";
}

static double predicted_ns(const struct ranking *r, uint32_t candidate)
{
    return auto_predicted_ns(r->view.plan, candidate, r->view.share, r->view.bytes_per_s);
}

static void rank(struct ranking *r)
{
    for (uint32_t c = 0; c < auto_candidates(); c++) {
        if (why_not(r, c))
            continue;
        r->view.usable |= UINT64_C(1) << c;
        double ns = predicted_ns(r, c);
        if (isnan(ns) || !auto_allowed(r->view.plan, c, r->view.max_loss))
            continue;
        uint32_t at = r->count++;
        for (; at > 0 && predicted_ns(r, r->order[at - 1]) > ns; at--)
            r->order[at] = r->order[at - 1];
        r->order[at] = c;
    }
}

static json_t *loss_json(double loss)
{
    return isnan(loss) ? json_null() : json_real(loss);
}

static void report_one(struct findings *f, const struct ranking *r, uint32_t candidate, bool chosen,
                       json_t *rows)
{
    char speed[32], loss[48] = "lossless";
    double ns = predicted_ns(r, candidate), lost = auto_loss(r->view.plan, candidate);
    if (!auto_lossless(candidate))
        snprintf(loss, sizeof loss, "perplexity up to +%.3g %%", 100 * lost);
    snprintf(speed, sizeof speed, "%.1f tokens/s", 1e9 / ns);
    finding(f, "auto", name_of(candidate), json_real(1e9 / ns), speed, "%s%s", loss,
            chosen ? "; chosen" : "");
    json_array_append_new(rows, json_pack("{s:s, s:f, s:o, s:b}", "preset", name_of(candidate),
                                          "decode_tps", 1e9 / ns, "loss", loss_json(lost), "chosen",
                                          chosen));
}

/* Lossy candidates that the plan predicts, and why they do not run. Without --max-loss nothing
 * lossy is expected. */
static void report_rejected(struct findings *f, const struct ranking *r, json_t *rejected)
{
    for (uint32_t c = 0; c < auto_candidates(); c++) {
        const char *why = why_not(r, c);
        if (!why && !auto_allowed(r->view.plan, c, r->view.max_loss))
            why = "its loss is not in the plan, or above --max-loss";
        if (!why)
            continue;
        json_array_append_new(rejected, json_pack("{s:s, s:s}", "preset", name_of(c), "why", why));
        if (r->view.max_loss > 0 && !isnan(predicted_ns(r, c)))
            finding(f, "auto", name_of(c), json_null(), "not used", "%s", why);
    }
}

/* The loaders' bandwidth as the supervisor will see it: measured, at most the throttle; before a
 * measurement that of the profile. */
static double bandwidth(const struct model_facts *m, const struct host_facts *a,
                        const struct params *params, const struct plan *plan, double share)
{
    double expert = m->expert_count ? (double)(m->expert_bytes / m->expert_count) : 0;
    double missing = (double)m->experts_used * (1 - share) / 2; /* experts of a layer, about */
    double rate = estimate_read_rate(a, expert * (missing > 1 ? missing : 1));
    double throttle = (double)params->throttle;
    if (!(rate > 0) && plan_knows(plan, PLAN_drive_bytes_per_s))
        rate = plan->scalar[PLAN_drive_bytes_per_s];
    throttle *= params->loaders > 0 ? (double)params->loaders : 1;
    return throttle > 0 && !(rate < throttle) ? throttle : rate;
}

static void report(struct findings *f, struct ranking *r, uint64_t budget)
{
    char rate[16], size[16];
    rank(r);
    struct auto_choice choice = auto_choose(&r->view);
    json_t *rows = json_array(), *rejected = json_array();
    bytes_format((uint64_t)r->view.bytes_per_s, rate);
    finding(f, "auto", "chosen", json_string(name_of(choice.candidate)), NULL,
            "--preset auto with %s: capacity for %.1f %% of the experts; reads at %s/s%s",
            bytes_format(budget, size), 100 * r->view.share, rate,
            choice.predicted ? "" : "; the plan has no predictions");
    for (uint32_t i = 0; i < r->count; i++)
        report_one(f, r, r->order[i], r->order[i] == choice.candidate, rows);
    report_rejected(f, r, rejected);
    finding_quiet(f, "auto", "ranking", rows);
    finding_quiet(f, "auto", "rejected", rejected);
    finding_quiet(f, "auto", "share", json_real(r->view.share));
    finding_quiet(f, "auto", "bytes_per_s", json_real(r->view.bytes_per_s));
}

void ranking_report(struct findings *f, const struct model_facts *m, const struct host_facts *a,
                    const struct params *params, const json_t *memory_estimate)
{
    struct error error;
    const json_t *choices = json_object_get(memory_estimate, "auto");
    struct plan *plan = params->plan[0] ? plan_read(params->plan, &error) : NULL;
    if (!plan && params->plan[0]) /* the supervisor read it a moment ago */
        finding(f, "auto", "plan", json_null(), "unreadable", "%s", error.text);
    else if (!plan && params->max_loss > 0)
        finding(f, "auto", "plan", json_null(), "none",
                "without --plan no loss is known, so that --preset auto stays lossless");
    if (!plan)
        return;
    struct ranking r = {.candidates = json_object_get(choices, "candidates")};
    double share = json_number_value(json_object_get(choices, "share"));
    r.view = (struct auto_view){.plan = plan,
                                .share = share,
                                .bytes_per_s = bandwidth(m, a, params, plan, share),
                                .max_loss = params->max_loss / 100,
                                .running = UINT32_MAX};
    report(f, &r, lookup_u64(memory_estimate, "budget"));
    free(plan);
}
