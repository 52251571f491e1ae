/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the engine's processes: fixed structs over packet sockets. A message only points
 * to shared memory, which is authoritative: a lost, repeated or delayed message must be harmless.
 * Received messages are untrusted: call msg_invalid() first. */
#ifndef SLUICE_IPC_CHANNEL_MESSAGES_H
#define SLUICE_IPC_CHANNEL_MESSAGES_H

#include <stddef.h>
#include <stdint.h>

#define MSG_MAGIC      0x43554c53u /* "SLUC" */
#define MSG_VERSION    2u
#define MSG_WANTS_MAX  256 /* entries in one DEMAND; a larger wave is split */
#define MSG_HINTS_MAX  256
#define MSG_PAGES_MAX  1024 /* of a table in one PAGES */
#define MSG_SHARDS_MAX 16   /* maximum loaders */
#define MSG_RUNS_MAX   3    /* maximum extents of an entry */
#define MSG_LOADS_MAX  16   /* shards in one LOADS or DONES */
#define MSG_BYTES_MAX  8192
#define MSG_PRECISIONS 4 /* precisions that can be requested: native, int8, int4, int2 */

enum msg_role {
    ROLE_SUPERVISOR,
    ROLE_CACHE,
    ROLE_LOADER,
    ROLE_PREDICTOR,
    ROLE_COMPUTE,
    ROLE_RECORDER,
    ROLE_GATEWAY,
    ROLE_ANY
};

struct msg_head {
    uint32_t magic;
    uint16_t version;
    uint16_t type;        /* enum msg_type */
    uint32_t bytes;       /* of the whole message, head included */
    uint32_t incarnation; /* of the sender */
    uint64_t number;      /* sequence number per sender, for traces and acknowledgements */
};

/* An entry that compute needs; `entry` is the one it has pinned. */
struct msg_want {
    uint32_t entry;
    uint32_t tokens; /* rows of the pass that access it */
    uint16_t need;   /* minimum enum precision */
    uint16_t reserved;
};

struct msg_demand {
    struct msg_head head;
    uint64_t access_log_position; /* the cache reads the access log up to here first */
    uint64_t sent_ns;             /* monotonic; for the DEMAND -> submission measurement */
    uint32_t pass;     /* number of compute's pass: of several sequences, if it has them */
    uint32_t sequence; /* of its first row, as the two below */
    uint32_t position;
    uint32_t attempt; /* 0 for the first, then counts retries */
    uint16_t layer;
    uint16_t count; /* of wants[] */
    uint32_t reserved;
    struct msg_want wants[MSG_WANTS_MAX]; /* only `count` are sent */
};

struct msg_prediction {
    uint32_t entry;
    float probability; /* probability of an access, 0 to 1 */
};

struct msg_hint {
    struct msg_head head;
    uint64_t sent_ns;
    uint32_t sequence;
    uint32_t position;
    uint16_t layer;      /* the layer the predictions are for */
    uint16_t from_layer; /* the layer whose gate input was used; KNOWN: `layer` */
    uint16_t count;
    uint16_t prefill; /* 1: for a prefill chunk */
    struct msg_prediction
        predictions[MSG_HINTS_MAX]; /* descending probability; only `count` are sent */
};

struct msg_run { /* copy of whole pages of the device file to whole pages of the arena */
    uint64_t file_offset;
    uint64_t arena_offset;
    uint64_t bytes;
};

enum load_priority { LOAD_PREFETCH, LOAD_DENSE, LOAD_DEMAND };

struct msg_load {        /* one shard of an entry */
    uint64_t generation; /* of the entry word at its reservation */
    uint64_t demand_ns;  /* sent_ns of the DEMAND that caused it, 0 for prefetch */
    uint32_t entry;
    uint16_t priority; /* enum load_priority */
    uint16_t runs_count;
    struct msg_run runs[MSG_RUNS_MAX];
};

struct msg_loads {
    struct msg_head head;
    uint32_t epoch; /* directory epoch of this cache incarnation */
    uint32_t loader_incarnation;
    uint32_t count;
    uint32_t reserved;
    struct msg_load loads[MSG_LOADS_MAX]; /* in read order; only `count` are sent */
};

struct msg_flush {
    struct msg_head head;
    uint32_t epoch;
    uint32_t loader_incarnation;
};

struct msg_done { /* a finished shard */
    uint64_t generation;
    uint64_t bytes;
    uint64_t queue_ns; /* LOAD taken -> first read submitted */
    uint64_t read_ns;  /* first read submitted -> last completed */
    uint32_t entry;
    int32_t status; /* 0 or an errno value */
};

struct msg_dones {
    struct msg_head head;
    uint32_t loader_incarnation;
    uint32_t count;
    struct msg_done dones[MSG_LOADS_MAX]; /* only `count` are sent */
};

struct msg_tokens {
    struct msg_head head;
    uint64_t tokens; /* the access log's count */
};

struct msg_pages {
    struct msg_head head;
    uint64_t sent_ns;
    uint32_t attempt; /* 0 for the first, then counts retries */
    uint32_t count;
    uint32_t page[MSG_PAGES_MAX]; /* of the table, from 0; only `count` are sent */
};

enum control_kind {
    CONTROL_QUOTA = 1, /* value: arena quota in bytes; ACK when backed bytes obey it */
    CONTROL_THROTTLE,  /* value: bytes per second, 0 = none */
    CONTROL_DRAIN,     /* finish running sequences, accept no new ones */
    CONTROL_STOP,      /* orderly exit with status 0 */
    CONTROL_POLL,      /* the process table changed: read it */
    CONTROL__COUNT
};

struct msg_control {
    struct msg_head head;
    uint64_t value;
    uint32_t kind;  /* enum control_kind */
    uint32_t epoch; /* of the setting; the newest wins */
};

struct msg_ack {
    struct msg_head head;
    uint64_t value;
    uint32_t kind;
    uint32_t epoch;
};

enum msg_type {
#define MSG(number, name, type, sender, receiver, doc) MSG_##name = (number),
#include "ipc/channel/messages.tbl.h"
};

/* Returns NULL when a message of `bytes` bytes received by `me` is valid, else the reason for the
 * log. Checks magic, version, type, size (exact for its count), direction, counts, enums, alignment
 * of runs, finite floats. Never reads past `bytes`. Entry numbers are not checked here but by the
 * receiver, which has the directory. */
const char *msg_invalid(const void *message, size_t bytes, enum msg_role me);

/* Bytes to send for a message whose count field is set (lists are sent shortened). */
size_t msg_bytes(const void *message);

/* Fills the head (magic, version, type, bytes); the message's count must be set. */
void msg_seal(void *message, enum msg_type type, uint32_t incarnation, uint64_t number);

/* "DEMAND", or "?" */
const char *msg_name(uint32_t type);

#endif
