/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of options: values of every kind, errors, the help, and the lines of manual pages. */
#include <check.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_table.h"
#include "lib/base/bytes.h"

struct program {
    const char *model;
    bool quiet, json;
    int64_t count;
    uint64_t bytes;
    const char *maybe;
    int nth, calls;
};

static int take_call(void *program, const char *value, struct error *error)
{
    struct program *p = program;
    p->calls++;
    return strcmp(value, "bad") == 0 ? error_set(error, ERR_BAD_INPUT, "it is bad") : 0;
}

static int take_nth(void *program, int n, const char *value, struct error *error)
{
    struct program *p = program;
    (void)error;
    p->nth = 10 * n + value[0] - '0';
    return 0;
}

static const struct option_row rows[] = {
    {'m', "model", "FILE", OPTION_TEXT(struct program, model), "the model"},
    {'o', NULL, "N", OPTION_NUMBER(struct program, count, 2, 9), "a number from 2"},
    {'n', "count", "N", OPTION_NUMBER(struct program, count, 2, 9), "the same"},
    {0, "bytes", "BYTES", OPTION_BYTES(struct program, bytes), "a size"},
    {'q', "quiet", NULL, OPTION_FLAG(struct program, quiet), "no text"},
    {0, "output", "text|json", OPTION_JSON(struct program, json), "a form"},
    {0, "call", "X", OPTION_CALL(take_call), NULL},
    {0, "one", "X", OPTION_NTH(take_nth, 1), NULL},
    {0, "two", "X", OPTION_NTH(take_nth, 2), NULL},
    OPTION_OF_GROUP("second"),
    {0, "elsewhere", "N", OPTION_ELSEWHERE, "taken before"},
    {0, "maybe", "[=X]", OPTION_TEXT(struct program, maybe), ""},
};

static void each_of_group(option_visit *visit, void *arg)
{
    static const struct option_row of_group[] = {
        {0, "first", "N", OPTION_ELSEWHERE, "the first"},
        {0, "second", "N", OPTION_ELSEWHERE, "the second"},
        {0, "bytes", "N", OPTION_ELSEWHERE, "the program has its own"}};
    for (size_t i = 0; i < ARRAY_LEN(of_group); i++)
        visit(&of_group[i], arg);
}

static void print_more(FILE *out)
{
    fputs("more\n", out);
}

static const struct option_table table = {.command = "program",
                                          .before = "usage\n\n",
                                          OPTION_ROWS(rows),
                                          .column = 20,
                                          .groups = {{"Others:", each_of_group}},
                                          .after = "\nthe end\n",
                                          .more = print_more};

#define WORDS_MAX 8

/* Takes words separated by blanks. */
static int take(struct program *p, const char *words, struct error *error)
{
    static char text[128]; /* values are borrowed from it */
    char *argv[WORDS_MAX + 2] = {"program"}, *rest = text;
    int argc = 1;
    *p = (struct program){.quiet = false};
    snprintf(text, sizeof text, "%s", words);
    for (char *word; argc <= WORDS_MAX && (word = strsep(&rest, " ")) != NULL;)
        argv[argc++] = word;
    optind = 0; /* the parser of the C library begins again */
    int rc = options_read(&table, p, argc, argv, error);
    ck_assert(rc != 0 || (p->model == NULL) == !strstr(words, "-m "));
    ck_assert(rc != 0 || !p->model || strcmp(p->model, "f") == 0);
    return rc;
}

START_TEST(values)
{
    struct program p;
    struct error error = {.text = ""};
    ck_assert_msg(take(&p, "-m f -o 7 -q --bytes 2KiB --output=json", &error) == 0, "%s",
                  error.text);
    ck_assert(p.count == 7 && p.quiet && p.bytes == 2048 && p.json);
    ck_assert_int_eq(take(&p, "--output json --output text", &error), 0);
    ck_assert(!p.json && !p.quiet && p.count == 0);
    ck_assert_int_eq(take(&p, "--call x --call=y --two 3", &error), 0);
    ck_assert(p.calls == 2 && p.nth == 23);
    ck_assert_int_eq(take(&p, "--one 4 operand", &error), 0);
    ck_assert(p.nth == 14 && optind == 3);
    ck_assert_int_eq(take(&p, "--maybe --call x", &error), 0);
    ck_assert(p.calls == 1 && p.maybe && strcmp(p.maybe, "") == 0);
    ck_assert_int_eq(take(&p, "--maybe=x", &error), 0);
    ck_assert_str_eq(p.maybe, "x");
}
END_TEST

START_TEST(errors)
{
    static const char *const rows_of[][2] = {
        {"-o 1", "-o: 1 is out of range (2 to 9)"},
        {"-o x", "-o: 'x' is not a whole number"},
        {"-n 1", "-n: 1 is out of range (2 to 9)"},
        {"--count 1", "--count: 1 is out of range (2 to 9)"},
        {"--cou=1", "--count: 1 is out of range (2 to 9)"},
        {"--bytes 5", "--bytes: 5 bytes; did you mean 5MiB?"},
        {"--bytes x", "--bytes: 'x' is not a size"},
        {"--output xml", "--output: 'xml' is not one of text|json"},
        {"--call bad", "it is bad"},
        {"--call", "--call needs a value; see 'sluice program --help'"},
        {"--elsewhere", "--elsewhere needs a value; see 'sluice program --help'"},
        {"--qiet", "unknown option --qiet; did you mean --quiet? (see 'sluice program --help')"},
        {"--quiet=1", "--quiet takes no value; see 'sluice program --help'"},
        {"--quiet=1 --one", "--quiet takes no value"},
        {"--call x --quiet=1 operand", "--quiet takes no value"},
        {"operand --quiet=", "--quiet takes no value"},
        {"--qui=1 -o", "--qui takes no value"},
        {"--version=1 operand", "--version takes no value"},
        {"--help=1 operand", "--help takes no value"},
        {"-q=1 operand", "-q takes no value"},
        {"-x operand", "unknown option -x"},
        {"-qxy operand", "unknown option -qxy"},
        {"-mf -xyf", "unknown option -xyf"}, /* not -mf, which also ends in the unknown letter */
        {"-mx -xy", "unknown option -xy"},
        {"-o 5 -x -q", "unknown option -x"},
        {"--frist 1", "unknown option --frist; did you mean --first?"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows_of); i++) {
        struct program p;
        struct error error = {.text = ""};
        ck_assert_msg(take(&p, rows_of[i][0], &error) == -1, "%s is taken", rows_of[i][0]);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_msg(strstr(error.text, rows_of[i][1]) != NULL, "%s: %s", rows_of[i][0],
                      error.text);
    }
}
END_TEST

typedef void print_table(const struct option_table *t, FILE *out);

static void check_text(print_table *print, const struct option_table *t, const char *expected)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    ck_assert_ptr_nonnull(out);
    print(t, out);
    fclose(out);
    ck_assert_str_eq(text, expected);
    free(text);
}

START_TEST(help)
{
    check_text(options_help, &table,
               "usage\n\n"
               "  -m, --model FILE  the model\n"
               "  -o N              a number from 2\n"
               "  -n, --count N     the same\n"
               "      --bytes BYTES\n"
               "                    a size\n"
               "  -q, --quiet       no text\n"
               "      --output text|json\n"
               "                    a form\n"
               "      --second N    the second\n"
               "      --elsewhere N\n"
               "                    taken before\n"
               "      --maybe[=X]\n"
               "  -h, --help        this text\n"
               "      --version     the version\n"
               "\nOthers:\n"
               "  --first N                  the first\n"
               "\nthe end\n"
               "more\n");
    static const struct option_row plain[] = {
        {0, "quiet", NULL, OPTION_FLAG(struct program, quiet),
         "no text, which is said in a line that is broken before column 80 so that a terminal does "
         "not break a word; and one-word-that-is-longer-than-a-line-is-left-as-it-is-"
         "since-nothing-helps-it"}};
    static const struct option_table few = {
        .command = "few", .before = "", OPTION_ROWS(plain), .column = 14};
    check_text(options_help, &few,
               "  --quiet     no text, which is said in a line that is broken before column 80\n"
               "              so that a terminal does not break a word; and\n"
               "              one-word-that-is-longer-than-a-line-is-left-as-it-is-since-nothing-"
               "helps-it\n"
               "  -h, --help  this text\n"
               "  --version   the version\n");
}
END_TEST

/* What manual pages and completions are made of. */
START_TEST(manual)
{
    check_text(options_manual, &table,
               "text\tusage\n"
               "text\t\n"
               "option\t-m --model\tFILE\tthe model\n"
               "option\t-o\tN\ta number from 2\n"
               "option\t-n --count\tN\tthe same\n"
               "option\t--bytes\tBYTES\ta size\n"
               "option\t-q --quiet\t\tno text\n"
               "option\t--output\ttext|json\ta form\n"
               "internal\t--call\n"
               "internal\t--one\n"
               "internal\t--two\n"
               "option\t--second\tN\tthe second\n"
               "option\t--elsewhere\tN\ttaken before\n"
               "option\t--maybe\t[=X]\t\n"
               "option\t-h --help\t\tthis text\n"
               "option\t--version\t\tthe version\n"
               "text\t\n"
               "text\tOthers:\n"
               "option\t--first\tN\tthe first\n"
               "text\t\n"
               "text\tthe end\n"
               "text\tmore\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("option_table");
    TCase *cases = tcase_create("option_table");
    tcase_add_test(cases, values);
    tcase_add_test(cases, errors);
    tcase_add_test(cases, help);
    tcase_add_test(cases, manual);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
