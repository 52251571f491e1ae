/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a cache file: what a server delivered to one loader of one model, on a local drive.
 *
 *   struct cache_head, one page | slots of one size: struct cache_slot_head, one page, and the
 *   payload, the pages of the runs of an expert's shard one after the other
 *
 * Little-endian. The file is untrusted: a head counts only if its own hash is right, and a payload
 * only if it has the hash of its slot's head. A slot is written in the order: no head, payload,
 * head. So one that was interrupted has no head, or, if the power failed, a wrong hash. Pure. */
#ifndef SLUICE_ENGINE_LOADER_CACHE_SLOTS_H
#define SLUICE_ENGINE_LOADER_CACHE_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/bytes.h"

#define CACHE_SLOT_MAGIC 0x544f4c53434c5300ull
#define CACHE_VERSION    2u

struct cache_head {
    uint64_t magic;    /* RUN_CACHE_MAGIC */
    uint8_t model[16]; /* procs_head.model_identity */
    uint32_t version, loader, loaders, reserved;
    uint64_t slot_bytes; /* of head and payload */
    uint64_t identity;   /* directory_file.identity of the first copy: the file on the server, of
                          * which the slots are; 0: its server says nothing of it */
    uint64_t hash;       /* XXH3 of the bytes before it */
};

struct cache_slot_head {
    uint64_t magic;
    uint32_t entry, reserved;
    uint64_t bytes; /* of the payload; whole pages */
    uint64_t stamp; /* of two slots with one entry, the one with the higher stamp counts */
    uint64_t sum;   /* XXH3 of the payload */
    uint64_t hash;  /* XXH3 of the bytes before it */
};

_Static_assert(sizeof(struct cache_head) == 64 && sizeof(struct cache_slot_head) == 48,
               "layout of a file");

enum cache_file {
    CACHE_FILE_RIGHT, /* its slots count */
    CACHE_FILE_NEW,   /* empty, of another version, shape or identity, or damaged: its slots do
                       * not count */
    CACHE_FILE_OTHER  /* not a cache file: it must not be written */
};

/* Fills the hash. */
void cache_head_seal(struct cache_head *head);
void cache_slot_head_seal(struct cache_slot_head *head);

/* What the first bytes of a file are; a file shorter than a head is read as zeros. With the wanted
 * identity 0, which is that of a server that was not connected yet, any identity is right. */
enum cache_file cache_head_judge(const struct cache_head *found, const struct cache_head *wanted);

/* slot_bytes: of the file. */
bool cache_slot_head_right(const struct cache_slot_head *head, uint64_t slot_bytes);

/* Where a slot begins: its head; the payload is a page later. slot: the number of slots for the
 * size of the file. */
static inline uint64_t cache_slot_at(uint64_t slot_bytes, uint32_t slot)
{
    return PAGE_BYTES + slot_bytes * slot;
}

#endif
