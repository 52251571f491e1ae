/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of shards while they are read: in any order, in pieces of any size, with errors and
 * short reads, the verdict is that of the whole shard. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "procs/engine/loader/verify.h"

#define PAGES_MAX 40
#define AT        (3 * PAGE_BYTES) /* of the shard in the arena */
#define DEPTH     6

/* One entry of two shards with checksums, one without. */
static struct {
    struct model_index head;
    struct model_entry entries[2];
    uint64_t sums[2];
} model;
static uint8_t arena[AT + PAGES_MAX * PAGE_BYTES], truth[PAGES_MAX * PAGE_BYTES];
static struct jobs jobs;
static struct verify verify;

static void setup(void)
{
    struct error error;
    memset(&model, 0, sizeof model);
    model.head.entry_count = 2;
    model.head.checksum_count = 2;
    model.head.entries_offset = (uint64_t)((char *)model.entries - (char *)&model);
    model.head.checksums_offset = (uint64_t)((char *)model.sums - (char *)&model);
    model.entries[1].checksum_first = ENTRY_NONE;
    ck_assert_int_eq(jobs_create(&jobs, 2, 2, DEPTH), 0);
    ck_assert_int_eq(verify_create(&verify, &model.head, arena, 1, &jobs, &error), 0);
}

static void teardown(void)
{
    verify_destroy(&verify);
    jobs_destroy(&jobs);
}

static struct job *start(uint32_t entry, uint64_t pages)
{
    struct msg_load load = {.entry = entry,
                            .priority = LOAD_DEMAND,
                            .runs_count = 1,
                            .runs = {{7 * PAGE_BYTES, AT, pages * PAGE_BYTES}}};
    return jobs_add(&jobs, &load, 1, 1);
}

/* A chunk completes: whole, short, or with an error. */
static void come_back(struct chunk *c, struct job *job, uint64_t now)
{
    uint64_t from = c->arena_offset - AT;
    int64_t got = (int64_t)c->bytes;
    if (rand() % 6 == 0 && c->tries + 1 < CHUNK_TRIES_MAX)
        got = -EIO;
    else if (rand() % 6 == 0 && c->bytes > PAGE_BYTES)
        got = PAGE_BYTES + rand() % (int)(c->bytes - PAGE_BYTES);
    if (got > 0)
        memcpy(arena + c->arena_offset, truth + from, (size_t)got);
    jobs_complete(&jobs, c, got, now, UINT64_MAX / 2);
    verify_arrived(&verify, &jobs, job);
    ck_assert_uint_le(job->summed, job->bytes);
}

/* Reads all bytes of a job with up to DEPTH chunks in flight, completed in any order. */
static void read_job(struct job *job)
{
    struct chunk *way[DEPTH];
    uint32_t count = 0;
    uint64_t now = 1;
    memset(arena, 0xee, sizeof arena);
    while (!job_ended(job)) {
        now += 1000000000;
        while (count < DEPTH && jobs_pick(&jobs, now, false) == job)
            way[count++] = jobs_cut(&jobs, job, now, (1 + (uint64_t)rand() % 5) * PAGE_BYTES);
        ck_assert_uint_gt(count, 0);
        uint32_t which = (uint32_t)rand() % count;
        struct chunk *c = way[which];
        way[which] = way[--count];
        come_back(c, job, now);
        ck_assert_int_eq(job->status, 0);
    }
}

START_TEST(verdicts)
{
    srand((unsigned)_i);
    uint64_t pages = 1 + (uint64_t)rand() % PAGES_MAX;
    for (size_t i = 0; i < sizeof truth; i++)
        truth[i] = (uint8_t)rand();
    model.sums[1] = XXH3_64bits(truth, pages * PAGE_BYTES); /* this loader reads shard 1 */

    struct job *job = start(0, pages);
    read_job(job);
    ck_assert_int_eq(verify_end(&verify, &jobs, job), VERDICT_RIGHT);
    ck_assert_uint_eq(verify.bytes, pages * PAGE_BYTES);
    jobs_remove(&jobs, job);

    uint64_t at = (uint64_t)rand() % (pages * PAGE_BYTES);
    truth[at] ^= 1 << rand() % 8;
    job = start(0, pages);
    read_job(job);
    ck_assert_int_eq(verify_end(&verify, &jobs, job), VERDICT_WRONG);
    jobs_restart(job); /* the reread is correct: a transfer error, not a bad file */
    ck_assert(!job_ended(job) && job->restarted);
    truth[at] ^= 0xff;
    model.sums[1] = XXH3_64bits(truth, pages * PAGE_BYTES);
    read_job(job);
    ck_assert_int_eq(verify_end(&verify, &jobs, job), VERDICT_RIGHT);
    jobs_remove(&jobs, job);
}
END_TEST

START_TEST(without_a_sum)
{
    struct job *job = start(1, 9);
    read_job(job);
    ck_assert_int_eq(verify_end(&verify, &jobs, job), VERDICT_UNKNOWN);
    ck_assert_uint_eq(verify.bytes, 0);
    jobs_remove(&jobs, job);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("verify");
    TCase *c = tcase_create("verify");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, verdicts, 0, 300);
    tcase_add_test(c, without_a_sum);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
