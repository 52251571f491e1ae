/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the journal of what was sent again: torn, of another store, with lines that are none. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "procs/tools/push/push.h"

#define KEY 0x1234u

static char directory[] = "/tmp/push_journal_XXXXXX";
static struct push push;

static const char *path(void)
{
    static char text[64];
    snprintf(text, sizeof text, "%s/" PUSH_JOURNAL, directory);
    return text;
}

static void begin(uint64_t key)
{
    struct error error;
    push = (struct push){.directory = directory,
                         .dir_fd = open(directory, O_RDONLY | O_DIRECTORY),
                         .files = 2,
                         .file = {{.name = "a", .bytes = 5}, {.name = "b", .bytes = 6}}};
    ck_assert_msg(journal_open(&push, key, &error) == 0, "%s", error.text);
}

static void end(void)
{
    close(push.dir_fd);
    close(push.journal_fd);
    for (uint32_t i = 0; i < push.files; i++)
        free(push.record[i].tag);
}

static void append(const char *text)
{
    FILE *file = fopen(path(), "a");
    ck_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

START_TEST(what_was_sent_is_known)
{
    struct error error;
    begin(KEY);
    ck_assert(!push.record[0].begun && !push.record[0].done);
    ck_assert_int_eq(journal_begin(&push, 0, "-", 0, &error), 0);
    ck_assert_int_eq(journal_done(&push, 0, 0xab, &error), 0);
    ck_assert_int_eq(journal_begin(&push, 1, "up/load==", 0xcd, &error), 0);
    ck_assert_int_eq(journal_piece(&push, 1, 3, "\"tag\"", &error), 0);
    end();
    begin(KEY);
    ck_assert(push.record[0].done && push.record[0].bytes == 5 && push.record[0].identity == 0xab);
    ck_assert(push.record[1].begun && !push.record[1].done);
    ck_assert_str_eq(push.record[1].id, "up/load==");
    ck_assert_uint_eq(push.record[1].before, 0xcd);
    ck_assert_str_eq(push.record[1].tag[3], "\"tag\"");
    ck_assert_str_eq(push.record[1].tag[2], "");
    /* Begun again: nothing of it is there. */
    ck_assert_int_eq(journal_begin(&push, 1, "next", 0, &error), 0);
    ck_assert_int_eq(journal_begin(&push, 0, "-", 0, &error), 0);
    end();
    begin(KEY);
    ck_assert_str_eq(push.record[1].id, "next");
    ck_assert_str_eq(push.record[1].tag[3], "");
    ck_assert(!push.record[0].done);
    end();
    begin(KEY + 1); /* another store, or URL */
    ck_assert(!push.record[1].begun);
    end();
    begin(KEY);
    ck_assert(!push.record[1].begun);
    journal_remove(&push);
    ck_assert_int_ne(access(path(), F_OK), 0);
    end();
}
END_TEST

/* The rest counts as never written. */
START_TEST(a_line_that_is_none_ends_it)
{
    static const char *const lines[] = {
        "begin a",
        "begin c x\n",
        "piece a 10000 x\n",
        "piece a x\n",
        "done a\n",
        "begin\n",
        "\n",
        "something a b c\n",
        "piece a 1 "
        "tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt"
        "ttttttttttttttt\n"};
    struct error error;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        begin(KEY);
        ck_assert_int_eq(journal_begin(&push, 1, "id", 0, &error), 0);
        end();
        append(lines[i]);
        append("done b 6 1\n");
        begin(KEY);
        ck_assert_msg(push.record[1].begun && !push.record[1].done && !push.record[0].begun,
                      "after line %zu", i);
        ck_assert_int_eq(journal_done(&push, 1, 7, &error), 0);
        end();
        begin(KEY);
        ck_assert_msg(push.record[1].done && push.record[1].identity == 7, "after line %zu", i);
        journal_remove(&push);
        end();
    }
}
END_TEST

START_TEST(one_program_at_a_time)
{
    struct error error;
    begin(KEY);
    struct push other = {.directory = directory, .dir_fd = push.dir_fd};
    ck_assert_int_eq(journal_open(&other, KEY, &error), -1);
    ck_assert_int_eq(error.code, ERR_BUSY);
    close(other.journal_fd);
    journal_remove(&push);
    end();
}
END_TEST

int main(void)
{
    if (!mkdtemp(directory))
        return EXIT_FAILURE;
    Suite *suite = suite_create("push journal");
    TCase *cases = tcase_create("journal");
    tcase_add_test(cases, what_was_sent_is_known);
    tcase_add_test(cases, a_line_that_is_none_ends_it);
    tcase_add_test(cases, one_program_at_a_time);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rmdir(directory);
    return failed != 0;
}
