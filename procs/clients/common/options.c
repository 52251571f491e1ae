/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the sampling options and other common options out of a command line. */
#include "procs/clients/common/options.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/option_error.h"
#include "lib/base/bytes.h"

static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*a == '-' && *b == '_'))
            return false;
    return *a == *b;
}

static const char *full_name(const char *name)
{
    return strcmp(name, "temp") == 0 ? "temperature" : name;
}

bool sampling_known(const char *name)
{
    name = full_name(name);
#define X(type, field, json, def, min, max, help)                                                  \
    if (same_name(name, json))                                                                     \
        return true;
    SAMPLING_PARAMS(X)
#undef X
    return false;
}

/* The value that is attached to -s: a number, so that a prompt after -p which begins with "-s" is
 * none. */
static const char *seed_attached(const char *arg)
{
    const char *digits = strncmp(arg, "-s", 2) == 0 ? arg + 2 : "";
    return *(digits + (*digits == '-')) >= '0' && *(digits + (*digits == '-')) <= '9' ? digits
                                                                                      : NULL;
}

int sampling_take_args(struct sampling *s, int *argc, char **argv, struct error *error)
{
    int kept = 1;
    bool options = true;
    for (int i = 1; i < *argc; i++) {
        char *arg = argv[i];
        if (strcmp(arg, "--") == 0)
            options = false;
        char name[64] = "";
        size_t n = strcspn(arg, "=");
        if (options && strncmp(arg, "--", 2) == 0 && n < sizeof name)
            snprintf(name, sizeof name, "%.*s", (int)n - 2, arg + 2);
        const char *attached = options ? seed_attached(arg) : NULL;
        if (attached || (options && strcmp(arg, "-s") == 0))
            snprintf(name, sizeof name, "seed");
        if (!name[0] || !sampling_known(name)) {
            argv[kept++] = arg;
            continue;
        }
        const char *value = attached        ? attached
                            : arg[n] == '=' ? arg + n + 1
                            : i + 1 < *argc ? argv[++i]
                                            : NULL;
        if (!value)
            return error_set(error, ERR_BAD_INPUT, "%.*s needs a value", (int)n, arg);
        if (sampling_set(s, full_name(name), value, error) != 0)
            return -1;
    }
    argv[kept] = NULL;
    *argc = kept;
    return 0;
}

static void text_double(char *out, size_t bytes, double value)
{
    snprintf(out, bytes, "%g", value);
}

static void text_int64_t(char *out, size_t bytes, int64_t value)
{
    snprintf(out, bytes, "%" PRId64, value);
}

/* Placeholders of values in help texts. */
#define VALUE_double  "X"
#define VALUE_int64_t "N"

static void visit_parameter(const char *json, const char *value, const char *help, const char *def,
                            option_visit *visit, void *arg)
{
    char name[64], text[256];
    snprintf(name, sizeof name, "%s", json);
    for (char *c = name; *c; c++)
        if (*c == '_')
            *c = '-';
    snprintf(text, sizeof text, "%s (default %s)", help, def);
    char letter = strcmp(name, "seed") == 0 ? 's' : 0;
    struct option_row row = {letter, name, value, OPTION_ELSEWHERE, text};
    visit(&row, arg);
}

void sampling_options(option_visit *visit, void *arg)
{
    static const struct option_row temp = {0, "temp", VALUE_double, OPTION_ELSEWHERE,
                                           "short for --temperature"};
    char def[32];
#define X(type, field, json, d, min, max, help)                                                    \
    text_##type(def, sizeof def, d);                                                               \
    visit_parameter(json, VALUE_##type, help, def, visit, arg);
    SAMPLING_PARAMS(X)
#undef X
    visit(&temp, arg);
}

void sampling_show(FILE *out, const struct sampling *s, const char *name)
{
    char value[32];
#define X(type, field, json, d, min, max, help)                                                    \
    text_##type(value, sizeof value, s->field);                                                    \
    if (!name || strcmp(name, json) == 0)                                                          \
        fprintf(out, "  %-17s %-10s %s\n", json, value, help);
    SAMPLING_PARAMS(X)
#undef X
}

void option_warn_budget(const char *command, uint64_t bytes)
{
    char budget[16], memory[16];
    long pages = sysconf(_SC_PHYS_PAGES);
    uint64_t machine = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : UINT64_MAX;
    if (bytes > machine)
        fprintf(stderr,
                "sluice %s: warning: a budget of %s is more than this machine's memory of %s; the "
                "engine may be swapped out or killed\n",
                command, bytes_format(bytes, budget), bytes_format(machine, memory));
}

int option_ids(const char *text, uint32_t **ids, size_t *count, struct error *error)
{
    size_t list_max = 1;
    for (const char *c = text; *c; c++)
        list_max += *c == ',';
    uint32_t *list = malloc(list_max * sizeof *list);
    if (!list)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%zu token ids)", list_max);
    size_t n = 0;
    for (const char *at = text; n < list_max; at++) {
        char *end;
        errno = 0;
        unsigned long long id = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || errno || id >= UINT32_MAX || (*end && *end != ',')) {
            free(list);
            return error_set(error, ERR_BAD_INPUT,
                             "--ids: '%.40s' is not a list of token ids like 1,2,3", at);
        }
        list[n++] = (uint32_t)id;
        at = end;
    }
    *ids = list;
    *count = n;
    return 0;
}

static int read_all(int fd, const char *path, size_t max, char **text, size_t *bytes,
                    struct error *error)
{
    size_t capacity = 65536, used = 0;
    char *buf = NULL;
    for (;;) {
        char *grown = realloc(buf, capacity + 1);
        if (!grown) {
            free(buf);
            return error_set(error, ERR_NO_MEMORY, "out of memory (%.200s)", path);
        }
        buf = grown;
        ssize_t n = read(fd, buf + used, capacity - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            free(buf);
            return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot read %.200s", path);
        }
        if (n == 0)
            break;
        used += (size_t)n;
        if (used > max) {
            free(buf);
            return error_set(error, ERR_BAD_INPUT, "%.200s is longer than %zu bytes", path, max);
        }
        if (used == capacity)
            capacity *= 2;
    }
    buf[used] = 0;
    *text = buf;
    *bytes = used;
    return 0;
}

int option_file(const char *path, size_t max, char **text, size_t *bytes, struct error *error)
{
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, "standard input", max, text, bytes, error);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.200s", path);
    int result = read_all(fd, path, max, text, bytes, error);
    close(fd);
    return result;
}

int option_grammar(enum grammar_kind kind, const char *path, struct grammar_source *out,
                   struct error *error)
{
    static const char *const options[] = {
        [GRAMMAR_JSON_SCHEMA] = "--json-schema", [GRAMMAR_GBNF] = "--grammar"};
    struct grammar *compiled = NULL;
    struct error why;
    char *text = NULL;
    if (out->kind != GRAMMAR_NONE)
        return error_set(error, ERR_BAD_INPUT,
                         "a grammar is given twice; use one of --json-schema and --grammar");
    if (option_file(path, GRAMMAR_TEXT_BYTES_MAX, &text, &out->bytes, error) != 0)
        return -1;
    out->kind = kind;
    out->text = text;
    if (grammar_compile(out, NULL, &compiled, &why) != 0)
        return error_set(error, why.code, "%s %.100s: %.280s", options[kind], path, why.text);
    grammar_free(compiled);
    return 0;
}

void option_grammar_free(struct grammar_source *g)
{
    free((void *)g->text);
    *g = (struct grammar_source){.kind = GRAMMAR_NONE};
}

int output_end(struct error *error)
{
    return fflush(stdout) == 0 && !ferror(stdout)
               ? 0
               : error_set(error, ERR_IO, "cannot write to standard output");
}

int report(const char *command, const struct error *error)
{
    fflush(stdout);
    fprintf(stderr, "sluice %s: %s\n", command, error->text);
    return error_exit_status(error->code);
}
