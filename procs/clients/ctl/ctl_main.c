/* SPDX-License-Identifier: Apache-2.0 */
/* sluice ctl: sends control requests to the supervisor of a running engine, and to compute.
 *
 * Every command is one row of the table below: its name, its request, its help. Maps no segment.
 *
 * Trust: replies are checked by the stubs in ipc/; the form of arguments is checked here, their
 * meaning by the supervisor. */
#include <getopt.h> /* optind */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_table.h"
#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "lib/text/suggest.h"
#include "procs/clients/common/options.h"
#include "procs/clients/common/session.h"

#define ARGUMENTS_MAX 2
#define DRAIN_POLL_MS 100
#define IDLE_POLLS    2
#define CLEAR_POLL_MS 10

struct ctl;

struct command {
    const char *name, *arguments;
    int count;      /* of arguments */
    int optional;   /* how many of the last ones are optional */
    bool test_only; /* available only with SLUICE_TEST=1 */
    json_t *(*request)(char **arguments, struct error *error);
    void (*print)(const struct command *command, const json_t *reply);
    const char *help;
};

struct ctl {
    const char *run;
    bool json;
    const struct command *command;
    char *arguments[ARGUMENTS_MAX];
};

/* ---- requests: arguments -> fields ---- */

static json_t *no_fields(char **arguments, struct error *error)
{
    (void)arguments;
    (void)error;
    return json_object();
}

static json_t *size_field(const char *what, const char *text, const char *key, struct error *error)
{
    uint64_t bytes;
    if (option_bytes(what, text, &bytes, error) != 0)
        return NULL;
    return json_pack("{s:I}", key, (json_int_t)bytes);
}

static json_t *budget_fields(char **arguments, struct error *error)
{
    json_t *fields = size_field("budget", arguments[0], "bytes", error);
    if (fields)
        option_warn_budget("ctl", lookup_u64(fields, "bytes"));
    return fields;
}

/* "loader.0", "loader" or "0" */
static int loader_number(const char *text, int64_t *number, struct error *error)
{
    if (strncmp(text, "loader", 6) == 0)
        text += text[6] == '.' ? 7 : 6;
    *number = 0;
    return *text ? option_i64("LOADER", text, 0, 15, number, error) : 0;
}

static json_t *throttle_fields(char **arguments, struct error *error)
{
    int64_t number;
    if (loader_number(arguments[0], &number, error) != 0)
        return NULL;
    json_t *fields = size_field("throttle", arguments[1], "bytes_per_second", error);
    if (fields)
        json_object_set_new(fields, "loader", json_integer(number));
    return fields;
}

static json_t *replace_fields(char **arguments, struct error *error)
{
    int64_t number;
    if (loader_number(arguments[0], &number, error) != 0)
        return NULL;
    return json_pack("{s:I, s:s*}", "loader", (json_int_t)number, "backend", arguments[1]);
}

static json_t *process_fields(char **arguments, struct error *error)
{
    (void)error;
    return json_pack("{s:s}", "process", arguments[0]);
}

static json_t *preset_fields(char **arguments, struct error *error)
{
    (void)error;
    return json_pack("{s:s}", "preset", arguments[0]);
}

static json_t *level_fields(char **arguments, struct error *error)
{
    (void)error;
    return json_pack("{s:s}", "level", arguments[0]);
}

static json_t *inject_fields(char **arguments, struct error *error)
{
    (void)error;
    return json_pack("{s:s}", "point", arguments[0]);
}

static json_t *prefixes_fields(char **arguments, struct error *error)
{
    if (!arguments[0])
        return json_object();
    if (strcmp(arguments[0], "clear") == 0)
        return json_pack("{s:b}", "clear", 1);
    error_set(error, ERR_BAD_INPUT, "usage: sluice ctl prefixes [clear]");
    return NULL;
}

/* ---- text output ---- */

static void print_done(const struct command *command, const json_t *reply)
{
    (void)reply;
    printf("%s: done\n", command->name);
}

static void print_budget(const struct command *command, const json_t *reply)
{
    (void)command;
    char bytes[16];
    uint64_t budget = lookup_u64(reply, "budget_bytes");
    printf("budget: %s in effect\n", bytes_format(budget, bytes));
}

static void print_fields(const struct command *command, const json_t *reply)
{
    (void)command;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)reply, key, value)
    {
        if (strcmp(key, "v") == 0 || strcmp(key, "id") == 0 || strcmp(key, "ok") == 0)
            continue;
        if (json_is_string(value)) {
            printf("%-20s %s\n", key, json_string_value(value));
            continue;
        }
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        printf("%-20s %s\n", key, text ? text : "");
        free(text);
    }
}

/* Of an array, with one line for each entry. */
static void print_kept(const char *where, const json_t *list)
{
    char bytes[16];
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry)
    {
        printf("%-8s %8" PRIu64 " tokens  %10s", where, lookup_u64(entry, "tokens"),
               bytes_format(lookup_u64(entry, "bytes"), bytes));
        if (json_object_get(entry, "uses"))
            printf("  used %" PRIu64 " times", lookup_u64(entry, "uses"));
        printf("\n");
    }
}

static void print_prefixes(const struct command *command, const json_t *reply)
{
    const json_t *memory = json_object_get(reply, "memory");
    const json_t *storage = json_object_get(reply, "storage");
    (void)command;
    print_kept("memory", memory);
    print_kept("storage", storage);
    if (json_array_size(memory) + json_array_size(storage) == 0)
        printf("no prefix is kept\n");
}

static const struct command commands[] = {
    {"status", "", 0, 0, false, no_fields, print_fields, "state of the engine"},
    {"budget", "SIZE", 1, 0, false, budget_fields, print_budget, "change the budget: budget 8GiB"},
    {"throttle", "LOADER RATE", 2, 0, false, throttle_fields, print_done,
     "limit bytes/s, 0: no limit: throttle 0 20MB"},
    {"restart", "PROCESS", 1, 0, false, process_fields, print_done,
     "loader.N, cache, predictor, compute or gateway"},
    {"replace", "LOADER [BACKEND]", 2, 1, false, replace_fields, print_done,
     "restart it, end its quarantine; io_uring or pread"},
    {"preset", "NAME", 1, 0, false, preset_fields, print_fields,
     "use this preset from the next sequence on"},
    {"log-level", "LEVEL", 1, 0, false, level_fields, print_fields,
     "log from here on: debug, info, warn, error or none"},
    {"prefixes", "[clear]", 1, 1, false, prefixes_fields, print_prefixes,
     "kept prefixes, without their text; clear: remove"},
    {"drain", "", 0, 0, false, no_fields, print_done,
     "accept no new sequences, wait for the others"},
    {"stop", "", 0, 0, false, no_fields, print_done, "stop the engine"},
    {"inject", "POINT", 1, 0, true, inject_fields, print_done,
     "stop a process at a point of its code (tests)"},
};

static bool allowed(const struct command *command)
{
    const char *test = getenv("SLUICE_TEST");
    return !command->test_only || (test && strcmp(test, "1") == 0);
}

static void print_commands(FILE *out)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (allowed(&commands[i]))
            fprintf(out, "  %-9s %-17s %s\n", commands[i].name, commands[i].arguments,
                    commands[i].help);
}

static const struct option_row rows[] = {
    {0, "name", "NAME", OPTION_TEXT(struct ctl, run),
     "the engine (default \"" RUN_NAME_DEFAULT "\")"},
    {0, "output", "text|json", OPTION_JSON(struct ctl, json), "format on stdout (default text)"},
    {0, "json", NULL, OPTION_FLAG(struct ctl, json), "the same as --output json"},
};

static const struct option_table options = {
    .command = "ctl",
    .before = "usage: sluice ctl [--name NAME] [--json] COMMAND [ARGUMENTS]\n"
              "\n"
              "Controls a running engine.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 23,
    .after = "\nCommands:\n",
    .more = print_commands,
};

static int find_command(struct ctl *c, int argc, char **argv, struct error *error)
{
    if (argc < 1)
        return error_set(error, ERR_BAD_INPUT, "no command given (see sluice ctl --help)");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        const struct command *command = &commands[i];
        if (strcmp(command->name, argv[0]) != 0 || !allowed(command))
            continue;
        if (argc - 1 > command->count || argc - 1 < command->count - command->optional)
            return error_set(error, ERR_BAD_INPUT, "usage: sluice ctl %s %s", command->name,
                             command->arguments);
        c->command = command;
        for (int a = 0; a < argc - 1; a++)
            c->arguments[a] = argv[1 + a];
        return 0;
    }
    struct suggest s;
    char hint[SUGGEST_HINT_BYTES];
    suggest_start(&s, argv[0], strlen(argv[0]));
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (allowed(&commands[i]))
            suggest_name(&s, commands[i].name);
    return error_set(error, ERR_BAD_INPUT, "unknown command '%.80s'%s (see sluice ctl --help)",
                     argv[0], suggest_hint(&s, "", hint));
}

static int parse(struct ctl *c, int argc, char **argv, struct error *error)
{
    if (options_read(&options, c, argc, argv, error) != 0)
        return -1;
    return find_command(c, argc - optind, argv + optind, error);
}

/* The operation of a command: its name without dashes, because an operation is one lower-case
 * word. */
static const char *operation(const struct command *command, char op[32])
{
    size_t n = 0;
    for (const char *from = command->name; *from && n < 31; from++)
        if (*from != '-')
            op[n++] = *from;
    op[n] = 0;
    return op;
}

/* Sequences that have not ended; UINT64_MAX: unknown, because compute is being restarted and
 * resumes them then. */
static uint64_t sequences_left(const json_t *stats)
{
    for (size_t i = 0; i < lookup_processes(stats); i++) {
        const json_t *row = lookup_row(stats, i);
        if (strcmp(lookup_text(row, "service"), "compute") == 0 &&
            strcmp(lookup_text(row, "state"), "ready") == 0)
            return lookup_u64(row, "counters.sequences_running") +
                   lookup_u64(row, "counters.sequences_queued");
    }
    return UINT64_MAX;
}

/* Until no sequence is left: twice in succession, because one that was accepted just before is not
 * counted at once. */
static int wait_drained(struct rpc_client *control, struct error *error)
{
    uint64_t stated = 0;
    for (unsigned idle = 0; idle < IDLE_POLLS;) {
        json_t *stats = NULL;
        if (session_stop)
            return error_set(error, ERR_CANCELLED,
                             "no longer waiting; the engine continues to drain");
        if (control_call(control, "stats", NULL, &stats, error) != 0)
            return -1;
        uint64_t left = sequences_left(stats);
        json_decref(stats);
        idle = left == 0 ? idle + 1 : 0;
        if (left > 0 && left != stated && left != UINT64_MAX)
            fprintf(stderr, "sluice ctl: draining, %" PRIu64 " sequence%s to end\n", left,
                    left == 1 ? "" : "s");
        stated = left;
        poll(NULL, 0, DRAIN_POLL_MS);
    }
    return 0;
}

/* A call of compute, not of the supervisor. */
static bool is_of_engine(const struct command *command)
{
    return strcmp(command->name, "prefixes") == 0;
}

/* Until compute has removed what was there at the request; *reply is then the list after it. */
static int wait_cleared(struct rpc_client *engine, json_t **reply, struct error *error)
{
    while (json_is_true(json_object_get(*reply, "clearing"))) {
        if (session_stop)
            return error_set(error, ERR_CANCELLED,
                             "no longer waiting; the engine continues to remove them");
        poll(NULL, 0, CLEAR_POLL_MS);
        json_decref(*reply);
        *reply = NULL;
        if (control_call(engine, "prefixes", NULL, reply, error) != 0)
            return -1;
    }
    return 0;
}

static int run(struct ctl *c, struct error *error)
{
    char op[32];
    json_t *fields = c->command->request(c->arguments, error);
    if (!fields)
        return -1;
    struct rpc_client *control = is_of_engine(c->command) ? engine_client_open(c->run, error)
                                                          : control_client_open(c->run, error);
    if (!control) {
        json_decref(fields);
        return -1;
    }
    rpc_client_set_stop(control, &session_stop);
    json_t *reply = NULL;
    int status = control_call(control, operation(c->command, op), fields, &reply, error);
    if (status == 0 && strcmp(c->command->name, "drain") == 0)
        status = wait_drained(control, error);
    if (status == 0 && is_of_engine(c->command))
        status = wait_cleared(control, &reply, error);
    if (status == 0 && c->json) {
        json_dumpf(reply, stdout, JSON_INDENT(2));
        printf("\n");
    } else if (status == 0) {
        c->command->print(c->command, reply);
    }
    json_decref(reply);
    rpc_client_close(control);
    return status;
}

int main(int argc, char **argv)
{
    struct ctl c = {.run = RUN_NAME_DEFAULT};
    struct error error;
    session_signals();
    return parse(&c, argc, argv, &error) == 0 && run(&c, &error) == 0 && output_end(&error) == 0
               ? 0
               : report("ctl", &error);
}
