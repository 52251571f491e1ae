/* SPDX-License-Identifier: Apache-2.0 */
/* The preset auto: which candidate runs (lib/policy/presets/auto.h), by the plan's predictions for
 * the available capacity and the measured bandwidth. It requests a preset as a client would: the
 * choice takes effect with the next sequence, and all processes read it from the access log.
 *
 * The device's read bandwidth comes from the loaders: bytes per time with a read in flight (with a
 * throttle: its rate), from the loading of the dense weights on, measured again after a change of
 * the throttle.
 *
 * Time per token is compute's, of the preset that ran. After the best candidate is measured, the
 * second best runs for the same time if it is predicted to be about as fast; then the measured
 * times decide.
 *
 * In deterministic mode the choice depends on the plan and the throttles only. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/policy/presets/auto.h"
#include "lib/policy/presets/loss.h"
#include "procs/engine/supervisor/auto.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

#define SAMPLE_BYTES (8 * MIB) /* bytes of reads that give a bandwidth */
#define RATE_UNKNOWN 1e9       /* before the first measurement, and without a plan */
#define CHANGED      0.2       /* change of capacity or bandwidth that invalidates measurements */

static const char *name_of(uint32_t candidate)
{
    return preset_at(auto_preset(candidate))->name;
}

/* ---- measurements --------------------------------------------------------------------------- */

uint64_t auto_throttle(struct supervisor *s, uint32_t loader)
{
    return s->directory.head ? atomic_load(&s->directory.head->throttle_bytes_per_s[loader])
                             : storage_params(s, loader)->throttle;
}

/* Read bandwidth of a loader, at most the throttle. */
static double rate_of(struct supervisor *s, uint32_t loader)
{
    const struct loader_seen *l = &s->automatic.loader[loader];
    double rate = l->rate;
    uint64_t throttle = auto_throttle(s, loader);
    if (!(rate > 0))
        rate = s->plan && plan_knows(s->plan, PLAN_drive_bytes_per_s)
                   ? s->plan->scalar[PLAN_drive_bytes_per_s] / (double)s->params.loaders
                   : RATE_UNKNOWN;
    return throttle && (double)throttle < rate ? (double)throttle : rate;
}

static double rate_now(struct supervisor *s)
{
    double rate = 0;
    for (uint32_t i = 0; i < s->params.loaders; i++)
        rate += rate_of(s, i);
    return rate;
}

static void sample_loaders(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->params.loaders; i++) {
        const struct process *process = child_of(s, SERVICE_LOADER, i)->process;
        struct loader_seen *l = &s->automatic.loader[i];
        uint64_t bytes = counter_get(process, CTR_LOADER_bytes_read);
        uint64_t busy = counter_get(process, CTR_LOADER_busy_ns);
        if (bytes < l->bytes || busy < l->busy_ns) /* a successor counts from 0 */
            l->bytes = l->busy_ns = 0;
        uint64_t throttle = auto_throttle(s, i);
        if (throttle != l->throttle) /* reads under the other throttle do not count */
            *l = (struct loader_seen){.bytes = bytes, .busy_ns = busy, .throttle = throttle};
        if (busy <= l->busy_ns || (l->rate > 0 && bytes - l->bytes < SAMPLE_BYTES))
            continue;
        double rate = (double)(bytes - l->bytes) * 1e9 / (double)(busy - l->busy_ns);
        l->rate = l->rate > 0 ? (l->rate + rate) / 2 : rate;
        l->bytes = bytes;
        l->busy_ns = busy;
    }
}

/* Decoded tokens since the last sample count for the current preset. */
static void sample_tokens(struct supervisor *s)
{
    struct automatic *a = &s->automatic;
    const struct process *process = child_of(s, SERVICE_COMPUTE, 0)->process;
    uint64_t tokens = counter_get(process, CTR_COMPUTE_tokens_decode);
    uint64_t ns = counter_get(process, CTR_COMPUTE_decode_ns);
    uint32_t c = auto_candidate(atomic_load(&s->procs->preset_active));
    if (c != UINT32_MAX && tokens > a->tokens_seen && ns >= a->decode_ns_seen) {
        a->tokens_of[c] += tokens - a->tokens_seen;
        a->ns_of[c] += (double)(ns - a->decode_ns_seen);
    }
    a->tokens_seen = tokens;
    a->decode_ns_seen = ns;
}

static void reset_tokens(struct automatic *a)
{
    memset(a->tokens_of, 0, sizeof a->tokens_of);
    memset(a->ns_of, 0, sizeof a->ns_of);
}

static bool differs(double a, double b)
{
    return fabs(a - b) > CHANGED * b;
}

/* ---- choosing ------------------------------------------------------------------------------- */

static uint64_t usable(struct supervisor *s, double share)
{
    uint64_t bits = 0;
    for (uint32_t c = 0; c < auto_candidates(); c++) {
        struct knobs knobs;
        struct error error;
        if (model_check_preset(s, auto_preset(c), share, &knobs, &error) == 0 &&
            (!knobs_lossy(&knobs) || s->params.max_loss > 0) &&
            preset_low_present(&knobs, s->plan, s->model))
            bits |= UINT64_C(1) << c;
    }
    return bits;
}

json_t *auto_candidates_json(struct supervisor *s, double share)
{
    json_t *all = json_array();
    for (uint32_t c = 0; c < auto_candidates(); c++) {
        struct knobs knobs;
        struct error why;
        json_t *one = json_pack("{s:s, s:b}", "preset", name_of(c), "lossless", auto_lossless(c));
        if (!auto_lossless(c) && !(s->params.max_loss > 0))
            json_object_set_new(one, "why", json_string("--max-loss allows no loss"));
        else if (model_check_preset(s, auto_preset(c), share, &knobs, &why) != 0)
            json_object_set_new(one, "why", json_string(why.text));
        else if (!preset_low_present(&knobs, s->plan, s->model))
            json_object_set_new(one, "why",
                                json_string("the files lack lower precisions that the "
                                            "plan has, and its times are with them"));
        json_array_append_new(all, one);
    }
    return all;
}

/* "a precision per expert 25.00 to 9.10 ms, ..." */
static void log_parts(const struct automatic *a, const struct plan *plan)
{
    struct auto_part part[AUTO_PARTS_MAX];
    char text[AUTO_PARTS_MAX * 160] = "";
    uint32_t n = auto_parts(plan, a->candidate, a->share, a->bytes_per_s, part);
    for (uint32_t i = 0, used = 0; i < n && used < sizeof text; i++)
        used += (uint32_t)snprintf(text + used, sizeof text - used, "%s%s %.2f to %.2f ms",
                                   i ? ", " : "", part[i].text, part[i].without_ns / 1e6,
                                   part[i].ns / 1e6);
    if (n > 0)
        log_info("auto: expected of each part: %s", text);
}

static json_t *parts_json(const struct automatic *a, const struct plan *plan)
{
    struct auto_part part[AUTO_PARTS_MAX];
    uint32_t n = auto_parts(plan, a->candidate, a->share, a->bytes_per_s, part);
    json_t *parts = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(parts, json_pack("{s:s, s:f, s:f}", "part", part[i].text,
                                               "ms_per_token", part[i].ns / 1e6,
                                               "ms_per_token_without", part[i].without_ns / 1e6));
    return parts;
}

static void log_choice(const struct supervisor *s, const struct auto_choice *choice)
{
    char rate[16], second[64] = "";
    const struct automatic *a = &s->automatic;
    if (!choice->predicted) {
        log_info("auto: %s, as there is no plan with predictions (`sluice plan --preset auto`)",
                 name_of(choice->candidate));
        return;
    }
    if (choice->second != UINT32_MAX)
        snprintf(second, sizeof second, "; then %s, %.2f ms", name_of(choice->second),
                 choice->second_ns / 1e6);
    log_info("auto: %s, %.2f ms per token with capacity for %.1f %% of the experts at %s/s%s",
             name_of(choice->candidate), choice->ns / 1e6, 100 * a->share,
             bytes_format((uint64_t)a->bytes_per_s, rate), second);
    log_parts(a, s->plan);
}

static bool throttles_differ(struct supervisor *s)
{
    bool differ = false;
    for (uint32_t i = 0; i < s->params.loaders; i++) {
        uint64_t throttle = auto_throttle(s, i), *seen = &s->automatic.usable_throttle[i];
        differ = differ || throttle != *seen;
        *seen = throttle;
    }
    return differ;
}

/* A measured loss holds from some share of resident experts on, and for some throttles: what was
 * found at the start is found again when one of them changes. */
static void find_usable(struct supervisor *s, double share)
{
    struct automatic *a = &s->automatic;
    if (!throttles_differ(s) && share == a->usable_share)
        return;
    a->usable_share = share;
    a->usable = usable(s, share);
}

/* True when the choice has changed. */
static bool choose(struct supervisor *s)
{
    struct automatic *a = &s->automatic;
    double measured[PLAN_AUTO_CANDIDATES], share = budget_share_now(s), rate = rate_now(s);
    if (differs(share, a->share) || differs(rate, a->bytes_per_s))
        reset_tokens(a);
    find_usable(s, share);
    a->share = share;
    a->bytes_per_s = rate;
    for (uint32_t c = 0; c < PLAN_AUTO_CANDIDATES; c++)
        measured[c] = a->tokens_of[c] >= AUTO_TRIAL_TOKENS ? a->ns_of[c] / (double)a->tokens_of[c]
                                                           : (double)NAN;
    const struct auto_view view = {.plan = s->plan,
                                   .usable = a->usable,
                                   .share = share,
                                   .bytes_per_s = rate,
                                   .max_loss = s->params.max_loss / 100,
                                   .measured_ns = measured,
                                   .running = a->candidate};
    struct auto_choice choice = auto_choose(&view);
    bool changed = choice.candidate != a->candidate;
    a->candidate = choice.candidate;
    a->ns = choice.ns;
    a->predicted = choice.predicted;
    if (changed)
        log_choice(s, &choice);
    return changed;
}

/* Times for other hardware still have an order; measured ones correct them. */
static void compare_gpu(const struct supervisor *s)
{
    if (!s->plan || !plan_auto_ns(s->plan))
        return;
    bool planned = plan_knows(s->plan, PLAN_auto_gpu_slots);
    if (planned && s->gpus.count == 0)
        log_warn("auto: the times of the plan are for a GPU: plan again without --gpu-slots");
    else if (!planned && s->gpus.count > 0)
        log_warn("auto: the times of the plan are for the CPU: plan again with --gpu-slots");
}

void auto_start(struct supervisor *s)
{
    struct automatic *a = &s->automatic;
    *a = (struct automatic){.candidate = UINT32_MAX, .usable_share = -1};
    a->on = strcmp(preset_at(s->preset)->name, "auto") == 0;
    if (!a->on)
        return;
    if (s->params.max_loss > 0 && !(s->plan && plan_auto_ns(s->plan)))
        log_info("auto: --max-loss %g%% ignored: no plan with predictions (run 'sluice plan "
                 "--preset auto'); using a lossless preset",
                 s->params.max_loss);
    compare_gpu(s);
    choose(s);
    s->preset = auto_preset(a->candidate);
}

bool auto_follows(const struct supervisor *s)
{
    return s->automatic.on && !s->params.deterministic;
}

void auto_poll(struct supervisor *s)
{
    struct automatic *a = &s->automatic;
    if (!auto_follows(s))
        return;
    sample_loaders(s);
    sample_tokens(s);
    if (choose(s))
        atomic_store(&s->procs->preset_requested, auto_preset(a->candidate));
}

uint32_t auto_requested(struct supervisor *s, uint32_t preset)
{
    struct automatic *a = &s->automatic;
    a->on = strcmp(preset_at(preset)->name, "auto") == 0;
    if (!a->on)
        return preset;
    a->candidate = UINT32_MAX;
    choose(s);
    return auto_preset(a->candidate);
}

/* What runs and why, in a line for people. */
static json_t *auto_text(const struct automatic *a)
{
    char seen[48] = "";
    double tokens = (double)a->tokens_of[a->candidate];
    if (tokens >= AUTO_TRIAL_TOKENS)
        snprintf(seen, sizeof seen, ", %.2f measured", a->ns_of[a->candidate] / tokens / 1e6);
    if (!a->predicted)
        return json_sprintf("%s, as no plan predicts others%s", name_of(a->candidate), seen);
    return json_sprintf("%s, expected to be the fastest: %.2f ms per token%s",
                        name_of(a->candidate), a->ns / 1e6, seen);
}

json_t *auto_stats(const struct supervisor *s)
{
    const struct automatic *a = &s->automatic;
    if (!a->on)
        return NULL;
    json_t *measured = json_object();
    for (uint32_t c = 0; c < auto_candidates(); c++)
        if (a->tokens_of[c] > 0)
            json_object_set_new(measured, name_of(c),
                                json_pack("{s:I, s:f}", "tokens", (json_int_t)a->tokens_of[c],
                                          "ms_per_token",
                                          a->ns_of[c] / (double)a->tokens_of[c] / 1e6));
    json_t *object =
        json_pack("{s:s, s:o, s:b, s:f, s:I, s:f, s:o}", "chosen", name_of(a->candidate), "text",
                  auto_text(a), "by_plan", a->predicted, "share", a->share, "bytes_per_s",
                  (json_int_t)a->bytes_per_s, "max_loss", s->params.max_loss, "measured", measured);
    if (a->predicted) {
        json_object_set_new(object, "expected_ms_per_token", json_real(a->ns / 1e6));
        json_object_set_new(object, "parts", parts_json(a, s->plan));
    }
    return object;
}
