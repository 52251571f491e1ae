/* SPDX-License-Identifier: Apache-2.0 */
/* repl, top and stats, with and without a terminal. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "procs/clients/common/map.h"
#include "procs/clients/conversation/conversation.h"
#include "tests/harness/internal.h"
#include "tests/scenario/baseline.h"

#define WAIT_MS 30000
#define CTRL_C  "\003"
#define CTRL_D  "\004"

/* repl, greedy, on a terminal. */
static struct terminal *repl_open(const struct engine *e, int out)
{
    struct terminal *t =
        terminal_open(24, 80, out, (const char *const[]){"repl", "--name", e->run, NULL});
    terminal_wait(t, ">>> ", WAIT_MS);
    terminal_type(t, "/set parameter temperature 0\r/set ignore_eos on\r");
    terminal_wait(t, ">>> ", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    return t;
}

static void type_line(struct terminal *t, const char *line)
{
    terminal_type(t, line);
    terminal_type(t, "\r");
}

static void repl_on_a_terminal(void)
{
    char path[PATH_MAX];
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--parallel=1", NULL});
    struct terminal *t = repl_open(e, -1);
    terminal_type(t, "/he\t\r"); /* completed */
    terminal_wait(t, "Ctrl-C ends the response", WAIT_MS);
    terminal_type(t, "/set num\t 8\r");
    type_line(t, test_prompt(0));
    terminal_wait(t, " the sun was", WAIT_MS);
    terminal_wait(t, "8 tokens at", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    type_line(t, "/set num_predict 4000");
    type_line(t, test_prompt(0));
    terminal_wait(t, " the sun was", WAIT_MS);
    terminal_type(t, CTRL_C);
    terminal_wait(t, "ended by Ctrl-C", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    engine_wait_counter(e, "compute", "sequences_cancelled", 1, WAIT_MS);
    /* Queued after another response: the repl shows it. */
    type_line(t, "/clear");
    terminal_wait(t, ">>> ", WAIT_MS);
    struct generation *g = generation_start(e, test_prompt(1), 2000);
    uint64_t deadline = deadline_in(WAIT_MS);
    while (generation_tokens(g) == 0)
        CHECK(deadline_tick(deadline), "no tokens");
    type_line(t, test_prompt(0));
    terminal_wait(t, "1 request before this one", WAIT_MS);
    struct text other;
    generation_finish(g, WAIT_MS, &other);
    text_free(&other);
    terminal_wait(t, " the sun was", WAIT_MS);
    terminal_type(t, CTRL_C);
    terminal_wait(t, ">>> ", WAIT_MS);
    type_line(t, "\"\"\"one");
    terminal_wait(t, "... ", WAIT_MS);
    terminal_type(t, CTRL_C); /* drops the text but not the session */
    terminal_wait(t, ">>> ", WAIT_MS);
    type_line(t, "/dance");
    terminal_wait(t, "unknown command /dance", WAIT_MS);
    type_line(t, "/experts");
    terminal_wait(t, "layer", WAIT_MS);
    terminal_wait(t, "/32", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    terminal_type(t, CTRL_D);
    CHECK(terminal_end(t, WAIT_MS) == 0, "Ctrl-D: the exit status is not 0");
    struct stat st;
    snprintf(path, sizeof path, "%s/sluice/history", test_dir());
    CHECK(stat(path, &st) == 0 && st.st_size > 0 && (st.st_mode & 077) == 0, "no history at %s",
          path);
    /* The next session has the history. */
    t = terminal_open(24, 80, -1, (const char *const[]){"repl", "--name", e->run, NULL});
    terminal_wait(t, ">>> ", WAIT_MS);
    terminal_type(t, "\033[A");
    terminal_wait(t, "/experts", WAIT_MS);
    terminal_type(t, CTRL_C);
    terminal_wait(t, ">>> ", WAIT_MS);
    type_line(t, "/bye");
    CHECK(terminal_end(t, WAIT_MS) == 0, "/bye: the exit status is not 0");
    engine_stop(e);
}

/* What a terminal shows of a session: the model at the start, words unbroken, statistics dimmed
 * unless NO_COLOR is set; the words that end other programs; a prompt of several lines is one in
 * the history. */
static void repl_for_a_person(void)
{
    char path[PATH_MAX];
    struct engine *e = engine_new();
    engine_start(e, NULL);
    const char *const argv[] = {"repl", "--name", e->run, "--temp", "0", "-n", "40", NULL};
    struct terminal *t = terminal_open(24, 40, -1, argv);
    terminal_wait(t, "tiny-books-moe (qwen3moe), context of 2048 tokens", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    type_line(t, "help");
    terminal_wait(t, "/preset", WAIT_MS);
    terminal_wait(t, "exit and quit end the session", WAIT_MS);
    type_line(t, "/preset");
    terminal_wait(t, "* default    lossless:", WAIT_MS);
    terminal_wait(t, "  auto ", WAIT_MS);
    terminal_wait(t, "sluice sim --help", WAIT_MS);
    type_line(t, test_prompt(0));
    terminal_wait(t, "\033[K\r\n", WAIT_MS); /* a word moves to the next line */
    terminal_wait(t, "\033[2m[40 tokens at", WAIT_MS);
    terminal_wait(t, "\033[0m", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    type_line(t, "\"\"\"It was");
    terminal_wait(t, "... ", WAIT_MS);
    type_line(t, "exit\"\"\"");
    terminal_wait(t, "[40 tokens at", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    CHECK(engine_counter(e, "compute", "sequences_done") == 2, "other than two prompts were sent");
    type_line(t, "EXIT");
    CHECK(terminal_end(t, WAIT_MS) == 0, "exit: the exit status is not 0");
    snprintf(path, sizeof path, "%s/sluice/history", test_dir());
    char text[4096] = "";
    FILE *f = fopen(path, "re");
    CHECK(f && fread(text, 1, sizeof text - 1, f) > 0 && fclose(f) == 0, "no history at %s", path);
    CHECK(strstr(text, "It\\040was\\012exit\n") && !strstr(text, "\"\"\""), "%s", text);
    setenv("NO_COLOR", "1", 1);
    t = terminal_open(24, 40, -1, argv);
    terminal_wait(t, ">>> ", WAIT_MS);
    type_line(t, test_prompt(0));
    terminal_wait(t, "\n[40 tokens at", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    type_line(t, "quit");
    CHECK(terminal_end(t, WAIT_MS) == 0, "quit: the exit status is not 0");
    engine_stop(e);
}

/* 12 printable characters from the second half of the text; *from: where they first occur. */
static void typable(const char *text, char out[13], size_t *from)
{
    size_t at = strlen(text) * 3 / 4, plain = 0;
    for (; text[at] && plain < 12; at++)
        plain = text[at] >= ' ' && text[at] <= '~' && text[at] != '"' && text[at] != '\\'
                    ? plain + 1
                    : 0;
    snprintf(out, 13, "%.12s", text + at - plain);
    *from = (size_t)(strstr(text, out) - text);
}

/* A paste longer than the maximum prompt is read to its end and rejected. */
static void paste_too_much(struct terminal *t)
{
    static char text[2 * CONVERSATION_PROMPT_MAX + 1];
    memset(text, 'x', sizeof text - 1);
    for (size_t i = 99; i < sizeof text - 1; i += 100)
        text[i] = '\r';
    terminal_type(t, "\033[200~");
    terminal_type(t, text);
    terminal_type(t, "\033[201~\r");
    terminal_wait(t, "prompt too long", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
}

/* A pasted text of several lines is one prompt, sent on Enter. */
static void repl_takes_a_paste(void)
{
    char path[PATH_MAX], save[PATH_MAX + 8];
    struct engine *e = engine_new();
    engine_start(e, NULL);
    struct terminal *t = repl_open(e, -1);
    type_line(t, "/set num_predict 4");
    terminal_wait(t, "\033[?2004h", WAIT_MS); /* requested at every prompt */
    terminal_type(t, "Then \033[200~it was\r\ta dark\a\rand stormy night\r\033[201~, and");
    terminal_wait(t, "stormy night", WAIT_MS);
    terminal_wait(t, ", and", WAIT_MS);
    CHECK(engine_counter(e, "compute", "sequences_done") == 0, "the repl did not wait for Enter");
    terminal_type(t, "\r");
    terminal_wait(t, "\033[?2004l", WAIT_MS);
    terminal_wait(t, "4 tokens at", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    CHECK(engine_counter(e, "compute", "sequences_done") == 1,
          "the paste was more than one prompt");
    paste_too_much(t);
    snprintf(path, sizeof path, "%s/pasted.json", test_dir());
    snprintf(save, sizeof save, "/save %s", path);
    type_line(t, save);
    terminal_wait(t, ">>> ", WAIT_MS);
    terminal_type(t, CTRL_D);
    CHECK(terminal_end(t, WAIT_MS) == 0, "Ctrl-D: the exit status is not 0");
    json_t *doc = json_load_file(path, 0, NULL);
    const json_t *turns = json_object_get(doc, "turns");
    const char *prompt = lookup_text(json_array_get(turns, 0), "prompt");
    CHECK(json_array_size(turns) == 1 &&
              strcmp(prompt, "Then it was\n\ta dark\nand stormy night, and") == 0,
          "%zu turns, the first: %s", json_array_size(turns), prompt);
    json_decref(doc);
    engine_stop(e);
}

/* compute is killed during a response: the repl reports it, and the text is the same, as is one
 * that a stop string ends. */
static void repl_reports_a_restart(void)
{
    char path[PATH_MAX], command[64], stop[13];
    size_t expected;
    struct engine *e = engine_new();
    baseline(0);
    engine_start(e, (const char *const[]){"--resident-experts=25", NULL});
    snprintf(path, sizeof path, "%s/answer", test_dir());
    int out = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(out >= 0, "cannot make %s", path);
    struct terminal *t = repl_open(e, out);
    snprintf(command, sizeof command, "/set num_predict %d", baseline_tokens());
    type_line(t, command);
    typable(baseline(0)->text, stop, &expected);
    snprintf(command, sizeof command, "/set stop \"%s\"", stop);
    type_line(t, command);
    uint64_t before = engine_counter(e, "compute", "tokens_decode");
    type_line(t, test_prompt(0));
    engine_wait_counter(e, "compute", "tokens_decode", before + 8, WAIT_MS);
    pid_t compute = engine_pid(e, "compute", 0, 0);
    kill(compute, SIGKILL);
    terminal_wait(t, "[compute ", WAIT_MS);
    terminal_wait(t, "restarts of compute during this response: 1", WAIT_MS);
    terminal_wait(t, "tokens/s", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    terminal_type(t, CTRL_D);
    CHECK(terminal_end(t, WAIT_MS) == 0, "status is not 0");
    char *text = calloc(1, 1u << 16);
    CHECK(text && pread(out, text, (1u << 16) - 1, 0) > 0, "no response");
    close(out);
    bool same =
        strncmp(text, baseline(0)->text, expected) == 0 && strcmp(text + expected, "\n") == 0;
    char got[200];
    snprintf(got, sizeof got, "%s", text);
    free(text);
    CHECK(same, "the text is not the %zu bytes up to '%s': %s", expected, stop, got);
    engine_stop(e);
}

/* Without a terminal: responses on stdout, the rest on stderr, no prompts, no escape codes. */
static void repl_as_a_filter(void)
{
    struct command c;
    struct engine *e = engine_new();
    engine_start(e, NULL);
    const char *const args[] = {"repl", "--name", e->run, "--temp", "0", "-n", "8", NULL};
    char input[3 * PATH_MAX], path[PATH_MAX];
    command_run(&c, test_prompt(0), WAIT_MS, args);
    CHECK(c.status == 0 && strncmp(c.out, " the sun was", 12) == 0, "%d: %.200s", c.status, c.out);
    CHECK(command_lines(c.out) == 1 && !strchr(c.out, '\033') && !strstr(c.out, ">>>") &&
              !strchr(c.err, '\033') && strstr(c.err, "8 tokens at"),
          "%.200s | %.200s", c.out, c.err);
    char first[128];
    snprintf(first, sizeof first, "%s", c.out);
    command_free(&c);
    /* Save, load and regenerate give the same text; a stop string ends it. */
    snprintf(path, sizeof path, "%s/talk.json", test_dir());
    snprintf(input, sizeof input,
             "%s\n/save %s\n/clear\n/load %s\n/regen\n/clear\n/set stop sun\n%s\n", test_prompt(0),
             path, path, test_prompt(0));
    command_run(&c, input, WAIT_MS, args);
    char expected[512];
    snprintf(expected, sizeof expected, "%s1 turn saved\n1 turn loaded\n%s the \n", first, first);
    CHECK(c.status == 0 && strcmp(c.out, expected) == 0, "%d: %.300s | %.200s", c.status, c.out,
          c.err);
    command_free(&c);
    /* Errors are reported, the other lines are executed, and the exit status is 2. */
    command_run(&c, "/load /nonexistent\n/set temperature hot\n/help me\n/budget 1MiB\nIt was\n",
                WAIT_MS, args);
    CHECK(c.status == 2 && command_lines(c.out) == 1, "%d: %.300s", c.status, c.out);
    CHECK(strstr(c.err, "/nonexistent") && strstr(c.err, "hot") && strstr(c.err, "argument"),
          "%.500s", c.err);
    command_free(&c);
    command_run(&c, "/save /nonexistent/file\n\"\"\"no end", WAIT_MS, args);
    CHECK(c.status == 2 && command_lines(c.out) >= 1, "%d: %.300s", c.status, c.out);
    command_free(&c);
    engine_stop(e);
}

static unsigned occurrences(const char *text, const char *needle)
{
    unsigned n = 0;
    for (; (text = strstr(text, needle)); text += strlen(needle))
        n++;
    return n;
}

/* The oldest turns leave a full context with a line that says so; /tokens counts what is sent. */
static void repl_states_what_it_drops(void)
{
    struct command c;
    char input[1024];
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=128", NULL});
    int n = snprintf(input, sizeof input, "/tokens\n/tokens %s\n", test_prompt(0));
    for (int turn = 0; turn < 4; turn++)
        n += snprintf(input + n, sizeof input - (size_t)n, "%s\n/tokens\n", test_prompt(0));
    command_run(&c, input, WAIT_MS,
                (const char *const[]){"repl", "--name", e->run, "--temp", "0", "-n", "24", NULL});
    CHECK(c.status == 0, "%d: %.300s", c.status, c.err);
    CHECK(strstr(c.out, "the conversation has 0 of 128 tokens\nthis prompt adds 11 tokens: 11 of"),
          "%.300s", c.out);
    CHECK(strstr(c.out, "the conversation has 36 of 128 tokens\n"), "%.900s", c.out);
    CHECK(occurrences(c.err, "no longer sent]") == 1 &&
              strstr(c.err, "[the context of 128 tokens is full: the oldest "),
          "%.900s", c.err);
    CHECK(strstr(c.out, "of 128 tokens, without the oldest "), "%.900s", c.out);
    command_free(&c);
    command_run(&c, "/system\n/system Be \"brief\".\n/system\n/system \"\"\n/system\n", WAIT_MS,
                (const char *const[]){"repl", "--name", e->run, NULL});
    CHECK(c.status == 0 && strcmp(c.out, "no system message; /system TEXT sets one\n"
                                         "Be \"brief\".\n"
                                         "no system message; /system TEXT sets one\n") == 0,
          "%d: %.300s %.300s", c.status, c.out, c.err);
    command_free(&c);
    engine_stop(e);
}

/* ---- top ---- */

/* Drawing, resizing, keys, and a restart of the whole engine. */
static void top_on_a_terminal(void)
{
    struct engine *e = engine_new();
    engine_start(e, NULL);
    struct terminal *t = terminal_open(
        24, 80, -1, (const char *const[]){"top", "--name", e->run, "--interval", "0.3", NULL});
    terminal_wait(t, "PROCESS", WAIT_MS);
    terminal_wait(t, "predictor", WAIT_MS);
    terminal_wait(t, "EXPERTS:", WAIT_MS);
    terminal_type(t, "m");
    terminal_wait(t, "HEAT:", WAIT_MS);
    terminal_type(t, "h");
    terminal_wait(t, "scroll the map up", WAIT_MS);
    terminal_type(t, "h");
    terminal_wait(t, "PROCESS", WAIT_MS);
    struct text got;
    engine_generate(e, test_prompt(0), 8, &got);
    text_free(&got);
    terminal_resize(t, 50, 200);
    terminal_wait(t, "PROCESS", WAIT_MS);
    terminal_wait(t, "of accesses, max", WAIT_MS); /* the graphs: only with enough rows */
    terminal_resize(t, 5, 20);
    terminal_wait(t, "needs 40x12", WAIT_MS);
    terminal_resize(t, 24, 80);
    terminal_wait(t, "PROCESS", WAIT_MS);
    engine_stop(e);
    terminal_wait(t, "the engine has exited", WAIT_MS);
    engine_start(e, NULL);
    terminal_wait(t, "by start", WAIT_MS);
    terminal_type(t, "q");
    CHECK(terminal_end(t, WAIT_MS) == 0, "q: the exit status is not 0");
    /* top waits for an engine that is not running yet; a signal ends it. */
    t = terminal_open(24, 80, -1, (const char *const[]){"top", "--name", "no-engine", NULL});
    terminal_wait(t, "waiting for an engine", WAIT_MS);
    terminal_type(t, CTRL_C);
    CHECK(terminal_end(t, WAIT_MS) == 0, "Ctrl-C: the exit status is not 0");
    engine_stop(e);
}

/* What sequences share: passes, and the beginning of a prompt. */
static void stats_of_sequences(void)
{
    struct command c;
    struct text got;
    struct engine *e = engine_new();
    engine_start(e, NULL);
    for (int i = 0; i < 2; i++) {
        engine_generate(e, test_prompt(0), 8, &got);
        text_free(&got);
    }
    engine_wait_counter(e, "compute", "sequences_done", 2, WAIT_MS); /* counted after the answer */
    command_run(&c, NULL, WAIT_MS, (const char *const[]){"stats", "--name", e->run, NULL});
    CHECK(c.status == 0 && strstr(c.out, "\nsequences                         0  running, 0 in") &&
              strstr(c.out, "\nprefix hits                       1  sequences that began") &&
              strstr(c.out, "\ntokens not computed              10  of prompts"),
          "%d: %.3000s", c.status, c.out);
    const char *rows = strstr(c.out, "\nrows per expert");
    CHECK(rows && atof(rows + strlen("\nrows per expert")) >= 1, "%.3000s", c.out);
    command_free(&c);
    engine_stop(e);
}

static void stats_watches(void)
{
    struct engine *e = engine_new();
    engine_start(e, NULL);
    struct terminal *t = terminal_open(
        24, 80, -1, (const char *const[]){"stats", "--name", e->run, "--watch", "0.1", NULL});
    terminal_wait(t, "hit rate", WAIT_MS);
    terminal_wait(t, "; now ", WAIT_MS);
    terminal_type(t, CTRL_C);
    CHECK(terminal_end(t, WAIT_MS) == 0, "Ctrl-C: the exit status is not 0");
    engine_stop(e);
}

/* The map shows as many resident experts as the directory has; experts in use are hot. */
static void map_and_directory_agree(void)
{
    struct engine *e = engine_new();
    struct text got;
    struct map map;
    struct error error;
    engine_start(e, (const char *const[]){"--resident-experts=50", NULL});
    json_decref(engine_control(e, "map", NULL));
    engine_generate(e, test_prompt(0), 64, &got);
    text_free(&got);
    uint64_t deadline = deadline_in(WAIT_MS), resident, ready;
    do { /* prefetches may still be in flight */
        json_t *reply = engine_control(e, "map", NULL), *doc = engine_stats(e);
        CHECK(map_read(reply, &map, &error) == 0, "%s", error.text);
        CHECK(map.rows == 8 && map.experts == 32 && map.tokens >= 64,
              "%u layers of %u, %llu tokens", map.rows, map.experts,
              (unsigned long long)map.tokens);
        resident = map_resident_all(&map);
        ready = lookup_u64(doc, "directory.ready") - lookup_u64(doc, "directory.dense_ready");
        unsigned hot = 0;
        for (uint32_t i = 0; i < map.experts; i++)
            hot += map.row[0].heat[i] >= '5';
        CHECK(hot >= 4, "only %u hot experts in layer 0: %s", hot, map.row[0].heat);
        map_free(&map);
        json_decref(reply);
        json_decref(doc);
    } while ((resident != ready || resident == 0) && deadline_tick(deadline));
    CHECK(resident == ready && resident > 0, "%llu in the map, %llu in the directory",
          (unsigned long long)resident, (unsigned long long)ready);
    engine_stop(e);
}

/* A value in the process table: the row of a process, a column by number. */
static double cell(const char *page, const char *process, unsigned column)
{
    char needle[40];
    snprintf(needle, sizeof needle, "\n%s ", process);
    const char *at = strstr(page, needle);
    CHECK(at, "no %s in %.600s", process, page);
    at += 1;
    for (unsigned i = 0; i < column; i++) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return strtod(at, NULL);
}

/* `top --once` while the engine generates. False: compute had no CPU time in the tenth of a second
 * that it watched, which happens on a busy machine. */
static bool top_while_generating(struct engine *e, struct command *c)
{
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
    uint64_t deadline = deadline_in(WAIT_MS);
    while (generation_tokens(g) < 8)
        CHECK(deadline_tick(deadline), "no tokens");
    command_run(
        c, NULL, WAIT_MS,
        (const char *const[]){"top", "--name", e->run, "--once", "--interval", "0.1", NULL});
    struct text got;
    generation_finish(g, WAIT_MS, &got);
    text_free(&got);
    CHECK(c->status == 0 && !strchr(c->out, '\033'), "%d: %.300s", c->status, c->err);
    return cell(c->out, "compute", 3) > 0;
}

static void top_as_text(void)
{
    struct command c;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=50", NULL});
    pid_t compute = engine_pid(e, "compute", 0, 0);
    kill(compute, SIGKILL);
    compute = engine_pid(e, "compute", 0, compute);
    uint64_t deadline = deadline_in(WAIT_MS);
    while (!top_while_generating(e, &c)) {
        CHECK(deadline_tick(deadline), "no CPU time: %.900s", c.out);
        command_free(&c);
    }
    CHECK(cell(c.out, "compute", 1) == (double)compute, "the pid differs: %.900s", c.out);
    CHECK(cell(c.out, "compute", 7) == 1, "restarts is not 1: %.900s", c.out);
    CHECK(cell(c.out, "compute", 5) > 0, "no reservation: %.900s", c.out);
    CHECK(cell(c.out, "loader.0", 1) > 0 && strstr(c.out, "io_uring") && strstr(c.out, "budget "),
          "%.900s", c.out);
    size_t lines = command_lines(c.out);
    CHECK(lines >= 6 + 6 + 2 + 9, "%zu lines: %.900s", lines, c.out);
    command_free(&c);
    command_run(&c, NULL, WAIT_MS,
                (const char *const[]){"top", "--name", e->run, "--pages", "2", "--interval", "0.1",
                                      "--columns", "160", "--sort", "cpu", "--heat", NULL});
    CHECK(c.status == 0 && strstr(c.out, "HEAT") && strstr(strstr(c.out, "HEAT") + 1, "HEAT"),
          "%d: %.300s", c.status, c.err);
    command_free(&c);
    command_run(&c, NULL, WAIT_MS, (const char *const[]){"top", "--name", "no-engine", NULL});
    CHECK(c.status == 1 && strstr(c.err, "no-engine"), "%d: %.300s", c.status, c.err);
    command_free(&c);
    command_run(&c, NULL, WAIT_MS,
                (const char *const[]){"top", "--sort", "beauty", "--once", NULL});
    CHECK(c.status == 2 && strstr(c.err, "beauty"), "%d: %.300s", c.status, c.err);
    command_free(&c);
    engine_stop(e);
}

/* top shows who asks, and how far the answer is. */
static void top_shows_requests(void)
{
    struct command c = {0};
    struct engine *e = engine_new();
    engine_start(e, NULL);
    struct terminal *t = repl_open(e, -1);
    type_line(t, "/set num_predict 2000");
    uint64_t before = engine_counter(e, "compute", "tokens_decode");
    type_line(t, test_prompt(0));
    engine_wait_counter(e, "compute", "tokens_decode", before + 2, WAIT_MS);
    command_run(
        &c, NULL, WAIT_MS,
        (const char *const[]){"top", "--name", e->run, "--once", "--interval", "0.1", NULL});
    const char *row = strstr(c.out, "\nREQUEST ");
    CHECK(c.status == 0 && row && strstr(row, " repl ") && strstr(row, " answer ") &&
              strstr(row, " 11/11 "),
          "%d: %.2000s", c.status, c.out);
    CHECK(strstr(c.out, "\nlimit ") && !strstr(c.out, "\nlimit none"), "%.500s", c.out);
    command_free(&c);
    terminal_type(t, CTRL_C);
    terminal_wait(t, "ended by Ctrl-C", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    terminal_type(t, CTRL_D);
    CHECK(terminal_end(t, WAIT_MS) == 0, "Ctrl-D: the exit status is not 0");
    command_run(
        &c, NULL, WAIT_MS,
        (const char *const[]){"top", "--name", e->run, "--once", "--interval", "0.1", NULL});
    CHECK(c.status == 0 && !strstr(c.out, "\nREQUEST ") && strstr(c.out, "\nlimit none: "),
          "%.500s", c.out);
    command_free(&c);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(repl_on_a_terminal),     ROW(repl_for_a_person),  ROW(repl_takes_a_paste),
        ROW(repl_reports_a_restart), ROW(repl_as_a_filter),   ROW(repl_states_what_it_drops),
        ROW(stats_watches),          ROW(stats_of_sequences), ROW(map_and_directory_agree),
        ROW(top_on_a_terminal),      ROW(top_as_text),        ROW(top_shows_requests),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
