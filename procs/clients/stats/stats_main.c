/* sluice stats: what a running engine says about itself.
 *
 * --json prints the supervisor's document as it is; the default is a table of the processes and the
 * figures that matter; --watch repeats it. Maps nothing. Trust: replies are checked by the stubs.
 */
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/json/lookup.h"
#include "procs/clients/common/options.h"
#include "procs/clients/common/session.h"

#define WATCH_TICK_MS 100
#define DEATHS_SHOWN  5 /* of those the document has */

struct stats {
    const char *run;
    bool json, counters;
    double watch; /* seconds, 0: once */
};

/* The document now, and the one before it, for rates; NULL at the first look. */
struct look {
    const json_t *now, *before;
    double seconds; /* between them */
};

static void usage(FILE *out)
{
    fprintf(out,
            "usage: sluice stats [--run NAME] [--json] [--counters] [--watch SECONDS]\n"
            "\n"
            "  --json           the whole document of all counters\n"
            "  --counters       every counter of every process, for people\n"
            "  --watch SECONDS  again and again, with what changed since the last time, until the\n"
            "                   engine ends or Ctrl-C\n");
}

static const struct option options[] = {{"run", 1, NULL, 'r'},      {"json", 0, NULL, 'j'},
                                        {"counters", 0, NULL, 'c'}, {"watch", 1, NULL, 'w'},
                                        {"help", 0, NULL, 'h'},     {NULL, 0, NULL, 0}};

static int parse(struct stats *s, int argc, char **argv, struct error *error)
{
    int option;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        char *end = NULL;
        switch (option) {
        case 'r': s->run = optarg; break;
        case 'j': s->json = true; break;
        case 'c': s->counters = true; break;
        case 'w':
            s->watch = strtod(optarg, &end);
            if (*end || !(s->watch >= 0.1 && s->watch <= 86400))
                return error_set(error, ERR_BAD_INPUT,
                                 "--watch: '%.80s' is not a number of seconds from 0.1 to 86400",
                                 optarg);
            break;
        case 'h': usage(stdout); exit(fflush(stdout) == 0 ? 0 : 1);
        default: return error_set(error, ERR_BAD_INPUT, "see sluice stats --help");
        }
    }
    if (optind < argc)
        return error_set(error, ERR_BAD_INPUT, "'%.80s' is not an option", argv[optind]);
    return 0;
}

static void print_processes(const json_t *doc)
{
    printf("%-12s %8s %-10s %4s %8s  %s\n", "PROCESS", "PID", "STATE", "INC", "RESTARTS", "DOING");
    for (size_t i = 0; i < document_processes(doc); i++) {
        const json_t *row = document_row(doc, i);
        char name[DOCUMENT_NAME_BYTES];
        printf("%-12s %8" PRIu64 " %-10s %4" PRIu64 " %8" PRIu64 "  %s\n", document_name(row, name),
               document_u64(row, "pid"), document_text(row, "state"),
               document_u64(row, "incarnation"), document_u64(row, "restarts"),
               document_text(row, "wait"));
    }
}

/* The newest; nothing when nobody died. */
static void print_deaths(const json_t *doc)
{
    if (document_deaths(doc) == 0)
        return;
    printf("\n%-12s %8s %-10s %13s  %s\n", "DIED", "PID", "CAUSE", "AT UPTIME", "LAST WORDS");
    for (size_t i = 0; i < document_deaths(doc) && i < DEATHS_SHOWN; i++) {
        const json_t *death = document_death(doc, i);
        char name[DOCUMENT_NAME_BYTES];
        printf("%-12s %8" PRIu64 " %-10s %11.1f s  %s%s\n", document_name(death, name),
               document_u64(death, "pid"), document_text(death, "cause"),
               (double)document_u64(death, "uptime_ms") / 1e3, document_text(death, "words"),
               json_is_true(json_object_get(death, "restarted")) ? "" : " (not restarted)");
    }
}

static void line_bytes(const char *label, uint64_t bytes, const char *doc)
{
    char text[16];
    printf("%-22s %12s  %s\n", label, bytes_format(bytes, text), doc);
}

static void print_memory(const json_t *doc)
{
    line_bytes("budget", document_counter(doc, "supervisor", "budget_bytes"), "in force");
    line_bytes("used", document_counter(doc, "supervisor", "used_bytes"),
               "by all processes, as the ledger counts");
    line_bytes("used at most", document_counter(doc, "supervisor", "used_bytes_max"), "");
    line_bytes("arena quota", document_counter(doc, "cache", "quota_bytes"), "");
    line_bytes("resident experts", document_counter(doc, "cache", "resident_payload_bytes"), "");
    line_bytes("KV cache", document_counter(doc, "compute", "kv_bytes"), "");
}

/* What a counter of a service grew by since the look before. A restarted process counts from zero.
 */
static double grown(const struct look *look, const char *service, const char *counter)
{
    uint64_t then = document_counter(look->before, service, counter);
    uint64_t now = document_counter(look->now, service, counter);
    return (double)(now >= then ? now - then : now);
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* A share of a service's counters since the start, and since the last look. */
static void line_share(const struct look *look, const char *label, const char *service,
                       const char *part, const char *whole, const char *of)
{
    const struct look all = {look->now, NULL, 0};
    double total = grown(&all, service, whole);
    printf("%-22s %11.1f%%  of %.0f %s", label, 100 * ratio(grown(&all, service, part), total),
           total, of);
    if (look->before)
        printf("; now %.1f%% of %.0f",
               100 * ratio(grown(look, service, part), grown(look, service, whole)),
               grown(look, service, whole));
    printf("\n");
}

static void line_tokens(const struct look *look, const char *label, const char *tokens,
                        const char *ns)
{
    const struct look all = {look->now, NULL, 0};
    double count = grown(&all, "compute", tokens);
    printf("%-22s %12.0f  %.1f tokens/s", label, count,
           ratio(count * 1e9, grown(&all, "compute", ns)));
    if (look->before)
        printf("; now %.1f", ratio(grown(look, "compute", tokens), look->seconds));
    printf("\n");
}

static double computing_ns(const struct look *look)
{
    return grown(look, "compute", "prefill_ns") + grown(look, "compute", "decode_ns");
}

static void print_work(const struct look *look)
{
    const struct look all = {look->now, NULL, 0};
    char read[16];
    line_tokens(look, "prompt tokens", "tokens_prefill", "prefill_ns");
    line_tokens(look, "generated tokens", "tokens_decode", "decode_ns");
    line_share(look, "hit rate", "compute", "hits", "uses", "uses of experts");
    printf("%-22s %11.1f%%  of the computing time", "waiting for experts",
           100 * ratio(grown(&all, "compute", "stall_ns"), computing_ns(&all)));
    if (look->before)
        printf("; now %.1f%%", 100 * ratio(grown(look, "compute", "stall_ns"), computing_ns(look)));
    printf("\n%-22s %12s  from the devices", "read",
           bytes_format(document_counter(look->now, "loader", "bytes_read"), read));
    if (look->before)
        printf("; now %s/s",
               bytes_format((uint64_t)ratio(grown(look, "loader", "bytes_read"), look->seconds),
                            read));
    printf("\n%-22s %12" PRIu64, "evictions", document_counter(look->now, "cache", "evictions"));
    if (look->before)
        printf("  now %.0f/s", ratio(grown(look, "cache", "evictions"), look->seconds));
    printf("\n");
    line_share(look, "recall", "predictor", "recall_hits", "recall_uses", "uses that had a guess");
}

static void print_counters(const struct look *look)
{
    for (size_t i = 0; i < document_processes(look->now); i++) {
        const json_t *row = document_row(look->now, i);
        const char *service = document_text(row, "service"), *name;
        uint64_t number = document_u64(row, "number");
        const json_t *then =
            json_object_get(document_process(look->before, service, (unsigned)number), "counters");
        json_t *value;
        json_object_foreach(json_object_get(row, "counters"), name, value)
        {
            json_int_t now = json_integer_value(value);
            json_int_t before = json_integer_value(json_object_get(then, name));
            printf("%s.%" PRIu64 ".%s %" JSON_INTEGER_FORMAT, service, number, name, now);
            if (look->before && now != before)
                printf(" %+.1f/s", ratio((double)(now - before), look->seconds));
            printf("\n");
        }
    }
}

static void print_document(const struct stats *s, const struct look *look)
{
    if (s->watch > 0 && !s->json) /* one page over another, or one below another */
        fputs(isatty(STDOUT_FILENO) ? "\033[H\033[J" : look->before ? "\n" : "", stdout);
    if (s->json) {
        json_dumpf(look->now, stdout, s->watch > 0 ? JSON_COMPACT : JSON_INDENT(2));
        printf("\n");
    } else if (s->counters) {
        print_counters(look);
    } else {
        print_processes(look->now);
        print_deaths(look->now);
        printf("\n");
        print_memory(look->now);
        print_work(look);
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
        const struct look look = {now, before, (double)(now_ns - before_ns) / (double)NS_PER_S};
        print_document(s, &look);
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
    return parse(&s, argc, argv, &error) == 0 && run(&s, &error) == 0 ? 0 : report("stats", &error);
}
