/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the errors of command lines, and takes the operands that several programs have. */
#include "config/option_error.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "config/option_table.h"
#include "lib/base/bytes.h"
#include "lib/text/suggest.h"

/* Bytes of the name in "--name=value", at most as many as an error shows. */
static int name_bytes(const char *given)
{
    size_t n = strcspn(given, "=");
    return n < 80 ? (int)n : 80;
}

/* Whether getopt_long stopped within this group of short options: its first unknown letter is the
 * rejected one, and others follow. */
static bool stopped_within(const char *group, const char *letters)
{
    if (!group || group[0] != '-' || group[1] == '-')
        return false;
    for (const char *c = group + 1; *c; c++) {
        const char *known = *c == ':' ? NULL : strchr(letters, *c);
        if (!known)
            return *c == (char)optopt && c[1];
        if (known[1] == ':') /* the rest is its value */
            return false;
    }
    return false;
}

/* The argument that getopt_long rejected. optind is one further, except within a group of short
 * options (-ngl). optopt is a letter, 0 for an unknown name, and for a known one its number, which
 * no letter has. */
static const char *rejected(char **argv, const char *letters)
{
    bool letter = optopt > 0 && optopt <= UINT8_MAX;
    return letter && stopped_within(argv[optind], letters) ? argv[optind] : argv[optind - 1];
}

#define NO_DOWNLOAD                                                                                \
    "sluice downloads nothing: download the GGUF file first, for example with curl -LO "           \
    "https://huggingface.co/OWNER/NAME/resolve/main/FILE.gguf, and use -m FILE.gguf"

int option_download(const char *argument, struct error *error)
{
    static const char *const names[] = {"-hf",       "-hfr", "--hf",       "--hf-repo",
                                        "--hf-file", "-mu",  "--model-url"};
    size_t n = strcspn(argument, "=");
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strlen(names[i]) == n && memcmp(names[i], argument, n) == 0)
            return error_set(error, ERR_BAD_INPUT, "%.20s: " NO_DOWNLOAD, argument);
    return 0;
}

static bool is_url(const char *text)
{
    return strstr(text, "://") || strncmp(text, "hf.co/", 6) == 0 ||
           strncmp(text, "huggingface.co/", 15) == 0;
}

static bool is_path(const char *text)
{
    size_t n = strlen(text);
    return strchr(text, '/') || (n > 5 && strcmp(text + n - 5, ".gguf") == 0) ||
           access(text, F_OK) == 0;
}

static bool starts_with_any(const char *text, const char *const *starts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(text, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

/* Servers that a loader reads (lib/io/server): they need no download. A hub answers with the
 * address of another server for each read, so its files are downloaded. */
static bool is_server(const char *text)
{
    static const char *const schemes[] = {"nbd://",  "nbds://",  "nbd+unix://", "nbds+unix://",
                                          "http://", "https://", "s3://",       "rados://"};
    static const char *const hubs[] = {"https://huggingface.co/", "https://hf.co/"};
    return starts_with_any(text, schemes, sizeof schemes / sizeof *schemes) &&
           !starts_with_any(text, hubs, sizeof hubs / sizeof *hubs);
}

static int take_model(const char **model, bool server, int argc, char **argv, const char *hint,
                      struct error *error)
{
    if (!*model && optind < argc && (is_url(argv[optind]) || is_path(argv[optind])))
        *model = argv[optind++];
    if (*model && is_server(*model) && !server)
        return error_set(error, ERR_BAD_INPUT, "'%.80s' is a server; this command reads files only",
                         *model);
    if (*model && is_url(*model) && !is_server(*model))
        return error_set(error, ERR_BAD_INPUT, "'%.80s' is a URL; " NO_DOWNLOAD, *model);
    if (optind < argc && *model && is_path(argv[optind]))
        return error_set(error, ERR_BAD_INPUT, "'%.80s': one model only (%.80s is given)%s",
                         argv[optind], *model, hint);
    return optind < argc
               ? error_set(error, ERR_BAD_INPUT, "'%.80s' is not an option%s", argv[optind], hint)
               : 0;
}

int option_model(const char **model, int argc, char **argv, const char *hint, struct error *error)
{
    return take_model(model, false, argc, argv, hint, error);
}

int option_model_or_server(const char **model, int argc, char **argv, const char *hint,
                           struct error *error)
{
    return take_model(model, true, argc, argv, hint, error);
}

static void suggest_row(const struct option_row *row, void *arg)
{
    if (row->name)
        suggest_name(arg, row->name);
}

/* Whether getopt_long knows the rejected option, which has no value, and was given one: --flag=x,
 * or -f=x, where it takes the = for a letter. */
static bool is_flag(const char *given, const struct option *names)
{
    if (optopt == '=')
        return given[0] == '-' && given[1] != '-' && strcspn(given, "=") > 1;
    for (; optopt > UINT8_MAX && names->name; names++)
        if (names->val == optopt)
            return true;
    return false;
}

static int needs_value(const char *given, const char *command, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "%.80s needs a value; see 'sluice %s --help'", given,
                     command);
}

static int unknown_option(const struct option_table *table, const char *given, struct error *error)
{
    struct suggest s;
    char hint[SUGGEST_HINT_BYTES];
    const char *name = given + strspn(given, "-");
    suggest_start(&s, name, strcspn(name, "="));
    options_each(table, suggest_row, &s);
    /* One that is taken elsewhere is left here if nothing follows it. */
    if (s.distance == 0 && strncmp(given, "--", 2) == 0)
        return needs_value(given, table->command, error);
    return error_set(error, ERR_BAD_INPUT, "unknown option %.*s%s (see 'sluice %s --help')",
                     name_bytes(given), given, suggest_hint(&s, "--", hint), table->command);
}

int option_error(const struct option_table *table, int option, char **argv, const char *letters,
                 const struct option *names, struct error *error)
{
    const char *given = option == ':' ? argv[optind - 1] : rejected(argv, letters);
    if (option == ':')
        return needs_value(given, table->command, error);
    if (option_download(given, error) != 0)
        return -1;
    if (is_flag(given, names))
        return error_set(error, ERR_BAD_INPUT, "%.*s takes no value; see 'sluice %s --help'",
                         name_bytes(given), given, table->command);
    return unknown_option(table, given, error);
}

bool option_unit_missing(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t bytes;
    return digits > 0 && !text[digits] && bytes_parse(text, &bytes) && bytes > 0 &&
           bytes <= UINT16_MAX;
}
