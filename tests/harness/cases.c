/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the cases of a test program by its options: prints their outcome, and makes and removes
 * their directories. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "tests/harness/internal.h"

#define TICK_MS_MIN 5
#define TICK_MS_MAX 40
#define TICK_SHARE  8 /* of the time that has been waited already */
#define CLEANUP_MAX 64

enum outcome { PASSED, FAILED, SKIPPED };

static struct {
    jmp_buf end;
    bool inside;
    char reason[600];
    char context[100]; /* "" or "SOMETHING: " */
    char dir[64];
    struct engine engines[CLEANUP_MAX];
    size_t engines_count;
    struct sampler *samplers[CLEANUP_MAX];
    struct terminal *terminals[CLEANUP_MAX];
    char cgroups[CLEANUP_MAX][PATH_MAX];
} the_case;

void test_fail(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = snprintf(the_case.reason, sizeof the_case.reason, "%s", the_case.context);
    vsnprintf(the_case.reason + n, sizeof the_case.reason - (size_t)n, fmt, args);
    va_end(args);
    if (!the_case.inside) {
        fprintf(stderr, "failure outside of a test case: %s\n", the_case.reason);
        abort();
    }
    longjmp(the_case.end, FAILED);
}

void test_skip(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(the_case.reason, sizeof the_case.reason, fmt, args);
    va_end(args);
    longjmp(the_case.end, SKIPPED);
}

void test_context(const char *text)
{
    snprintf(the_case.context, sizeof the_case.context, "%s%s", text, *text ? ": " : "");
}

void test_note(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    printf("# ");
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
}

const char *test_libexec(void)
{
    const char *value = getenv("SLUICE_LIBEXEC");
    return value && *value ? value : SLUICE_BUILD_LIBEXEC;
}

const char *test_dir(void)
{
    return the_case.dir;
}

const char *path_in_dir(char path[PATH_MAX], const char *name)
{
    CHECK((size_t)snprintf(path, PATH_MAX, "%s/%s", the_case.dir, name) < PATH_MAX,
          "%s is too long", name);
    return path;
}

uint64_t deadline_in(unsigned ms)
{
    return clock_now_ns() + ms * NS_PER_MS;
}

bool deadline_tick(uint64_t deadline)
{
    static _Thread_local uint64_t before, began; /* the deadline of the last call, and its first */
    uint64_t now = clock_now_ns();
    if (now >= deadline)
        return false;
    if (deadline != before)
        began = now;
    before = deadline;
    uint64_t pause = (now - began) / NS_PER_MS / TICK_SHARE;
    pause = pause < TICK_MS_MIN ? TICK_MS_MIN : pause > TICK_MS_MAX ? TICK_MS_MAX : pause;
    poll(NULL, 0, (int)pause);
    return true;
}

void deadline_reach(uint64_t deadline)
{
    for (uint64_t now; (now = clock_now_ns()) < deadline;)
        poll(NULL, 0, (int)((deadline - now) / NS_PER_MS + 1));
}

/* ---- cleaning up ---- */

struct engine *engine_new(void)
{
    CHECK(the_case.engines_count < CLEANUP_MAX, "more than %d engines in one case", CLEANUP_MAX);
    struct engine *e = &the_case.engines[the_case.engines_count++];
    memset(e, 0, sizeof *e);
    return e;
}

void cleanup_sampler(struct sampler *s)
{
    for (size_t i = 0; i < CLEANUP_MAX; i++)
        if (!the_case.samplers[i]) {
            the_case.samplers[i] = s;
            return;
        }
}

void cleanup_sampler_gone(const struct sampler *s)
{
    for (size_t i = 0; i < CLEANUP_MAX; i++)
        if (the_case.samplers[i] == s)
            the_case.samplers[i] = NULL;
}

void cleanup_terminal(struct terminal *t)
{
    for (size_t i = 0; i < CLEANUP_MAX; i++)
        if (!the_case.terminals[i]) {
            the_case.terminals[i] = t;
            return;
        }
}

void cleanup_terminal_gone(const struct terminal *t)
{
    for (size_t i = 0; i < CLEANUP_MAX; i++)
        if (the_case.terminals[i] == t)
            the_case.terminals[i] = NULL;
}

void cleanup_cgroup(const char *path)
{
    for (size_t i = 0; i < CLEANUP_MAX; i++)
        if (!the_case.cgroups[i][0]) {
            snprintf(the_case.cgroups[i], PATH_MAX, "%s", path);
            return;
        }
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void clear_up(enum outcome outcome)
{
    for (size_t i = 0; i < CLEANUP_MAX; i++)
        if (the_case.terminals[i]) {
            terminal_destroy(the_case.terminals[i]);
            the_case.terminals[i] = NULL;
        }
    for (; the_case.engines_count > 0; the_case.engines_count--) {
        struct engine *e = &the_case.engines[the_case.engines_count - 1];
        if (outcome == FAILED && e->log[0])
            engine_show_log(e);
        engine_destroy(e);
    }
    for (size_t i = 0; i < CLEANUP_MAX; i++)
        if (the_case.samplers[i])
            sampler_stop(the_case.samplers[i]);
    for (size_t i = 0; i < CLEANUP_MAX; i++)
        if (the_case.cgroups[i][0]) {
            cgroup_remove(the_case.cgroups[i]);
            the_case.cgroups[i][0] = 0;
        }
    nftw(the_case.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- running ---- */

static enum outcome run_case(const struct test_case *c)
{
    snprintf(the_case.dir, sizeof the_case.dir, "/tmp/slt.XXXXXX");
    if (!mkdtemp(the_case.dir)) {
        snprintf(the_case.reason, sizeof the_case.reason, "cannot create a directory in /tmp: %s",
                 strerror(errno));
        return FAILED;
    }
    setenv("SLUICE_RUN_DIR", the_case.dir, 1);
    setenv("XDG_STATE_HOME", the_case.dir, 1); /* the repl history of this case only */
    setenv("XDG_CACHE_HOME", the_case.dir, 1); /* and what its engines remember of models */
    unsetenv("NO_COLOR");                      /* of the user, or of the case before */
    the_case.inside = true;
    test_context("");
    enum outcome outcome = (enum outcome)setjmp(the_case.end);
    if (outcome == PASSED)
        c->run();
    clear_up(outcome); /* a failure here fails the program, see test_fail */
    the_case.inside = false;
    return outcome;
}

/* Of this process and of those that it has waited for, which have waited for theirs. */
static double cpu_seconds(void)
{
    static const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    double seconds = 0;
    for (size_t i = 0; i < ARRAY_LEN(whose); i++) {
        struct rusage used;
        getrusage(whose[i], &used);
        seconds += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    }
    return seconds;
}

static void print_outcome(const struct test_case *c, enum outcome outcome, double seconds,
                          double cpu)
{
    for (char *at = the_case.reason; *at; at++)
        if (*at == '\n')
            *at = ' ';
    if (outcome == PASSED)
        printf("ok %s (%.1f s, %.1f s of CPU)\n", c->name, seconds, cpu);
    else if (outcome == FAILED)
        printf("not ok %s: %s\n", c->name, the_case.reason);
    else
        printf("SKIP %s: %s\n", c->name, the_case.reason);
    fflush(stdout);
}

/* Of --without: names with commas between them, or NULL. */
static const char *without;

static bool is_without(const char *name)
{
    size_t n = strlen(name);
    for (const char *at = without; at; at = strchr(at, ','), at += at != NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == 0 || at[n] == ','))
            return true;
    return false;
}

/* Removes the options from the arguments. */
static bool parse_options(int *argc, char ***argv, bool *list)
{
    static const char type[] = "--type=", other[] = "--without=";
    bool short_only = false;
    for (; *argc > 1 && strncmp((*argv)[1], "--", 2) == 0; --*argc, ++*argv) {
        const char *option = (*argv)[1];
        if (strncmp(option, type, strlen(type)) == 0) {
            model_set_type(option + strlen(type));
        } else if (strncmp(option, other, strlen(other)) == 0) {
            without = option + strlen(other);
        } else if (strcmp(option, "--short") == 0) {
            short_only = true;
        } else if (strcmp(option, "--list") == 0) {
            *list = true;
        } else {
            printf("not ok %s: no such option\n", option);
            return false;
        }
    }
    if (short_only && test_long())
        *argc = 1;
    return true;
}

static bool chosen(int argc, char **argv, const char *program, const char *name)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc < 2 && sample_left_out(program, name) == SAMPLE_RUNS && !is_without(name);
}

/* A case that another change runs (count.awk). */
static void print_left(int argc, const char *program, const char *name)
{
    if (argc < 2 && !is_without(name) && sample_left_out(program, name) == SAMPLE_OTHER_TURN)
        printf("LEFT 1 case: %s\n", name);
}

static bool exists(const char *name, const struct test_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, name) == 0)
            return true;
    printf("not ok %s: no such case\n", name);
    return false;
}

static bool without_exists(const struct test_case *cases, size_t count)
{
    size_t names = 0, found = 0;
    for (const char *at = without; at; at = strchr(at, ','), at += at != NULL)
        names++;
    for (size_t i = 0; i < count; i++)
        found += is_without(cases[i].name);
    if (found != names)
        printf("not ok --without=%s: has a name that is no case\n", without);
    return found == names;
}

static int run_cases(int argc, char **argv, const char *program, const struct test_case *cases,
                     size_t count)
{
    bool failed = false;
    for (size_t i = 0; i < count; i++) {
        if (!chosen(argc, argv, program, cases[i].name)) {
            print_left(argc, program, cases[i].name);
            continue;
        }
        uint64_t started = clock_now_ns();
        double used = cpu_seconds();
        enum outcome outcome = run_case(&cases[i]);
        print_outcome(&cases[i], outcome, (double)(clock_now_ns() - started) / (double)NS_PER_S,
                      cpu_seconds() - used);
        failed |= outcome == FAILED;
    }
    return failed;
}

int test_main(int argc, char **argv, const struct test_case *cases, size_t count)
{
    const char *slash = strrchr(argv[0], '/'), *program = slash ? slash + 1 : argv[0];
    char name[SAMPLE_NAME];
    bool unknown = false, list = false;
    if (!parse_options(&argc, &argv, &list))
        return 1;
    setenv("SLUICE_TEST", "1", 1);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 1; i < argc; i++)
        unknown |= !exists(argv[i], cases, count);
    unknown |= !without_exists(cases, count);
    for (size_t n = 0; sample_case(program, n, name); n++)
        unknown |= !exists(name, cases, count);
    if (!list)
        return run_cases(argc, argv, program, cases, count) || unknown;
    for (size_t i = 0; i < count; i++)
        if (chosen(argc, argv, program, cases[i].name))
            printf("%s\n", cases[i].name);
    sample_print(program);
    return unknown;
}
