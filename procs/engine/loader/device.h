/* SPDX-License-Identifier: Apache-2.0 */
/* A file that a loader reads: the model or a copy of it on another device. It is the one that the
 * supervisor opened, never whatever its path names now; checks whether it changed in place, counts
 * failures, and measures how long no read has completed. */
#ifndef SLUICE_ENGINE_LOADER_DEVICE_H
#define SLUICE_ENGINE_LOADER_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/params.h"
#include "procs/engine/child/run_files.h"

struct device {
    char path[1024];
    int fd; /* -1: not open */
    bool want_direct, direct;
    bool missing;          /* there is no descriptor to read it from */
    bool changed;          /* in place: what it holds now is not the model */
    bool moved;            /* its path does not name it any more */
    bool quarantined;      /* neither read nor checked */
    uint32_t inflight;     /* reads in flight */
    uint32_t failed;       /* consecutive entries that it did not deliver */
    uint32_t failed_entry; /* the last of them */
    uint64_t quiet_ns;     /* since then no read has completed, while reads are in flight */
    uint64_t next_check_ns;
    struct directory_file *file; /* borrowed from the directory: as it was when it was opened */
};

/* Opens the inherited descriptor again, because direct I/O is a property of an open file and not of
 * the file; closes the inherited one. A file that the supervisor does not hold, or that cannot be
 * opened again, is `missing`. One in quarantine is not opened: that could block forever. */
void device_open(struct device *d, const char *path, bool direct, int inherited,
                 struct directory_file *file, bool quarantined);

/* False: the file has changed in place, now or before. One system call. */
bool device_unchanged(struct device *d);
/* Calls device_unchanged every 500 ms, and at once after device_suspect. */
void device_tick(struct device *d, uint64_t now_ns);
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
