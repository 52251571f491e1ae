/* SPDX-License-Identifier: Apache-2.0 */
/* The control endpoint: JSON from clients. Requests that wait for a condition are stored here and
 * get their reply from a later tick; all others get it at once (ops.c). */
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/control/control.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

#define LAST_REPLIES_MS 20
#define CONTEXTS        32 /* concurrent requests, including long polls */
_Static_assert(PENDING_REQUESTS_MAX < CONTEXTS, "pending requests leave contexts for others");

int control_open(struct supervisor *s, struct error *error)
{
    char path[ENDPOINT_BYTES];
    if (endpoint_path(s->run_dir, ENDPOINT_CONTROL, 0, path, error) != 0)
        return -1;
    s->control = rpc_server_open(path, CONTEXTS, error);
    return s->control ? 0 : -1;
}

void control_serve(struct supervisor *s)
{
    struct rpc_request *request;
    while ((request = rpc_server_take(s->control)) != NULL) {
        counter_add(s->process, CTR_SUPERVISOR_requests, 1);
        control_handle(s, request);
    }
}

struct pending_request *control_add_pending(struct supervisor *s, struct rpc_request *request,
                                            enum pending_kind kind, uint64_t deadline_ns)
{
    for (size_t i = 0; i < PENDING_REQUESTS_MAX; i++) {
        struct pending_request *k = &s->pending[i];
        if (k->kind != PENDING_NONE)
            continue;
        *k = (struct pending_request){.kind = kind, .request = request, .deadline_ns = deadline_ns};
        return k;
    }
    return NULL;
}

/* Whether the condition of a pending request holds; *reply is then its reply. */
static bool condition_met(struct supervisor *s, const struct pending_request *k, json_t **reply)
{
    const struct child_record *c = k->child;
    switch (k->kind) {
    case PENDING_BUDGET:
        if (s->budget.applied != k->value)
            return false;
        *reply = stats_memory(s);
        return true;
    case PENDING_RESTART:
        if (child_state(c) != PROC_READY || atomic_load(&c->process->incarnation) < k->value)
            return false;
        *reply = json_pack("{s:s, s:I}", "process", c->info->name, "incarnation",
                           (json_int_t)atomic_load(&c->process->incarnation));
        return true;
    case PENDING_THROTTLE:
        if (c->controls[CONTROL_THROTTLE].due)
            return false;
        *reply = json_pack("{s:I, s:I}", "loader", (json_int_t)c->number, "bytes_per_second",
                           (json_int_t)c->controls[CONTROL_THROTTLE].value);
        return true;
    case PENDING_NONE: break;
    }
    sl_panic("pending request of kind %d", (int)k->kind);
}

static void timeout_error(struct supervisor *s, const struct pending_request *k,
                          struct error *error)
{
    char a[16], b[16];
    switch (k->kind) {
    case PENDING_BUDGET:
        error_set(error, ERR_TIMEOUT,
                  "budget %s is not in effect yet: the arena uses %s; it continues to shrink",
                  bytes_format(k->value, a),
                  bytes_format(segment_allocated_bytes(s->segments[SEGMENT_ARENA].fd), b));
        return;
    case PENDING_RESTART:
        error_set(error, ERR_TIMEOUT, "%s is %s: %s", k->child->info->name,
                  proc_state_text(child_state(k->child)), k->child->exit_message);
        return;
    case PENDING_THROTTLE:
        error_set(error, ERR_TIMEOUT, "the throttle is set, but loader %" PRIu32 " is %s",
                  k->child->number, proc_state_text(child_state(k->child)));
        return;
    case PENDING_NONE: break;
    }
    sl_panic("pending request of kind %d", (int)k->kind);
}

static void check_pending(struct supervisor *s, struct pending_request *k, uint64_t now_ns)
{
    json_t *reply = NULL;
    struct error error;
    bool replaced = k->kind == PENDING_BUDGET && s->budget.wanted != k->value;
    if (!replaced && condition_met(s, k, &reply)) {
        rpc_reply(s->control, k->request, reply);
    } else if (replaced || s->phase == PHASE_STOP) {
        error_set(&error, ERR_CANCELLED, "%s",
                  replaced ? "a newer budget was requested" : "the engine stops");
        rpc_reply_error(s->control, k->request, &error);
    } else if (now_ns >= k->deadline_ns) {
        timeout_error(s, k, &error);
        rpc_reply_error(s->control, k->request, &error);
    } else {
        return;
    }
    *k = (struct pending_request){.kind = PENDING_NONE};
}

void control_tick(struct supervisor *s, uint64_t now_ns)
{
    rpc_server_tick(s->control, now_ns);
    for (size_t i = 0; i < PENDING_REQUESTS_MAX; i++)
        if (s->pending[i].kind != PENDING_NONE)
            check_pending(s, &s->pending[i], now_ns);
}

/* Replies to all pending requests. NNG's threads send the replies: wait a moment for them. */
void control_finish(struct supervisor *s)
{
    if (!s->control)
        return;
    struct error error;
    error_set(&error, ERR_GONE, "the engine has stopped");
    struct rpc_request *request;
    while ((request = rpc_server_take(s->control)) != NULL)
        rpc_reply_error(s->control, request, &error);
    for (size_t i = 0; i < PENDING_REQUESTS_MAX; i++)
        if (s->pending[i].kind != PENDING_NONE)
            rpc_reply_error(s->control, s->pending[i].request, &error);
    poll(NULL, 0, LAST_REPLIES_MS);
}
