/* SPDX-License-Identifier: Apache-2.0 */
/* A file that a loader reads: the model or a copy of it on another device. It is the one that the
 * supervisor opened, never whatever its path names now; checks whether it changed in place, counts
 * failures, and measures how long no read has completed. Or a server that has a copy
 * (lib/io/server): its reader connects to it, again and again when it goes away. */
#ifndef SLUICE_ENGINE_LOADER_STORAGE_H
#define SLUICE_ENGINE_LOADER_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/params.h"
#include "lib/io/readers.h"
#include "procs/engine/child/run_files.h"

struct storage {
    char path[1024];
    int fd;      /* -1: not open, or a server */
    bool server; /* the path is a URL */
    bool cache;  /* it is the file of a cache, which this loader writes */
    bool want_direct, direct;
    bool missing;     /* there is no descriptor to read it from */
    bool changed;     /* in place: what it holds now is not the model */
    bool moved;       /* its path does not name it any more */
    bool quarantined; /* neither read nor checked */
    bool away;        /* a server without a connection; not read while there is another copy */
    bool away_logged;
    uint64_t away_ns;      /* since then */
    uint32_t inflight;     /* reads in flight */
    uint32_t failed;       /* consecutive entries that it did not deliver */
    uint32_t failed_entry; /* the last of them */
    uint64_t quiet_ns;     /* since then no read has completed, while reads are in flight */
    uint64_t next_check_ns;
    struct reader *reader;       /* borrowed from the loader: its reads go there */
    struct directory_file *file; /* borrowed from the directory: as it was when it was opened */
};

/* Opens the inherited descriptor again, because direct I/O is a property of an open file and not of
 * the file; closes the inherited one. A file that the supervisor does not hold, or that cannot be
 * opened again, is `missing`. One in quarantine is not opened: that could block forever. */
void storage_open(struct storage *d, const char *path, bool direct, int inherited,
                  struct directory_file *file, bool quarantined);

/* The same for a server. The caller opens its reader. */
void storage_open_server(struct storage *d, const char *url, struct directory_file *file,
                         bool quarantined);

/* Notes whether the server is connected. True if that changed. */
bool storage_note_link(struct storage *d, bool up, uint64_t since_ns, uint64_t now_ns);

/* False: the file has changed in place, now or before. One system call. */
bool storage_unchanged(struct storage *d);
/* Calls storage_unchanged every 500 ms, and at once after storage_suspect. */
void storage_tick(struct storage *d, uint64_t now_ns);
void storage_suspect(struct storage *d);

/* A read was submitted; a read completed. */
void storage_read_started(struct storage *d, uint64_t now_ns);
void storage_read_ended(struct storage *d, uint64_t now_ns);

/* No read completed for `limit_ns`. Time before awake_ns does not count: this process was
 * stopped. Nor does time that a server is away. */
bool storage_stalled(const struct storage *d, uint64_t now_ns, uint64_t awake_ns,
                     uint64_t limit_ns);

/* Counts an entry that the device did not deliver. True for `limit` different entries in a row:
 * repeated failures of one entry are a bad sector, not a bad device. */
bool storage_failed(struct storage *d, uint32_t entry, uint64_t limit);
/* The device delivered an entry: restarts the count. */
void storage_delivered(struct storage *d);

/* The file system rejects direct reads: continue through the page cache. */
void storage_fall_back(struct storage *d);

/* After a buffered read: drops the pages that it left in the page cache. */
void storage_drop_cache(const struct storage *d, uint64_t offset, uint64_t bytes);

#endif
