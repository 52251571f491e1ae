/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of reuse where slots share memory. */
#include <check.h>

#include "lib/policy/reuse/reuse.h"

/* Slot 0 runs; 1 and 2 are kept and begin with its first 300 bytes, and 2 has 500 with 1. */
START_TEST(shared_memory_is_counted_once)
{
    struct reuse_slot slot[3];
    slot[0] = (struct reuse_slot){.use = REUSE_RUNNING, .rows = 40, .bytes = 400, .joint = 300};
    slot[1] = (struct reuse_slot){
        .use = REUSE_KEPT, .rows = 60, .bytes = 600, .joint = 500, .counted = 300, .cost_ns = 1000};
    slot[2] = (struct reuse_slot){.use = REUSE_KEPT,
                                  .rows = 90,
                                  .bytes = 900,
                                  .joint = 500,
                                  .counted = 500,
                                  .cost_ns = 1000,
                                  .used = 1};
    struct reuse_table t = {.slots = 3, .slot = slot, .pool_bytes = 1100};
    ck_assert_uint_eq(reuse_bytes(&t), 400 + 300 + 400);
    /* Of a slot that goes, only what it has alone is free: the second is dearer for its 100. */
    struct reuse_victim v = reuse_yield(&t, 0, 450);
    ck_assert_uint_eq(v.slot, 2);
    ck_assert_uint_eq(v.bytes, 50);
    ck_assert(reuse_may_grow(&t, 0, 1100) && !reuse_may_grow(&t, 0, 1101));
    /* One that was cut back into a page that another one has copies it: if that one runs, always;
     * else it is free when the other one has gone. */
    slot[0].apart = 60;
    ck_assert(!reuse_fits(&t, 0, 400) && reuse_may_grow(&t, 0, 1100));
    slot[0].apart_running = 60;
    ck_assert(reuse_may_grow(&t, 0, 1040) && !reuse_may_grow(&t, 0, 1041));
    slot[1].use = REUSE_RUNNING; /* each has 300 of its own then, of which 300 are counted above */
    ck_assert(reuse_may_grow(&t, REUSE_NONE, 400) && !reuse_may_grow(&t, REUSE_NONE, 401));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("reuse_shared");
    TCase *c = tcase_create("all");
    tcase_add_test(c, shared_memory_is_counted_once);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
