/* SPDX-License-Identifier: Apache-2.0 */
/* docs/sandbox.md shows the tables of lib/sandbox as they are. `sandbox_document_test --print`
 * prints what belongs between its markers. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"

#define BEGIN   "<!-- tables: begin -->\n"
#define END     "<!-- tables: end -->\n"
#define COLUMNS 110

static const struct {
    const char *group, *call, *condition;
} calls[] = {
#define CALL(group, call)                                 {#group, #call, ""},
#define CALL_X86(group, call)                             {#group, #call, ""},
#define CALL_IF(group, call, argument, mask, value, text) {#group, #call, text},
#define CALL_PRCTL(group, option)                         {#group, "prctl", #option},
#define CALL_SELF(group, call)                            {#group, #call, "own process"},
#define CALL_STREAM(group, family)                        {#group, "socket", #family " streams"},
#include "lib/sandbox/calls.tbl.h"
};

static const struct {
    const char *call, *error;
} errors[] = {
#define ERRNO(call, error)     {#call, #error},
#define ERRNO_X86(call, error) {#call, #error},
#include "lib/sandbox/calls.tbl.h"
};

static const struct {
    const char *id, *name, *text;
} groups[] = {
#define SANDBOX_GROUP(id, name, text) {#id, name, text},
#include "lib/sandbox/profiles.tbl.h"
};

static const struct {
    const char *name, *groups, *files, *network;
} profiles[] = {
#define SANDBOX_PROFILE(id, name, groups, files, network) {name, #groups, files, network},
#include "lib/sandbox/profiles.tbl.h"
};

static const char *const variables[] = {
#define SANDBOX_VARIABLE(name) name,
#include "lib/sandbox/profiles.tbl.h"
};

/* "BASE | DIAL" as "base, dial". */
static void print_groups(FILE *out, const char *expression)
{
    char text[256];
    const char *separator = "";
    snprintf(text, sizeof text, "%s", expression);
    for (char *rest = NULL, *id = strtok_r(text, " |", &rest); id; id = strtok_r(NULL, " |", &rest))
        for (size_t i = 0; i < ARRAY_LEN(groups); i++)
            if (strcmp(groups[i].id, id) == 0) {
                fprintf(out, "%s%s", separator, groups[i].name);
                separator = ", ";
            }
}

static void print_wrapped(FILE *out, size_t *column, const char *word)
{
    if (*column + strlen(word) + 1 > COLUMNS) {
        fputs("\n ", out);
        *column = 2;
    }
    *column += (size_t)fprintf(out, " %s", word);
}

static void print_calls(FILE *out, const char *id)
{
    size_t column = 0, count = 0;
    char word[96];
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        if (strcmp(calls[i].group, id) != 0)
            continue;
        if (count++ > 0)
            print_wrapped(out, &column, word);
        snprintf(word, sizeof word, calls[i].condition[0] ? "%s (%s)," : "%s%s,", calls[i].call,
                 calls[i].condition);
    }
    word[strlen(word) - 1] = '\n';
    print_wrapped(out, &column, word);
}

static void print_tables(FILE *out)
{
    fputs("| process | system calls | files | network |\n|---|---|---|---|\n", out);
    for (size_t i = 0; i < ARRAY_LEN(profiles); i++) {
        fprintf(out, "| %s | ", profiles[i].name);
        print_groups(out, profiles[i].groups);
        fprintf(out, " | %s | %s |\n", profiles[i].files, profiles[i].network);
    }
    fputs("\nThe groups of system calls:\n\n```\n", out);
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        fprintf(out, "%s: %s\n  ", groups[i].name, groups[i].text);
        print_calls(out, groups[i].id);
    }
    fputs("```\n\nThese fail where they are not permitted, and do not end the process:\n", out);
    for (size_t i = 0, column = 0; i < ARRAY_LEN(errors); i++) {
        char word[64];
        snprintf(word, sizeof word, "%s (%s)%s", errors[i].call, errors[i].error,
                 i + 1 < ARRAY_LEN(errors) ? "," : ".");
        print_wrapped(out, &column, word);
    }
    fputs("\n\nVariables that children keep:", out);
    for (size_t i = 0; i < ARRAY_LEN(variables); i++)
        fprintf(out, "%s `%s`", i ? "," : "", variables[i]);
    fputs(".\n", out);
}

START_TEST(document_shows_the_tables)
{
    char *expected = NULL, *found = calloc(1, MIB);
    size_t bytes;
    FILE *out = open_memstream(&expected, &bytes);
    FILE *in = fopen(SLUICE_SOURCE_DIR "/docs/sandbox.md", "re");
    ck_assert(out && in && found);
    print_tables(out);
    fclose(out);
    ck_assert_uint_gt(fread(found, 1, MIB - 1, in), 0);
    fclose(in);
    char *begin = strstr(found, BEGIN), *end = strstr(found, END);
    ck_assert_msg(begin && end && begin < end, "docs/sandbox.md lacks its markers");
    *end = 0;
    ck_assert_msg(strcmp(begin + strlen(BEGIN), expected) == 0,
                  "docs/sandbox.md differs from the tables; build/tests/sandbox_document_test "
                  "--print prints them");
    free(expected);
    free(found);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        print_tables(stdout);
        return 0;
    }
    Suite *s = suite_create("sandbox document");
    TCase *c = tcase_create("document");
    tcase_add_test(c, document_shows_the_tables);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
