/* A file a loader reads: the model itself or a copy of it on another device. Knows whether it still
 * is the file that was inspected, and comes back by itself when the right file does; counts what it
 * does not deliver, and knows how long it has been silent. */
#ifndef SLUICE_ENGINE_LOADER_DEVICE_H
#define SLUICE_ENGINE_LOADER_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/params.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"

struct device {
    char path[1024];
    int fd; /* -1: not open */
    bool want_direct, direct;
    bool gone;             /* not the inspected file: nothing may be read from it */
    bool quarantined;      /* nothing is read from it, and it is not even looked at */
    uint32_t inflight;     /* reads at it */
    uint32_t failed;       /* entries in a row that it did not deliver */
    uint32_t failed_entry; /* the last of them */
    uint64_t quiet_ns;     /* since then it has completed nothing, while reads are at it */
    uint64_t next_check_ns;
    const struct model_file_id *inspected; /* borrowed from the model segment */
    struct model_file_id id;               /* of the open file: its own when it is a copy */
};

/* Opens and checks. A file that cannot be used leaves the device `gone`, with the reason logged;
 * one in quarantine is not touched: opening it could block for good. */
void device_open(struct device *d, const char *path, bool direct,
                 const struct model_file_id *inspected, bool quarantined);

/* Once a second, and at once after device_suspect. `idle`: no read is in flight, so that the
 * descriptor may be replaced. */
void device_tend(struct device *d, uint64_t now_ns, bool idle);
void device_suspect(struct device *d);

/* A read went to it, one came back. */
void device_read_began(struct device *d, uint64_t now_ns);
void device_read_ended(struct device *d, uint64_t now_ns);

/* Nothing came back for `limit_ns`; time before awake_ns does not count: nobody looked then. */
bool device_stalled(const struct device *d, uint64_t now_ns, uint64_t awake_ns, uint64_t limit_ns);

/* It did not deliver an entry. True when these are `limit` different ones in a row: one bad place
 * that is asked for again and again is no bad device. */
bool device_failed(struct device *d, uint32_t entry, uint64_t limit);
/* It delivered one: the row begins anew. */
void device_delivered(struct device *d);

/* The file system takes no direct reads after all: go on through the page cache. */
void device_fall_back(struct device *d);

/* After a buffered read: the page cache it caused is dropped again. */
void device_drop_cache(const struct device *d, uint64_t offset, uint64_t bytes);

#endif
