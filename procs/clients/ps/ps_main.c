/* SPDX-License-Identifier: Apache-2.0 */
/* sluice ps: the running engines of this user, one line each.
 *
 * Asks the supervisor of every locked run directory for its status. One that does not answer in
 * time (it starts, stops or hangs) is listed with that state. Maps no segment.
 *
 * Trust: replies are checked by the stubs in ipc/. */
#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_table.h"
#include "ipc/run_dirs.h"
#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "lib/terminal/terminal.h"
#include "procs/clients/common/options.h"
#include "procs/clients/common/session.h"

struct ps {
    bool json, raw;
    json_t *engines;
};

static const struct option_row rows[] = {
    {0, "json", NULL, OPTION_FLAG(struct ps, json), "the same as JSON"},
    {0, "raw", NULL, OPTION_FLAG(struct ps, raw),
     "control characters in names go to a terminal unchanged"},
};

static const struct option_table options = {
    .command = "ps",
    .before = "usage: sluice ps [--json] [--raw]\n"
              "\n"
              "Lists the running engines of this user: name, state, process, memory used,\n"
              "budget, URL, model.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 19,
};

static int parse(struct ps *p, int argc, char **argv, struct error *error)
{
    if (options_read(&options, p, argc, argv, error) != 0)
        return -1;
    if (optind < argc)
        return error_set(error, ERR_BAD_INPUT, "'%.80s' is not an option", argv[optind]);
    return 0;
}

static json_t *status_of(const char *name)
{
    struct error ignored;
    json_t *reply = NULL;
    struct rpc_client *control = control_client_open(name, &ignored);
    if (!control)
        return NULL;
    rpc_client_set_stop(control, &session_stop);
    if (control_call(control, "status", NULL, &reply, &ignored) != 0)
        reply = NULL;
    rpc_client_close(control);
    return reply;
}

static void add(const char *name, void *arg)
{
    static const char *const keys[] = {"state",      "pid",          "model", "url",
                                       "used_bytes", "budget_bytes", "preset"};
    struct ps *p = arg;
    json_t *status = status_of(name);
    json_t *engine = json_pack("{s:s, s:s}", "name", name, "state", "no reply");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_object_get(status, keys[i]))
            json_object_set(engine, keys[i], json_object_get(status, keys[i]));
    json_decref(status);
    json_array_append_new(p->engines, engine);
}

static void print(const struct ps *p)
{
    if (p->json) {
        json_dumpf(p->engines, stdout, JSON_INDENT(2));
        printf("\n");
        return;
    }
    size_t i;
    json_t *e;
    printf("%-16s %-10s %8s %10s %10s  %-28s %s\n", "NAME", "STATE", "PID", "USED", "BUDGET", "URL",
           "MODEL");
    json_array_foreach(p->engines, i, e)
    {
        char used[16], budget[16];
        const char *url = lookup_text(e, "url");
        printf("%-16s %-10s %8llu %10s %10s  %-28s %s\n", lookup_text(e, "name"),
               lookup_text(e, "state"), (unsigned long long)lookup_u64(e, "pid"),
               bytes_format(lookup_u64(e, "used_bytes"), used),
               bytes_format(lookup_u64(e, "budget_bytes"), budget), *url ? url : "-",
               lookup_text(e, "model"));
    }
}

int main(int argc, char **argv)
{
    struct ps p = {.engines = json_array()};
    struct error error;
    session_signals();
    int status = parse(&p, argc, argv, &error);
    if (status == 0) {
        terminal_guard(p.raw);
        run_dirs_running(add, &p);
        print(&p);
        status = output_end(&error);
    }
    json_decref(p.engines);
    return status == 0 ? 0 : report("ps", &error);
}
