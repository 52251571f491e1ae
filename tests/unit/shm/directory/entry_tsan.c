/* SPDX-License-Identifier: Apache-2.0 */
/* The real shm/directory/entry.c under real threads and ThreadSanitizer: payload bytes are plain
 * memory, so every read that the word's memory orders do not protect is reported as a race. Two
 * loaders, a cache and two pinning processes work on a few entries that share ranges.
 *
 * Exit status 77: the sanitizer cannot run on this kernel. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/directory/entry.h"

#define ENTRIES   6
#define SLOTS     3
#define PAYLOAD   64 /* bytes of one loader's shard */
#define LOADERS   2
#define READS     30000 /* checked by each reader, at least */
#define EVICTIONS 3000  /* by all together, at least */

static struct {
    entry_word word[ENTRIES];
    _Atomic uint32_t location[ENTRIES];
    unsigned char payload[SLOTS][LOADERS][PAYLOAD];
    _Atomic bool stop;
} world;

static _Atomic uint64_t reads_checked, loads_done, evictions;

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static void *loader_main(void *arg)
{
    unsigned self = (unsigned)(uintptr_t)arg;
    uint32_t random = self + 7;
    while (!atomic_load(&world.stop)) {
        uint32_t e = draw(&random, ENTRIES);
        uint64_t word = entry_read(&world.word[e]), generation = entry_generation_of(word);
        if (!entry_shard_pending(word, generation, self)) {
            sched_yield();
            continue;
        }
        if (!entry_wants_shard(word, generation, self) || draw(&random, 16) == 0) {
            entry_shard_fail(&world.word[e], generation, self);
            continue;
        }
        unsigned char *shard = world.payload[atomic_load(&world.location[e])][self];
        for (int i = 0; i < PAYLOAD; i++)
            shard[i] = (unsigned char)(e + 1);
        entry_shard_done(&world.word[e], generation, self);
        atomic_fetch_add_explicit(&loads_done, 1, memory_order_relaxed);
    }
    return NULL;
}

static void *cache_main(void *arg)
{
    (void)arg;
    uint32_t random = 3, owner[SLOTS];
    memset(owner, 0xff, sizeof owner);
    while (!atomic_load(&world.stop)) {
        uint32_t e = draw(&random, ENTRIES), slot = draw(&random, SLOTS);
        uint64_t word = entry_read(&world.word[e]), generation;
        sched_yield();
        switch (entry_state_of(word)) {
        case ENTRY_ABSENT:
            if (owner[slot] != UINT32_MAX)
                break;
            atomic_store(&world.location[e], slot);
            if (entry_reserve(&world.word[e], (1u << LOADERS) - 1, &generation))
                owner[slot] = e;
            break;
        case ENTRY_LOADING:
            if (draw(&random, 8) == 0)
                entry_doom(&world.word[e], entry_generation_of(word), 0);
            break;
        case ENTRY_READY:
            if (draw(&random, 4) == 0 && entry_evict(&world.word[e])) {
                owner[atomic_load(&world.location[e])] = UINT32_MAX;
                atomic_fetch_add_explicit(&evictions, 1, memory_order_relaxed);
            }
            break;
        case ENTRY_DOOMED:
            if (entry_reset(&world.word[e]))
                owner[atomic_load(&world.location[e])] = UINT32_MAX;
            break;
        }
    }
    return NULL;
}

static void *reader_main(void *arg)
{
    enum entry_pinner self = (enum entry_pinner)(uintptr_t)arg;
    uint32_t random = 11 + (uint32_t)self;
    uint64_t checked = 0, turns = 0;
    while (checked < READS || atomic_load_explicit(&evictions, memory_order_relaxed) < EVICTIONS) {
        uint32_t e = draw(&random, ENTRIES);
        uint64_t word = entry_pin(&world.word[e], self);
        if (entry_state_of(word) == ENTRY_READY) {
            uint32_t slot = atomic_load(&world.location[e]);
            for (int d = 0; d < LOADERS; d++)
                for (int i = 0; i < PAYLOAD; i++)
                    if (world.payload[slot][d][i] != e + 1) {
                        fprintf(stderr, "entry %u: byte %d of part %d is %u\n", e, i, d,
                                world.payload[slot][d][i]);
                        exit(1);
                    }
            checked++;
        } else {
            sched_yield(); /* with few cores, the other threads must get to run */
        }
        if (turns++ % 256 == 0)
            sched_yield();
        if (draw(&random, 64) == 0)
            entry_sweep(&world.word[e], self);
        else
            entry_unpin(&world.word[e], self);
    }
    atomic_fetch_add(&reads_checked, checked);
    return NULL;
}

int main(void)
{
    pthread_t loaders[LOADERS], cache, readers[2];
    for (uintptr_t i = 0; i < LOADERS; i++)
        pthread_create(&loaders[i], NULL, loader_main, (void *)i);
    pthread_create(&cache, NULL, cache_main, NULL);
    pthread_create(&readers[0], NULL, reader_main, (void *)(uintptr_t)PINNER_COMPUTE);
    pthread_create(&readers[1], NULL, reader_main, (void *)(uintptr_t)PINNER_PREDICTOR);
    pthread_join(readers[0], NULL);
    pthread_join(readers[1], NULL);
    atomic_store(&world.stop, true);
    for (int i = 0; i < LOADERS; i++)
        pthread_join(loaders[i], NULL);
    pthread_join(cache, NULL);
    printf("%llu reads checked, %llu parts loaded, %llu evictions, no race\n",
           (unsigned long long)reads_checked, (unsigned long long)loads_done,
           (unsigned long long)evictions);
    return 0;
}
