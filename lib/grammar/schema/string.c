/* SPDX-License-Identifier: Apache-2.0 */
/* Strings: a counter for the length, a pattern, or a format, which is a pattern, too. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/grammar/schema/compiler.h"

#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
/* Day 29 of February is left out, because it is not in every year. */
#define DAY   "((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
#define DATE  "[1-9][0-9]{3}-" DAY
#define CLOCK "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?"
#define ZONE  "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define HEX4  "[0-9a-fA-F]{1,4}"
#define BRIEF "[A-Za-z0-9]([A-Za-z0-9-]{0,26}[A-Za-z0-9])?"

/* A URI whose parts have at most so many characters. */
#define URI(scheme, host, path, query, fragment)                                                   \
    "^[a-z][a-z0-9+.-]{1," scheme "}://[A-Za-z0-9.-]{1," host "}(:[0-9]{1,5})?"                    \
    "(/[A-Za-z0-9._~/-]{0," path "})?(\\?[A-Za-z0-9._~=&-]{0," query "})?"                         \
    "(#[A-Za-z0-9._~-]{0," fragment "})?$"

/* A text without an end would not fit any maxLength. Of formats whose texts may be long there is a
 * shorter pattern behind the first one, for a maxLength below the `most` characters of that. */
static const struct {
    const char *name, *pattern;
    uint32_t most; /* 0: there is only one pattern */
} formats[] = {
    {"date-time", "^" DATE "T" CLOCK ZONE "$", 0},
    {"date", "^" DATE "$", 0},
    {"time", "^" CLOCK ZONE "$", 0},
    {"duration", "^P([0-9]{1,6}W|[0-9]{1,6}D(T[0-9]{1,6}[HMS])?|T[0-9]{1,6}[HMS]|[0-9]{1,6}[YM])$",
     0},
    {"uuid", "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$", 0},
    {"email",
     "^[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,31})?@(" BRIEF "\\.){0,3}" LABEL
     "\\.[A-Za-z]{2,20}$",
     236},
    {"email",
     "^[A-Za-z0-9_+-]{1,20}(\\.[A-Za-z0-9_+-]{1,11})?@(" BRIEF "\\.)?" BRIEF "\\.[A-Za-z]{2,9}$",
     100},
    {"hostname", "^" LABEL "(\\." LABEL "){0,2}$", 0},
    {"ipv4", "^(" OCTET "\\.){3}" OCTET "$", 0},
    {"ipv6", "^((" HEX4 ":){7}" HEX4 "|(" HEX4 ":){1,5}:" HEX4 "|::" HEX4 "|::)$", 0},
    {"uri", URI("20", "253", "1000", "500", "200"), 1986},
    {"uri", URI("7", "80", "80", "40", "20"), 240},
};

/* The one for texts of at most `max` characters, or else the shortest. */
static const char *format_pattern(const json_t *schema, uint32_t max)
{
    const char *name = json_string_value(json_object_get(schema, "format")), *found = NULL;
    for (size_t i = 0; name && i < ARRAY_LEN(formats); i++) {
        if (strcmp(name, formats[i].name) != 0)
            continue;
        found = formats[i].pattern;
        if (formats[i].most <= max)
            break;
    }
    return found; /* formats that are not known say nothing, as the standard has it */
}

bool schema_knows_format(const json_t *schema)
{
    return format_pattern(schema, EXPR_UNBOUNDED) != NULL;
}

expr_id schema_string(struct compiler *c, const json_t *schema)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    uint32_t min = schema_count(c, schema, "minLength", 0);
    uint32_t max = schema_count(c, schema, "maxLength", EXPR_UNBOUNDED);
    const char *format = format_pattern(schema, max);
    expr_id e;
    if (min > max)
        return schema_fail(c, "minLength", "more than maxLength");
    if (pattern && !json_is_string(pattern))
        return schema_fail(c, "pattern", "it is no text");
    if (pattern && format)
        return schema_fail(c, "pattern", "beside format it is not supported");
    if (pattern)
        e = schema_pattern(c, "pattern", json_string_value(pattern), json_string_length(pattern),
                           min, max);
    else if (format)
        e = schema_pattern(c, "format", format, strlen(format), min, max);
    else if (min == 0 && max == EXPR_UNBOUNDED)
        e = schema_chars(c);
    else
        e = expr_repeat(&c->pool, schema_char(c), min, max);
    e = expr_sequence(&c->pool, schema_quote(c), e);
    e = expr_sequence(&c->pool, e, schema_quote(c));
    return c->python && !pattern && !format
               ? expr_choice(&c->pool, e, schema_single_quoted(c, min, max))
               : e;
}
