/* sluice repl: a conversation with a running engine, or one of its own.
 *
 * Reads lines with libedit (history in a file) when input is a terminal, plain lines from a pipe.
 * The model continues the conversation as one text: prompts and answers follow each other, as much
 * of it as the setting "context" allows. Ctrl-C ends the answer, Ctrl-D the session.
 * Maps nothing; when it dies its sequence is cancelled for want of interest, its own engine ends.
 */
#include <errno.h>
#include <getopt.h>
#include <histedit.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "procs/client/figures.h"
#include "procs/client/options.h"
#include "procs/repl/repl.h"

#define HISTORY_LINES 1000

struct input {
    EditLine *edit;
    History *history;
    HistEvent event;
    char history_path[PATH_MAX];
    char *line; /* from a pipe */
    size_t room;
    bool inside; /* between """ and """ */
};

static const char *edit_prompt(EditLine *edit)
{
    struct input *in = NULL;
    el_get(edit, EL_CLIENTDATA, &in);
    return in && in->inside ? "... " : ">>> ";
}

/* $XDG_STATE_HOME/sluice/history, else ~/.local/state/sluice/history; "" when there is no home. */
static void find_history(struct input *in)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char dir[PATH_MAX - 16];
    int n = -1;
    if (state && state[0] == '/')
        n = snprintf(dir, sizeof dir, "%s/sluice", state);
    else if (home && home[0] == '/')
        n = snprintf(dir, sizeof dir, "%s/.local/state/sluice", home);
    if (n < 0 || (size_t)n >= sizeof dir)
        return;
    for (char *c = dir + 1; *c; c++) { /* every parent; those that exist already are fine */
        if (*c != '/')
            continue;
        *c = 0;
        mkdir(dir, 0700);
        *c = '/';
    }
    if (mkdir(dir, 0700) == 0 || errno == EEXIST)
        snprintf(in->history_path, sizeof in->history_path, "%s/history", dir);
}

static void input_open(struct input *in, bool tty)
{
    memset(in, 0, sizeof *in);
    if (!tty)
        return;
    in->edit = el_init("sluice", stdin, stdout, stderr);
    in->history = history_init();
    if (!in->edit || !in->history)
        return;
    history(in->history, &in->event, H_SETSIZE, HISTORY_LINES);
    history(in->history, &in->event, H_SETUNIQUE, 1);
    find_history(in);
    if (in->history_path[0])
        history(in->history, &in->event, H_LOAD, in->history_path);
    el_set(in->edit, EL_CLIENTDATA, in);
    el_set(in->edit, EL_PROMPT, edit_prompt);
    el_set(in->edit, EL_EDITOR, "emacs");
    el_set(in->edit, EL_HIST, history, in->history);
    el_source(in->edit, NULL);
}

static void input_close(struct input *in)
{
    if (in->history && in->history_path[0])
        history(in->history, &in->event, H_SAVE, in->history_path);
    if (in->history)
        history_end(in->history);
    if (in->edit)
        el_end(in->edit);
    free(in->line);
}

/* A line without its newline, or NULL at the end of input. Ctrl-C gives an empty line. */
static char *input_line(struct input *in)
{
    int count = 0;
    ssize_t n;
    if (in->edit) {
        const char *got = el_gets(in->edit, &count);
        if (!got && session_stop) {
            session_stop = 0;
            el_reset(in->edit);
            printf("\n");
            count = 0;
            got = "";
        } else if (!got || count <= 0) {
            return NULL;
        }
        free(in->line);
        in->line = strndup(got, (size_t)count);
        n = count;
        if (in->line && count > 1)
            history(in->history, &in->event, H_ENTER, in->line);
    } else {
        n = getline(&in->line, &in->room, stdin);
    }
    if (!in->line || n < 0)
        return NULL;
    in->line[strcspn(in->line, "\r\n")] = 0;
    return in->line;
}

/* Appends to a prompt of several lines; newly allocated. */
static char *join(char *text, const char *line)
{
    size_t have = text ? strlen(text) : 0, more = strlen(line);
    char *grown = have + more + 2 <= REPL_PROMPT_MAX ? realloc(text, have + more + 2) : NULL;
    if (!grown) {
        free(text);
        return NULL;
    }
    if (have)
        grown[have++] = '\n';
    memcpy(grown + have, line, more + 1);
    return grown;
}

/* The next prompt or command, newly allocated; NULL at the end of input. */
static char *input_prompt(struct input *in)
{
    static const char quotes[] = "\"\"\"";
    char *line = input_line(in);
    if (!line || strncmp(line, quotes, 3) != 0)
        return line ? strdup(line) : NULL;
    char *text = strdup("");
    in->inside = true;
    line += 3;
    while (text && line && in->inside) {
        char *end = strstr(line, quotes);
        if (end) {
            *end = 0;
            in->inside = false;
        }
        text = join(text, line);
        if (!end)
            line = input_line(in);
    }
    in->inside = false;
    return text ? text : strdup("");
}

static void talk_append(struct repl *r, const char *text, size_t bytes)
{
    size_t keep = REPL_PROMPT_MAX / 2;
    if (bytes > keep) {
        text += bytes - keep;
        bytes = keep;
    }
    if (r->talk_bytes + bytes > REPL_PROMPT_MAX) {
        memmove(r->talk, r->talk + r->talk_bytes - keep, keep);
        r->talk_bytes = keep;
    }
    memcpy(r->talk + r->talk_bytes, text, bytes);
    r->talk_bytes += bytes;
    r->talk[r->talk_bytes] = 0;
}

/* The end of the conversation that is sent: at most `context` bytes before this prompt, begun after
 * a line's end where there is one, never inside a character. */
static const char *talk_from(const struct repl *r, size_t prompt_bytes)
{
    size_t before = r->talk_bytes - prompt_bytes;
    size_t keep = (uint64_t)r->context < before ? (size_t)r->context : before;
    const char *from = r->talk + before - keep;
    if (keep == before)
        return from;
    const char *line = memchr(from, '\n', keep);
    if (line)
        return line + 1;
    while (((unsigned char)*from & 0xc0) == 0x80)
        from++;
    return from;
}

static void print_next(const struct engine_next *next, void *arg)
{
    (void)arg;
    fwrite(next->text, 1, next->text_bytes, stdout);
    fflush(stdout);
}

int repl_turn(struct repl *r, const char *prompt, struct error *error)
{
    size_t bytes = strlen(prompt);
    if (r->talk_bytes > 0)
        talk_append(r, "\n", 1);
    talk_append(r, prompt, bytes);
    r->submit.prompt = talk_from(r, bytes < r->talk_bytes ? bytes : r->talk_bytes);
    r->submit.prompt_bytes = strlen(r->submit.prompt);
    struct stream_result result;
    json_t *before = session_stats(&r->session);
    int status = stream_run(&r->session, &r->submit, print_next, r, &result, error);
    printf("\n");
    if (result.text)
        talk_append(r, result.text, result.text_bytes);
    if (status == 0) {
        json_t *after = session_stats(&r->session);
        json_decref(r->figures);
        r->figures = figures_make(&result, before, after);
        json_decref(after);
    } else {
        fprintf(stderr, "%s\n", error->text);
        if (error->code != ERR_GONE)
            status = 0; /* this answer failed, the session goes on */
    }
    if (strcmp(result.finish, "cancelled") == 0)
        fprintf(stderr, "(ended after %zu tokens)\n", result.count);
    json_decref(before);
    stream_result_free(&result);
    session_stop = 0;
    return status;
}

static int talk(struct repl *r, struct error *error)
{
    struct input in;
    int status = 0;
    input_open(&in, r->tty);
    while (status == 0 && !r->leave) {
        char *prompt = input_prompt(&in);
        if (!prompt)
            break;
        session_stop = 0;
        if (prompt[0] == '/')
            command_run(r, prompt);
        else if (prompt[0])
            status = repl_turn(r, prompt, error);
        free(prompt);
        fflush(stdout);
    }
    input_close(&in);
    return status;
}

static void usage(FILE *out)
{
    fprintf(out, "usage: sluice repl [--run NAME] [-m FILE] [options]\n"
                 "\n"
                 "A conversation: the model continues what you write. /help tells the commands.\n"
                 "\n"
                 "  -m, --model FILE           start an engine for this file\n"
                 "      --run NAME             the running engine to use (default \"default\")\n"
                 "  -n, --tokens N             new tokens of an answer at most (default 128)\n"
                 "  -v, --verbose              show the log of an engine of our own\n"
                 "\nSampling:\n");
    sampling_help(out);
    fprintf(out, "\nParameters of an engine of its own:\n");
    params_help(out);
}

static const struct option options[] = {{"model", 1, NULL, 'm'},  {"run", 1, NULL, 'r'},
                                        {"tokens", 1, NULL, 'n'}, {"verbose", 0, NULL, 'v'},
                                        {"help", 0, NULL, 'h'},   {NULL, 0, NULL, 0}};

static int parse(struct repl *r, struct session_request *q, int argc, char **argv,
                 struct error *error)
{
    params_defaults(&q->params);
    engine_submit_defaults(&r->submit);
    if (params_take_args(&q->params, &argc, argv, error) != 0 ||
        sampling_take_args(&r->submit.sampling, &argc, argv, error) != 0)
        return -1;
    int option;
    while ((option = getopt_long(argc, argv, "m:n:vh", options, NULL)) != -1) {
        switch (option) {
        case 'm': q->model = optarg; break;
        case 'r': q->run = optarg; break;
        case 'v': q->verbose = true; break;
        case 'n':
            if (option_i64("-n", optarg, 1, ENGINE_TOKENS_MAX, &r->submit.max_tokens, error) != 0)
                return -1;
            break;
        case 'h': usage(stdout); exit(fflush(stdout) == 0 ? 0 : 1);
        default: return error_set(error, ERR_BAD_INPUT, "see sluice repl --help");
        }
    }
    if (optind < argc)
        return error_set(error, ERR_BAD_INPUT, "'%.80s' is not an option", argv[optind]);
    return 0;
}

int main(int argc, char **argv)
{
    struct repl r = {.context = REPL_CONTEXT_DEF, .tty = isatty(STDIN_FILENO)};
    struct session_request request = {.verb = "repl"};
    struct error error;
    session_signals();
    r.talk = calloc(1, REPL_PROMPT_MAX + 1);
    if (!r.talk)
        return 1;
    int status = parse(&r, &request, argc, argv, &error);
    if (status == 0 && (status = session_open(&r.session, &request, &error)) == 0) {
        if (r.tty)
            fprintf(stderr, "engine '%s' is ready; /help tells the commands\n", r.session.run);
        status = talk(&r, &error);
        session_close(&r.session);
    }
    json_decref(r.figures);
    free(r.talk);
    return status == 0 ? 0 : report("repl", &error);
}
