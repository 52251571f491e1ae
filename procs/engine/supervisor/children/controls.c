/* What children are told. A control is repeated every tick until its acknowledgement comes; targets
 * also stand in shared memory, so a successor knows them before it is told. */
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

static void send_one(struct supervisor *s, struct child_slot *c, enum control_verb verb)
{
    struct msg_control control;
    memset(&control, 0, sizeof control);
    control.verb = (uint32_t)verb;
    control.value = c->controls[verb].value;
    control.epoch = c->controls[verb].epoch;
    if (edge_send(c->edge, &control, MSG_CONTROL) != 0)
        counter_add(s->row, CTR_SUPERVISOR_messages_lost, 1);
}

/* Only these listen: a starting one has not opened its end, a killed one never will. */
static bool listens(const struct child_slot *c)
{
    return child_state(c) == PROC_READY || child_state(c) == PROC_STOPPING;
}

void control_set(struct supervisor *s, struct child_slot *c, enum control_verb verb, uint64_t value,
                 uint32_t epoch)
{
    sl_assert(verb > 0 && verb < CONTROL__COUNT);
    c->controls[verb] = (struct control_due){.due = true, .epoch = epoch, .value = value};
    if (listens(c))
        send_one(s, c, verb);
}

void controls_repeat(struct supervisor *s, struct child_slot *c)
{
    if (!listens(c))
        return;
    for (int verb = 1; verb < CONTROL__COUNT; verb++)
        if (c->controls[verb].due)
            send_one(s, c, (enum control_verb)verb);
}

static void on_ack(struct child_slot *c, const struct msg_ack *ack)
{
    /* The validator knows the verbs; an older epoch speaks of a setting that no longer holds. */
    if (ack->verb > 0 && ack->verb < CONTROL__COUNT && c->controls[ack->verb].epoch == ack->epoch)
        c->controls[ack->verb].due = false;
}

void controls_receive(struct supervisor *s, struct child_slot *c)
{
    static _Alignas(8) unsigned char buffer[MSG_BYTES_MAX];
    while (edge_receive(c->edge, buffer) > 0) {
        const struct msg_head *head = (const void *)buffer;
        counter_add(s->row, CTR_SUPERVISOR_messages, 1);
        if (head->type == MSG_ACK && head->incarnation == atomic_load(&c->row->incarnation))
            on_ack(c, (const struct msg_ack *)(const void *)buffer);
    }
    struct edge_stats stats;
    edge_stats_get(c->edge, &stats);
    if (stats.invalid > c->invalid_seen) {
        counter_add(s->row, CTR_SUPERVISOR_messages_invalid, stats.invalid - c->invalid_seen);
        c->invalid_seen = stats.invalid;
    }
}
