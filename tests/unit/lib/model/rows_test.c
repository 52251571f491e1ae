/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over rows: the rows of groups in their place, of the kinds asked for, against the flat
 * list. */
#include <check.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/model/rows.h"

enum kind { END = ROW_END, GROUP = ROW_GROUP, RED, BLUE, LAST = 63 };

struct paint_row {
    enum kind kind;
    int number;
    const struct paint_row *group;
};

ROW_WALK(paint)

static const struct paint_row none[] = {{END, 0, NULL}};
static const struct paint_row inner[] = {{BLUE, 3, NULL}, {RED, 4, NULL}, {END, 0, NULL}};
static const struct paint_row outer[] = {
    {GROUP, 0, inner}, {GROUP, 0, none}, {RED, 5, NULL}, {END, 0, NULL}};
static const struct paint_row rows[] = {{RED, 1, NULL},    {BLUE, 2, NULL}, {GROUP, 0, outer},
                                        {GROUP, 0, inner}, {LAST, 6, NULL}, {GROUP, 0, none},
                                        {END, 0, NULL},    {RED, 99, NULL}};

static void check_walk(uint64_t kinds, const int *want, size_t count)
{
    const struct paint_row *row;
    size_t i = 0;
    ROW_EACH (paint, row, rows, kinds) {
        ck_assert_uint_lt(i, count);
        ck_assert_int_eq(row->number, want[i]);
        i++;
    }
    ck_assert_uint_eq(i, count);
    ck_assert_ptr_null(row);
    const struct paint_row *first = paint_first(rows, kinds);
    ck_assert_int_eq(first ? first->number : -1, count > 0 ? want[0] : -1);
}

START_TEST(groups_are_in_their_place)
{
    static const int all[] = {1, 2, 3, 4, 5, 3, 4, 6}, red[] = {1, 4, 5, 4}, blue[] = {2, 3, 3};
    static const int last[] = {6};
    check_walk(~0ull, all, ARRAY_LEN(all));
    check_walk(ROW_BIT(RED), red, ARRAY_LEN(red));
    check_walk(ROW_BIT(BLUE), blue, ARRAY_LEN(blue));
    check_walk(ROW_BIT(LAST), last, ARRAY_LEN(last));
    check_walk(ROW_BIT(10), NULL, 0);
    ck_assert_ptr_null(paint_first(none, ~0ull));
}
END_TEST

/* At the end a walk stays there. */
START_TEST(end)
{
    struct paint_walk w = {.kinds = ROW_BIT(LAST), .next = {rows}};
    ck_assert_int_eq(paint_next(&w)->number, 6);
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_null(paint_next(&w));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("model.rows");
    TCase *t = tcase_create("rows");
    tcase_add_test(t, groups_are_in_their_place);
    tcase_add_test(t, end);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
