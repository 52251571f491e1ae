/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-inspect: parses and checks a model: a GGUF file, or an expert store (a directory).
 *
 * As a command: `sluice inspect MODEL [--json] [--tensors]` prints to stdout. For the supervisor,
 * once per start: `--segment-fd N --model-fd M MODEL` parses the file open at M and writes the
 * checked index to N. It is a separate process because a model file is untrusted: a malformed file
 * can only crash this process, which has resource limits, no shared state, and exits after the
 * check.
 *
 * Shared memory: none (N is a plain memory file of the supervisor's).  Messages: none.
 * On its crash: the supervisor's start fails with the reason; no other process exists yet.
 * Trust:     nothing in the file.
 * Limits:    512 MiB of private memory, 30 s of CPU time. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h> /* optind */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/option_table.h"
#include "lib/base/log.h"
#include "lib/model/gguf/split.h"
#include "lib/model/store/store.h"
#include "lib/plan/plan.h"
#include "lib/sandbox/sandbox.h"
#include "lib/terminal/terminal.h"
#include "procs/engine/inspect/describe.h"

#define DATA_BYTES_MAX (512 * MIB)
#define CPU_SECONDS    30

struct inspect {
    char *path;               /* of a split model: the first part */
    const char *plan;         /* plan: appended to the index; NULL: none */
    int segment_fd, model_fd; /* -1: run as a command */
    bool json, tensors, raw, skeleton;
    const char *sandbox; /* parameter of the engine */
};

static int descriptor(const char *text, struct error *error)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == 0 || *end || value < 0 || value > INT16_MAX)
        return error_set(error, ERR_BAD_INPUT, "'%.40s' is not a file descriptor", text);
    return (int)value;
}

static int take_segment(void *program, const char *value, struct error *error)
{
    struct inspect *in = program;
    in->segment_fd = descriptor(value, error);
    return in->segment_fd < 0 ? -1 : 0;
}

static int take_model_fd(void *program, const char *value, struct error *error)
{
    struct inspect *in = program;
    in->model_fd = descriptor(value, error);
    return in->model_fd < 0 ? -1 : 0;
}

static int take_sandbox(void *program, const char *value, struct error *error)
{
    struct inspect *in = program;
    if (strcmp(value, "auto") != 0 && strcmp(value, "require") != 0 && strcmp(value, "off") != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "--sandbox: '%.40s' is not one of auto, require, off", value);
    in->sandbox = value;
    return 0;
}

static int take_log_format(void *program, const char *value, struct error *error)
{
    enum log_format format;
    (void)program, (void)error;
    if (log_format_parse(value, &format))
        log_set_format(format);
    return 0;
}

static const struct option_row rows[] = {
    {0, "json", NULL, OPTION_FLAG(struct inspect, json), "as one JSON object"},
    {0, "tensors", NULL, OPTION_FLAG(struct inspect, tensors), "list every tensor"},
    {0, "raw", NULL, OPTION_FLAG(struct inspect, raw),
     "control characters in names go to a terminal unchanged"},
    {0, "sandbox", "MODE", OPTION_CALL(take_sandbox),
     "auto (default), require, or off: for debuggers (docs/sandbox.md)"},
    /* from the supervisor */
    {0, "segment-fd", "N", OPTION_CALL(take_segment), NULL},
    {0, "model-fd", "N", OPTION_CALL(take_model_fd), NULL},
    {0, "plan", "FILE", OPTION_TEXT(struct inspect, plan), NULL},
    {0, "skeleton", NULL, OPTION_FLAG(struct inspect, skeleton), NULL},
    {0, "log-format", "FORMAT", OPTION_CALL(take_log_format), NULL},
};

static const struct option_table options = {
    .command = "inspect",
    .before = "usage: sluice inspect MODEL [--json] [--tensors] [--raw]\n"
              "\n"
              "Describes a model, a GGUF file (any part of a split one) or an expert store:\n"
              "architecture, shapes, experts, precisions and stripes, and minimum memory.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 19,
    .after = "\n"
             "Exit status: 0 supported model, 1 failed, 2 not a supported model (one line on\n"
             "stderr states why).\n",
};

static int options_take(struct inspect *in, int argc, char **argv, struct error *error)
{
    if (options_read(&options, in, argc, argv, error) != 0)
        return -1;
    if (optind + 1 != argc)
        return error_set(error, ERR_BAD_INPUT,
                         "exactly one model must be given; see 'sluice inspect --help'");
    in->path = argv[optind];
    return 0;
}

/* Before the first byte of the file is read. */
static void limit_self(void)
{
    setrlimit(RLIMIT_DATA, &(struct rlimit){DATA_BYTES_MAX, DATA_BYTES_MAX});
    setrlimit(RLIMIT_CPU, &(struct rlimit){CPU_SECONDS, CPU_SECONDS});
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
}

static int write_blob(int fd, const void *blob, uint64_t bytes, uint64_t offset,
                      struct error *error)
{
    const char *from = blob;
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = pwrite(fd, from + at, bytes - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set_errno(error, ERR_IO, errno, "cannot write the index");
        at += (uint64_t)n;
    }
    return 0;
}

/* The plan follows the index, at the next multiple of PLAN_ARRAY_ALIGN. */
static int write_plan(const struct inspect *in, const struct model_index *index,
                      const struct gguf_parts *parts, bool store, struct error *error)
{
    uint8_t hash[PLAN_HASH_BYTES];
    struct plan *plan = plan_read(in->plan, error);
    if (!plan)
        return -1;
    int dense_fd = store ? openat(parts->fd[0], STORE_MODEL_FILE, O_RDONLY | O_CLOEXEC) : -1;
    int rc = store && dense_fd < 0
                 ? error_set_errno(error, ERR_IO, errno, "cannot open %.200s/%s", in->path,
                                   STORE_MODEL_FILE)
                 : plan_model_hash(index, store ? &dense_fd : parts->fd, hash, error);
    if (store && dense_fd >= 0)
        close(dense_fd);
    if (rc == 0)
        rc = plan_matches(plan, index, hash, in->plan, error);
    if (rc == 0)
        rc = write_blob(in->segment_fd, plan, plan->bytes, align_up(index->bytes, PLAN_ARRAY_ALIGN),
                        error);
    free(plan);
    return rc;
}

static int deliver(const struct inspect *in, const struct model_index *index, struct error *error)
{
    if (in->segment_fd >= 0)
        return write_blob(in->segment_fd, index, index->bytes, 0, error);
    int rc = 0;
    if (in->json)
        rc = describe_json(stdout, in->path, index, in->tensors);
    else
        describe_text(stdout, in->path, index, in->tensors);
    if (rc != 0 || fflush(stdout) != 0)
        return error_set(error, ERR_IO, "cannot write the description");
    return 0;
}

static void report_violation(const char *text, void *arg)
{
    (void)arg;
    ssize_t n = write(STDERR_FILENO, "inspect: ", 9);
    n = write(STDERR_FILENO, text, strlen(text));
    n = write(STDERR_FILENO, "\n", 1);
    (void)n;
}

/* No network and no files, or reading only: the stripes of a store may be on any device. The plan
 * is opened before. */
static int confine(const struct inspect *in, bool store, struct error *error)
{
    static const struct sandbox_rule readable[] = {{"/", SANDBOX_READ}};
    char text[SANDBOX_TEXT_BYTES];
    uint32_t parts = 0;
    if (strcmp(in->sandbox, "off") == 0)
        return 0;
    tzset();
    json_object_seed(0); /* both read a file at their first use */
    if (sandbox_files(readable, store || in->plan, &parts, error) != 0 ||
        sandbox_calls(store || in->plan ? SANDBOX_INSPECT_STORE : SANDBOX_INSPECT, report_violation,
                      NULL, &parts, error) != 0)
        return -1;
    if (strcmp(in->sandbox, "require") == 0 && (parts & SANDBOX_ALL) != SANDBOX_ALL)
        return error_set(error, ERR_BAD_INPUT, "--sandbox require: the kernel provides only %s",
                         sandbox_text(parts, text));
    return 0;
}

/* All parts are open: a confined process opens no file. */
static int take_model(struct inspect *in, struct gguf_parts *parts, bool store, struct error *error)
{
    struct model_index *index = NULL;
    int rc = confine(in, store, error);
    if (rc == 0)
        rc = store ? store_index_build(parts->fd[0], in->path, &index, error)
                   : model_index_build_parts(parts, &index, error);
    if (rc == 0)
        rc = deliver(in, index, error);
    if (rc == 0 && in->plan && in->segment_fd >= 0)
        rc = write_plan(in, index, parts, store, error);
    free(index);
    return rc;
}

static int run(struct inspect *in, struct error *error)
{
    gguf_first_part(in->path);
    int fd = in->model_fd >= 0 ? in->model_fd : open(in->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", in->path);
    struct stat st;
    bool store = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    struct gguf_parts *parts = malloc(sizeof *parts);
    if (!parts)
        return error_set(error, ERR_NO_MEMORY, "out of memory (model)");
    gguf_parts_open(parts, fd, in->path);
    parts->skeletons = in->skeleton;
    int rc = take_model(in, parts, store, error);
    gguf_parts_close(parts);
    free(parts);
    return rc;
}

int main(int argc, char **argv)
{
    struct inspect in = {.segment_fd = -1, .model_fd = -1, .sandbox = "auto"};
    struct error error;
    log_init("inspect", LOG_LEVEL_INFO);
    limit_self();
    int status = options_take(&in, argc, argv, &error);
    if (status == 0) {
        terminal_guard(in.raw);
        status = run(&in, &error);
    }
    if (status == 0)
        return 0;
    log_line(LOG_LEVEL_ERROR, "error: %s", error.text);
    return error_exit_status(error.code);
}
