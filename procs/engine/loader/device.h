/* SPDX-License-Identifier: Apache-2.0 */
/* A file that a loader reads: the model or a copy of it on another device. Checks that it is still
 * the inspected file and is used again when that file returns; counts failures, and measures how
 * long no read has completed. */
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
    bool gone;             /* not the inspected file: not read */
    bool quarantined;      /* neither read nor checked */
    uint32_t inflight;     /* reads in flight */
    uint32_t failed;       /* consecutive entries that it did not deliver */
    uint32_t failed_entry; /* the last of them */
    uint64_t quiet_ns;     /* since then no read has completed, while reads are in flight */
    uint64_t next_check_ns;
    const struct model_file_id *inspected; /* borrowed from the model segment */
    struct model_file_id id;               /* of the open file: its own when it is a copy */
};

/* Opens and checks. With an unusable file the device is `gone`, and the reason is logged. A device
 * in quarantine is not opened: that could block forever. */
void device_open(struct device *d, const char *path, bool direct,
                 const struct model_file_id *inspected, bool quarantined);

/* Checks the file every 500 ms, and at once after device_suspect. `idle`: no read is in flight, so
 * that the descriptor may be replaced. */
void device_tick(struct device *d, uint64_t now_ns, bool idle);
void device_suspect(struct device *d);

/* A read was submitted; a read completed. */
void device_read_started(struct device *d, uint64_t now_ns);
void device_read_ended(struct device *d, uint64_t now_ns);

/* No read completed for `limit_ns`. Time before awake_ns does not count: this process was
 * stopped. */
bool device_stalled(const struct device *d, uint64_t now_ns, uint64_t awake_ns, uint64_t limit_ns);

/* Counts an entry that the device did not deliver. True for `limit` different entries in a row:
 * repeated failures of one entry are a bad sector, not a bad device. */
bool device_failed(struct device *d, uint32_t entry, uint64_t limit);
/* The device delivered an entry: restarts the count. */
void device_delivered(struct device *d);

/* The file system rejects direct reads: continue through the page cache. */
void device_fall_back(struct device *d);

/* After a buffered read: drops the pages that it left in the page cache. */
void device_drop_cache(const struct device *d, uint64_t offset, uint64_t bytes);

#endif
