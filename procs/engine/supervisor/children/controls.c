/* SPDX-License-Identifier: Apache-2.0 */
/* Controls sent to children. A control is repeated every tick until it is acknowledged; targets are
 * also in shared memory, so that a successor has them before it receives a control. */
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

static void send_one(struct supervisor *s, struct child_record *c, enum control_kind kind)
{
    struct msg_control control;
    memset(&control, 0, sizeof control);
    control.kind = (uint32_t)kind;
    control.value = c->controls[kind].value;
    control.epoch = c->controls[kind].epoch;
    if (channel_send(c->channel, &control, MSG_CONTROL) != 0)
        counter_add(s->process, CTR_SUPERVISOR_messages_dropped, 1);
}

/* Only these receive: a starting child has not opened its channel, a killed one never will. */
static bool listens(const struct child_record *c)
{
    return child_state(c) == PROC_READY || child_state(c) == PROC_STOPPING;
}

void control_set(struct supervisor *s, struct child_record *c, enum control_kind kind,
                 uint64_t value, uint32_t epoch)
{
    sl_assert(kind > 0 && kind < CONTROL__COUNT);
    c->controls[kind] = (struct control_due){.due = true, .epoch = epoch, .value = value};
    if (listens(c))
        send_one(s, c, kind);
}

void controls_repeat(struct supervisor *s, struct child_record *c)
{
    if (!listens(c))
        return;
    for (int kind = 1; kind < CONTROL__COUNT; kind++)
        if (c->controls[kind].due)
            send_one(s, c, (enum control_kind)kind);
}

static void on_ack(struct child_record *c, const struct msg_ack *ack)
{
    /* The validator has checked the control; an older epoch refers to an obsolete setting. */
    if (ack->kind > 0 && ack->kind < CONTROL__COUNT && c->controls[ack->kind].epoch == ack->epoch)
        c->controls[ack->kind].due = false;
}

void controls_receive(struct supervisor *s, struct child_record *c)
{
    static _Alignas(8) unsigned char buffer[MSG_BYTES_MAX];
    while (channel_receive(c->channel, buffer) > 0) {
        const struct msg_head *head = (const void *)buffer;
        counter_add(s->process, CTR_SUPERVISOR_messages, 1);
        if (head->type == MSG_ACK && head->incarnation == atomic_load(&c->process->incarnation))
            on_ack(c, (const struct msg_ack *)(const void *)buffer);
    }
    struct channel_stats stats;
    channel_stats_get(c->channel, &stats);
    if (stats.invalid > c->invalid_seen) {
        counter_add(s->process, CTR_SUPERVISOR_messages_invalid, stats.invalid - c->invalid_seen);
        c->invalid_seen = stats.invalid;
    }
}
