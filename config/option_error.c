/* SPDX-License-Identifier: Apache-2.0 */
#include "config/option_error.h"

#include <string.h>

#include "config/params.h"
#include "lib/text/suggest.h"

/* The argument that getopt_long rejected. While it is inside a group of short options (-ngl), optind still
 * refers to that group; otherwise it is one further. */
static const char *rejected(char **argv)
{
    const char *last = argv[optind - 1], *group = argv[optind];
    size_t n = strlen(last);
    bool ended = last[0] == '-' && (optopt == 0 || last[n - 1] == (char)optopt);
    return ended || !group ? last : group;
}

int option_error(const char *command, int option, char **argv, const struct option *options,
                 bool params, const char *const *more, struct error *error)
{
    const char *given = option == ':' ? argv[optind - 1] : rejected(argv);
    if (option == ':')
        return error_set(error, ERR_BAD_INPUT, "%.80s needs a value; see 'sluice %s --help'", given,
                         command);
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
