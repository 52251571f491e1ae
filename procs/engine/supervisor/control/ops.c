/* SPDX-License-Identifier: Apache-2.0 */
/* Control operations: one row per operation. Every operation can arrive twice (a client repeats
 * calls without a reply): setting a value again or stopping again is harmless; a repeated restart
 * restarts once more and loses nothing. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/auto.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/control/control.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

#define RESTART_NS  (30 * NS_PER_S)
#define THROTTLE_NS (3 * NS_PER_S)

/* Replies and returns 0, or returns -1 and the caller replies with the error. */
typedef int (*op_fn)(struct supervisor *s, struct rpc_request *request, struct error *error);

static int busy(struct error *error)
{
    return error_set(error, ERR_BUSY, "%d control requests are pending already; retry later",
                     PENDING_REQUESTS_MAX);
}

static int take_u64(const struct rpc_request *request, const char *key, uint64_t *value,
                    struct error *error)
{
    const json_t *field = json_object_get(request->body, key);
    if (json_is_integer(field) && json_integer_value(field) >= 0) {
        *value = (uint64_t)json_integer_value(field);
        return 0;
    }
    if (json_is_string(field) && bytes_parse(json_string_value(field), value))
        return 0;
    return error_set(error, ERR_BAD_INPUT, "%s: '%s' must be a whole number", request->op, key);
}

static const char *take_text(const struct rpc_request *request, const char *key,
                             struct error *error)
{
    const char *text = json_string_value(json_object_get(request->body, key));
    if (!text)
        error_set(error, ERR_BAD_INPUT, "%s: '%s' must be a string", request->op, key);
    return text;
}

/* A loader by number or by name. */
static struct child_record *take_loader(struct supervisor *s, const struct rpc_request *request,
                                        struct error *error)
{
    const json_t *field = json_object_get(request->body, "loader");
    struct child_record *c = NULL;
    if (json_is_integer(field) && json_integer_value(field) >= 0 &&
        json_integer_value(field) < SERVICE_LOADERS_MAX)
        c = child_of(s, SERVICE_LOADER, (uint32_t)json_integer_value(field));
    else if (json_is_string(field))
        c = child_by_name(s, json_string_value(field));
    if (c && c->service == SERVICE_LOADER)
        return c;
    error_set(error, ERR_NOT_FOUND, "no such loader; the engine has %" PRIu64 ", from 0",
              s->params.loaders);
    return NULL;
}

static int op_status(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    (void)error;
    rpc_reply(s->control, request, stats_status(s));
    return 0;
}

static int op_stats(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    (void)error;
    rpc_reply(s->control, request, stats_snapshot(s));
    return 0;
}

/* What the gateway needs to render conversations; apart from stats, because it is long. */
static int op_chat(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    (void)error;
    rpc_reply(s->control, request, stats_chat(s));
    return 0;
}

static int op_map(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    json_t *map = map_snapshot(s, error);
    if (!map)
        return -1;
    rpc_reply(s->control, request, map);
    return 0;
}

static int op_budget(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    uint64_t bytes;
    if (take_u64(request, "bytes", &bytes, error) != 0)
        return -1;
    if (!s->announced)
        return error_set(error, ERR_BUSY, "the engine is starting; retry when it is ready");
    uint64_t timeout = budget_timeout_ns(s, bytes);
    int rc = budget_change(s, bytes, error);
    if (rc < 0)
        return -1;
    auto_poll(s); /* before a sequence starts with what the budget rules out */
    if (rc == 0) {
        rpc_reply(s->control, request, stats_memory(s));
        return 0;
    }
    struct pending_request *k =
        control_add_pending(s, request, PENDING_BUDGET, clock_now_ns() + timeout);
    if (!k)
        return busy(error);
    k->value = bytes;
    return 0;
}

static int op_throttle(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    uint64_t rate;
    struct child_record *c = take_loader(s, request, error);
    const char *key =
        json_object_get(request->body, "bytes_per_s") ? "bytes_per_s" : "bytes_per_second";
    if (!c || take_u64(request, key, &rate, error) != 0)
        return -1;
    _Atomic uint64_t *word = &s->directory.head->throttle_bytes_per_s[c->number];
    if (model_check_throttle(s, c->number, rate, error) != 0) /* a loss may depend on it */
        return -1;
    struct pending_request *k =
        control_add_pending(s, request, PENDING_THROTTLE, clock_now_ns() + THROTTLE_NS);
    if (!k)
        return busy(error);
    k->child = c;
    atomic_store(word, rate); /* last: the loader takes it at once */
    auto_poll(s);
    control_set(s, c, CONTROL_THROTTLE, rate, ++s->next_epoch);
    return 0;
}

static int restart(struct supervisor *s, struct rpc_request *request, struct child_record *c,
                   struct error *error)
{
    if (s->phase == PHASE_STOP)
        return error_set(error, ERR_CANCELLED, "the engine stops");
    struct pending_request *k =
        control_add_pending(s, request, PENDING_RESTART, clock_now_ns() + RESTART_NS);
    if (!k)
        return busy(error);
    k->child = c;
    k->value = atomic_load(&c->process->incarnation) + 1;
    c->exit_requested = true;
    if (child_state(c) == PROC_FAILED) /* no exit record will follow */
        c->cause = EXIT_CAUSE_REQUESTED;
    tally_clear(&c->tally);
    children_event(s, c, EVENT_RESTART);
    return 0;
}

static int op_restart(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    const char *word = take_text(request, "process", error);
    if (!word)
        return -1;
    struct child_record *c = child_by_name(s, word);
    if (!c)
        return error_set(error, ERR_NOT_FOUND,
                         "unknown process '%.40s'; expected one of: cache, loader.N, predictor, "
                         "compute, gateway",
                         word);
    return restart(s, request, c, error);
}

/* Without a backend argument: the current one. Its devices are checked again in any case. */
static int op_replace(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    struct child_record *c = take_loader(s, request, error);
    if (!c)
        return -1;
    bool named = json_object_get(request->body, "backend") != NULL;
    const char *backend = named ? take_text(request, "backend", error) : NULL;
    if (named && !backend)
        return -1;
    s->storage = s->params; /* the choices are those of the parameter table */
    if (backend && params_set(&s->storage, "backend", backend, error) != 0)
        return -1;
    c->clear_quarantine = true; /* first: a loader that waits to be spawned is spawned at once */
    if (restart(s, request, c, error) != 0) {
        c->clear_quarantine = false;
        return -1;
    }
    if (backend)
        memcpy(c->backend, s->storage.backend, sizeof c->backend);
    return 0;
}

static int op_drain(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    (void)error;
    uint32_t accepts = DRAINING_NO; /* an engine that stops keeps that reason */
    atomic_compare_exchange_strong(&s->directory.head->draining, &accepts, DRAINING_DRAIN);
    control_set(s, child_of(s, SERVICE_COMPUTE, 0), CONTROL_DRAIN, 1, ++s->next_epoch);
    rpc_reply(s->control, request, stats_status(s));
    return 0;
}

/* From the next sequence on. */
static int op_preset(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    const char *name = take_text(request, "preset", error);
    struct knobs knobs;
    if (!name)
        return -1;
    uint32_t preset = preset_find(name);
    if (preset == POLICY_NONE)
        return error_set(error, ERR_NOT_FOUND, "unknown preset '%.40s'; expected one of %s", name,
                         preset_names());
    if (model_check_preset(s, preset, budget_share_now(s), &knobs, error) != 0)
        return -1;
    atomic_store(&s->procs->preset_requested, auto_requested(s, preset));
    char text[1024];
    rpc_reply(s->control, request,
              json_pack("{s:s, s:b, s:s}", "preset", preset_at(preset)->name, "lossy",
                        knobs_lossy(&knobs), "policy", knobs_text(&knobs, text, sizeof text)));
    return 0;
}

/* The supervisor at once, the others at their next tick. */
static int op_log_level(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    const char *name = take_text(request, "level", error);
    enum log_level level;
    if (!name)
        return -1;
    if (!log_level_parse(name, &level))
        return error_set(
            error, ERR_BAD_INPUT,
            "unknown log level '%.40s'; expected one of: debug, info, warn, error, none", name);
    atomic_store_explicit(&s->procs->log_level, (uint32_t)level + 1, memory_order_relaxed);
    log_set_level(level);
    rpc_reply(s->control, request, json_pack("{s:s}", "log_level", log_level_name(level)));
    return 0;
}

static int op_stop(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    (void)error;
    rpc_reply(s->control, request, NULL);
    loop_stop(s, 0, "stop requested");
    return 0;
}

static const char *const injections[] = {
#define X(name, process, where) #name,
    INJECTIONS(X)
#undef X
};

static int op_inject(struct supervisor *s, struct rpc_request *request, struct error *error)
{
    if (!s->test)
        return error_set(error, ERR_BAD_INPUT,
                         "inject is for tests: start the engine with SLUICE_TEST=1");
    const char *point = take_text(request, "point", error);
    if (!point)
        return -1;
    uint64_t passes = 0;
    if (json_object_get(request->body, "arg") && take_u64(request, "arg", &passes, error) != 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(injections); i++) {
        if (strcasecmp(injections[i], point) != 0)
            continue;
        atomic_store(&s->procs->injection_arg, (uint32_t)passes);
        atomic_store(&s->procs->injection, (uint32_t)i);
        rpc_reply(s->control, request, NULL);
        return 0;
    }
    return error_set(error, ERR_NOT_FOUND, "unknown injection point '%.40s'", point);
}

static const struct {
    const char *op;
    op_fn handle;
} ops[] = {
    {"status", op_status},   {"stats", op_stats},     {"map", op_map},
    {"chat", op_chat},       {"budget", op_budget},   {"throttle", op_throttle},
    {"restart", op_restart}, {"replace", op_replace}, {"preset", op_preset},
    {"drain", op_drain},     {"stop", op_stop},       {"loglevel", op_log_level},
    {"inject", op_inject},
};

void control_handle(struct supervisor *s, struct rpc_request *request)
{
    struct error error;
    int rc = -1;
    bool known = false;
    for (size_t i = 0; i < ARRAY_LEN(ops) && !known; i++) {
        known = strcmp(ops[i].op, request->op) == 0;
        if (known)
            rc = ops[i].handle(s, request, &error);
    }
    if (!known)
        error_set(&error, ERR_BAD_INPUT,
                  "unknown operation '%.40s'; expected one of: status, stats, map, chat, budget, "
                  "throttle, restart, replace, preset, drain, loglevel, stop",
                  request->op);
    if (rc != 0) {
        counter_add(s->process, CTR_SUPERVISOR_requests_rejected, 1);
        rpc_reply_error(s->control, request, &error);
    }
}
