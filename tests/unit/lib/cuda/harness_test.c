/* SPDX-License-Identifier: Apache-2.0 */
/* The harness notices what a GPU would compute wrongly, or never finish. */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/cuda/broken.h"
#include "tests/harness/cuda/fibres.h"
#include "tests/harness/cuda/matrix.h"
#include "tests/harness/cuda/memory.h"

enum { COUNT = 128, SEEDS = 20 };

/* Runs with which the result was wrong. */
static int wrong_results(enum broken kind)
{
    uint32_t in[COUNT], out[COUNT];
    int wrong = 0;
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        fibres_seed(seed);
        for (uint32_t i = 0; i < COUNT; i++)
            in[i] = i * 7 + seed;
        memset(out, 0, sizeof out);
        ck_assert_int_eq(broken_run(kind, in, out), 0);
        bool all = true;
        for (uint32_t i = 0; i < COUNT; i++)
            all = all && out[i] == in[COUNT - 1 - i];
        wrong += !all;
    }
    return wrong;
}

START_TEST(correct_kernel_passes)
{
    ck_assert_int_eq(wrong_results(BROKEN_NOT), 0);
}
END_TEST

START_TEST(missing_barrier_is_noticed)
{
    ck_assert_int_eq(wrong_results(BROKEN_NO_BARRIER), SEEDS);
}
END_TEST

START_TEST(early_read_is_noticed)
{
    ck_assert_int_eq(wrong_results(BROKEN_EARLY), SEEDS);
}
END_TEST

/* An element of a lane's registers. */
struct element {
    int lane, i;
};

/* a times b, other elements being 0, is added to c only. */
static void check_layout(void (*multiply)(void *const lanes[32]), struct element a,
                         struct element b, struct element c)
{
    struct matrix_registers r[32] = {0};
    void *lanes[32];
    for (int lane = 0; lane < 32; lane++)
        lanes[lane] = &r[lane];
    r[a.lane].a[a.i / 4] = 3u << 8 * (a.i % 4);
    r[b.lane].b[b.i / 4] = 0xfbu << 8 * (b.i % 4); /* -5 */
    r[c.lane].c[c.i] = 7;
    multiply(lanes);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(r[lane].c[i], lane == c.lane && i == c.i ? 7 - 15 : 0);
}

/* Read off the figures of the manual. */
START_TEST(fragments_have_the_layout)
{
    /* a[1][21] b[21][3], a[9][4] b[4][0] */
    check_layout(matrix_m16n8k32, (struct element){5, 9}, (struct element){13, 5},
                 (struct element){5, 1});
    check_layout(matrix_m16n8k32, (struct element){5, 4}, (struct element){1, 0},
                 (struct element){4, 2});
    /* a[12][6] b[6][7] */
    check_layout(matrix_m16n8k16, (struct element){17, 6}, (struct element){29, 2},
                 (struct element){19, 3});
    /* a[5][15] b[15][2] */
    check_layout(matrix_m8n8k16, (struct element){23, 3}, (struct element){11, 3},
                 (struct element){21, 0});
}
END_TEST

START_TEST(defects_are_errors)
{
    static const char *const reason[BROKEN__COUNT] = {
        [BROKEN_HALF_AT_BARRIER] = "none can continue",
        [BROKEN_TWO_BARRIERS] = "and one in line",
        [BROKEN_HALF_EXCHANGE] = "none can continue",
        [BROKEN_HALF_PRODUCT] = "none can continue",
        [BROKEN_LOAD_BEYOND] = "beyond shared memory",
        [BROKEN_COPY_LEFT] = "ends before its copies",
        [BROKEN_BEYOND_SHARED] = "of shared memory",
        [BROKEN_UNALIGNED] = "not aligned",
    };
    uint32_t in[COUNT + 1] = {0}, out[COUNT + 4];
    for (int kind = 0; kind < BROKEN__COUNT; kind++) {
        if (!reason[kind])
            continue;
        ck_assert_int_ne(broken_run((enum broken)kind, in, out), 0);
        ck_assert_ptr_nonnull(fibres_error());
        ck_assert_msg(strstr(fibres_error(), reason[kind]) != NULL, "%d: %s", kind, fibres_error());
    }
    ck_assert_int_eq(broken_run(BROKEN_NOT, in, out), 0); /* the next launch is not affected */
    ck_assert_ptr_null(fibres_error());
}
END_TEST

/* ---- graphs ---- */

struct store {
    uint32_t *to, value;
};

static void store_value(const void *arg)
{
    const struct store *s = arg;
    *s->to += s->value;
}

/* Memory of the device and pinned memory, and a stream. */
struct things {
    void *stream, *event, *device, *pinned;
};

static struct things make_things(void)
{
    struct things t;
    fibres_seed(3);
    ck_assert_int_eq(fake_make(&t.stream) + fake_make(&t.event), 0);
    ck_assert_int_eq(fake_allocate(4, &t.device) + fake_host_allocate(4, &t.pinned), 0);
    return t;
}

static void drop_things(struct things *t)
{
    ck_assert_int_eq(fake_drop(t->stream) + fake_drop(t->event), 0);
    ck_assert_int_eq(fake_release(t->device) + fake_host_release(t->pinned), 0);
}

static int launch(struct store s, void *stream)
{
    const struct fibre_index one = {1, 1, 1};
    return fake_launch(one, one, 0, store_value, &s, sizeof s, stream);
}

/* Nothing runs before a launch of the graph; then all does, each time with the arguments of the
 * recording, but a copy reads pinned memory when it runs. */
START_TEST(graphs_run_what_was_recorded)
{
    struct things t = make_things();
    uint32_t *device = t.device, *pinned = t.pinned;
    void *graph;
    struct store s = {device, 7};
    *device = 1;
    *pinned = 100;
    ck_assert_int_eq(fake_capture_begin(t.stream), 0);
    ck_assert_int_eq(fake_upload(t.device, t.pinned, 4, t.stream), 0);
    ck_assert_int_eq(launch(s, t.stream), 0);
    s.value = 8;
    ck_assert_int_eq(fake_download(t.pinned, t.device, 4, t.stream), 0);
    ck_assert_int_eq(fake_capture_end(t.stream, &graph), 0);
    ck_assert_int_eq(fake_wait(t.stream), 0);
    ck_assert_uint_eq(*device, 1);
    for (uint32_t i = 0; i < 3; i++) {
        struct fake_counts before = fake_counts();
        *pinned = 10 * i;
        ck_assert_int_eq(fake_graph_launch(graph, t.stream), 0);
        ck_assert_int_eq(fake_wait(t.stream), 0);
        ck_assert_uint_eq(*pinned, 10 * i + 7);
        ck_assert_uint_eq(fake_counts().graphs, before.graphs + 1);
        ck_assert_uint_eq(fake_counts().launches, before.launches);
    }
    fake_graph_drop(graph);
    drop_things(&t);
}
END_TEST

/* What a recording does not allow: an error at once, and at its end. */
static int forbidden(int i, const struct things *t)
{
    uint32_t host = 0;
    void *more;
    switch (i) {
    case 0: return fake_wait(t->stream);
    case 1: return fake_allocate(4, &more);
    case 2: return fake_release(t->device);
    case 3: return fake_host_allocate(4, &more);
    case 4: return fake_upload(t->device, &host, 4, t->stream);
    case 5: return fake_download(&host, t->device, 4, t->stream);
    case 6: return fake_record(t->event, t->stream);
    case 7: return fake_stream_wait(t->stream, t->event);
    case 8: return fake_event_wait(t->event);
    case 9: return fake_event_done(t->event);
    case 10: return launch((struct store){t->device, 1}, NULL);
    case 11: return fake_fill(t->device, 0, 4, NULL);
    case 12: return fake_capture_begin(t->stream);
    default: return fake_host_release(t->pinned);
    }
}

START_TEST(recordings_allow_no_more)
{
    struct things t = make_things();
    for (int i = 0; i < 14; i++) {
        void *graph;
        ck_assert_int_eq(fake_capture_begin(t.stream), 0);
        ck_assert_int_eq(launch((struct store){t.device, 1}, t.stream), 0);
        ck_assert_msg(forbidden(i, &t) != 0, "call %d is no error", i);
        ck_assert_msg(fake_capture_end(t.stream, &graph) != 0, "call %d leaves a graph", i);
    }
    drop_things(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda_harness");
    TCase *tcase = tcase_create("harness");
    tcase_add_test(tcase, correct_kernel_passes);
    tcase_add_test(tcase, missing_barrier_is_noticed);
    tcase_add_test(tcase, early_read_is_noticed);
    tcase_add_test(tcase, fragments_have_the_layout);
    tcase_add_test(tcase, defects_are_errors);
    tcase_add_test(tcase, graphs_run_what_was_recorded);
    tcase_add_test(tcase, recordings_allow_no_more);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
