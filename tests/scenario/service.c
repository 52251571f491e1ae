/* SPDX-License-Identifier: Apache-2.0 */
/* Running as a service: notifications of the service manager, the memory estimate, and the run
 * directories of private engines. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "procs/clients/common/private_engine.h"
#include "tests/harness/internal.h"

#define END_MS 60000

static int manager_socket(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(strlen(path) < sizeof at.sun_path, "too long: %s", path);
    strcpy(at.sun_path, path);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0, "cannot bind %s", path);
    return fd;
}

static void expect_notice(int fd, const char *wanted)
{
    char text[64] = "";
    struct pollfd p = {.fd = fd, .events = POLLIN};
    CHECK(poll(&p, 1, END_MS) == 1, "no notification, expected %s", wanted);
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    CHECK(n > 0, "empty notification, expected %s", wanted);
    if (strcmp(text, wanted) == 0)
        return;
    CHECK(strncmp(text, "STATUS=", 7) == 0 || strcmp(text, "WATCHDOG=1") == 0,
          "notification '%s', expected '%s'", text, wanted);
    expect_notice(fd, wanted);
}

/* READY=1 when requests are accepted and not before, STOPPING=1 at the end; the phases between, and
 * keep-alives while it runs. */
static void notices(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/notify", test_dir());
    int fd = manager_socket(path);
    setenv("NOTIFY_SOCKET", path, 1);
    setenv("WATCHDOG_USEC", "200000", 1);
    struct engine *e = engine_new();
    engine_spawn(e, (const char *const[]){"--budget", "48MiB", NULL});
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    expect_notice(fd, "READY=1");
    engine_wait_ready(e, END_MS);
    expect_notice(fd, "STATUS=ready");
    for (int i = 0; i < 3; i++)
        expect_notice(fd, "WATCHDOG=1");
    engine_stop(e);
    expect_notice(fd, "STOPPING=1");
    close(fd);
}

/* A pipe that is full, and without a reader. */
static int full_pipe(int *read_end)
{
    int fds[2];
    char page[4096] = {0};
    CHECK(pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0, "pipe: %s", strerror(errno));
    while (write(fds[1], page, sizeof page) > 0 || errno == EINTR)
        continue;
    CHECK(fcntl(fds[1], F_SETFL, 0) == 0, "fcntl: %s", strerror(errno)); /* as a shell opens it */
    *read_end = fds[0];
    return fds[1];
}

/* The engine starts, generates, restarts a process and stops while its stderr blocks; SIGHUP, sent
 * when its terminal closes, does not end it. */
static void log_reader_stops(void)
{
    int read_end;
    struct engine *e = engine_new();
    e->stderr_fd = full_pipe(&read_end);
    engine_start(e, (const char *const[]){"--log-level=debug", NULL});
    CHECK(kill(e->pid, SIGHUP) == 0, "no engine");
    json_decref(engine_control(e, "restart", json_pack("{s:s}", "process", "loader.0")));
    struct text got;
    engine_generate(e, test_prompt(0), 8, &got);
    text_free(&got);
    CHECK((fcntl(e->stderr_fd, F_GETFL) & O_NONBLOCK) == 0, "the flags of stderr were changed");
    engine_stop(e);
    close(e->stderr_fd);
    close(read_end);
}

/* Of a model; budget NULL: that of the machine. Free with json_decref. */
static json_t *memory_estimates(const char *model, const char *budget)
{
    return command_json(END_MS, (const char *const[]){"run", "-m", model, "--print-memory",
                                                      budget ? "--budget" : NULL, budget, NULL});
}

static uint64_t memory_estimate_of(const char *model, const char *budget, const char *name)
{
    json_t *doc = memory_estimates(model, budget);
    uint64_t value = lookup_u64(doc, name);
    CHECK(value > 0, "no %s", name);
    json_decref(doc);
    return value;
}

static uint64_t memory_estimate(const char *name)
{
    return memory_estimate_of(test_model(), NULL, name);
}

static void check_chunk(const char *model, uint64_t budget, uint64_t chunk)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)budget);
    uint64_t got = memory_estimate_of(model, text, "prefill_chunk");
    CHECK(got == chunk, "budget %s: chunks of %llu, not %llu", text, (unsigned long long)got,
          (unsigned long long)chunk);
}

/* With the budget for all experts, which the larger chunk may have to be counted in. */
static void check_everything_fits(const char *model)
{
    char budget[32];
    snprintf(budget, sizeof budget, "%llu",
             (unsigned long long)memory_estimate_of(model, NULL, "budgets.100"));
    json_t *doc = memory_estimates(model, budget);
    double share = json_number_value(json_object_get(json_object_get(doc, "auto"), "share"));
    CHECK(share >= 1, "budget %s: %.4f of the experts fit", budget, share);
    json_decref(doc);
}

/* The larger chunk where it needs little of the budget, and the smaller one where only that fits:
 * the minimum of a model with a large vocabulary is more than 64 times what the larger chunk needs
 * in addition. */
static void chunk_of_the_budget(void)
{
    char path[PATH_MAX];
    struct command c;
    check_chunk(test_model(), 48 * MIB, 256);
    check_chunk(test_model(), GIB, 512);
    path_in_dir(path, "vocabulary.gguf");
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-q", "-o", path, "tiny", "vocab=700000", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    uint64_t min_budget = memory_estimate_of(path, NULL, "min_budget");
    check_chunk(path, min_budget, 256);
    check_chunk(path, min_budget + 8 * MIB, 512);
    check_everything_fits(path);
    check_everything_fits(test_model());
}

static size_t own_dirs(const char *base)
{
    size_t count = 0;
    DIR *dir = opendir(base);
    CHECK(dir, "cannot open %s", base);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        count += private_instance_pid(e->d_name) > 0;
    closedir(dir);
    return count;
}

/* An engine starts with the estimated minimum; 1 MiB less is rejected with the same number. */
static void memory_estimate_matches_the_ledger(void)
{
    char budget[32], wanted[64];
    struct command c;
    uint64_t min_budget = memory_estimate("min_budget"), half = memory_estimate("budgets.50"),
             whole = memory_estimate("budgets.100");
    CHECK(min_budget < half && half < whole, "%llu, %llu, %llu", (unsigned long long)min_budget,
          (unsigned long long)half, (unsigned long long)whole);
    snprintf(budget, sizeof budget, "%llu", (unsigned long long)(min_budget - MIB));
    snprintf(wanted, sizeof wanted, "minimum %lluMiB", (unsigned long long)(min_budget / MIB));
    command_run(&c, NULL, END_MS,
                (const char *const[]){"run", "-m", test_model(), "--budget", budget, NULL});
    CHECK(c.status == 2 && strstr(c.err, wanted), "status %d, expected 2 and '%s' in: %.200s",
          c.status, wanted, c.err);
    command_free(&c);
    snprintf(budget, sizeof budget, "%llu", (unsigned long long)half);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--budget", budget, NULL});
    json_t *stats = engine_stats(e);
    /* Measured reservations differ from the estimates by less than a tenth of the experts. */
    uint64_t quota = lookup_u64(stats, "memory.arena_quota_bytes");
    CHECK(quota >= memory_estimate("dense_bytes") + memory_estimate("expert_bytes") / 10 * 4,
          "only %llu bytes of arena for %s", (unsigned long long)quota, budget);
    json_decref(stats);
    /* The same estimate while an engine runs; it leaves no files. */
    CHECK(memory_estimate("min_budget") == min_budget, "the minimum differs while an engine runs");
    CHECK(own_dirs(getenv("SLUICE_RUN_DIR")) == 0, "a run directory is left behind");
    engine_stop(e);
}

/* An unused pid: a child that has exited and was reaped. */
static pid_t exited_pid(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK(pid > 0 && waitpid(pid, NULL, 0) == pid, "no child");
    return pid;
}

static void make_dir(char path[PATH_MAX], const char *base, const char *name, bool lock)
{
    char file[PATH_MAX + 8];
    snprintf(path, PATH_MAX, "%s/%s", base, name);
    CHECK(mkdir(path, 0700) == 0, "cannot make %s", path);
    snprintf(file, sizeof file, "%s/lock", path);
    int fd = lock ? open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600) : -1;
    CHECK(!lock || fd >= 0, "cannot make %s", file);
    if (fd >= 0)
        close(fd);
}

/* A client with a private engine leaves no directory, and at start removes those of clients that
 * have exited. Directories of running clients and of named engines stay. */
static void own_directories_go(void)
{
    char base[PATH_MAX], dead[PATH_MAX], empty[PATH_MAX], alive[PATH_MAX], named[PATH_MAX];
    char name[64];
    struct command c;
    snprintf(base, sizeof base, "%s", getenv("SLUICE_RUN_DIR") ? getenv("SLUICE_RUN_DIR") : "");
    CHECK(base[0], "the harness sets no SLUICE_RUN_DIR");
    snprintf(name, sizeof name, "own-%d", (int)exited_pid());
    make_dir(dead, base, name, true);
    snprintf(name, sizeof name, "bench-%d-2", (int)exited_pid());
    make_dir(empty, base, name, false);
    snprintf(name, sizeof name, "own-%d", (int)getpid());
    make_dir(alive, base, name, true);
    make_dir(named, base, "own-house", true);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "-m", test_model(), "--budget", "48MiB", "-p",
                                      "It was", "-n", "4", "--temp", "0", NULL});
    CHECK(c.status == 0, "status %d: %.300s", c.status, c.err);
    command_free(&c);
    CHECK(access(dead, F_OK) != 0, "%s was not removed", dead);
    CHECK(access(empty, F_OK) != 0, "%s was not removed", empty);
    CHECK(access(alive, F_OK) == 0, "%s was removed", alive);
    CHECK(access(named, F_OK) == 0, "%s was removed", named);
    CHECK(own_dirs(base) == 1, "%zu private directories are left, expected 1 (of this test)",
          own_dirs(base));
}

static void names(void)
{
    static const struct {
        const char *run;
        pid_t pid;
    } cases[] = {{"own-12", 12}, {"bench-12-3", 12}, {"doctor-7", 7},   {"own-", 0},
                 {"own-0", 0},   {"own-x", 0},       {"own-12x", 0},    {"mine-12", 0},
                 {"default", 0}, {"own--3", 0},      {"bench-12-", 12}, {"own-99999999999", 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        CHECK(private_instance_pid(cases[i].run) == cases[i].pid, "%s: %d", cases[i].run,
              (int)private_instance_pid(cases[i].run));
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"notices", notices},
        {"log_reader_stops", log_reader_stops},
        {"memory_estimate_matches_the_ledger", memory_estimate_matches_the_ledger},
        {"chunk_of_the_budget", chunk_of_the_budget},
        {"own_directories_go", own_directories_go},
        {"private_instance_names", names},
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
