/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the errors of command lines, and takes the operands that several programs have. */
#include "config/option_error.h"

#include <string.h>
#include <unistd.h>

#include "config/params.h"
#include "lib/base/bytes.h"
#include "lib/text/suggest.h"

/* The argument that getopt_long rejected. While it is inside a group of short options (-ngl),
 * optind still refers to that group; otherwise it is one further. */
static const char *rejected(char **argv)
{
    const char *last = argv[optind - 1], *group = argv[optind];
    size_t n = strlen(last);
    bool ended = last[0] == '-' && (optopt == 0 || last[n - 1] == (char)optopt);
    return ended || !group ? last : group;
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

int option_model(const char **model, int argc, char **argv, const char *hint, struct error *error)
{
    if (!*model && optind < argc && (is_url(argv[optind]) || is_path(argv[optind])))
        *model = argv[optind++];
    if (*model && is_url(*model))
        return error_set(error, ERR_BAD_INPUT, "'%.80s' is a URL; " NO_DOWNLOAD, *model);
    if (optind < argc && *model && is_path(argv[optind]))
        return error_set(error, ERR_BAD_INPUT, "'%.80s': one model only (%.80s is given)%s",
                         argv[optind], *model, hint);
    return optind < argc
               ? error_set(error, ERR_BAD_INPUT, "'%.80s' is not an option%s", argv[optind], hint)
               : 0;
}

int option_error(const char *command, int option, char **argv, const struct option *options,
                 bool params, const char *const *more, struct error *error)
{
    const char *given = option == ':' ? argv[optind - 1] : rejected(argv);
    if (option == ':')
        return error_set(error, ERR_BAD_INPUT, "%.80s needs a value; see 'sluice %s --help'", given,
                         command);
    if (option_download(given, error) != 0)
        return -1;
    struct suggest s;
    char hint[SUGGEST_HINT_BYTES];
    const char *name = given + strspn(given, "-");
    suggest_start(&s, name, strcspn(name, "="));
    for (; options->name; options++)
        suggest_name(&s, options->name);
    for (; more && *more; more++)
        suggest_name(&s, *more);
    if (params)
        params_suggest(&s);
    return error_set(error, ERR_BAD_INPUT, "unknown option %.*s%s (see 'sluice %s --help')",
                     (int)(strcspn(given, "=") < 80 ? strcspn(given, "=") : 80), given,
                     suggest_hint(&s, "--", hint), command);
}

bool option_unit_missing(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t bytes;
    return digits > 0 && !text[digits] && bytes_parse(text, &bytes) && bytes > 0 &&
           bytes <= UINT16_MAX;
}
