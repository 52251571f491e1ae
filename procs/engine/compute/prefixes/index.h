/* SPDX-License-Identifier: Apache-2.0 */
/* Lists what the directory of prefixes has: heads and tokens of its files, in memory. Its functions
 * may be called by any thread: the entries have a lock, which nobody holds while it reads or writes
 * storage. */
#ifndef SLUICE_ENGINE_COMPUTE_PREFIXES_INDEX_H
#define SLUICE_ENGINE_COMPUTE_PREFIXES_INDEX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/policy/reuse/reuse.h"
#include "lib/prefix/prefix.h"
#include "procs/engine/compute/prefixes/prefixes.h"

#define INDEX_FILES_MAX    256
#define INDEX_TOKENS_MAX   (1u << 19) /* of all entries together: 2 MiB */
#define INDEX_SUFFIX_WRITE ".part"    /* of a file that is being written */

struct index_entry {
    char name[PREFIX_NAME_BYTES];
    uint64_t bytes;
    int64_t used_ns; /* real time of its last use: the mtime of the file */
    bool known;      /* the head was read */
    bool ours;       /* and its rows are of this model, arithmetic, KV type and shape */
    struct prefix_head head;
    uint32_t *tables; /* tokens and positions; NULL: not ours. Owned */
};

struct index_counts {
    _Atomic uint64_t rejected, errors;
};

struct prefix_index {
    int dir;  /* descriptor of the directory */
    int lock; /* of the file whose lock the writer has; -1: another engine has it */
    uint64_t limit_bytes;
    struct prefix_bond bond; /* of this engine; its preset is not compared */
    pthread_mutex_t mutex;   /* of what follows */
    uint32_t count;
    uint64_t tokens; /* of all entries */
    struct index_entry entry[INDEX_FILES_MAX];
    struct reuse_slot
        value[INDEX_FILES_MAX]; /* the same for the policy of reuse, while it decides */
    struct index_counts counts;
};

/* Opens the directory, and reads heads and tokens of its files; `clear`: removes these. -1 with
 * *error. */
int index_open(struct prefix_index *x, const char *path, uint64_t limit_bytes,
               const struct prefix_bond *bond, bool clear, struct error *error);
void index_close(struct prefix_index *x);

/* Whether this engine writes to the directory: nobody else does, and what writers before left is
 * removed. False: another engine does; it may be tried again, and then reads the directory anew. */
bool index_may_write(struct prefix_index *x);

/* What a prompt can use of the entry that gives it most rows, at most `most`. Rows of other presets
 * than `preset` are not used. False: none has more than none. */
struct index_found {
    struct index_entry entry; /* its tables are not valid */
    struct prefix_use use;
    uint32_t common; /* tokens that the prompt has in common with any entry */
};
bool index_find(struct prefix_index *x, const _Atomic uint32_t *tokens, uint32_t most,
                uint64_t preset, bool recurrent, struct index_found *found);

/* How many of these tokens an entry begins with that has all of them, or of which they are the
 * longer one: the most. */
uint32_t index_stored(struct prefix_index *x, const _Atomic uint32_t *tokens, uint32_t count,
                      uint64_t preset);

/* Removes files until one of `bytes` bytes and `tokens` tokens fits, those of the least value per
 * byte first. 0, EFBIG: it is larger than all may be, ENOSPC, or why one cannot be removed. Writer
 * only. */
int index_make_room(struct prefix_index *x, uint64_t bytes, uint32_t tokens);

/* A file was written: it is in the directory from now on, and those that it includes go. Takes
 * tables, which it frees. Writer only. */
void index_add(struct prefix_index *x, const char *name, const struct prefix_head *head,
               void *tables);

/* It was used just now; it is not there any more; it is damaged: counted, removed if this engine
 * writes; it could not be read: counted. One that is still there has its bytes in index_bytes. */
void index_used(struct prefix_index *x, const char *name);
void index_forget(struct prefix_index *x, const char *name);
void index_reject(struct prefix_index *x, const char *name, const char *why);
void index_fail(struct prefix_index *x, const char *name, const char *why);

/* From now on no file is used that is there, also not by an engine that opens the directory later.
 * Then index_clear removes them, but for what another engine writes at the moment. */
void index_clear_begin(struct prefix_index *x);
void index_clear(struct prefix_index *x);

/* The files that this engine can use, until false. */
bool index_list(struct prefix_index *x, uint32_t at, struct prefix_listed *listed);

/* Bytes of all files, and their number. */
uint64_t index_bytes(struct prefix_index *x, uint32_t *files);

#endif
