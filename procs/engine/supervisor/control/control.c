/* The control endpoint: JSON from clients. Requests that wait for something to come true are kept
 * here and answered by a later tick; everything else is answered at once (control_ops.c). */
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

#define LAST_REPLIES_MS 20
#define CONTEXTS        32 /* clients asking at once, long polls included */
_Static_assert(REQUESTS_KEPT < CONTEXTS, "kept requests leave contexts for others");

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
        counter_add(s->row, CTR_SUPERVISOR_requests, 1);
        control_handle(s, request);
    }
}

struct kept *control_keep(struct supervisor *s, struct rpc_request *request, enum kept_kind kind,
                          uint64_t deadline_ns)
{
    for (size_t i = 0; i < REQUESTS_KEPT; i++) {
        struct kept *k = &s->kept[i];
        if (k->kind != KEPT_NONE)
            continue;
        *k = (struct kept){.kind = kind, .request = request, .deadline_ns = deadline_ns};
        return k;
    }
    return NULL;
}

/* Whether what the request waits for has come true; *reply is then its answer. */
static bool come_true(struct supervisor *s, const struct kept *k, json_t **reply)
{
    const struct child_slot *c = k->child;
    switch (k->kind) {
    case KEPT_BUDGET:
        if (s->budget.in_force != k->value)
            return false;
        *reply = stats_memory(s);
        return true;
    case KEPT_RESTART:
        if (child_state(c) != PROC_READY || atomic_load(&c->row->incarnation) < k->value)
            return false;
        *reply = json_pack("{s:s, s:I}", "process", c->info->word, "incarnation",
                           (json_int_t)atomic_load(&c->row->incarnation));
        return true;
    case KEPT_THROTTLE:
        if (c->controls[CONTROL_THROTTLE].due)
            return false;
        *reply = json_pack("{s:I, s:I}", "loader", (json_int_t)c->number, "bytes_per_second",
                           (json_int_t)c->controls[CONTROL_THROTTLE].value);
        return true;
    case KEPT_NONE: break;
    }
    sl_panic("kept request of kind %d", (int)k->kind);
}

static void too_late(struct supervisor *s, const struct kept *k, struct error *error)
{
    char a[16], b[16];
    switch (k->kind) {
    case KEPT_BUDGET:
        error_set(error, ERR_TIMEOUT,
                  "budget %s is not in force yet: the arena holds %s; it goes on shrinking",
                  bytes_format(k->value, a),
                  bytes_format(segment_allocated_bytes(s->segments[SEGMENT_ARENA].fd), b));
        return;
    case KEPT_RESTART:
        error_set(error, ERR_TIMEOUT, "%s is %s: %s", k->child->info->word,
                  proc_state_text(child_state(k->child)), k->child->words);
        return;
    case KEPT_THROTTLE:
        error_set(error, ERR_TIMEOUT, "the throttle is set, but loader %" PRIu32 " is %s",
                  k->child->number, proc_state_text(child_state(k->child)));
        return;
    case KEPT_NONE: break;
    }
    sl_panic("kept request of kind %d", (int)k->kind);
}

static void look(struct supervisor *s, struct kept *k, uint64_t now_ns)
{
    json_t *reply = NULL;
    struct error error;
    bool replaced = k->kind == KEPT_BUDGET && s->budget.wanted != k->value;
    if (!replaced && come_true(s, k, &reply)) {
        rpc_reply(s->control, k->request, reply);
    } else if (replaced || s->phase == PHASE_STOP) {
        error_set(&error, ERR_CANCELLED, "%s",
                  replaced ? "a newer budget was asked for" : "the engine stops");
        rpc_reply_error(s->control, k->request, &error);
    } else if (now_ns >= k->deadline_ns) {
        too_late(s, k, &error);
        rpc_reply_error(s->control, k->request, &error);
    } else {
        return;
    }
    *k = (struct kept){.kind = KEPT_NONE};
}

void control_tick(struct supervisor *s, uint64_t now_ns)
{
    rpc_server_tend(s->control, now_ns);
    for (size_t i = 0; i < REQUESTS_KEPT; i++)
        if (s->kept[i].kind != KEPT_NONE)
            look(s, &s->kept[i], now_ns);
}

/* Answers what is still open. The replies leave through NNG's threads: a moment for them. */
void control_finish(struct supervisor *s)
{
    if (!s->control)
        return;
    struct error error;
    error_set(&error, ERR_GONE, "the engine has stopped");
    struct rpc_request *request;
    while ((request = rpc_server_take(s->control)) != NULL)
        rpc_reply_error(s->control, request, &error);
    for (size_t i = 0; i < REQUESTS_KEPT; i++)
        if (s->kept[i].kind != KEPT_NONE)
            rpc_reply_error(s->control, s->kept[i].request, &error);
    poll(NULL, 0, LAST_REPLIES_MS);
}
