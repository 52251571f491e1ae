/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the engine's parameters from the rows of params.tbl.h: defaults, command lines, files, and
 * texts of their values. */
#include "config/params.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_error.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/text/suggest.h"
#include "lib/text/utf8.h"

#define ON_WORDS  "on|yes|true|1"
#define OFF_WORDS "off|no|false|0"

enum param_kind { KIND_U64, KIND_BYTES, KIND_F64, KIND_BOOL, KIND_CHOICE, KIND_TEXT };

struct param_info {
    const char *name, *help, *unit, *choices;
    const char *def_text;
    enum param_kind kind;
    size_t offset;
    uint64_t def, min, max;
    double def_f, min_f, max_f;
};

#define AT(name) .offset = offsetof(struct params, name)
static const struct param_info table[] = {
#define PARAM_U64(name, d, lo, hi, u, h)                                                           \
    {#name, h, u, NULL, NULL, KIND_U64, AT(name), .def = (d), .min = (lo), .max = (hi)},
#define PARAM_BYTES(name, d, lo, hi, h)                                                            \
    {#name, h, "bytes", NULL, NULL, KIND_BYTES, AT(name), .def = (d), .min = (lo), .max = (hi)},
#define PARAM_F64(name, d, lo, hi, u, h)                                                           \
    {#name, h, u, NULL, NULL, KIND_F64, AT(name), .def_f = (d), .min_f = (lo), .max_f = (hi)},
#define PARAM_BOOL(name, d, h)      {#name, h, "on|off", NULL, NULL, KIND_BOOL, AT(name), .def = (d)},
#define PARAM_CHOICE(name, d, c, h) {#name, h, c, c, d, KIND_CHOICE, AT(name), .def = 0},
#define PARAM_TEXT(name, d, h)      {#name, h, "text", NULL, d, KIND_TEXT, AT(name), .def = 0},
#include "config/params.tbl.h"
};

static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*a == '-' && *b == '_'))
            return false;
    return *a == *b;
}

static const struct param_info *find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (same_name(name, table[i].name))
            return &table[i];
    return NULL;
}

void params_defaults(struct params *p)
{
    memset(p, 0, sizeof *p);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct param_info *t = &table[i];
        char *at = (char *)p + t->offset;
        switch (t->kind) {
        case KIND_U64:
        case KIND_BYTES:
        case KIND_BOOL: memcpy(at, &t->def, sizeof t->def); break;
        case KIND_F64: memcpy(at, &t->def_f, sizeof t->def_f); break;
        case KIND_CHOICE:
            sl_assert(strlen(t->def_text) < PARAM_CHOICE_BYTES);
            strcpy(at, t->def_text);
            break;
        case KIND_TEXT:
            sl_assert(strlen(t->def_text) < PARAM_TEXT_BYTES);
            strcpy(at, t->def_text);
            break;
        }
    }
}

bool params_known(const char *name)
{
    return find(name) != NULL;
}

static bool one_of(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *c = choices; *c;) {
        size_t len = strcspn(c, "|");
        if (len == n && memcmp(c, text, n) == 0)
            return true;
        c += len + (c[len] == '|');
    }
    return false;
}

/* "--io-size": the option of a parameter. */
#define OPTION_NAME_BYTES 48
#define OPTION(t)         option_text((t), (char[OPTION_NAME_BYTES]){0})
static const char *option_text(const struct param_info *t, char buf[OPTION_NAME_BYTES])
{
    snprintf(buf, OPTION_NAME_BYTES, "--%s", t->name);
    for (char *c = buf; *c; c++)
        if (*c == '_')
            *c = '-';
    return buf;
}

/* Sizes of which a few bytes make no sense. An engine is given the accepted ones as numbers
 * without a unit. */
static bool is_budget(const struct param_info *t)
{
    return strcmp(t->name, "budget") == 0 || strcmp(t->name, "gpu_budget") == 0;
}

#define BUDGET_MIN_BYTES 65536u /* what option_unit_missing takes for a missing unit is below */

static int set_u64(const struct param_info *t, char *at, const char *text, struct error *error)
{
    uint64_t value = 0;
    bool ok;
    if (t->kind == KIND_BYTES) {
        ok = bytes_parse(text, &value);
    } else {
        char *end;
        errno = 0;
        value = strtoull(text, &end, 10);
        ok = text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0;
    }
    if (ok && is_budget(t) && option_unit_missing(text))
        return error_set(error, ERR_BAD_INPUT, "%s: %.80s bytes; did you mean %.80sMiB?", OPTION(t),
                         text, text);
    if (!ok)
        return error_set(error, ERR_BAD_INPUT, "%s: '%.80s' is not a %s", OPTION(t), text,
                         t->kind == KIND_BYTES ? "size (try 512MiB or 4GiB)" : "whole number");
    if (value < t->min || value > t->max)
        return error_set(error, ERR_BAD_INPUT,
                         "%s: %.80s is out of range (%" PRIu64 " to %" PRIu64 " %s)", OPTION(t),
                         text, t->min, t->max, t->unit);
    if (is_budget(t) && value > 0 && value < BUDGET_MIN_BYTES)
        return error_set(error, ERR_BAD_INPUT, "%s: %.80s is less than %u bytes", OPTION(t), text,
                         BUDGET_MIN_BYTES);
    memcpy(at, &value, sizeof value);
    return 0;
}

static int set_f64(const struct param_info *t, char *at, const char *text, struct error *error)
{
    char *end;
    double value = strtod(text, &end);
    if (*end == '%' && t->unit[0] == '%')
        end++;
    if (end == text || *end || !(value >= t->min_f && value <= t->max_f))
        return error_set(error, ERR_BAD_INPUT, "%s: '%.80s' is not a number from %g to %g %s",
                         OPTION(t), text, t->min_f, t->max_f, t->unit);
    memcpy(at, &value, sizeof value);
    return 0;
}

static int set_bool(const struct param_info *t, char *at, const char *text, struct error *error)
{
    uint64_t value;
    if (one_of(ON_WORDS, text))
        value = 1;
    else if (one_of(OFF_WORDS, text))
        value = 0;
    else
        return error_set(error, ERR_BAD_INPUT, "%s: '%.80s' must be on or off", OPTION(t), text);
    memcpy(at, &value, sizeof value);
    return 0;
}

static int unknown(const char *name, struct error *error)
{
    struct suggest s;
    char hint[SUGGEST_HINT_BYTES];
    suggest_start(&s, name, strlen(name));
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        suggest_name(&s, table[i].name);
    return error_set(error, ERR_BAD_INPUT, "unknown parameter '%.80s'%s (see --help)", name,
                     suggest_hint(&s, "", hint));
}

/* A name of a model is in JSON and on terminals. */
static bool is_name(const char *text)
{
    size_t bytes = strlen(text);
    for (const char *at = text; *at; at++) {
        unsigned char byte = (unsigned char)*at, next = (unsigned char)at[1];
        if (byte < ' ' || byte == 0x7f || (byte == 0xc2 && next >= 0x80 && next < 0xa0))
            return false;
    }
    return bytes < PARAM_ALIAS_BYTES && utf8_valid(text, bytes);
}

static int set_text(const struct param_info *t, char *at, const char *text, struct error *error)
{
    if (strlen(text) >= PARAM_TEXT_BYTES)
        return error_set(error, ERR_BAD_INPUT, "%s: longer than %d bytes", OPTION(t),
                         PARAM_TEXT_BYTES - 1);
    if (strcmp(t->name, "alias") == 0 && !is_name(text))
        return error_set(error, ERR_BAD_INPUT,
                         "%s: not a name: at most %d bytes of UTF-8 without control characters",
                         OPTION(t), PARAM_ALIAS_BYTES - 1);
    strcpy(at, text);
    return 0;
}

int params_set(struct params *p, const char *name, const char *text, struct error *error)
{
    const struct param_info *t = find(name);
    if (!t)
        return unknown(name, error);
    char *at = (char *)p + t->offset;
    switch (t->kind) {
    case KIND_U64:
    case KIND_BYTES: return set_u64(t, at, text, error);
    case KIND_F64: return set_f64(t, at, text, error);
    case KIND_BOOL: return set_bool(t, at, text, error);
    case KIND_CHOICE:
        if (!one_of(t->choices, text))
            return error_set(error, ERR_BAD_INPUT, "%s: '%.80s' is not one of %s", OPTION(t), text,
                             t->choices);
        strcpy(at, text);
        return 0;
    case KIND_TEXT: return set_text(t, at, text, error);
    }
    sl_panic("parameter %s has no kind", t->name);
}

static char *trim(char *s)
{
    s += strspn(s, " \t\r\n");
    size_t n = strlen(s);
    while (n > 0 && strchr(" \t\r\n", s[n - 1]))
        s[--n] = 0;
    return s;
}

/* A comment starts at the line's start or after a blank: a value may contain '#' (a key, a
 * path). */
static void cut_comment(char *line)
{
    for (char *c = line; *c; c++)
        if (*c == '#' && (c == line || c[-1] == ' ' || c[-1] == '\t')) {
            *c = 0;
            return;
        }
}

static int load_line(struct params *p, const char *path, unsigned number, char *line, size_t bytes,
                     struct error *error)
{
    if (strlen(line) != bytes)
        return error_set(error, ERR_BAD_INPUT, "%s:%u: a line with a NUL byte", path, number);
    cut_comment(line);
    char *name = trim(line);
    if (!*name)
        return 0;
    char *equals = strchr(name, '=');
    if (!equals)
        return error_set(error, ERR_BAD_INPUT, "%s:%u: expected 'name = value'", path, number);
    *equals = 0;
    struct error why;
    if (params_set(p, trim(name), trim(equals + 1), &why) != 0)
        return error_set(error, ERR_BAD_INPUT, "%s:%u: %.300s", path, number, why.text);
    return 0;
}

int params_load(struct params *p, const char *path, struct error *error)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open config file %s", path);
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int result = 0;
    for (unsigned number = 1; result == 0 && (n = getline(&line, &cap, f)) >= 0; number++)
        result = load_line(p, path, number, line, (size_t)n, error);
    if (result == 0 && !feof(f))
        result = error_set_errno(error, ERR_BAD_INPUT, errno, "cannot read config file %s", path);
    free(line);
    fclose(f);
    return result;
}

/* A parameter that is on or off may be given without a value. */
void params_open_choice(struct params *p)
{
    p->preset[0] = 0;
}

bool params_close_choice(struct params *p)
{
    bool given = p->preset[0] || p->policy[0] || p->plan[0] || p->eviction[0] || p->prediction[0] ||
                 p->devices[0];
    if (!p->preset[0]) {
        struct params defaults;
        params_defaults(&defaults);
        memcpy(p->preset, defaults.preset, sizeof p->preset);
    }
    return !given && p->max_loss > 0 && !p->no_tune;
}

static bool value_follows(const struct param_info *t, const char *next)
{
    return next && (!t || t->kind != KIND_BOOL || one_of(ON_WORDS "|" OFF_WORDS, next));
}

/* Options of one letter, as in other programs: "-c N" and "-cN". */
static const struct {
    char letter;
    const char *name;
} letters[] = {{'c', "ctx_size"}, {'t', "threads"}};

/* Returns the parameter's name and where the value begins in `arg` (at its end: the next argument),
 * or NULL. */
static const char *short_param(const char *arg, const char **value)
{
    for (size_t i = 0; arg[0] == '-' && i < ARRAY_LEN(letters); i++)
        if (arg[1] == letters[i].letter && strspn(arg + 2, "0123456789") == strlen(arg + 2)) {
            *value = arg + 2;
            return letters[i].name;
        }
    return NULL;
}

/* Applies arg, a short option, with its value. 1: also took `next`; 0: not; -1 with *error. */
static int take_short(struct params *p, const char *arg, const char *name, const char *value,
                      const char *next, struct error *error)
{
    bool apart = !*value;
    value = apart ? next : value;
    if (!value)
        return error_set(error, ERR_BAD_INPUT, "%.2s needs a value", arg);
    return params_set(p, name, value, error) != 0 ? -1 : apart;
}

int params_take_args(struct params *p, int *argc, char **argv, struct error *error)
{
    int kept = 1;
    bool options = true;
    for (int i = 1; i < *argc; i++) {
        char *arg = argv[i];
        if (strcmp(arg, "--") == 0)
            options = false;
        if (options && option_download(arg, error) != 0)
            return -1;
        const char *digits, *letter = options ? short_param(arg, &digits) : NULL;
        if (letter) {
            int took = take_short(p, arg, letter, digits, argv[i + 1], error);
            if (took < 0)
                return -1;
            i += took;
            continue;
        }
        if (!options || strncmp(arg, "--", 2) != 0) {
            argv[kept++] = arg;
            continue;
        }
        char name[64];
        size_t n = strcspn(arg + 2, "=");
        bool config = n == 6 && strncmp(arg + 2, "config", 6) == 0;
        snprintf(name, sizeof name, "%.*s", (int)(n < 63 ? n : 63), arg + 2);
        const struct param_info *t = config ? NULL : find(name);
        if (!config && !t) {
            argv[kept++] = arg;
            continue;
        }
        const char *value = t && t->kind == KIND_BOOL ? "on" : NULL;
        if (arg[2 + n] == '=')
            value = arg + 3 + n;
        else if (value_follows(t, i + 1 < *argc ? argv[i + 1] : NULL))
            value = argv[++i];
        if (!value)
            return error_set(error, ERR_BAD_INPUT, "--%s needs a value", name);
        if ((config ? params_load(p, value, error) : params_set(p, name, value, error)) != 0)
            return -1;
    }
    argv[kept] = NULL;
    *argc = kept;
    return 0;
}

static void value_text(const struct param_info *t, const void *at, char *text, size_t bytes)
{
    uint64_t u;
    double f;
    switch (t->kind) {
    case KIND_U64:
    case KIND_BYTES:
        memcpy(&u, at, sizeof u);
        snprintf(text, bytes, "%" PRIu64, u);
        return;
    case KIND_BOOL:
        memcpy(&u, at, sizeof u);
        snprintf(text, bytes, "%s", u ? "on" : "off");
        return;
    case KIND_F64:
        memcpy(&f, at, sizeof f);
        snprintf(text, bytes, "%g", f);
        return;
    case KIND_CHOICE:
    case KIND_TEXT: snprintf(text, bytes, "%s", (const char *)at); return;
    }
}

bool params_get(const struct params *p, const char *name, char *text, size_t bytes)
{
    const struct param_info *t = find(name);
    if (!t)
        return false;
    value_text(t, (const char *)p + t->offset, text, bytes);
    return true;
}

void params_each(const struct params *p,
                 void (*visit)(const char *name, const char *value, const char *def,
                               const char *help, void *arg),
                 void *arg)
{
    struct params defaults;
    params_defaults(&defaults);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char value[PARAM_TEXT_BYTES], def[PARAM_TEXT_BYTES];
        value_text(&table[i], (const char *)p + table[i].offset, value, sizeof value);
        value_text(&table[i], (const char *)&defaults + table[i].offset, def, sizeof def);
        visit(table[i].name, value, def, table[i].help, arg);
    }
}

/* Placeholder of a value in help texts. */
static const char *value_placeholder(const struct param_info *t)
{
    switch (t->kind) {
    case KIND_U64: return "N";
    case KIND_BYTES: return "SIZE";
    case KIND_F64: return "X";
    case KIND_BOOL: return "on|off";
    case KIND_CHOICE: return t->choices;
    case KIND_TEXT: return "TEXT";
    }
    sl_panic("parameter %s has no kind", t->name);
}

/* Formats a bound with the largest binary suffix that divides it. */
static void bound_text(uint64_t value, char *text, size_t bytes)
{
    static const char *const suffix[] = {"", "KiB", "MiB", "GiB"};
    size_t i = 0;
    for (; i + 1 < ARRAY_LEN(suffix) && value && value % KIB == 0; i++)
        value /= KIB;
    snprintf(text, bytes, "%" PRIu64 "%s", value, suffix[i]);
}

/* Unit, bounds and default: "tokens, 16 to 1048576, default 512". Sizes without a practical
 * maximum print no bounds. */
static void facts_text(const struct param_info *t, char *text, size_t bytes)
{
    char low[32], high[32], size[32], def[PARAM_TEXT_BYTES];
    struct params defaults;
    params_defaults(&defaults);
    value_text(t, (const char *)&defaults + t->offset, def, sizeof def);
    switch (t->kind) {
    case KIND_U64:
        snprintf(text, bytes, "%s%s%" PRIu64 " to %" PRIu64 ", default %s", t->unit,
                 t->unit[0] ? ", " : "", t->min, t->max, def);
        return;
    case KIND_BYTES:
        bound_text(t->min, low, sizeof low);
        bound_text(t->max, high, sizeof high);
        bound_text(t->def, size, sizeof size);
        if (t->max >= UINT64_MAX / 4)
            snprintf(text, bytes, "default %s", size);
        else
            snprintf(text, bytes, "%s to %s, default %s", low, high, size);
        return;
    case KIND_F64:
        snprintf(text, bytes, "%s, %g to %g, default %s", t->unit, t->min_f, t->max_f, def);
        return;
    case KIND_BOOL:
    case KIND_CHOICE: snprintf(text, bytes, "default %s", def); return;
    case KIND_TEXT: snprintf(text, bytes, "default %s", def[0] ? def : "empty"); return;
    }
}

/* Prints `text` wrapped at `width` columns; every line after the first starts with `indent`. */
static void print_wrapped(FILE *out, const char *text, const char *indent, size_t width)
{
    size_t column = 0;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column > 0 && column + 1 + n > width) {
            fprintf(out, "\n%s", indent);
            column = 0;
        }
        column += (size_t)fprintf(out, "%s%.*s", column > 0 ? " " : "", (int)n, text);
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

static char letter_of(const struct param_info *t)
{
    for (size_t i = 0; i < ARRAY_LEN(letters); i++)
        if (strcmp(letters[i].name, t->name) == 0)
            return letters[i].letter;
    return 0;
}

void params_options(option_visit *visit, void *arg)
{
    static const struct option_row config = {0, "config", "FILE", OPTION_ELSEWHERE,
                                             "read 'name = value' lines"};
    visit(&config, arg);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct param_info *t = &table[i];
        char facts[PARAM_TEXT_BYTES + 64], help[2 * PARAM_TEXT_BYTES];
        facts_text(t, facts, sizeof facts);
        snprintf(help, sizeof help, "%s (%s)", t->help, facts);
        struct option_row row = {letter_of(t), OPTION(t) + 2, value_placeholder(t),
                                 OPTION_ELSEWHERE, help};
        visit(&row, arg);
    }
}

void params_config(FILE *out)
{
    char facts[PARAM_TEXT_BYTES + 64], def[PARAM_TEXT_BYTES];
    struct params defaults;
    params_defaults(&defaults);
    fputs("# Parameters of `sluice run`, `generate` and others: --config FILE.\n"
          "# All parameters at their defaults; remove the leading '#' to change one.\n",
          out);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct param_info *t = &table[i];
        fputs("\n# ", out);
        print_wrapped(out, t->help, "# ", 96);
        facts_text(t, facts, sizeof facts);
        value_text(t, (const char *)&defaults + t->offset, def, sizeof def);
        fprintf(out, "# %s: %s\n#%s =%s%s\n", value_placeholder(t), facts, t->name,
                def[0] ? " " : "", def);
    }
}

/* '|' is escaped: it would end the table cell. */
static void print_cell(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
}

void params_table(FILE *out)
{
    char facts[PARAM_TEXT_BYTES + 64];
    fputs("| parameter | value | description |\n|---|---|---|\n", out);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct param_info *t = &table[i];
        facts_text(t, facts, sizeof facts);
        fprintf(out, "| `%s` | ", t->name);
        print_cell(out, value_placeholder(t));
        fputs("; ", out);
        print_cell(out, facts);
        fputs(" | ", out);
        print_cell(out, t->help);
        fputs(" |\n", out);
    }
}
