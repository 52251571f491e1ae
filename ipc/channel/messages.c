/* SPDX-License-Identifier: Apache-2.0 */
/* Checks received messages by their kind: sizes, counts and every field that can be judged without
 * the directory. */
#include "ipc/channel/messages.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

/* The structs are the wire format: padding would carry stack bytes to another process. */
static_assert(sizeof(struct msg_head) == 24, "head");
static_assert(offsetof(struct msg_demand, wants) == 64, "demand");
static_assert(offsetof(struct msg_hint, predictions) == 48, "hint");
static_assert(sizeof(struct msg_want) == 12 && sizeof(struct msg_prediction) == 8, "entries");
static_assert(sizeof(struct msg_load) == 24 + MSG_RUNS_MAX * 24, "load");
static_assert(offsetof(struct msg_loads, loads) == 40, "loads");
static_assert(sizeof(struct msg_flush) == 32, "flush");
static_assert(sizeof(struct msg_done) == 40, "done");
static_assert(offsetof(struct msg_dones, dones) == 32, "dones");
static_assert(sizeof(struct msg_tokens) == 32, "tokens");
static_assert(offsetof(struct msg_pages, page) == 40, "pages");
static_assert(sizeof(struct msg_pages) <= MSG_BYTES_MAX, "pages fit a buffer");
static_assert(sizeof(struct msg_control) == 40 && sizeof(struct msg_ack) == 40, "control");
static_assert(sizeof(struct msg_demand) <= MSG_BYTES_MAX, "demand fits a buffer");
static_assert(sizeof(struct msg_hint) <= MSG_BYTES_MAX, "hint fits a buffer");
static_assert(sizeof(struct msg_loads) <= MSG_BYTES_MAX, "loads fit a buffer");
static_assert(sizeof(struct msg_dones) <= MSG_BYTES_MAX, "dones fit a buffer");

#define ERRNO_MAX       4095 /* the kernel's maximum */
#define GENERATION_BITS 40   /* width of the generation in the entry word */

struct kind {
    const char *name;
    size_t bytes; /* size of the whole struct */
    enum msg_role sender, receiver;
};

static const struct kind kinds[] = {
#define MSG(number, NAME, type, from, to, doc)                                                     \
    [number] = {#NAME, sizeof(struct type), ROLE_##from, ROLE_##to},
#include "ipc/channel/messages.tbl.h"
};

static const struct kind *kind_of(uint32_t type)
{
    return type < ARRAY_LEN(kinds) && kinds[type].name ? &kinds[type] : NULL;
}

const char *msg_name(uint32_t type)
{
    const struct kind *kind = kind_of(type);
    return kind ? kind->name : "?";
}

static size_t demand_bytes(unsigned count)
{
    return offsetof(struct msg_demand, wants) + count * sizeof(struct msg_want);
}

static size_t hint_bytes(unsigned count)
{
    return offsetof(struct msg_hint, predictions) + count * sizeof(struct msg_prediction);
}

static size_t loads_bytes(unsigned count)
{
    return offsetof(struct msg_loads, loads) + count * sizeof(struct msg_load);
}

static size_t dones_bytes(unsigned count)
{
    return offsetof(struct msg_dones, dones) + count * sizeof(struct msg_done);
}

static size_t pages_bytes(unsigned count)
{
    return offsetof(struct msg_pages, page) + count * sizeof(uint32_t);
}

/* The checks below copy the fields they check: `message` may be unaligned and is untrusted. */

static const char *demand_invalid(const uint8_t *message, size_t bytes)
{
    struct msg_demand d;
    if (bytes < demand_bytes(0))
        return "size";
    memcpy(&d, message, demand_bytes(0));
    if (d.count == 0 || d.count > MSG_WANTS_MAX)
        return "count";
    if (bytes != demand_bytes(d.count))
        return "size";
    if (d.reserved != 0)
        return "reserved field";
    memcpy(d.wants, message + demand_bytes(0), bytes - demand_bytes(0));
    for (unsigned i = 0; i < d.count; i++) {
        if (d.wants[i].need >= MSG_PRECISIONS)
            return "precision";
        if (d.wants[i].tokens == 0)
            return "token count";
        if (d.wants[i].reserved != 0)
            return "reserved field";
    }
    return NULL;
}

static const char *hint_invalid(const uint8_t *message, size_t bytes)
{
    struct msg_hint h;
    if (bytes < hint_bytes(0))
        return "size";
    memcpy(&h, message, hint_bytes(0));
    if (h.count == 0 || h.count > MSG_HINTS_MAX)
        return "count";
    if (bytes != hint_bytes(h.count))
        return "size";
    if (h.prefill > 1)
        return "prefill flag";
    memcpy(h.predictions, message + hint_bytes(0), bytes - hint_bytes(0));
    for (unsigned i = 0; i < h.count; i++)
        if (!(h.predictions[i].probability >= 0 && h.predictions[i].probability <= 1))
            return "probability";
    return NULL;
}

static const char *run_invalid(const struct msg_run *run)
{
    if (run->bytes == 0 || run->bytes % PAGE_BYTES != 0 || run->file_offset % PAGE_BYTES != 0 ||
        run->arena_offset % PAGE_BYTES != 0)
        return "alignment";
    uint64_t end;
    if (add_overflows(run->file_offset, run->bytes, &end) || end > INT64_MAX ||
        add_overflows(run->arena_offset, run->bytes, &end) || end > INT64_MAX)
        return "range";
    return NULL;
}

static const char *load_invalid(const struct msg_load *load)
{
    if (load->priority > LOAD_DEMAND)
        return "priority";
    if (load->generation >> GENERATION_BITS)
        return "generation";
    if (load->runs_count == 0 || load->runs_count > MSG_RUNS_MAX)
        return "count of runs";
    for (unsigned i = 0; i < load->runs_count; i++) {
        const char *why = run_invalid(&load->runs[i]);
        if (why)
            return why;
    }
    return NULL;
}

static const char *loads_invalid(const uint8_t *message, size_t bytes)
{
    struct msg_loads m;
    if (bytes < loads_bytes(0))
        return "size";
    memcpy(&m, message, loads_bytes(0));
    if (m.count == 0 || m.count > MSG_LOADS_MAX)
        return "count";
    if (bytes != loads_bytes(m.count))
        return "size";
    if (m.reserved != 0)
        return "reserved field";
    memcpy(m.loads, message + loads_bytes(0), bytes - loads_bytes(0));
    const char *why = NULL;
    for (unsigned i = 0; i < m.count && !why; i++)
        why = load_invalid(&m.loads[i]);
    return why;
}

static const char *dones_invalid(const uint8_t *message, size_t bytes)
{
    struct msg_dones m;
    if (bytes < dones_bytes(0))
        return "size";
    memcpy(&m, message, dones_bytes(0));
    if (m.count == 0 || m.count > MSG_LOADS_MAX)
        return "count";
    if (bytes != dones_bytes(m.count))
        return "size";
    memcpy(m.dones, message + dones_bytes(0), bytes - dones_bytes(0));
    for (unsigned i = 0; i < m.count; i++) {
        if (m.dones[i].status < 0 || m.dones[i].status > ERRNO_MAX)
            return "status";
        if (m.dones[i].generation >> GENERATION_BITS)
            return "generation";
    }
    return NULL;
}

static const char *pages_invalid(const uint8_t *message, size_t bytes)
{
    struct msg_pages m;
    if (bytes < pages_bytes(0))
        return "size";
    memcpy(&m, message, pages_bytes(0));
    if (m.count == 0 || m.count > MSG_PAGES_MAX)
        return "count";
    return bytes != pages_bytes(m.count) ? "size" : NULL;
}

static const char *kind_invalid(uint32_t kind)
{
    return kind == 0 || kind >= CONTROL__COUNT ? "kind" : NULL;
}

static const char *body_invalid(const uint8_t *message, size_t bytes, enum msg_type type)
{
    struct msg_control control;
    struct msg_ack ack;
    switch (type) {
    case MSG_DEMAND: return demand_invalid(message, bytes);
    case MSG_HINT:
    case MSG_KNOWN: return hint_invalid(message, bytes);
    case MSG_LOADS: return loads_invalid(message, bytes);
    case MSG_TOKENS:
    case MSG_FLUSH:
    case MSG_FLUSHED: return NULL;
    case MSG_DONES: return dones_invalid(message, bytes);
    case MSG_PAGES: return pages_invalid(message, bytes);
    case MSG_CONTROL: memcpy(&control, message, sizeof control); return kind_invalid(control.kind);
    case MSG_ACK: memcpy(&ack, message, sizeof ack); return kind_invalid(ack.kind);
    }
    return "type";
}

static bool sent_short(uint32_t type)
{
    return type == MSG_DEMAND || type == MSG_HINT || type == MSG_KNOWN || type == MSG_LOADS ||
           type == MSG_DONES || type == MSG_PAGES;
}

static bool addressed_to(const struct kind *kind, enum msg_role me)
{
    if (me == ROLE_ANY || kind->receiver == me)
        return true;
    return kind->receiver == ROLE_ANY && kind->sender != me;
}

const char *msg_invalid(const void *message, size_t bytes, enum msg_role me)
{
    struct msg_head head;
    if (bytes < sizeof head || bytes > MSG_BYTES_MAX)
        return "size";
    memcpy(&head, message, sizeof head);
    if (head.magic != MSG_MAGIC)
        return "magic";
    if (head.version != MSG_VERSION)
        return "version";
    const struct kind *kind = kind_of(head.type);
    if (!kind)
        return "type";
    if (!addressed_to(kind, me))
        return "direction";
    if (head.bytes != bytes)
        return "size";
    if (sent_short(head.type) ? bytes > kind->bytes : bytes != kind->bytes)
        return "size";
    return body_invalid(message, bytes, (enum msg_type)head.type);
}

size_t msg_bytes(const void *message)
{
    const struct msg_head *head = message;
    const struct kind *kind = kind_of(head->type);
    sl_assert(kind != NULL);
    if (head->type == MSG_DEMAND) {
        const struct msg_demand *demand = message;
        sl_assert(demand->count > 0 && demand->count <= MSG_WANTS_MAX);
        return demand_bytes(demand->count);
    }
    if (head->type == MSG_HINT || head->type == MSG_KNOWN) {
        const struct msg_hint *hint = message;
        sl_assert(hint->count > 0 && hint->count <= MSG_HINTS_MAX);
        return hint_bytes(hint->count);
    }
    if (head->type == MSG_LOADS) {
        const struct msg_loads *loads = message;
        sl_assert(loads->count > 0 && loads->count <= MSG_LOADS_MAX);
        return loads_bytes(loads->count);
    }
    if (head->type == MSG_DONES) {
        const struct msg_dones *dones = message;
        sl_assert(dones->count > 0 && dones->count <= MSG_LOADS_MAX);
        return dones_bytes(dones->count);
    }
    if (head->type == MSG_PAGES) {
        const struct msg_pages *pages = message;
        sl_assert(pages->count > 0 && pages->count <= MSG_PAGES_MAX);
        return pages_bytes(pages->count);
    }
    return kind->bytes;
}

void msg_seal(void *message, enum msg_type type, uint32_t incarnation, uint64_t number)
{
    struct msg_head *head = message;
    head->magic = MSG_MAGIC;
    head->version = MSG_VERSION;
    head->type = (uint16_t)type;
    head->bytes = (uint32_t)msg_bytes(message);
    head->incarnation = incarnation;
    head->number = number;
}
