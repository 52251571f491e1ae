/* SPDX-License-Identifier: Apache-2.0 */
/* Reads credentials of S3. */
#include "lib/io/server/http/credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"

struct field {
    const char *key, *variable;
    char *to;
    size_t bytes;
};

struct fields {
    struct field field[3];
};

static struct fields fields_of(struct credentials *c)
{
    return (struct fields){
        {{"aws_access_key_id", "AWS_ACCESS_KEY_ID", c->id, sizeof c->id},
         {"aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", c->secret, sizeof c->secret},
         {"aws_session_token", "AWS_SESSION_TOKEN", c->token, sizeof c->token}}};
}

/* Without blanks at both ends. */
static const char *trim(const char *text, size_t *bytes)
{
    while (*bytes > 0 && strchr(" \t\r", text[*bytes - 1]))
        --*bytes;
    while (*bytes > 0 && strchr(" \t", text[0])) {
        text++;
        --*bytes;
    }
    return text;
}

/* It becomes a line of a request. False: too long, or not text. */
static bool put(const struct field *f, const char *value, size_t bytes)
{
    if (bytes >= f->bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (value[i] <= ' ' || value[i] > '~')
            return false;
    memcpy(f->to, value, bytes);
    f->to[bytes] = 0;
    return true;
}

/* "key = value". False: a value that cannot be one. */
static bool take_line(const struct fields *fields, const char *line, size_t bytes)
{
    const char *equals = memchr(line, '=', bytes);
    size_t key = equals ? (size_t)(equals - line) : 0;
    size_t value = equals ? bytes - key - 1 : 0;
    const char *name = trim(line, &key), *text = equals ? trim(equals + 1, &value) : NULL;
    for (size_t i = 0; equals && i < ARRAY_LEN(fields->field); i++) {
        const struct field *f = &fields->field[i];
        if (strlen(f->key) == key && strncmp(f->key, name, key) == 0)
            return put(f, text, value);
    }
    return true;
}

static bool is_section(const char *line, size_t bytes, const char *profile)
{
    size_t name = strlen(profile);
    return bytes == name + 2 && line[bytes - 1] == ']' && memcmp(line + 1, profile, name) == 0;
}

int credentials_parse(const char *text, size_t bytes, const char *profile, struct credentials *c,
                      struct error *error)
{
    *c = (struct credentials){.id = ""};
    struct fields fields = fields_of(c);
    bool within = false, right = true;
    for (size_t at = 0; at < bytes && right;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t whole = end ? (size_t)(end - text) - at : bytes - at, n = whole;
        const char *line = trim(text + at, &n);
        if (n > 0 && line[0] == '[')
            within = is_section(line, n, profile);
        else if (within && n > 0 && line[0] != '#' && line[0] != ';')
            right = take_line(&fields, line, n);
        at += whole + 1;
    }
    if (right && c->id[0] && c->secret[0])
        return 0;
    credentials_forget(c);
    return error_set(error, ERR_BAD_INPUT, "there is no key and no secret of the profile %.100s",
                     profile);
}

static int take_file(const char *path, const char *profile, struct credentials *c,
                     struct error *error)
{
    char *text = malloc(CREDENTIALS_BYTES_MAX);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 && text ? read(fd, text, CREDENTIALS_BYTES_MAX) : -1;
    int why = text ? errno : ENOMEM, rc;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        rc = error_set_errno(error, ERR_FAILED, why, "credentials %.200s", path);
    else
        rc = credentials_parse(text, (size_t)n, profile, c, error);
    if (text)
        explicit_bzero(text, CREDENTIALS_BYTES_MAX);
    free(text);
    return rc;
}

int credentials_take(const char *path, const char *profile, struct credentials *c,
                     struct error *error)
{
    *c = (struct credentials){.id = ""};
    if (path[0])
        return take_file(path, profile, c, error);
    struct fields fields = fields_of(c);
    for (size_t i = 0; i < ARRAY_LEN(fields.field); i++) {
        const struct field *f = &fields.field[i];
        const char *value = getenv(f->variable);
        if (value && !put(f, value, strlen(value)))
            return error_set(error, ERR_BAD_INPUT, "%s is malformed", f->variable);
    }
    if (!c->id[0] == !c->secret[0])
        return 0;
    credentials_forget(c);
    return error_set(error, ERR_BAD_INPUT,
                     "one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is missing");
}

void credentials_forget(struct credentials *c)
{
    explicit_bzero(c, sizeof *c);
}
