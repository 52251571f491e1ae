/* SPDX-License-Identifier: Apache-2.0 */
/* sluice stats: statistics of a running engine.
 *
 * --json prints the supervisor's stats snapshot; the default is a table of the processes and the
 * main statistics; --watch repeats it. Maps no segment. Trust: replies are checked by the stubs. */
#include <getopt.h> /* optind */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/option_table.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/json/lookup.h"
#include "lib/terminal/terminal.h"
#include "procs/clients/common/options.h"
#include "procs/clients/common/session.h"

#define WATCH_TICK_MS 100
#define EXITS_SHOWN   5 /* of those in the snapshot */

struct stats {
    const char *run;
    bool json, counters;
    double watch; /* seconds, 0: once */
    bool raw;
    FILE *terminal; /* for control sequences */
};

/* The current snapshot and the previous one, for rates; NULL the first time. */
struct sample {
    const json_t *now, *before;
    double seconds; /* between the snapshots */
};

static int take_watch(void *program, const char *value, struct error *error)
{
    struct stats *s = program;
    char *end = NULL;
    s->watch = strtod(value, &end);
    return *end || !(s->watch >= 0.1 && s->watch <= 86400)
               ? error_set(error, ERR_BAD_INPUT,
                           "--watch: '%.80s' is not a number of seconds from 0.1 to 86400", value)
               : 0;
}

static const struct option_row rows[] = {
    {0, "name", "NAME", OPTION_TEXT(struct stats, run),
     "the engine (default \"" RUN_NAME_DEFAULT "\")"},
    {0, "json", NULL, OPTION_FLAG(struct stats, json), "the complete stats snapshot as JSON"},
    {0, "counters", NULL, OPTION_FLAG(struct stats, counters),
     "every counter of every process, as text"},
    {0, "watch", "SECONDS", OPTION_CALL(take_watch),
     "repeat with rates since the last time, until the engine exits or "
     "Ctrl-C"},
    {0, "raw", NULL, OPTION_FLAG(struct stats, raw),
     "control characters in names go to a terminal unchanged"},
};

static const struct option_table options = {
    .command = "stats",
    .before = "usage: sluice stats [--name NAME] [--json] [--counters] [--watch SECONDS]\n"
              "                    [--raw]\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 19,
};

static int parse(struct stats *s, int argc, char **argv, struct error *error)
{
    if (options_read(&options, s, argc, argv, error) != 0)
        return -1;
    if (optind < argc)
        return error_set(error, ERR_BAD_INPUT, "'%.80s' is not an option", argv[optind]);
    return 0;
}

static void print_processes(const json_t *doc)
{
    printf("%-12s %8s %-10s %4s %8s  %s\n", "PROCESS", "PID", "STATE", "INC", "RESTARTS", "DOING");
    for (size_t i = 0; i < lookup_processes(doc); i++) {
        const json_t *row = lookup_row(doc, i);
        char name[LOOKUP_NAME_BYTES];
        printf("%-12s %8" PRIu64 " %-10s %4" PRIu64 " %8" PRIu64 "  %s\n", lookup_name(row, name),
               lookup_u64(row, "pid"), lookup_text(row, "state"), lookup_u64(row, "incarnation"),
               lookup_u64(row, "restarts"), lookup_text(row, "wait"));
    }
}

/* The newest exits; nothing if there are none. */
static void print_exits(const json_t *doc)
{
    if (lookup_exits(doc) == 0)
        return;
    printf("\n%-12s %8s %-10s %13s  %s\n", "EXITED", "PID", "CAUSE", "AT UPTIME", "MESSAGE");
    for (size_t i = 0; i < lookup_exits(doc) && i < EXITS_SHOWN; i++) {
        const json_t *exit_record = lookup_exit(doc, i);
        char name[LOOKUP_NAME_BYTES];
        printf("%-12s %8" PRIu64 " %-10s %11.1f s  %s%s\n", lookup_name(exit_record, name),
               lookup_u64(exit_record, "pid"), lookup_text(exit_record, "cause"),
               (double)lookup_u64(exit_record, "uptime_ms") / 1e3,
               lookup_text(exit_record, "exit_message"),
               json_is_true(json_object_get(exit_record, "restarted")) ? "" : " (not restarted)");
    }
}

static void line_bytes(const char *label, uint64_t bytes, const char *doc)
{
    char text[16];
    printf("%-22s %12s  %s\n", label, bytes_format(bytes, text), doc);
}

/* Memory that experts lend to kept prefixes, and why: what each would save with a step of it. */
static void print_lent(const json_t *doc)
{
    char why[96];
    snprintf(why, sizeof why, "to kept prefixes; a step of memory saves them %.1f ms, experts %.1f",
             (double)lookup_counter(doc, "compute", "kv_step_ns") / 1e6,
             (double)lookup_counter(doc, "compute", "experts_step_ns") / 1e6);
    line_bytes("lent by experts", lookup_u64(doc, "memory.plan.kv_lent_bytes"), why);
}

static void print_memory(const json_t *doc)
{
    line_bytes("budget", lookup_counter(doc, "supervisor", "budget_bytes"), "in effect");
    line_bytes("used", lookup_counter(doc, "supervisor", "used_bytes"),
               "by all processes, from the ledger");
    line_bytes("used, maximum", lookup_counter(doc, "supervisor", "used_bytes_max"), "");
    line_bytes("arena quota", lookup_counter(doc, "cache", "quota_bytes"), "");
    line_bytes("resident experts", lookup_counter(doc, "cache", "resident_payload_bytes"), "");
    line_bytes("KV cache", lookup_counter(doc, "compute", "kv_bytes"), "");
    print_lent(doc);
    line_bytes("KV cache, kept", lookup_counter(doc, "compute", "kv_kept_bytes"),
               "for prompts that begin with the same tokens");
}

/* Growth of a service's counter since the previous snapshot. A restarted process counts from
 * zero. */
static double grown(const struct sample *sample, const char *service, const char *counter)
{
    uint64_t then = lookup_counter(sample->before, service, counter);
    uint64_t now = lookup_counter(sample->now, service, counter);
    return (double)(now >= then ? now - then : now);
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* Ratio of two counters of a service, since the start and since the previous snapshot. */
static void line_share(const struct sample *sample, const char *label, const char *service,
                       const char *part, const char *whole, const char *of)
{
    const struct sample all = {sample->now, NULL, 0};
    double total = grown(&all, service, whole);
    printf("%-22s %11.1f%%  of %.0f %s", label, 100 * ratio(grown(&all, service, part), total),
           total, of);
    if (sample->before)
        printf("; now %.1f%% of %.0f",
               100 * ratio(grown(sample, service, part), grown(sample, service, whole)),
               grown(sample, service, whole));
    printf("\n");
}

static void line_tokens(const struct sample *sample, const char *label, const char *tokens,
                        const char *ns)
{
    const struct sample all = {sample->now, NULL, 0};
    double count = grown(&all, "compute", tokens);
    printf("%-22s %12.0f  %.1f tokens/s", label, count,
           ratio(count * 1e9, grown(&all, "compute", ns)));
    if (sample->before)
        printf("; now %.1f", ratio(grown(sample, "compute", tokens), sample->seconds));
    printf("\n");
}

/* A ratio of two counters of compute, since the start and since the previous snapshot. */
static void line_ratio(const struct sample *sample, const char *label, const char *part,
                       const char *whole, const char *doc)
{
    const struct sample all = {sample->now, NULL, 0};
    printf("%-22s %12.1f  %s", label,
           ratio(grown(&all, "compute", part), grown(&all, "compute", whole)), doc);
    if (sample->before)
        printf("; now %.1f",
               ratio(grown(sample, "compute", part), grown(sample, "compute", whole)));
    printf("\n");
}

static void line_count(const struct sample *sample, const char *label, const char *counter,
                       const char *doc)
{
    printf("%-22s %12" PRIu64 "  %s\n", label, lookup_counter(sample->now, "compute", counter),
           doc);
}

/* The engine's time for a token of any answer, and now the time between two of one answer. */
static void line_gap(const struct sample *sample)
{
    const struct sample all = {sample->now, NULL, 0};
    double tokens = grown(sample, "compute", "tokens_decode");
    double running = (double)lookup_counter(sample->now, "compute", "sequences_running");
    printf(
        "%-22s %9.1f ms  of computing", "per generated token",
        ratio(grown(&all, "compute", "decode_ns") / 1e6, grown(&all, "compute", "tokens_decode")));
    if (sample->before)
        printf("; now %.1f ms between two tokens of a sequence",
               ratio(1e3 * sample->seconds * (running > 1 ? running : 1), tokens));
    printf("\n");
}

static void print_sequences(const struct sample *sample)
{
    printf("%-22s %12" PRIu64 "  running, %" PRIu64 " in the queue\n", "sequences",
           lookup_counter(sample->now, "compute", "sequences_running"),
           lookup_counter(sample->now, "compute", "sequences_queued"));
    line_ratio(sample, "rows per pass", "pass_rows", "passes", "tokens of all sequences in it");
    line_ratio(sample, "experts per pass", "pass_experts", "passes", "of all layers");
    line_ratio(sample, "rows per expert", "pass_expert_rows", "pass_experts",
               "that a read of it served");
    line_gap(sample);
    line_count(sample, "prefixes kept", "kv_kept_entries", "");
    line_count(sample, "prefix hits", "sequences_reused", "sequences that began with a prefix");
    line_count(sample, "tokens not computed", "tokens_reused", "of prompts, because of these");
    line_count(sample, "prefixes given up", "kv_kept_evictions", "for others");
}

static double computing_ns(const struct sample *sample)
{
    return grown(sample, "compute", "prefill_ns") + grown(sample, "compute", "decode_ns");
}

/* Of the files in front of servers. */
static void print_cache(const struct sample *sample)
{
    char bytes[16];
    uint64_t slots = lookup_counter(sample->now, "loader", "cache_slots");
    if (slots == 0)
        return;
    printf("\n%-22s %12s  in %" PRIu64 " hits; %" PRIu64 " of %" PRIu64 " slots used",
           "read of the cache",
           bytes_format(lookup_counter(sample->now, "loader", "cache_bytes_read"), bytes),
           lookup_counter(sample->now, "loader", "cache_hits"),
           lookup_counter(sample->now, "loader", "cache_used"), slots);
}

/* Of a table on storage; nothing of a model that has none. */
static void print_table(const struct sample *sample)
{
    const struct sample all = {sample->now, NULL, 0};
    char read[16];
    if (lookup_u64(sample->now, "model.table_bytes") == 0)
        return;
    bytes_format(lookup_counter(sample->now, "cache", "page_loads") * PAGE_BYTES, read);
    printf("\n%-22s %12" PRIu64 "  read of the table on storage: %s", "rows",
           lookup_counter(sample->now, "compute", "table_rows"), read);
    printf("\n%-22s %11.1f%%  of the compute time", "waiting for rows",
           100 * ratio(grown(&all, "compute", "table_wait_ns"), computing_ns(&all)));
    if (sample->before)
        printf("; now %.1f%%",
               100 * ratio(grown(sample, "compute", "table_wait_ns"), computing_ns(sample)));
}

static void print_work(const struct sample *sample)
{
    const struct sample all = {sample->now, NULL, 0};
    char read[16];
    line_tokens(sample, "prompt tokens", "tokens_prefill", "prefill_ns");
    line_tokens(sample, "generated tokens", "tokens_decode", "decode_ns");
    print_sequences(sample);
    line_share(sample, "hit rate", "compute", "hits", "accesses", "expert accesses");
    printf("%-22s %11.1f%%  of the compute time", "waiting for experts",
           100 * ratio(grown(&all, "compute", "stall_ns"), computing_ns(&all)));
    if (sample->before)
        printf("; now %.1f%%",
               100 * ratio(grown(sample, "compute", "stall_ns"), computing_ns(sample)));
    printf("\n%-22s %12s  from the devices", "read",
           bytes_format(lookup_counter(sample->now, "loader", "bytes_read"), read));
    if (sample->before)
        printf("; now %s/s",
               bytes_format((uint64_t)ratio(grown(sample, "loader", "bytes_read"), sample->seconds),
                            read));
    print_cache(sample);
    print_table(sample);
    printf("\n%-22s %12" PRIu64, "evictions", lookup_counter(sample->now, "cache", "evictions"));
    if (sample->before)
        printf("  now %.0f/s", ratio(grown(sample, "cache", "evictions"), sample->seconds));
    printf("\n");
    line_share(sample, "recall", "predictor", "recall_hits", "recall_accesses",
               "accesses with a prediction");
}

/* ---- the GPU ---- */

/* "context 640 MiB, weights 1.2 GiB, ..." */
static void line_gpu_layout(const json_t *plan)
{
    char text[16];
    const char *part, *comma = "";
    json_t *bytes;
    printf("%-22s %12s  ", "GPU plan", "");
    json_object_foreach((json_t *)(uintptr_t)plan, part, bytes)
    {
        printf("%s%s %s", comma, part, bytes_format((uint64_t)json_integer_value(bytes), text));
        comma = ", ";
    }
    printf("\n");
}

static void line_gpu_count(const struct sample *sample, const char *label, const char *counter,
                           const char *doc)
{
    printf("%-22s %12" PRIu64 "  %s", label, lookup_counter(sample->now, "compute", counter), doc);
    if (sample->before)
        printf("; now %.0f/s", ratio(grown(sample, "compute", counter), sample->seconds));
    printf("\n");
}

static void line_gpu_copied(const struct sample *sample, const char *label, const char *counter)
{
    char text[16];
    printf("%-22s %12s  copied", label,
           bytes_format(lookup_counter(sample->now, "compute", counter), text));
    if (sample->before)
        printf("; now %s/s",
               bytes_format((uint64_t)ratio(grown(sample, "compute", counter), sample->seconds),
                            text));
    printf("\n");
}

static void line_gpu_hits(const struct sample *sample)
{
    const struct sample all = {sample->now, NULL, 0};
    double hits = grown(&all, "compute", "gpu_expert_hits");
    double uses = hits + grown(&all, "compute", "gpu_expert_uploads");
    printf("%-22s %11.1f%%  of %.0f uses of experts on the GPU", "GPU hit rate",
           100 * ratio(hits, uses), uses);
    if (sample->before) {
        hits = grown(sample, "compute", "gpu_expert_hits");
        uses = hits + grown(sample, "compute", "gpu_expert_uploads");
        printf("; now %.1f%% of %.0f", 100 * ratio(hits, uses), uses);
    }
    printf("\n");
}

/* Nothing while nothing was counted. */
static void line_gpu_busy(const struct sample *sample)
{
    const struct sample all = {sample->now, NULL, 0};
    double busy = grown(&all, "compute", "gpu_busy_ns");
    if (busy == 0)
        return;
    printf("%-22s %11.1f%%  of the compute time", "GPU busy",
           100 * ratio(busy, computing_ns(&all)));
    if (sample->before)
        printf("; now %.1f%%",
               100 * ratio(grown(sample, "compute", "gpu_busy_ns"), computing_ns(sample)));
    printf("\n");
}

/* --gpu-policy, and what auto measured, if it did. */
static void line_gpu_policy(const json_t *gpu)
{
    const char *name;
    json_t *one;
    printf("%-22s %12s  for experts that are not on the GPU", "GPU policy",
           lookup_text(gpu, "policy"));
    if (lookup_u64(gpu, "trials"))
        json_object_foreach(json_object_get(gpu, "measured"), name, one)
            printf("; %s %.0f us/token", name, json_number_value(json_object_get(one, "token_us")));
    printf("\n");
}

/* Why GPUs have so many layers. */
static const char *chosen_by(const json_t *choice)
{
    const char *by = lookup_text(choice, "by");
    return strcmp(by, "times") == 0    ? "by measured times"
           : strcmp(by, "option") == 0 ? "by --gpu-layers"
                                       : "by bytes: all that fit";
}

/* Which layers the GPUs have, if the CPU has some, too; and each of several GPUs. */
static void line_gpu_layers(const json_t *gpu, const json_t *choice)
{
    uint64_t layers = lookup_u64(gpu, "layers"), on_cpu = lookup_u64(gpu, "layers_on_cpu");
    const json_t *each = json_object_get(gpu, "each"), *one;
    char label[32], text[48], budget[16];
    size_t i;
    snprintf(text, sizeof text, "%" PRIu64 "/%" PRIu64, layers, layers + on_cpu);
    if (on_cpu > 0)
        printf("%-22s %12s  from the first one on, %s; the CPU computes the others\n", "GPU layers",
               text, chosen_by(choice));
    if (json_array_size(each) < 2)
        return;
    json_array_foreach(each, i, one)
    {
        snprintf(label, sizeof label, "  GPU %" PRIu64, lookup_u64(one, "number"));
        printf("%-22s %12s  %" PRIu64 " layers from %" PRIu64 " on, slots %" PRIu64 "/%" PRIu64
               ", %s\n",
               label, bytes_format(lookup_u64(one, "budget_bytes"), budget),
               lookup_u64(one, "layers"), lookup_u64(one, "first_layer"),
               lookup_u64(one, "slots_used"), lookup_u64(one, "slots"), lookup_text(one, "name"));
    }
}

static void print_gpu(const struct sample *sample)
{
    const json_t *gpu = json_object_get(sample->now, "gpu");
    char memory[16], label[32], text[48];
    const json_t *choice = json_object_get(sample->now, "gpu_choice");
    if (!gpu && choice)
        printf("%-22s %12s  %s: the CPU computes all\n", "GPU layers", "0", chosen_by(choice));
    if (!gpu)
        return;
    snprintf(label, sizeof label, "GPU %s", lookup_text(gpu, "numbers"));
    if (json_is_true(json_object_get(gpu, "lost"))) {
        printf("%-22s %12s  %s; computing on the CPU until the engine is started again\n", label,
               "lost", lookup_text(gpu, "name"));
        return;
    }
    snprintf(text, sizeof text, "of %s is the budget; ",
             bytes_format(lookup_u64(gpu, "memory_bytes"), memory));
    printf("%-22s %12s  %s%s\n", label, bytes_format(lookup_u64(gpu, "budget_bytes"), memory), text,
           lookup_text(gpu, "name"));
    line_gpu_layers(gpu, choice);
    line_gpu_layout(json_object_get(gpu, "plan"));
    snprintf(text, sizeof text, "%" PRIu64 "/%" PRIu64, lookup_u64(gpu, "slots_used"),
             lookup_u64(gpu, "slots"));
    printf("%-22s %12s  used, each of %s\n", "GPU expert slots", text,
           bytes_format(lookup_u64(gpu, "slot_bytes"), memory));
    line_gpu_policy(gpu);
    line_gpu_hits(sample);
    line_gpu_count(sample, "GPU uploads", "gpu_expert_uploads", "experts copied to the GPU");
    if (lookup_counter(sample->now, "compute", "gpu_expert_on_cpu"))
        line_gpu_count(sample, "left to the CPU", "gpu_expert_on_cpu", "uses of experts");
    if (lookup_counter(sample->now, "compute", "gpu_prefetches")) {
        line_gpu_count(sample, "GPU prefetches", "gpu_prefetches",
                       "experts copied to the GPU ahead");
        line_gpu_count(sample, "GPU prefetches timely", "gpu_prefetches_timely",
                       "there at their first use");
        line_gpu_count(sample, "GPU prefetches late", "gpu_prefetches_late",
                       "still copied at their first use");
        line_gpu_count(sample, "GPU prefetches unused", "gpu_prefetches_unused",
                       "replaced before a use");
    }
    line_gpu_count(sample, "GPU evictions", "gpu_expert_evictions", "experts replaced there");
    if (lookup_counter(sample->now, "compute", "gpu_graph_launches"))
        line_gpu_count(sample, "GPU graph launches", "gpu_graph_launches",
                       "tokens computed by one launch");
    line_gpu_copied(sample, "to the GPU", "gpu_uploaded_bytes");
    line_gpu_copied(sample, "from the GPU", "gpu_downloaded_bytes");
    line_gpu_busy(sample);
}

static void print_counters(const struct sample *sample)
{
    for (size_t i = 0; i < lookup_processes(sample->now); i++) {
        const json_t *row = lookup_row(sample->now, i);
        const char *service = lookup_text(row, "service"), *name;
        uint64_t number = lookup_u64(row, "number");
        const json_t *then =
            json_object_get(lookup_process(sample->before, service, (unsigned)number), "counters");
        json_t *value;
        json_object_foreach(json_object_get(row, "counters"), name, value)
        {
            json_int_t now = json_integer_value(value);
            json_int_t before = json_integer_value(json_object_get(then, name));
            printf("%s.%" PRIu64 ".%s %" JSON_INTEGER_FORMAT, service, number, name, now);
            if (sample->before && now != before)
                printf(" %+.1f/s", ratio((double)(now - before), sample->seconds));
            printf("\n");
        }
    }
}

static void print_snapshot(const struct stats *s, const struct sample *sample)
{
    if (s->watch > 0 && !s->json) { /* on a terminal each page replaces the last */
        fputs(isatty(STDOUT_FILENO) ? "\033[H\033[J" : sample->before ? "\n" : "", s->terminal);
        fflush(s->terminal);
    }
    if (s->json) {
        json_dumpf(sample->now, stdout, s->watch > 0 ? JSON_COMPACT : JSON_INDENT(2));
        printf("\n");
    } else if (s->counters) {
        print_counters(sample);
    } else {
        print_processes(sample->now);
        print_exits(sample->now);
        printf("\n");
        print_memory(sample->now);
        print_work(sample);
        print_gpu(sample);
    }
    fflush(stdout);
}

static bool wait_for(double seconds)
{
    uint64_t until = clock_now_ns() + (uint64_t)(seconds * (double)NS_PER_S);
    while (!session_stop && clock_now_ns() < until)
        poll(NULL, 0, WATCH_TICK_MS);
    return !session_stop && !ferror(stdout);
}

static int run(const struct stats *s, struct error *error)
{
    struct rpc_client *control = control_client_open(s->run, error);
    if (!control)
        return -1;
    rpc_client_set_stop(control, &session_stop);
    json_t *before = NULL, *now = NULL;
    uint64_t before_ns = 0;
    int status;
    do {
        status = control_call(control, "stats", NULL, &now, error);
        if (status != 0)
            break;
        uint64_t now_ns = clock_now_ns();
        const struct sample sample = {now, before, (double)(now_ns - before_ns) / (double)NS_PER_S};
        print_snapshot(s, &sample);
        json_decref(before);
        before = now;
        before_ns = now_ns;
    } while (s->watch > 0 && wait_for(s->watch));
    json_decref(before);
    rpc_client_close(control);
    return s->watch > 0 && session_stop ? 0 : status; /* watching ends with Ctrl-C */
}

int main(int argc, char **argv)
{
    struct stats s = {.run = RUN_NAME_DEFAULT};
    struct error error;
    session_signals();
    int status = parse(&s, argc, argv, &error);
    if (status == 0) {
        s.terminal = terminal_guard(s.raw);
        status = run(&s, &error);
        if (status == 0)
            status = output_end(&error);
    }
    return status == 0 ? 0 : report("stats", &error);
}
