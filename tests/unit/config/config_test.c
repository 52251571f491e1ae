/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters from text, files and command lines; the service table. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/params.h"
#include "config/services.h"
#include "config/storage.h"
#include "lib/base/bytes.h"
#include "lib/kernels/isa.h"

static struct params p;
static struct error e;

static void setup(void)
{
    params_defaults(&p);
    e = (struct error){.text = ""};
}

START_TEST(defaults_are_in_bounds)
{
    struct params q;
    memset(&q, 0xff, sizeof q);
    params_defaults(&q);
    ck_assert_mem_eq(&p, &q, sizeof p); /* every byte, also padding: it lies in shared memory */
    ck_assert_uint_eq(p.queue_depth, 16);
    ck_assert(p.resident_experts == 100.0);
    ck_assert_str_eq(p.backend, "auto");
}
END_TEST

static void round_trip(const char *name, const char *value, const char *def, const char *help,
                       void *arg)
{
    char text[PARAM_TEXT_BYTES];
    ++*(int *)arg;
    ck_assert_str_eq(value, def);
    ck_assert_uint_gt(strlen(help), 0);
    ck_assert(params_known(name));
    ck_assert_msg(params_set(&p, name, value, &e) == 0, "%s", e.text);
    ck_assert(params_get(&p, name, text, sizeof text));
    ck_assert_str_eq(text, value);
}

START_TEST(every_default_can_be_set)
{
    struct params defaults;
    int count = 0;
    params_defaults(&defaults);
    params_each(&defaults, round_trip, &count);
    ck_assert_int_gt(count, 25);
    ck_assert_mem_eq(&p, &defaults, sizeof p);
}
END_TEST

START_TEST(texts_that_are_right)
{
    static const char *const pairs[][3] = {
        {"budget", "4GiB", "4294967296"}, {"resident-experts", "12.5%", "12.5"},
        {"resident-experts", "33", "33"}, {"prefill-chunk", "64", "64"},
        {"prefill_chunk", "65", "65"},    {"direct-io", "off", "off"},
        {"direct-io", "yes", "on"},       {"backend", "pread", "pread"},
        {"devices", "/a,/b", "/a,/b"},
    };
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        char text[PARAM_TEXT_BYTES];
        ck_assert_msg(params_set(&p, pairs[i][0], pairs[i][1], &e) == 0, "%s", e.text);
        ck_assert(params_get(&p, pairs[i][0], text, sizeof text));
        ck_assert_str_eq(text, pairs[i][2]);
    }
}
END_TEST

/* The choices of --isa are the table of instruction sets. */
START_TEST(every_instruction_set_is_a_choice)
{
    for (uint64_t isa = 0; isa < ISA__COUNT; isa++) {
        ck_assert_msg(params_set(&p, "isa", kernel_isa_name(isa), &e) == 0, "%s", e.text);
        ck_assert_uint_gt(strlen(kernel_isa_meaning(isa)), 0);
    }
    ck_assert_str_eq(kernel_isa_name(ISA__COUNT), "");
    ck_assert_str_eq(kernel_isa_meaning(ISA__COUNT), "");
}
END_TEST

START_TEST(texts_that_are_wrong)
{
    static const char *const cases[][3] = {
        /* name, text, expected part of the error message */
        {"queue-depth", "abc", "--queue-depth: 'abc' is not a whole number"},
        {"queue-depth", "-1", "--queue-depth: '-1' is not a whole number"},
        {"queue-depth", "+1", "is not a whole number"},
        {"queue-depth", "1x", "is not a whole number"},
        {"queue-depth", "", "is not a whole number"},
        {"queue-depth", "0", "out of range (1 to 128 reads)"},
        {"queue-depth", "129", "out of range (1 to 128 reads)"},
        {"queue-depth", "99999999999999999999", "is not a whole number"},
        {"budget", "4 gallons", "try 512MiB or 4GiB"},
        {"budget", "875", "--budget: 875 bytes; did you mean 875MiB?"},
        {"gpu-budget", "65535", "did you mean 65535MiB?"},
        {"budget", "1.5B", "--budget: 1.5B is less than 65536 bytes"},
        {"gpu-budget", "63KiB", "--gpu-budget: 63KiB is less than 65536 bytes"},
        {"io-size", "1", "out of range (4096 to 16777216 bytes)"},
        {"resident-experts", "0", "not a number from 0.01 to 100 %"},
        {"resident-experts", "101%", "not a number from 0.01 to 100 %"},
        {"resident-experts", "nan", "not a number"},
        {"resident-experts", "5%%", "not a number"},
        {"direct-io", "maybe", "--direct-io: 'maybe' must be on or off"},
        {"backend", "mmap", "is not one of auto|io_uring|pread"},
        {"backend", "auto|pread", "is not one of"},
        {"backend", "", "is not one of"},
        {"alias", "a\nb", "--alias: not a name"},
        {"alias", "a\x7f", "--alias: not a name"},
        {"alias", "a\xc2\x85", "--alias: not a name"}, /* a control character of C1 */
        {"alias", "a\xc3", "--alias: not a name"},     /* cut inside a character */
        {"alias", "\xed\xa0\x80", "--alias: not a name"},
        {"nonsense", "1", "unknown parameter 'nonsense'"},
    };
    struct params before = p;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        ck_assert_int_eq(params_set(&p, cases[i][0], cases[i][1], &e), -1);
        ck_assert_int_eq(e.code, ERR_BAD_INPUT);
        ck_assert_msg(strstr(e.text, cases[i][2]) != NULL, "%s=%s: '%s'", cases[i][0], cases[i][1],
                      e.text);
    }
    char longer[PARAM_TEXT_BYTES + 1];
    memset(longer, 'x', sizeof longer);
    longer[PARAM_TEXT_BYTES] = 0;
    ck_assert_int_eq(params_set(&p, "trace", longer, &e), -1);
    ck_assert_mem_eq(&p, &before, sizeof p); /* a rejected text changes nothing */
    longer[PARAM_TEXT_BYTES - 1] = 0;
    ck_assert_int_eq(params_set(&p, "trace", longer, &e), 0);
}
END_TEST

/* A longer name would be cut. */
START_TEST(lengths_of_aliases)
{
    char name[PARAM_ALIAS_BYTES + 1];
    memset(name, 'x', sizeof name);
    name[PARAM_ALIAS_BYTES] = 0;
    memcpy(name, "\xc3\xa4", 2);
    ck_assert_int_eq(params_set(&p, "alias", name, &e), -1);
    ck_assert(strstr(e.text, "at most 127 bytes") != NULL);
    name[PARAM_ALIAS_BYTES - 1] = 0;
    ck_assert_int_eq(params_set(&p, "alias", name, &e), 0);
    ck_assert_str_eq(p.alias, name);
    ck_assert_int_eq(params_set(&p, "alias", "", &e), 0);
}
END_TEST

/* ---- files */

static int load_text(const char *text)
{
    char name[] = "/tmp/sluice-config.XXXXXX";
    int fd = mkstemp(name);
    ck_assert_int_ge(fd, 0);
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    int rc = params_load(&p, name, &e);
    unlink(name); /* before any assertion can fail */
    ck_assert_int_eq(n, (ssize_t)strlen(text));
    return rc;
}

START_TEST(files)
{
    ck_assert_msg(
        load_text("# comment\n\n queue-depth = 8 # why\nbudget=1GiB\n\tprefill-chunk\t=\t32\r\n"
                  "trace = /tmp/a file") == 0,
        "%s", e.text);
    ck_assert_uint_eq(p.queue_depth, 8);
    ck_assert_uint_eq(p.budget, GIB);
    ck_assert_uint_eq(p.prefill_chunk, 32);
    ck_assert_str_eq(p.trace, "/tmp/a file");
    ck_assert_int_eq(load_text("http-key = s3cret#rest # why\ntrace = /a b#c\t#\n"), 0);
    ck_assert_str_eq(p.http_key, "s3cret#rest");
    ck_assert_str_eq(p.trace, "/a b#c");
    char text[9000];
    snprintf(text, sizeof text, "#%8000d\nqueue-depth = 7%500s# %.400d", 1, "", 2);
    ck_assert_msg(load_text(text) == 0, "%s", e.text); /* lines of any length */
    ck_assert_uint_eq(p.queue_depth, 7);
    snprintf(text, sizeof text, "trace = %.2500d\nqueue-depth = 5\n", 1);
    ck_assert_int_eq(load_text(text), -1);
    ck_assert_msg(strstr(e.text, ":1: --trace: longer than") != NULL, "%s", e.text);
    ck_assert_int_eq(params_load(&p, "/", &e), -1); /* opens, but cannot be read */
    ck_assert_int_eq(load_text("queue-depth = 8\nqueue-depth\n"), -1);
    ck_assert_msg(strstr(e.text, ":2: expected 'name = value'") != NULL, "%s", e.text);
    ck_assert_int_eq(load_text("queue depth = 8\n"), -1); /* not "queue", nor "queue-depth" */
    ck_assert_msg(strstr(e.text, ":1: unknown parameter 'queue depth'") != NULL, "%s", e.text);
    ck_assert_int_eq(load_text("\n\nqueue_depth = many\n"), -1);
    ck_assert_msg(strstr(e.text, ":3: --queue-depth: 'many'") != NULL, "%s", e.text);
    ck_assert_int_eq(load_text("config = x\n"), -1); /* a file cannot name another */
    ck_assert_int_eq(params_load(&p, "/nonexistent/file", &e), -1);
    ck_assert_msg(strstr(e.text, "/nonexistent/file: No such file") != NULL, "%s", e.text);
}
END_TEST

/* ---- command lines */

static int take(int *argc, char **argv)
{
    for (*argc = 0; argv[*argc];)
        ++*argc;
    return params_take_args(&p, argc, argv, &e);
}

/* A parameter that is on or off needs no value, but takes one. */
START_TEST(switches)
{
    char a0[] = "run", a1[] = "--force", a2[] = "FILE", a3[] = "--watchdog", a4[] = "off";
    char *argv[] = {a0, a1, a2, a3, a4, NULL};
    int argc;
    ck_assert_msg(take(&argc, argv) == 0, "%s", e.text);
    ck_assert_int_eq(argc, 2);
    ck_assert_str_eq(argv[1], "FILE");
    ck_assert(p.force && !p.watchdog);
}
END_TEST

START_TEST(arguments)
{
    char a0[] = "run", a1[] = "-m", a2[] = "FILE", a3[] = "--queue-depth", a4[] = "4",
         a5[] = "--unknown", a6[] = "--prefill-chunk=16", a7[] = "--", a8[] = "--queue-depth=5";
    char *argv[] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, NULL};
    int argc;
    ck_assert_msg(take(&argc, argv) == 0, "%s", e.text);
    ck_assert_int_eq(argc, 6);
    const char *left[] = {"run", "-m", "FILE", "--unknown", "--", "--queue-depth=5"};
    for (int i = 0; i < argc; i++)
        ck_assert_str_eq(argv[i], left[i]);
    ck_assert_ptr_null(argv[argc]);
    ck_assert_uint_eq(p.queue_depth, 4);
    ck_assert_uint_eq(p.prefill_chunk, 16);
}
END_TEST

/* Letters of other programs; "--" ends them, too, and what only begins like one is left. */
START_TEST(short_options)
{
    char a0[] = "run", a1[] = "-c", a2[] = "512", a3[] = "-t3", a4[] = "-ctk", a5[] = "-p",
         a6[] = "--", a7[] = "-c9";
    char *argv[] = {a0, a1, a2, a3, a4, a5, a6, a7, NULL}, *lacks[] = {a0, a1, NULL};
    char *words[] = {a0, a1, a4, NULL};
    int argc;
    ck_assert_msg(take(&argc, argv) == 0, "%s", e.text);
    ck_assert_uint_eq(p.ctx_size, 512);
    ck_assert_uint_eq(p.threads, 3);
    const char *left[] = {"run", "-ctk", "-p", "--", "-c9"};
    ck_assert_int_eq(argc, ARRAY_LEN(left));
    for (int i = 0; i < argc; i++)
        ck_assert_str_eq(argv[i], left[i]);
    ck_assert_int_eq(take(&argc, lacks), -1);
    ck_assert_str_eq(e.text, "-c needs a value");
    ck_assert_int_eq(take(&argc, words), -1);
    ck_assert_str_eq(e.text, "--ctx-size: '-ctk' is not a whole number");
}
END_TEST

/* The smallest budget, and small sizes that are passed on as numbers. */
START_TEST(small_sizes)
{
    ck_assert_int_eq(params_set(&p, "budget", "0", &e), 0);
    ck_assert_int_eq(params_set(&p, "budget", "65536", &e), 0);
    ck_assert_int_eq(params_set(&p, "budget", "64KiB", &e), 0);
    ck_assert_uint_eq(p.budget, 65536);
    ck_assert_int_eq(params_set(&p, "throttle", "4096", &e), 0);
}
END_TEST

START_TEST(arguments_that_are_wrong)
{
    char a0[] = "run", a1[] = "--queue-depth", a2[] = "--queue-depth=", a3[] = "--config",
         a4[] = "/nonexistent";
    char *lacks[] = {a0, a1, NULL}, *empty[] = {a0, a2, NULL}, *config[] = {a0, a3, a4, NULL};
    int argc;
    ck_assert_int_eq(take(&argc, lacks), -1);
    ck_assert_str_eq(e.text, "--queue-depth needs a value");
    ck_assert_int_eq(take(&argc, empty), -1);
    ck_assert_int_eq(take(&argc, config), -1);
    ck_assert_msg(strstr(e.text, "/nonexistent") != NULL, "%s", e.text);
}
END_TEST

struct seen {
    size_t count;
    bool budget, context, config;
};

static void see(const struct option_row *row, void *arg)
{
    struct seen *s = arg;
    s->count++;
    ck_assert_ptr_nonnull(row->name);
    ck_assert_msg(!strchr(row->name, '_') && !strchr(row->help, '\n'), "%s", row->name);
    s->budget = s->budget || (strcmp(row->name, "budget") == 0 && strcmp(row->arg, "SIZE") == 0 &&
                              strstr(row->help, "8GiB; 0: "));
    s->context = s->context || (row->letter == 'c' && strcmp(row->name, "ctx-size") == 0);
    s->config = s->config || strcmp(row->name, "config") == 0;
}

static void count_param(const char *name, const char *value, const char *def, const char *help,
                        void *arg)
{
    (void)name, (void)value, (void)def, (void)help;
    ++*(size_t *)arg;
}

START_TEST(options_name_everything)
{
    struct seen s = {.count = 0};
    params_options(see, &s);
    size_t params = 0;
    params_each(&p, count_param, &params);
    ck_assert_uint_eq(s.count, params + 1); /* and --config */
    ck_assert(s.budget && s.context && s.config);
}
END_TEST

START_TEST(services)
{
    ck_assert_ptr_null(service_info(SERVICE_SUPERVISOR));
    ck_assert_str_eq(service_name(SERVICE_SUPERVISOR), "supervisor");
    for (int s = 1; s < SERVICE__COUNT; s++) {
        const struct service_info *info = service_info((enum service)s);
        ck_assert_ptr_nonnull(info);
        ck_assert_int_eq(info->service, s);
        ck_assert_uint_gt(info->ready_ms, 0);
        ck_assert_uint_lt(info->after, 1u << s); /* starts after earlier services: no cycle */
    }
}
END_TEST

/* A read is at most one expert; reads in flight are bounded by what saturates the device. */
START_TEST(what_a_storage_device_has_under_way)
{
    static const struct {
        uint64_t depth, chunk, expert, read, flight;
    } t[] = {
        {16, 2 * MIB, 3456 * KIB, 2 * MIB, 8 * MIB},
        {2, 2 * MIB, 3456 * KIB, 2 * MIB, 4 * MIB},
        {16, 2 * MIB, 120 * KIB, 256 * KIB, 4 * MIB}, /* dense tensors are larger than experts */
        {16, 2 * MIB, 700 * KIB + 1, 704 * KIB, 8 * MIB},
        {128, 16 * KIB, 100 * MIB, 16 * KIB, 2 * MIB},
        {16, 16 * MIB, 100 * MIB, 16 * MIB, 16 * MIB}, /* at least one read */
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct params own;
        params_defaults(&own);
        own.queue_depth = t[i].depth;
        own.io_size = t[i].chunk;
        ck_assert_uint_eq(storage_read_bytes(&own, t[i].expert), t[i].read);
        ck_assert_uint_eq(storage_flight_bytes(&own, t[i].expert), t[i].flight);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *t = tcase_create("config");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, defaults_are_in_bounds);
    tcase_add_test(t, every_default_can_be_set);
    tcase_add_test(t, texts_that_are_right);
    tcase_add_test(t, every_instruction_set_is_a_choice);
    tcase_add_test(t, texts_that_are_wrong);
    tcase_add_test(t, lengths_of_aliases);
    tcase_add_test(t, files);
    tcase_add_test(t, switches);
    tcase_add_test(t, arguments);
    tcase_add_test(t, arguments_that_are_wrong);
    tcase_add_test(t, short_options);
    tcase_add_test(t, small_sizes);
    tcase_add_test(t, options_name_everything);
    tcase_add_test(t, services);
    tcase_add_test(t, what_a_storage_device_has_under_way);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
