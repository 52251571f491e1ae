/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tune: from a model file to its fastest engine within a loss and a budget. Measures the
 * machine, runs profile, plan and pack, confirms with bench, and records the result where later
 * starts find it.
 *
 * Trust: model file, texts, and the files of an earlier run are untrusted; the libraries and
 * programs that read them check them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/memory/available.h"
#include "procs/clients/common/options.h"
#include "procs/tools/tune/tune.h"

#define MINUTES     60
#define WINDOW      512
#define STORE_LIMIT (200 * GIB)
#define DECLINED    3 /* exit status */
#define INTERRUPTED 130

static int take_text(void *program, const char *value, struct error *error)
{
    struct tune *t = program;
    if (t->texts == TUNE_TEXTS_MAX)
        return error_set(error, ERR_BAD_INPUT, "at most %d texts", TUNE_TEXTS_MAX);
    t->text[t->texts++] = value;
    return 0;
}

static int take_loss(void *program, const char *value, struct error *error)
{
    struct tune *t = program;
    if (percent_parse(value, &t->max_loss) && t->max_loss > 0 && t->max_loss <= 100)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "--max-loss: '%.40s' is not a percentage above 0, at most 100", value);
}

static const struct option_row rows[] = {
    {'m', "model", "FILE", OPTION_TEXT(struct tune, model_path),
     "GGUF file; any part of a split one"},
    {0, "max-loss", "P", OPTION_CALL(take_loss),
     "allowed increase of perplexity, such as 1%: of the bound on "
     "held-out text"},
    {0, "budget", "SIZE", OPTION_BYTES(struct tune, budget),
     "budget of the engine, and of the measurements, such as 8GiB "
     "(default: as for run: half of the available memory)"},
    {0, "text", "FILE", OPTION_CALL(take_text),
     "calibration text; repeatable (default: the text shipped with "
     "sluice)"},
    {0, "domain", "NAME", OPTION_TEXT(struct tune, domain),
     "use only the text of this name: of prose, code, technical and languages, or of --text"},
    {0, "store-dir", "DIR", OPTION_TEXT(struct tune, store_dir),
     "where the store goes (default: the model's directory if that "
     "is writable, else the cache directory)"},
    {0, "store-limit", "SIZE", OPTION_BYTES(struct tune, store_limit),
     "maximum of the stores of all tunings (default 200GiB)"},
    {0, "minutes", "N", OPTION_NUMBER(struct tune, minutes, 1, 100000),
     "time for everything, half of it for the profile (default " OPTION_DIGITS(MINUTES) ")"},
    {0, "tokens", "N", OPTION_NUMBER(struct tune, tokens, 256, INT32_MAX),
     "maximum tokens of text (default 65536)"},
    {'c', "ctx-size", "N", OPTION_NUMBER(struct tune, window, TUNE_WINDOW_MIN, 65536),
     "tokens per window of text (default " OPTION_DIGITS(WINDOW) ")"},
    {'y', "yes", NULL, OPTION_FLAG(struct tune, yes), "begin without a question"},
    {0, "output", "text|json", OPTION_JSON(struct tune, json),
     "format of the result on stdout (default text)"},
};

static const struct option_table options = {
    .command = "tune",
    .before = "usage: sluice tune -m FILE --max-loss P [--budget SIZE] [options]\n"
              "\n"
              "Finds the fastest way to run a model within a loss and a budget: profiles it,\n"
              "plans precisions for edgemoe, hobbit and fate, packs a store with them,\n"
              "measures, and records the result. Later starts of run, generate and repl with\n"
              "this model, loss and budget use it. States the cost and asks before it begins.\n"
              "An interrupted tuning continues with the same command.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 27,
    .after = "\n"
             "Exit status: 0 done, 1 failed, 2 bad usage or input, 3 declined, 130\n"
             "interrupted.\n",
};

static int parse(struct tune *t, int argc, char **argv, struct error *error)
{
    if (options_read(&options, t, argc, argv, error) != 0)
        return -1;
    if (option_model(&t->model_path, argc, argv, "", error) != 0)
        return -1;
    if (!t->model_path || !(t->max_loss > 0))
        return error_set(error, ERR_BAD_INPUT, "use -m FILE and --max-loss P");
    return 0;
}

/* Half of the available memory, as for an engine without --budget. */
static uint64_t default_memory(void)
{
    uint64_t available = memory_available();
    return available < UINT64_MAX ? available / 2 : 0;
}

static int find_programs(struct tune *t, struct error *error)
{
    ssize_t n = readlink("/proc/self/exe", t->programs, sizeof t->programs - 1);
    if (n < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot read /proc/self/exe");
    t->programs[n] = 0;
    *strrchr(t->programs, '/') = 0;
    return 0;
}

static void name_files(struct tune *t)
{
    unsigned long long key = t->key;
    snprintf(t->profile, sizeof t->profile, "%s/profile-%016llx-%.0f", t->directory, key,
             t->job.profile_id);
    snprintf(t->plan, sizeof t->plan, "%s/plan-%016llx-%.6g-%.0f", t->directory, key, t->max_loss,
             t->job.plan_id);
}

/* The plan's measurements hold on any machine; the plan of before stays for its record. */
static void move_measurements(const struct tune *t, const char *from)
{
    char old[sizeof t->plan + 16], new[sizeof t->plan + 16];
    snprintf(old, sizeof old, "%s.measured", from);
    snprintf(new, sizeof new, "%s.measured", t->plan);
    if (rename(old, new) != 0 && errno != ENOENT)
        log_debug("%s: %s", old, strerror(errno));
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec * 1000 + (double)(now.tv_nsec / 1000000);
}

/* A new job; `was`: one whose profile is kept, NULL: none. */
static int new_job(struct tune *t, const struct job *was, struct error *error)
{
    char plan[sizeof t->plan];
    memcpy(plan, t->plan, sizeof plan);
    memset(&t->job, 0, sizeof t->job);
    if (probe_run(t, error) != 0)
        return -1;
    machine_look(t, &t->job.machine);
    t->job.profile_id = t->job.plan_id = now_ms();
    if (was && t->job.plan_id <= was->plan_id) /* the clock was set back */
        t->job.plan_id = was->plan_id + 1;
    if (was)
        job_keep_profile(&t->job, was);
    else
        profile_forget(t);
    name_files(t);
    if (was)
        move_measurements(t, plan);
    return job_write(t, error);
}

/* The sizes of an earlier run, or new ones. */
static int take_job(struct tune *t, struct error *error)
{
    struct machine now;
    enum job_state state = job_read(t);
    if (state == JOB_DAMAGED)
        fprintf(stderr, "sluice tune: %s is damaged: a new tuning\n", t->job_path);
    if (state != JOB_GOOD)
        return new_job(t, NULL, error);
    name_files(t);
    machine_look(t, &now);
    const char *what = machine_difference(&t->job.machine, &now);
    if (!what)
        return 0;
    fprintf(stderr, "sluice tune: %s than before: a new plan from the same profile\n", what);
    struct job was = t->job;
    return new_job(t, &was, error);
}

static int prepare(struct tune *t, struct error *error)
{
    if (model_take(t, error) != 0 || find_programs(t, error) != 0 ||
        calibration_find(t, error) != 0 || calibration_key(t, &t->key, error) != 0 ||
        tunings_hash(t->model, t->hash, error) != 0 ||
        tunings_directory(t->hash, t->directory, error) != 0 ||
        tunings_lock(t->directory, &tune_stop, &t->lock, error) != 0 || budget_check(t, error) != 0)
        return -1;
    t->memory = t->budget ? t->budget : default_memory();
    strcpy(t->measured, t->model);
    snprintf(t->job_path, sizeof t->job_path, "%s/job-%016llx.json", t->directory,
             (unsigned long long)t->key);
    return take_job(t, error) == 0 ? store_space_begin(t, error) : -1;
}

/* States the cost; whether to begin. */
static bool agreed(struct tune *t)
{
    char store[16], read[16];
    const struct job *j = &t->job;
    job_times(t, &t->left);
    double all = t->left.forms + t->left.profile + t->left.plan + t->left.pack + t->left.confirm;
    fprintf(
        stderr,
        "sluice tune: about %.0f minutes (profile %.1f, plan %.1f, pack %.1f, measured run %.1f, "
        "lower precisions %.1f), "
        "less what an earlier run has done; a store of up to %s; one thread reads %s/s; %.0f of "
        "the experts are measured alone, the others in %.0f groups of %.0f\n",
        all / 60, t->left.profile / 60, t->left.plan / 60, t->left.pack / 60, t->left.confirm / 60,
        t->left.forms / 60, bytes_format(t->model_bytes, store),
        bytes_format((uint64_t)j->read_bytes_per_s, read), j->importance_experts, j->groups,
        j->group);
    if (j->forms > 0)
        fprintf(stderr, "sluice tune: until there is a plan, %s more are stored\n",
                bytes_format((uint64_t)j->forms_bytes, store));
    if (all > (double)t->minutes * 60 * 1.1)
        fprintf(stderr,
                "sluice tune: this is more than --minutes %lld: less text (--tokens, --text) "
                "makes it shorter\n",
                (long long)t->minutes);
    if (t->yes)
        return true;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
        fprintf(stderr, "sluice tune: no terminal to confirm at; use --yes\n");
        return false;
    }
    char answer[8] = "";
    fprintf(stderr, "begin? [y/N] ");
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

/* The plans, and which of them are measured. */
static int plan_and_choose(struct tune *t, struct error *error)
{
    if (plans_are_done(t))
        fprintf(stderr, "sluice tune: profile and plan of an earlier run are used\n");
    else if (stage_forms(t, error) != 0 || stage_profile(t, error) != 0)
        return -1;
    if (stage_plan(t, error) != 0)
        return -1;
    forms_drop(t);
    for (int i = 0; i < TUNE_SYSTEMS; i++)
        if (!t->system[i].planned)
            fprintf(stderr, "sluice tune: no plan for %s: %s\n", system_name((enum tune_system)i),
                    t->system[i].why);
    return stage_choose(t, error);
}

static int record(struct tune *t, struct error *error)
{
    struct tuning *r = &t->result;
    strcpy(r->model, t->model);
    r->model_bytes = t->model_bytes;
    r->max_loss = t->max_loss;
    r->budget = t->budget;
    r->created = time(NULL);
    strcpy(r->cpu, t->job.machine.cpu);
    calibration_domain(t, r->domain);
    if (strcmp(r->preset, "default") != 0) {
        if (strlen(t->plan) >= sizeof r->plan)
            return error_set(error, ERR_BAD_INPUT, "the path of the plan is too long");
        memcpy(r->plan, t->plan, strlen(t->plan) + 1);
        strcpy(r->store, t->store);
    } else {
        r->loss_high = 0;
        r->store_bytes = 0;
    }
    return tunings_write(t->directory, r, error);
}

/* The budget was checked before, but what a store needs was estimated. */
static int drop_what_does_not_fit(struct tune *t, struct error *error)
{
    char size[16];
    uint64_t minimum;
    int fits = store_fits(t, &minimum, error);
    for (int i = 0; fits == 0 && i < TUNE_SYSTEMS; i++) {
        struct system *s = &t->system[i];
        if (!s->stored)
            continue;
        s->stored = false;
        snprintf(s->why, sizeof s->why, "not measured: its store needs a budget of %s",
                 bytes_format(minimum, size));
        fprintf(stderr, "sluice tune: %s: %s\n", system_name((enum tune_system)i), s->why);
    }
    return fits < 0 ? -1 : 0;
}

static int stages(struct tune *t, struct error *error)
{
    if (plan_and_choose(t, error) != 0)
        return -1;
    if (t->candidates == 0)
        fprintf(stderr, "sluice tune: no store is made: lossless\n");
    else if (stage_pack(t, error) != 0 || drop_what_does_not_fit(t, error) != 0)
        return -1;
    if (stage_confirm(t, error) != 0 || record(t, error) != 0)
        return -1;
    tunings_prune(t->directory, NULL, report_line, t);
    return 0;
}

static void on_signal(int number)
{
    tune_stop = number;
}

static void take_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: waits end */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

int main(int argc, char **argv)
{
    static struct tune t = {
        .lock = TUNINGS_UNLOCKED, .minutes = MINUTES, .window = WINDOW, .store_limit = STORE_LIMIT};
    struct error error = {0};
    log_init("tune", LOG_LEVEL_INFO);
    t.started_ns = clock_now_ns();
    if (parse(&t, argc, argv, &error) != 0 || prepare(&t, &error) != 0)
        return report("tune", &error);
    if (!agreed(&t))
        return DECLINED;
    t.started_ns = clock_now_ns(); /* a question may wait */
    take_signals();                /* before, a signal just ends it */
    if (stages(&t, &error) == 0 && report_result(&t, &error) == 0)
        return 0;
    int status = report("tune", &error);
    return error.code == ERR_CANCELLED ? INTERRUPTED : status;
}
