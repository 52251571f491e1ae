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
#include "procs/client/document.h"
#include "procs/client/options.h"
#include "procs/client/session.h"

#define WATCH_TICK_MS 100

struct stats {
    const char *run;
    bool json, counters;
    double watch; /* seconds, 0: once */
};

/* What the counters of the last look were, for rates. */
struct look {
    uint64_t when_ns, bytes_read, tokens_decode, tokens_prefill;
};

static void usage(FILE *out)
{
    fprintf(out, "usage: sluice stats [--run NAME] [--json] [--counters] [--watch SECONDS]\n"
                 "\n"
                 "  --json           the whole document of all counters\n"
                 "  --counters       every counter of every process, for people\n"
                 "  --watch SECONDS  again and again, with rates\n");
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
        char name[40];
        const char *service = document_text(row, "service");
        if (strcmp(service, "loader") == 0)
            snprintf(name, sizeof name, "loader.%" PRIu64, document_u64(row, "number"));
        else
            snprintf(name, sizeof name, "%s", service);
        printf("%-12s %8" PRIu64 " %-10s %4" PRIu64 " %8" PRIu64 "  %s\n", name,
               document_u64(row, "pid"), document_text(row, "state"),
               document_u64(row, "incarnation"), document_u64(row, "restarts"),
               document_text(row, "wait"));
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

static void print_work(const json_t *doc)
{
    uint64_t uses = document_counter(doc, "compute", "uses");
    uint64_t hits = document_counter(doc, "compute", "hits");
    uint64_t prefill = document_counter(doc, "compute", "tokens_prefill");
    uint64_t decode = document_counter(doc, "compute", "tokens_decode");
    uint64_t prefill_ns = document_counter(doc, "compute", "prefill_ns");
    uint64_t decode_ns = document_counter(doc, "compute", "decode_ns");
    uint64_t stall_ns = document_counter(doc, "compute", "stall_ns");
    printf("%-22s %12" PRIu64 "  %.1f tokens/s\n", "prompt tokens", prefill,
           prefill_ns ? (double)prefill * 1e9 / (double)prefill_ns : 0.0);
    printf("%-22s %12" PRIu64 "  %.1f tokens/s\n", "generated tokens", decode,
           decode_ns ? (double)decode * 1e9 / (double)decode_ns : 0.0);
    printf("%-22s %11.1f%%  of %" PRIu64 " uses of experts\n", "hit rate",
           uses ? 100.0 * (double)hits / (double)uses : 0.0, uses);
    printf("%-22s %11.1f%%  of the computing time\n", "waiting for experts",
           prefill_ns + decode_ns ? 100.0 * (double)stall_ns / (double)(prefill_ns + decode_ns)
                                  : 0.0);
    line_bytes("read", document_counter(doc, "loader", "bytes_read"), "from the devices");
    printf("%-22s %12" PRIu64 "\n", "evictions", document_counter(doc, "cache", "evictions"));
    uint64_t guessed = document_counter(doc, "predictor", "recall_uses");
    uint64_t right = document_counter(doc, "predictor", "recall_hits");
    printf("%-22s %11.1f%%  of %" PRIu64 " uses that had a guess\n", "recall",
           guessed ? 100.0 * (double)right / (double)guessed : 0.0, guessed);
}

static void print_rates(const json_t *doc, struct look *last)
{
    struct look now = {clock_now_ns(), document_counter(doc, "loader", "bytes_read"),
                       document_counter(doc, "compute", "tokens_decode"),
                       document_counter(doc, "compute", "tokens_prefill")};
    double seconds = (double)(now.when_ns - last->when_ns) / (double)NS_PER_S;
    if (last->when_ns && now.bytes_read >= last->bytes_read &&
        now.tokens_decode >= last->tokens_decode && now.tokens_prefill >= last->tokens_prefill) {
        char rate[16];
        bytes_format((uint64_t)((double)(now.bytes_read - last->bytes_read) / seconds), rate);
        printf("%-22s %10s/s  %.1f tokens/s generated, %.1f tokens/s of prompts\n", "now", rate,
               (double)(now.tokens_decode - last->tokens_decode) / seconds,
               (double)(now.tokens_prefill - last->tokens_prefill) / seconds);
    }
    *last = now;
}

static void print_counters(const json_t *doc)
{
    for (size_t i = 0; i < document_processes(doc); i++) {
        const json_t *row = document_row(doc, i);
        const char *name;
        json_t *value;
        json_object_foreach(json_object_get(row, "counters"), name, value)
        {
            printf("%s.%" PRIu64 ".%s %" JSON_INTEGER_FORMAT "\n", document_text(row, "service"),
                   document_u64(row, "number"), name, json_integer_value(value));
        }
    }
}

static void print_document(const struct stats *s, const json_t *doc, struct look *last)
{
    if (s->json) {
        json_dumpf(doc, stdout, s->watch > 0 ? JSON_COMPACT : JSON_INDENT(2));
        printf("\n");
    } else if (s->counters) {
        print_counters(doc);
    } else {
        if (s->watch > 0 && isatty(STDOUT_FILENO))
            printf("\033[H\033[J");
        print_processes(doc);
        printf("\n");
        print_memory(doc);
        print_work(doc);
        print_rates(doc, last);
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
    struct look last = {0, 0, 0, 0};
    struct rpc_client *control = control_client_open(s->run, error);
    if (!control)
        return -1;
    rpc_client_set_stop(control, &session_stop);
    int status;
    do {
        json_t *doc = NULL;
        status = control_call(control, "stats", NULL, &doc, error);
        if (status == 0)
            print_document(s, doc, &last);
        json_decref(doc);
    } while (status == 0 && s->watch > 0 && wait_for(s->watch));
    rpc_client_close(control);
    return status;
}

int main(int argc, char **argv)
{
    struct stats s = {.run = RUN_NAME_DEFAULT};
    struct error error;
    session_signals();
    return parse(&s, argc, argv, &error) == 0 && run(&s, &error) == 0 ? 0 : report("stats", &error);
}
