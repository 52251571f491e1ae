/* SPDX-License-Identifier: Apache-2.0 */
/* The interleaving checker of the entry word: searches every reachable state of the model around
 * the real shm/directory/entry.c within stated bounds, then checks that it detects the errors of
 * seeded mutants. Without arguments: everything, in the short form with searches in turn
 * (sample.tbl.h). Arguments: names of searches or mutants; --trace prints the steps to each
 * violation. Exit status 0: the protocol holds and every mutant was detected. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/harness/sample.h"
#include "tests/unit/shm/directory/entry_model.h"

#define STATES_MAX 40000000u
#define REAL       .ops = &entry_ops_real
#define STRIPED    .slots = 1, .loaders = 2, .chunks = 2
#define SINGLE     .slots = 1, .loaders = 1, .chunks = 2
#define PAIRED     .slots = 2, .loaders = 1, .chunks = 1

static const struct model searches[] = {
    {.name = "striped", REAL, STRIPED, .generations = 2, .kills = 1, .liveness = true},
    {.name = "single", REAL, SINGLE, .generations = 2, .kills = 2, .liveness = true},
    {.name = "paired", REAL, PAIRED, .generations = 2, .kills = 1, .liveness = true},
    {.name = "unreaped",
     REAL,
     SINGLE,
     .generations = 2,
     .kills = 1,
     .unreaped = true,
     .liveness = true},
    {.name = "striped-deep", REAL, STRIPED, .generations = 2, .kills = 2, .whole_calls = true},
};

/* Mutants of shm/directory/entry.c, then mutants of the order of operations. */
static const struct model mutants[] = {
    {.name = "evict without looking at pins", STRIPED, .ops = &entry_ops_evict_pinned},
    {.name = "done revives DOOMED", STRIPED, .ops = &entry_ops_done_revives},
    {.name = "first shard publishes", STRIPED, .ops = &entry_ops_first_shard_publishes},
    {.name = "words are stored, not swapped", STRIPED, .ops = &entry_ops_swap_is_a_store},
    {.name = "look before pin", REAL, STRIPED, .read_before_pin = true},
    {.name = "publish before data", REAL, STRIPED, .publish_before_data = true},
    {.name = "fail before the last completion", REAL, SINGLE, .fail_before_completion = true},
    {.name = "ABSENT before punch", REAL, STRIPED, .absent_before_punch = true},
    {.name = "no punch", REAL, STRIPED, .no_punch = true},
    {.name = "punch before reap", REAL, SINGLE, .clean_killed = true, .unreaped = true},
    {.name = "loader successor before clean-up", REAL, STRIPED, .spawn_before_clean = true},
    {.name = "sweep after spawn", REAL, STRIPED, .sweep_after_spawn = true},
    {.name = "cache start without FLUSH", REAL, STRIPED, .start_without_flush = true},
    {.name = "LOAD without its checks", REAL, STRIPED, .take_unchecked = true},
    {.name = "cancelled LOAD rejected", REAL, STRIPED, .reject_cancelled = true},
    {.name = "location after reserve", REAL, PAIRED, .location_after_reserve = true},
};

static bool wanted(const char *name, int argc, char **argv)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            continue;
        any = true;
        if (strcmp(argv[i], name) == 0)
            return true;
    }
    return !any;
}

static bool run_search(const struct model *model, bool trace)
{
    struct search_result r;
    struct model bounded = *model;
    bounded.states_max = STATES_MAX;
    model_search(&bounded, trace, &r);
    printf("%-12s %u loader%s, %u slot%s, %u chunks, %u reservations of each entry, kills <= %u, a "
           "step is one %s%s%s: %" PRIu64 " states, %" PRIu64 " steps, depth %" PRIu32 ", %" PRIu64
           " reading, %.1f s: %s\n",
           model->name, model->loaders, model->loaders > 1 ? "s" : "", model->slots,
           model->slots > 1 ? "s" : "", model->chunks, model->generations, model->kills,
           model->whole_calls ? "call" : "atomic operation",
           model->unreaped ? ", killed is not yet reaped" : "",
           model->liveness ? ", every wait can end" : "", r.states, r.steps, r.depth, r.reading,
           r.seconds,
           r.violation  ? r.violation
           : r.complete ? "holds"
                        : "NOT COMPLETE");
    fflush(stdout);
    return !r.violation && r.complete && r.reading > 0;
}

static bool run_mutant(const struct model *model, bool trace)
{
    struct search_result r;
    struct model bounded = *model;
    bounded.generations = bounded.generations ? bounded.generations : 2;
    bounded.kills = bounded.kills ? bounded.kills : 1;
    bounded.states_max = STATES_MAX;
    model_search(&bounded, trace, &r);
    printf("mutant %-34s %s after %" PRIu64 " states, %" PRIu32 " steps, %.1f s%s%s\n", model->name,
           r.violation ? "caught" : "SURVIVES", r.states, r.depth, r.seconds,
           r.violation ? ": " : "", r.violation ? r.violation : "");
    fflush(stdout);
    return r.violation != NULL;
}

int main(int argc, char **argv)
{
    bool ok = true, trace = false;
    unsigned met = 0;
    for (int i = 1; i < argc; i++)
        trace |= strcmp(argv[i], "--trace") == 0;
    for (size_t i = 0; i < ARRAY_LEN(searches); i++)
        if (wanted(searches[i].name, argc, argv) &&
            (argc > 1 || test_sample(EVERY_entry_searches, &met)))
            ok &= run_search(&searches[i], trace);
    unsigned caught = 0, run = 0;
    for (size_t i = 0; i < ARRAY_LEN(mutants); i++)
        if (wanted(mutants[i].name, argc, argv)) {
            run++;
            caught += run_mutant(&mutants[i], trace);
        }
    if (run > 0)
        printf("mutants caught: %u of %u\n", caught, run);
    printf("%s\n", ok && caught == run ? "PASS" : "FAIL");
    return ok && caught == run ? 0 : 1;
}
