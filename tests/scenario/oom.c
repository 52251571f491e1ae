/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's OOM killer: the order in which it takes processes, and that an exit is reported as
 * its own, in exit records, /health and metrics, and another SIGKILL is not. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/scenario/http.h"

#define SPARE      (12 * MIB) /* of the cgroup above the budget */
#define BUDGET_MIB 80
#define BUDGET     "--budget=80MiB"

/* SLUICE_TEST_SLOW=1: on an emulated processor (tests/vm), fewer tokens and longer waits. */
static bool slow(void)
{
    const char *value = getenv("SLUICE_TEST_SLOW");
    return value && strcmp(value, "1") == 0;
}

static size_t tokens(void)
{
    return slow() ? 16 : test_amount(AMOUNT_oom_tokens);
}

static unsigned kill_ms(void)
{
    return slow() ? 120000 : 20000;
}

static unsigned finish_ms(void)
{
    return slow() ? 600000 : 120000;
}

#define HEARTBEAT (slow() ? "--heartbeat-timeout=60000" : "--heartbeat-timeout=3000")

static struct text expected; /* of prompt 0, before any kill */

static bool score_write(pid_t pid, int score)
{
    char path[64], text[16];
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
    int n = snprintf(text, sizeof text, "%d", score), fd = open(path, O_WRONLY | O_CLOEXEC);
    bool fine = fd >= 0 && write(fd, text, (size_t)n) == n;
    if (fd >= 0)
        close(fd);
    return fine;
}

static int score_of(pid_t pid)
{
    char path[64];
    int score = 0;
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
    FILE *f = fopen(path, "re");
    CHECK(f && fscanf(f, "%d", &score) == 1, "cannot read %s", path);
    fclose(f);
    return score;
}

/* ---- the order ---- */

static struct engine *start_all(const char *const *wrapper)
{
    char trace[PATH_MAX];
    struct engine *e = engine_new();
    e->wrapper = wrapper;
    snprintf(trace, sizeof trace, "--trace=%s/trace", test_dir());
    engine_start(e,
                 (const char *const[]){"--http=0", trace, BUDGET, HEARTBEAT, "--cgroup=off", NULL});
    return e;
}

static int score_at(struct engine *e, const char *service)
{
    return score_of(engine_pid(e, service, 0, 0));
}

/* Raised in this order above our own score, which a child would inherit. */
static void check_order(struct engine *e, int supervisor)
{
    static const char *const first[] = {"recorder", "predictor", "gateway"};
    int own = score_of(getpid()), cache = score_at(e, "cache"), compute = score_at(e, "compute"),
        loader = score_at(e, "loader");
    CHECK(score_of(e->pid) == supervisor, "the supervisor has %d, expected %d", score_of(e->pid),
          supervisor);
    CHECK(supervisor < cache && own < cache && cache < compute && compute < loader,
          "supervisor %d, cache %d, compute %d, loader %d", supervisor, cache, compute, loader);
    for (size_t i = 0; i < ARRAY_LEN(first); i++)
        CHECK(score_at(e, first[i]) == 1000, "%s has %d", first[i], score_at(e, first[i]));
}

static void order(void)
{
    int own = score_of(getpid());
    if (own > 900)
        test_skip("oom_score_adj of the test is %d already", own);
    bool permitted = score_write(getpid(), own - 1) && score_write(getpid(), own);
    struct engine *e = start_all(NULL);
    check_order(e, permitted ? (own - 500 > -999 ? own - 500 : -999) : own);
    pid_t compute = engine_pid(e, "compute", 0, 0);
    int before = score_of(compute);
    kill(compute, SIGKILL);
    CHECK(score_of(engine_pid(e, "compute", 0, compute)) == before,
          "the successor of compute has another score");
    engine_stop(e);
}

/* Without CAP_SYS_RESOURCE nothing can be lowered, and the order holds all the same. */
static void order_unprivileged(void)
{
    static const char *const wrapper[] = {"/usr/bin/setpriv", "--inh-caps=-sys_resource",
                                          "--bounding-set=-sys_resource", NULL};
    struct command c;
    if (score_of(getpid()) > 900)
        test_skip("oom_score_adj of the test is too high");
    if (geteuid() == 0) {
        if (access(wrapper[0], X_OK) != 0)
            test_skip("setpriv is not installed");
        command_run(
            &c, NULL, kill_ms(),
            (const char *const[]){wrapper[0], wrapper[1], wrapper[2], wrapper[0], "--dump", NULL});
        if (c.status != 0)
            test_skip("setpriv: %s", c.err);
        command_free(&c);
    }
    struct engine *e = start_all(geteuid() == 0 ? wrapper : NULL);
    check_order(e, score_of(getpid()));
    engine_stop(e);
}

/* ---- kills ---- */

/* Joins the cgroup and takes its memory until the kernel has killed a process there: one with the
 * score 1000, which is more than all of that memory counts. */
static _Noreturn void take_memory(const char *cgroup)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1)
        _exit(1);
    uint64_t before = cgroup_failures(cgroup);
    while (cgroup_failures(cgroup) == before)
        if (mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                 -1, 0) == MAP_FAILED)
            _exit(2);
    _exit(0);
}

/* It was killed, too, once: a kill that explains no exit of the engine, which may take the next
 * SIGKILL for the OOM killer's, for 10 s. */
static bool killed_itself;

static void exhaust(const char *cgroup)
{
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0, "cannot fork");
    if (pid == 0)
        take_memory(cgroup);
    uint64_t deadline = deadline_in(kill_ms());
    while (waitpid(pid, &status, WNOHANG) == 0)
        if (!deadline_tick(deadline)) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            test_fail("the kernel killed nothing in %s", cgroup);
        }
    killed_itself |= WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    CHECK(killed_itself || (WIFEXITED(status) && WEXITSTATUS(status) == 0),
          "the process that takes memory: %#x", (unsigned)status);
}

static void check_cause(const json_t *exit_record, const char *cause, const char *message)
{
    char *text = json_dumps(exit_record, 0);
    CHECK(strcmp(lookup_text(exit_record, "cause"), cause) == 0 &&
              lookup_u64(exit_record, "signal") == SIGKILL &&
              strstr(lookup_text(exit_record, "exit_message"), message),
          "expected %s, '%s': %.400s", cause, message, text);
    free(text);
}

static size_t exits_of(struct engine *e)
{
    json_t *doc = engine_stats(e);
    size_t exits = lookup_exits(doc);
    json_decref(doc);
    return exits;
}

/* Whether one of the exits after `before` of them is one of this service; NULL: of one whose exit
 * costs little. All have that cause. */
static bool exited(const json_t *doc, size_t before, const char *service, const char *cause,
                   const char *message)
{
    static const char *const cheap[] = {"recorder", "gateway", "predictor"};
    bool found = false;
    for (size_t i = 0; i < lookup_exits(doc) - before; i++) {
        const char *killed = lookup_text(lookup_exit(doc, i), "service");
        check_cause(lookup_exit(doc, i), cause, message);
        for (size_t k = 0; !service && k < ARRAY_LEN(cheap); k++)
            found |= strcmp(killed, cheap[k]) == 0;
        found |= service && strcmp(killed, service) == 0;
    }
    return found;
}

/* Until there is such an exit, which need not be the first one: until the memory is free again the
 * kernel may kill more than one process, and the one with less memory ends first. */
static void wait_exit(struct engine *e, size_t before, const char *service, const char *cause,
                      const char *message)
{
    uint64_t deadline = deadline_in(kill_ms());
    for (bool found = false; !found;) {
        json_t *doc = engine_stats(e);
        found = exited(doc, before, service, cause, message);
        json_decref(doc);
        CHECK(found || deadline_tick(deadline), "no exit of %s was recorded after exit %zu",
              service ? service : "recorder, gateway or predictor", before);
    }
}

/* Makes this process the OOM killer's first choice, and the others come before the one that takes
 * the memory. */
static void only(struct engine *e, const char *service)
{
    static const char *const services[] = {"recorder",  "cache",   "loader",
                                           "predictor", "compute", "gateway"};
    for (size_t i = 0; i < ARRAY_LEN(services); i++)
        CHECK(score_write(engine_pid(e, services[i], 0, 0),
                          strcmp(services[i], service) == 0 ? 1000 : 600),
              "cannot set the score of %s", services[i]);
}

static size_t kills_of(struct engine *e)
{
    json_t *doc = engine_stats(e);
    size_t kills = 0;
    for (size_t i = 0; i < lookup_exits(doc); i++)
        kills += strcmp(lookup_text(lookup_exit(doc, i), "cause"), "oom") == 0;
    json_decref(doc);
    return kills;
}

/* The same number everywhere: that of the exit records. */
static void check_reported(struct engine *e)
{
    char metric[64];
    struct http h;
    unsigned port = http_port(e);
    size_t kills = kills_of(e);
    uint64_t deadline = deadline_in(kill_ms()), reported = 0;
    while (reported != kills) { /* the gateway polls the supervisor */
        CHECK(deadline_tick(deadline), "/health reports %llu of %zu kills",
              (unsigned long long)reported, kills);
        http_call(&h, port, "/health", NULL, NULL, 200);
        json_t *doc = http_json(&h);
        reported = lookup_u64(doc, "oom_kills");
        json_decref(doc);
        http_close(&h);
    }
    http_call(&h, port, "/metrics", NULL, NULL, 200);
    snprintf(metric, sizeof metric, "\nsluice_oom_kills_total %zu\n", kills);
    CHECK(strstr(h.body, metric) && strstr(h.body, "cause=\"oom\"} 1\n"), "no%s", metric);
    http_close(&h);
}

/* A generation while the kernel kills a process for lack of memory: the same text. service: the
 * process that only() has made its choice; NULL: one whose exit costs little. */
static void kill_during(struct engine *e, const char *cgroup, const char *service,
                        const char *message)
{
    struct text got;
    struct generation *g = generation_start(e, test_prompt(0), tokens());
    if (service)
        only(e, service);
    pid_t pid = service ? engine_pid(e, service, 0, 0) : 0;
    size_t before = exits_of(e);
    exhaust(cgroup);
    wait_exit(e, before, service, "oom", message);
    if (service)
        engine_pid(e, service, 0, pid);
    generation_finish(g, finish_ms(), &got);
    text_check_same(&expected, &got, service ? service : "first victim");
    text_free(&got);
}

/* cgroup: where the limit is. The kernel's own choice; then every process in turn; then a SIGKILL
 * that is not the OOM killer's. */
static void kills_in(struct engine *e, const char *cgroup, const char *message)
{
    static const char *const services[] = {"recorder", "gateway", "predictor",
                                           "loader",   "cache",   "compute"};
    struct text got;
    engine_generate(e, test_prompt(0), tokens(), &expected);
    kill_during(e, cgroup, NULL, message);
    for (unsigned i = 0; i < ARRAY_LEN(services); i++)
        kill_during(e, cgroup, services[i], message);
    check_reported(e);
    pid_t pid = engine_pid(e, "compute", 0, 0);
    size_t before = exits_of(e);
    if (killed_itself)
        deadline_reach(deadline_in(11000));
    kill(pid, SIGKILL);
    wait_exit(e, before, "compute", "signal", "signal 9");
    engine_pid(e, "compute", 0, pid);
    engine_generate(e, test_prompt(0), tokens(), &got);
    text_check_same(&expected, &got, "after all kills");
    text_free(&got);
    text_free(&expected);
}

static struct engine *start_limited(const char *cgroup_option)
{
    char trace[PATH_MAX];
    struct engine *e = engine_new();
    cgroup_make(e->cgroup);
    cgroup_limit(e->cgroup, BUDGET_MIB * MIB + SPARE);
    snprintf(trace, sizeof trace, "--trace=%s/trace", test_dir());
    engine_start(e,
                 (const char *const[]){"--http=0", trace, BUDGET, HEARTBEAT, cgroup_option, NULL});
    return e;
}

/* The limit is that of the cgroup in which the engine was started, as in a container. */
static void limit_around(void)
{
    struct engine *e = start_limited("--cgroup=off");
    kills_in(e, e->cgroup, "at the memory limit of its cgroup");
    engine_stop(e);
}

/* The limit is the engine's own. */
static void limit_of_engine(void)
{
    char own[PATH_MAX];
    struct engine *e = start_limited("--cgroup=require");
    json_t *doc = engine_stats(e);
    snprintf(own, sizeof own, "%s", lookup_text(doc, "memory.cgroup.path"));
    CHECK(strcmp(lookup_text(doc, "memory.oom.counter"), own) == 0, "kills are counted in %s",
          lookup_text(doc, "memory.oom.counter"));
    json_decref(doc);
    kills_in(e, own, "at the memory limit of its cgroup");
    engine_stop(e);
}

/* ---- the limit of the engine's own cgroup ---- */

static uint64_t limit_in(const char *cgroup)
{
    char path[PATH_MAX + 32];
    unsigned long long limit = 0;
    snprintf(path, sizeof path, "%s/memory.max", cgroup);
    if (access(path, R_OK) != 0)
        snprintf(path, sizeof path, "%s/memory.limit_in_bytes", cgroup);
    FILE *f = fopen(path, "re");
    CHECK(f && fscanf(f, "%llu", &limit) == 1, "cannot read %s", path);
    fclose(f);
    return limit;
}

static void set_budget(struct engine *e, const char *cgroup, uint64_t bytes)
{
    json_decref(engine_control(e, "budget", json_pack("{s:I}", "bytes", (json_int_t)bytes)));
    CHECK(limit_in(cgroup) == bytes, "after ctl budget the limit is %llu, the budget %llu",
          (unsigned long long)limit_in(cgroup), (unsigned long long)bytes);
}

static void own_cgroup(struct engine *e, char path[PATH_MAX])
{
    json_t *doc = engine_stats(e);
    snprintf(path, PATH_MAX, "%s", lookup_text(doc, "memory.cgroup.path"));
    json_decref(doc);
}

/* What a service manager does before it starts a unit again: in version 2 a cgroup with controlled
 * children cannot have processes. */
static void release(const char *cgroup)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/cgroup.subtree_control", cgroup);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return; /* version 1 */
    CHECK(write(fd, "-memory", 7) == 7, "cannot release %s: %s", cgroup, strerror(errno));
    close(fd);
}

/* The limit is the budget, before and after changes, and usage is within it. The cgroup is gone
 * after the stop; that of a killed engine at the next start. */
static void limit_follows_budget(void)
{
    char own[PATH_MAX], next[PATH_MAX];
    struct text got;
    int status;
    struct engine *e = start_limited("--cgroup=require");
    own_cgroup(e, own);
    CHECK(limit_in(own) == BUDGET_MIB * MIB, "the limit is %llu",
          (unsigned long long)limit_in(own));
    engine_generate(e, test_prompt(0), tokens(), &got);
    text_free(&got);
    set_budget(e, own, (BUDGET_MIB - 2) * MIB); /* its least depends on what processes use */
    set_budget(e, own, (BUDGET_MIB + 10) * MIB);
    CHECK(cgroup_usage(own) <= (BUDGET_MIB + 10) * MIB && cgroup_usage(own) > MIB,
          "the cgroup counts %llu bytes", (unsigned long long)cgroup_usage(own));
    CHECK(cgroup_failures(own) == 0, "the OOM killer killed a process");
    kill(e->pid, SIGKILL);
    CHECK(engine_wait_end(e, kill_ms(), &status), "the supervisor survives SIGKILL");
    engine_check_gone(e, kill_ms());
    release(e->cgroup);
    engine_start(e, (const char *const[]){BUDGET, HEARTBEAT, "--cgroup=require", NULL});
    own_cgroup(e, next);
    CHECK(access(own, F_OK) != 0, "%s is left of a killed engine", own);
    engine_stop(e);
    CHECK(access(next, F_OK) != 0, "%s is left after the stop", next);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(order), ROW(order_unprivileged), ROW(limit_around),
                                             ROW(limit_of_engine), ROW(limit_follows_budget)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
