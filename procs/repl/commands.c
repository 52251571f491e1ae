#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/client/document.h"
#include "procs/client/figures.h"
#include "procs/client/options.h"
#include "procs/repl/repl.h"

struct command {
    const char *word, *arguments, *help;
    void (*run)(struct repl *r, char *arguments);
};

static void cmd_help(struct repl *r, char *arguments);

/* Settings beside the sampling parameters. */
static int set_own(struct repl *r, const char *name, const char *value, struct error *error)
{
    if (strcmp(name, "tokens") == 0)
        return option_i64("tokens", value, 1, ENGINE_TOKENS_MAX, &r->submit.max_tokens, error);
    if (strcmp(name, "context") == 0)
        return option_i64("context", value, 0, REPL_PROMPT_MAX / 2, &r->context, error);
    if (strcmp(name, "ignore_eos") == 0 || strcmp(name, "special") == 0) {
        bool on = strcmp(value, "on") == 0;
        if (!on && strcmp(value, "off") != 0)
            return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' is neither on nor off", name,
                             value);
        *(name[0] == 'i' ? &r->submit.ignore_eos : &r->submit.parse_special) = on;
        return 0;
    }
    return sampling_set(&r->submit.sampling, strcmp(name, "temp") == 0 ? "temperature" : name,
                        value, error);
}

static void cmd_set(struct repl *r, char *arguments)
{
    char *rest = NULL;
    const char *name = strtok_r(arguments, " \t", &rest);
    const char *value = strtok_r(NULL, " \t", &rest);
    /* "/set parameter temperature 0.5" is what fingers know. */
    if (name && strcmp(name, "parameter") == 0) {
        name = value;
        value = strtok_r(NULL, " \t", &rest);
    }
    struct error error;
    if (!name || !value)
        fprintf(stderr, "usage: /set NAME VALUE (see /show)\n");
    else if (set_own(r, name, value, &error) != 0)
        fprintf(stderr, "%s\n", error.text);
}

static void cmd_show(struct repl *r, char *arguments)
{
    (void)arguments;
    sampling_show(stdout, &r->submit.sampling);
    printf("  %-16s %-10" PRId64 " %s\n", "tokens", r->submit.max_tokens, "new tokens at most");
    printf("  %-16s %-10" PRId64 " %s\n", "context", r->context,
           "bytes of the conversation sent along; 0 = none");
    printf("  %-16s %-10s %s\n", "ignore_eos", r->submit.ignore_eos ? "on" : "off",
           "go on after the end-of-text token");
    printf("  %-16s %-10s %s\n", "special", r->submit.parse_special ? "on" : "off",
           "control tokens written in the prompt count as such");
    printf("  engine '%s'%s\n", r->session.run, r->session.own ? ", our own" : "");
}

static void cmd_stats(struct repl *r, char *arguments)
{
    (void)arguments;
    if (r->figures)
        figures_print(stdout, r->figures);
    else
        printf("no answer yet\n");
}

static void cmd_clear(struct repl *r, char *arguments)
{
    (void)arguments;
    r->talk_bytes = 0;
    r->talk[0] = 0;
}

static void cmd_bye(struct repl *r, char *arguments)
{
    (void)arguments;
    r->leave = true;
}

static const struct command commands[] = {
    {"help", "", "this list", cmd_help},
    {"?", "", "this list", cmd_help},
    {"set", "NAME VALUE", "change a setting", cmd_set},
    {"show", "", "all settings", cmd_show},
    {"stats", "", "figures of the last answer", cmd_stats},
    {"clear", "", "forget the conversation", cmd_clear},
    {"bye", "", "leave (also Ctrl-D)", cmd_bye},
};

static void cmd_help(struct repl *r, char *arguments)
{
    (void)r;
    (void)arguments;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        printf("  /%-6s %-12s %s\n", commands[i].word, commands[i].arguments, commands[i].help);
    printf("  Ctrl-C ends the answer, not the session. \"\"\" begins and ends a prompt of several "
           "lines.\n");
}

void command_run(struct repl *r, char *line)
{
    char *word = line + 1;
    size_t n = strcspn(word, " \t");
    char *arguments = word + n + (word[n] != 0);
    word[n] = 0;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strcmp(commands[i].word, word) == 0) {
            commands[i].run(r, arguments);
            return;
        }
    fprintf(stderr, "there is no command /%.40s (see /help)\n", word);
}
