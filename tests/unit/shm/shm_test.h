/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of shm/: a segment that is removed with the test, and a small model index. */
#ifndef SLUICE_TESTS_UNIT_SHM_SHM_TEST_H
#define SLUICE_TESTS_UNIT_SHM_SHM_TEST_H

#include <check.h>
#include <stdlib.h>

#include "lib/model/index/model_index.h"
#include "shm/segment/segment.h"

#define BOOT 0x1234u

/* Segments have no name after creation, so a test that dies leaves nothing. */
static inline struct segment test_segment(enum segment_kind kind, uint64_t bytes)
{
    struct segment s;
    struct error e = {.text = ""};
    char tag[32];
    snprintf(tag, sizeof tag, "test-%d", (int)getpid());
    ck_assert_msg(segment_create(kind, tag, BOOT, bytes, &s, &e) == 0, "%s", e.text);
    return s;
}

/* An index with `dense` dense entries of one page and `layers` layers of `experts` experts; expert
 * x has sizes[x % count] pages. The caller frees it. */
static inline struct model_index *test_model(uint32_t dense, uint32_t layers, uint32_t experts,
                                             const uint32_t *sizes, uint32_t count)
{
    uint32_t entries = dense + layers * experts;
    struct model_index *m = calloc(1, sizeof *m + entries * sizeof(struct model_entry));
    ck_assert_ptr_nonnull(m);
    m->hparams.layers = layers;
    m->hparams.experts = experts;
    m->dense_count = dense;
    m->expert_entry_count = layers * experts;
    m->precision_mask = m->precision_count = 1;
    m->entry_count = entries;
    m->entries_offset = sizeof *m;
    struct model_entry *e = (void *)(m + 1);
    for (uint32_t i = 0; i < entries; i++) {
        bool is_dense = i < dense;
        uint32_t x = is_dense ? 0 : i - dense;
        e[i].kind = is_dense ? ENTRY_DENSE : ENTRY_EXPERT;
        e[i].layer = (uint16_t)(is_dense ? (i == 0 ? UINT16_MAX : 0) : x / experts);
        e[i].expert = (uint16_t)(is_dense ? 0 : x % experts);
        e[i].extents = 1;
        e[i].slot_bytes = (is_dense ? 1 : sizes[x % count]) * (uint64_t)PAGE_BYTES;
    }
    return m;
}

static inline int test_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

#endif
