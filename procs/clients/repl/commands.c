/* SPDX-License-Identifier: Apache-2.0 */
/* Commands (lines that start with '/'): the rows of commands.tbl.h and their handlers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "lib/policy/presets/presets.h"
#include "lib/text/suggest.h"
#include "procs/clients/common/generation_stats.h"
#include "procs/clients/common/map.h"
#include "procs/clients/common/options.h"
#include "procs/clients/repl/repl.h"

#define MAP_COLUMNS 64
#define HELP_COLUMN 25
#define PLURAL(n)   (n), (n) == 1 ? "" : "s"

enum completion { COMPLETE_NONE, COMPLETE_SETTING, COMPLETE_PRESET };

typedef int (*handler)(struct repl *r, char *arguments, struct error *error);

#define COMMAND(name, arguments, completion, help)                                                 \
    static int cmd_##name(struct repl *r, char *arguments_text, struct error *error);
#define ALIAS(name, of)
#include "procs/clients/repl/commands.tbl.h"

static const struct command {
    const char *name, *arguments, *help; /* help NULL: an alias */
    handler run;
    enum completion completion;
} commands[] = {
#define COMMAND(name, arguments, completion, help)                                                 \
    {#name, arguments, help, cmd_##name, COMPLETE_##completion},
#define ALIAS(name, of) {name, "", NULL, cmd_##of, COMPLETE_NONE},
#include "procs/clients/repl/commands.tbl.h"
};

/* A control call; Ctrl-C cancels the call, not the session. */
static json_t *engine_call(struct repl *r, const char *op, json_t *fields, struct error *error)
{
    json_t *reply = NULL;
    rpc_client_set_stop(r->session.control, &session_stop);
    int status = control_call(r->session.control, op, fields, &reply, error);
    rpc_client_set_stop(r->session.control, NULL);
    return status == 0 ? reply : NULL;
}

static int no_arguments(const char *arguments, struct error *error)
{
    return *arguments ? error_set(error, ERR_BAD_INPUT, "this command takes no argument ('%.40s')",
                                  arguments)
                      : 0;
}

static int cmd_help(struct repl *r, char *arguments, struct error *error)
{
    (void)r;
    if (no_arguments(arguments, error) != 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (commands[i].help) {
            int n = printf("  /%s %s", commands[i].name, commands[i].arguments);
            printf("%*s%s\n", HELP_COLUMN - n, "", commands[i].help);
        }
    printf("Ctrl-C ends the response, not the session; exit and quit end the session, too.\n"
           "\"\"\" starts and ends a prompt of several lines. Tab completes commands, settings\n"
           "and presets.\n");
    return 0;
}

static int cmd_set(struct repl *r, char *arguments, struct error *error)
{
    return settings_set(r, arguments, error);
}

static int cmd_system(struct repl *r, char *arguments, struct error *error)
{
    if (*arguments)
        return settings_system(r, arguments, error);
    printf("%s\n", r->system ? r->system : "no system message; /system TEXT sets one");
    return 0;
}

static int cmd_tokens(struct repl *r, char *arguments, struct error *error)
{
    uint64_t now, then, context;
    if (turn_count(r, "", &now, &context, error) != 0)
        return -1;
    if (!*arguments) {
        printf("the conversation has %" PRIu64 " of %" PRIu64 " tokens", now, context);
        if (r->conversation.first)
            printf(", without the oldest %zu turn%s", PLURAL(r->conversation.first));
        printf("%s\n", now >= context ? "; the oldest are left out of the next prompt" : "");
        return 0;
    }
    if (turn_count(r, arguments, &then, &context, error) != 0)
        return -1;
    printf("this prompt adds %" PRId64 " token%s: %" PRIu64 " of %" PRIu64 "%s\n",
           (int64_t)(then - now), then - now == 1 ? "" : "s", then, context,
           then >= context ? "; the oldest turns are left out" : "");
    return 0;
}

static void print_conversation(const struct repl *r)
{
    printf("%zu turn%s", PLURAL(r->conversation.count));
    if (r->conversation.first)
        printf(" (the oldest %zu no longer sent)", r->conversation.first);
    if (r->context_size)
        printf(", %" PRIu64 " of %" PRIu64 " tokens", r->context_used, r->context_size);
    putchar('\n');
}

static int cmd_show(struct repl *r, char *arguments, struct error *error)
{
    if (no_arguments(arguments, error) != 0)
        return -1;
    settings_show(r, NULL, stdout);
    json_t *doc = engine_call(r, "stats", NULL, error);
    if (!doc)
        return -1;
    char dense[16], experts[16];
    printf("model: %s (%s)\n", lookup_model(doc), lookup_text(doc, "model.arch"));
    printf("model: %" PRIu64 " layers of %" PRIu64 " experts, %" PRIu64
           " per token; experts %s, all else %s\n",
           lookup_u64(doc, "model.layers"), lookup_u64(doc, "model.experts"),
           lookup_u64(doc, "model.experts_used"),
           bytes_format(lookup_u64(doc, "model.expert_bytes"), experts),
           bytes_format(lookup_u64(doc, "model.dense_bytes"), dense));
    printf("engine: '%s'%s\n", r->session.run,
           r->session.own ? ", private: ends with this conversation" : "");
    printf("conversation: ");
    print_conversation(r);
    json_decref(doc);
    return 0;
}

static int cmd_stats(struct repl *r, char *arguments, struct error *error)
{
    if (no_arguments(arguments, error) != 0)
        return -1;
    if (r->stats)
        generation_stats_print_all(stdout, r->stats);
    else
        printf("no response yet\n");
    printf("conversation: ");
    print_conversation(r);
    json_t *doc = engine_call(r, "stats", NULL, error);
    if (!doc)
        return -1;
    char read[16];
    uint64_t accesses = lookup_counter(doc, "compute", "accesses");
    uint64_t hits = lookup_counter(doc, "compute", "hits");
    printf("engine: up %.0f s; sequences %" PRIu64 ", tokens %" PRIu64 ", restarts %" PRIu64 "\n",
           (double)lookup_u64(doc, "uptime_ms") / 1e3,
           lookup_counter(doc, "compute", "sequences_done"),
           lookup_counter(doc, "compute", "tokens_decode"), lookup_restarts(doc));
    printf("engine: hit rate %.1f %% of %" PRIu64 " accesses, %s read\n",
           accesses ? 100.0 * (double)hits / (double)accesses : 0.0, accesses,
           bytes_format(lookup_counter(doc, "loader", "bytes_read"), read));
    json_decref(doc);
    return 0;
}

static int cmd_experts(struct repl *r, char *arguments, struct error *error)
{
    if (no_arguments(arguments, error) != 0)
        return -1;
    json_t *reply = engine_call(r, "map", NULL, error);
    struct map map;
    if (!reply)
        return -1;
    int status = map_read(reply, &map, error);
    if (status == 0) {
        char line[MAP_COLUMNS + 1];
        uint32_t cell = map_cell(&map, MAP_COLUMNS);
        printf("layer  resident  experts (%s)\n", map_legend(MAP_VIEW_PRECISION, cell));
        for (uint32_t i = 0; i < map.rows; i++)
            printf("%5u  %4u/%-4u %s\n", map.row[i].layer, map_resident(&map, i), map.experts,
                   map_line(&map, i, MAP_VIEW_PRECISION, cell, line, sizeof line));
        map_free(&map);
    }
    json_decref(reply);
    return status;
}

static const char *backend_name(uint64_t backend)
{
    return backend == 1 ? "io_uring" : backend == 2 ? "pread" : "?";
}

static int cmd_loaders(struct repl *r, char *arguments, struct error *error)
{
    if (no_arguments(arguments, error) != 0)
        return -1;
    json_t *doc = engine_call(r, "stats", NULL, error);
    if (!doc)
        return -1;
    printf(" #  backend   %10s  %12s  %10s  %8s  doing\n", "read", "while busy", "throttle",
           "p99 wait");
    const json_t *throttles =
        json_object_get(json_object_get(doc, "directory"), "throttle_bytes_per_s");
    for (size_t i = 0; i < lookup_processes(doc); i++) {
        const json_t *row = lookup_row(doc, i);
        if (strcmp(lookup_text(row, "service"), "loader") != 0)
            continue;
        uint64_t number = lookup_u64(row, "number"), busy = lookup_u64(row, "counters.busy_ns");
        uint64_t bytes = lookup_u64(row, "counters.bytes_read");
        uint64_t limit = (uint64_t)json_integer_value(json_array_get(throttles, number));
        char total[16], rate[16], throttle[16];
        bytes_format(busy ? (uint64_t)((double)bytes * 1e9 / (double)busy) : 0, rate);
        const char *state = lookup_text(row, "state");
        printf("%2" PRIu64 "  %-8s  %10s  %10s/s  %10s  %5" PRIu64 " us  %s\n", number,
               backend_name(lookup_u64(row, "counters.backend")), bytes_format(bytes, total), rate,
               limit ? bytes_format(limit, throttle) : "none",
               lookup_u64(row, "demand_to_submission.p99_us"),
               strcmp(state, "ready") == 0 ? lookup_text(row, "wait") : state);
    }
    json_decref(doc);
    return 0;
}

static int cmd_budget(struct repl *r, char *arguments, struct error *error)
{
    char budget[16], used[16], min_budget[16], arena[16];
    uint64_t bytes = 0;
    if (*arguments && option_bytes("/budget", arguments, &bytes, error) != 0)
        return -1;
    option_warn_budget("repl", bytes);
    json_t *reply =
        *arguments ? engine_call(r, "budget", json_pack("{s:I}", "bytes", (json_int_t)bytes), error)
                   : engine_call(r, "stats", NULL, error);
    if (!reply)
        return -1;
    const json_t *stats = json_object_get(reply, "memory"), *m = stats ? stats : reply;
    printf("budget %s (minimum %s), used %s, arena %s\n",
           bytes_format(lookup_u64(m, "budget_bytes"), budget),
           bytes_format(lookup_u64(m, "min_budget_bytes"), min_budget),
           bytes_format(lookup_u64(m, "used_bytes"), used),
           bytes_format(lookup_u64(m, "arena_quota_bytes"), arena));
    json_decref(reply);
    return 0;
}

/* Bytes of the phrases of a text that fit into `columns`. */
static int phrases(const char *text, size_t columns)
{
    size_t n = strlen(text);
    while (n > columns) {
        const char *comma = memrchr(text, ',', n);
        if (!comma)
            break;
        n = (size_t)(comma - text);
    }
    return (int)n;
}

/* The one in use and those that most users need with their purpose, the others by name. */
static void list_presets(const char *used)
{
    static const char *const common[] = {"default", "auto", "resident"};
    unsigned column = 0;
    for (uint32_t i = 0; i < preset_count(); i++) {
        const struct preset *p = preset_at(i);
        bool shown = strcmp(p->name, used) == 0;
        for (size_t k = 0; k < ARRAY_LEN(common); k++)
            shown |= strcmp(p->name, common[k]) == 0;
        if (shown)
            printf("%c %-10s %.*s\n", strcmp(p->name, used) == 0 ? '*' : ' ', p->name,
                   phrases(p->doc, 66), p->doc);
    }
    for (uint32_t i = 0; i < preset_count(); i++) {
        unsigned n = (unsigned)strlen(preset_at(i)->name) + 1;
        printf("%s%s", column == 0 ? "  all:" : column + n > 70 ? "\n      " : "", "");
        column = column + n > 70 ? n : column + n;
        printf(" %s", preset_at(i)->name);
    }
    printf("\n  What each does: sluice sim --help\n");
}

static int cmd_preset(struct repl *r, char *arguments, struct error *error)
{
    bool list = !*arguments;
    json_t *reply = list ? engine_call(r, "status", NULL, error)
                         : engine_call(r, "preset", json_pack("{s:s}", "preset", arguments), error);
    if (!reply)
        return -1;
    if (list)
        list_presets(lookup_text(reply, "preset"));
    else
        printf("preset %s from the next response on%s\n", lookup_text(reply, "preset"),
               json_is_true(json_object_get(reply, "lossy")) ? "; it may change the output" : "");
    json_decref(reply);
    return 0;
}

static int cmd_regen(struct repl *r, char *arguments, struct error *error)
{
    if (no_arguments(arguments, error) != 0)
        return -1;
    struct turn last;
    if (!conversation_take_last(&r->conversation, &last))
        return error_set(error, ERR_BAD_INPUT, "no prompt to repeat yet");
    int status = turn_run(r, last.prompt, error);
    if (status != 0) /* keep the old response */
        conversation_add(&r->conversation, last.prompt, last.response, last.response_bytes);
    free(last.prompt);
    free(last.response);
    return status;
}

static int cmd_save(struct repl *r, char *arguments, struct error *error)
{
    static const char force[] = "--force";
    size_t n = sizeof force - 1;
    bool overwrite = strncmp(arguments, force, n) == 0 && strchr(" \t", arguments[n]);
    if (overwrite)
        arguments += n + strspn(arguments + n, " \t");
    if (!*arguments)
        return error_set(error, ERR_BAD_INPUT, "usage: /save [--force] FILE");
    json_t *settings = settings_json(r);
    int status = conversation_save(&r->conversation, settings, arguments, overwrite, error);
    json_decref(settings);
    if (status == 0)
        printf("%zu turn%s saved\n", PLURAL(r->conversation.count));
    return status;
}

static int cmd_load(struct repl *r, char *arguments, struct error *error)
{
    struct conversation loaded = {0};
    json_t *settings = NULL;
    if (!*arguments)
        return error_set(error, ERR_BAD_INPUT, "usage: /load FILE");
    if (conversation_load(&loaded, &settings, arguments, error) != 0)
        return -1;
    int status = settings_take(r, settings, error);
    if (status == 0) {
        conversation_clear(&r->conversation);
        r->conversation = loaded;
        r->context_used = 0;
        printf("%zu turn%s loaded\n", PLURAL(r->conversation.count));
    } else {
        conversation_clear(&loaded);
    }
    json_decref(settings);
    return status;
}

static int cmd_clear(struct repl *r, char *arguments, struct error *error)
{
    if (no_arguments(arguments, error) != 0)
        return -1;
    conversation_clear(&r->conversation);
    r->context_used = 0;
    return 0;
}

static int cmd_bye(struct repl *r, char *arguments, struct error *error)
{
    if (no_arguments(arguments, error) != 0)
        return -1;
    r->leave = true;
    return 0;
}

int command_run(struct repl *r, char *line, struct error *error)
{
    char *name = line + 1;
    size_t n = strcspn(name, " \t");
    char *arguments = name + n + (name[n] != 0);
    name[n] = 0;
    arguments += strspn(arguments, " \t");
    size_t end = strlen(arguments);
    while (end > 0 && (arguments[end - 1] == ' ' || arguments[end - 1] == '\t'))
        arguments[--end] = 0;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].run(r, arguments, error);
    struct suggest s;
    char hint[SUGGEST_HINT_BYTES];
    suggest_start(&s, name, strlen(name));
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        suggest_name(&s, commands[i].name);
    return error_set(error, ERR_BAD_INPUT, "unknown command /%.40s%s (see /help)", name,
                     suggest_hint(&s, "/", hint));
}

/* ---- completion ---- */

static const char *name_at(enum completion kind, size_t i)
{
    if (kind == COMPLETE_SETTING)
        return settings_name(i);
    if (kind == COMPLETE_PRESET)
        return i < preset_count() ? preset_at((uint32_t)i)->name : NULL;
    return NULL;
}

static enum completion completion_of(const char *name, size_t bytes)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strlen(commands[i].name) == bytes && memcmp(commands[i].name, name, bytes) == 0)
            return commands[i].completion;
    return COMPLETE_NONE;
}

const char *command_candidate(const char *line, size_t bytes, size_t i, size_t *typed)
{
    if (bytes == 0 || line[0] != '/')
        return NULL;
    size_t first = 1;
    while (first < bytes && line[first] != ' ')
        first++;
    bool argument = first < bytes;
    enum completion kind = argument ? completion_of(line + 1, first - 1) : COMPLETE_NONE;
    const char *last = memrchr(line, ' ', bytes);
    const char *name = argument ? last + 1 : line + 1;
    *typed = bytes - (size_t)(name - line);
    for (size_t at = 0;; at++) {
        const char *candidate = argument                   ? name_at(kind, at)
                                : at < ARRAY_LEN(commands) ? commands[at].name
                                                           : NULL;
        if (!candidate)
            return NULL;
        if (strlen(candidate) >= *typed && memcmp(candidate, name, *typed) == 0 && i-- == 0)
            return candidate;
    }
}
