/* SPDX-License-Identifier: Apache-2.0 */
/* Runs tokens through a rig, and checks payloads, quota and overlaps. */
#include "tests/fault/cache_loader_work.h"

#include <stdlib.h>

const struct rig_options plain = {.loaders = 1, .experts_share = 0.3};

void choose(const struct rig *r, uint64_t *seed, uint32_t layer, uint32_t *entries)
{
    uint32_t experts = r->model->hparams.experts;
    for (uint32_t k = 0; k < TOP_K; k++) {
        uint32_t e, again;
        do {
            uint32_t span = 1 + rig_random(seed, experts);
            e = model_entry_expert(r->model, layer, rig_random(seed, span));
            again = 0;
            for (uint32_t i = 0; i < k; i++)
                again |= entries[i] == e;
        } while (again);
        entries[k] = e;
    }
}

void decode(struct rig *r, uint64_t *seed, uint32_t tokens)
{
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t layer = 0; layer < r->model->hparams.layers; layer++) {
            uint32_t entries[TOP_K];
            choose(r, seed, layer, entries);
            ck_assert_msg(rig_demand(r, entries, TOP_K, WAIT_MS), "token %u, layer %u", t, layer);
            rig_access(r, entries, TOP_K);
        }
        r->position++;
        struct access_record end = {.sequence = 1,
                                    .position = r->position,
                                    .kind = ACCESS_TOKEN_END,
                                    .pass = (uint16_t)r->position};
        access_log_append(&r->access_log, &end);
    }
}

void check_quota(struct rig *r)
{
    uint64_t used = segment_allocated_bytes(r->segment[SEGMENT_ARENA].fd);
    uint64_t quota = atomic_load(&r->directory.head->quota_bytes);
    ck_assert_msg(used <= quota + PAGE_BYTES, "%llu of %llu bytes", (unsigned long long)used,
                  (unsigned long long)quota);
}

static int by_offset(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

void check_overlap(struct rig *r)
{
    uint64_t(*range)[2] = calloc(r->model->entry_count, sizeof *range);
    uint32_t n = 0;
    for (uint32_t e = 0; e < r->model->entry_count; e++) {
        if (rig_state(r, e) == ENTRY_ABSENT)
            continue;
        range[n][0] = atomic_load(&r->directory.entries[e].arena_offset);
        range[n][1] = range[n][0] + r->entries[e].slot_bytes;
        n++;
    }
    qsort(range, n, sizeof *range, by_offset);
    for (uint32_t i = 1; i < n; i++)
        ck_assert(range[i - 1][1] <= range[i][0]);
    free(range);
}

void run_plain(struct rig *r, const struct rig_options *options, uint32_t tokens)
{
    uint64_t seed = 7;
    rig_open(r, options);
    rig_start(r);
    ck_assert(rig_wait_dense(r, WAIT_MS));
    decode(r, &seed, tokens);
    check_quota(r);
    check_overlap(r);
}

void throttle(struct rig *r, uint64_t rate)
{
    atomic_store(&r->directory.head->throttle_bytes_per_s[0], rate);
    rig_control(r, SERVICE_LOADER, 0, CONTROL_THROTTLE, rate);
}

void wait_withheld(struct rig *r)
{
    uint64_t deadline = rig_deadline(WAIT_MS);
    uint64_t seen = rig_counter(r, SERVICE_LOADER, 0, CTR_LOADER_throttle_ns);
    while (rig_counter(r, SERVICE_LOADER, 0, CTR_LOADER_throttle_ns) == seen)
        ck_assert(rig_tick(r, deadline));
}

TCase *add_case(Suite *s, const char *name)
{
    TCase *c = tcase_create(name);
    tcase_set_timeout(c, 120);
    suite_add_tcase(s, c);
    return c;
}
