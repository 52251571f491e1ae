/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a tuning. The only parser of its bytes. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/json_file.h"
#include "lib/tunings/tunings.h"

#define FORMAT    "sluice-tuning"
#define VERSION   1
#define RATE_MAX  1e15
#define BYTES_MAX ((uint64_t)INT64_MAX / 4)

enum kind { TEXT, OPTIONAL, NUMBER, INTEGER }; /* OPTIONAL: a text */

/* The values of a record: one table for both directions. */
static const struct field {
    const char *name;
    enum kind kind;
    size_t offset, size; /* size: of a text */
    double max;          /* from 0 */
} fields[] = {
    {"model", TEXT, offsetof(struct tuning, model), PATH_MAX, 0},
    {"model_bytes", INTEGER, offsetof(struct tuning, model_bytes), 0, (double)BYTES_MAX},
    {"max_loss", NUMBER, offsetof(struct tuning, max_loss), 0, 100},
    {"budget", INTEGER, offsetof(struct tuning, budget), 0, (double)BYTES_MAX},
    {"plan", TEXT, offsetof(struct tuning, plan), PATH_MAX, 0},
    {"store", TEXT, offsetof(struct tuning, store), PATH_MAX, 0},
    {"preset", TEXT, offsetof(struct tuning, preset), TUNINGS_PRESET_BYTES, 0},
    {"store_bytes", INTEGER, offsetof(struct tuning, store_bytes), 0, (double)BYTES_MAX},
    {"loss_high", NUMBER, offsetof(struct tuning, loss_high), 0, 100},
    {"tokens_per_s", NUMBER, offsetof(struct tuning, tokens_per_s), 0, RATE_MAX},
    {"lossless_per_s", NUMBER, offsetof(struct tuning, lossless_per_s), 0, RATE_MAX},
    {"read_bytes_per_s", NUMBER, offsetof(struct tuning, read_bytes_per_s), 0, RATE_MAX},
    {"cpu", OPTIONAL, offsetof(struct tuning, cpu), TUNINGS_CPU_BYTES, 0},
    {"domain", OPTIONAL, offsetof(struct tuning, domain), TUNINGS_DOMAIN_BYTES, 0},
    {"created", INTEGER, offsetof(struct tuning, created), 0, (double)BYTES_MAX},
};

static int wrong(const char *name, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "'%s' is missing or wrong", name);
}

static bool printable(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

static int take_text(const json_t *value, char *to, size_t size)
{
    const char *text = json_string_value(value);
    if (!text || strlen(text) >= size || !printable(text))
        return -1;
    memcpy(to, text, strlen(text) + 1);
    return 0;
}

static int take(const json_t *object, const struct field *f, struct tuning *t, struct error *error)
{
    const json_t *value = json_object_get(object, f->name);
    char *to = (char *)t + f->offset;
    if (f->kind == OPTIONAL && !value)
        return 0;
    if (f->kind == TEXT || f->kind == OPTIONAL)
        return take_text(value, to, f->size) == 0 ? 0 : wrong(f->name, error);
    if (!(f->kind == INTEGER ? json_is_integer(value) : json_is_number(value)))
        return wrong(f->name, error);
    double number = json_number_value(value);
    int64_t integer = json_integer_value(value);
    if (!(number >= 0) || number > f->max)
        return wrong(f->name, error);
    memcpy(to, f->kind == INTEGER ? (const void *)&integer : (const void *)&number, sizeof number);
    return 0;
}

/* What holds between values. */
static int check(const struct tuning *t, struct error *error)
{
    if (t->model[0] != '/')
        return wrong("model", error);
    if (!(t->max_loss > 0))
        return wrong("max_loss", error);
    if (t->plan[0] && t->plan[0] != '/')
        return wrong("plan", error);
    if ((t->store[0] && t->store[0] != '/') || !t->store[0] != !t->plan[0])
        return wrong("store", error);
    if (!t->preset[0] || t->preset[strspn(t->preset, "abcdefghijklmnopqrstuvwxyz0123456789-")])
        return wrong("preset", error);
    if (t->loss_high > t->max_loss)
        return wrong("loss_high", error);
    return 0;
}

int tuning_parse(const char *text, size_t bytes, struct tuning *t, struct error *error)
{
    memset(t, 0, sizeof *t);
    json_t *object = json_record(text, bytes, TUNINGS_RECORD_BYTES, FORMAT, VERSION, error);
    if (!object)
        return -1;
    int status = 0;
    for (size_t i = 0; status == 0 && i < ARRAY_LEN(fields); i++)
        status = take(object, &fields[i], t, error);
    json_decref(object);
    return status == 0 ? check(t, error) : -1;
}

static json_t *value_of(const struct tuning *t, const struct field *f)
{
    const char *from = (const char *)t + f->offset;
    int64_t integer;
    double number;
    if (f->kind == TEXT || f->kind == OPTIONAL)
        return json_string(from);
    memcpy(&integer, from, sizeof integer);
    memcpy(&number, from, sizeof number);
    return f->kind == INTEGER ? json_integer(integer) : json_real(number);
}

char *tuning_format(const struct tuning *t, struct error *error)
{
    static struct tuning again; /* what is written can be read; too large for the stack */
    json_t *object = json_pack("{s:s, s:i}", "format", FORMAT, "version", VERSION);
    for (size_t i = 0; object && i < ARRAY_LEN(fields); i++) {
        json_t *value = value_of(t, &fields[i]);
        if (!value || json_object_set_new(object, fields[i].name, value) != 0) {
            json_decref(object);
            error_set(error, ERR_BAD_INPUT, "'%s' is not UTF-8, or memory is short",
                      fields[i].name);
            return NULL;
        }
    }
    char *text = object ? json_dumps(object, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(object);
    if (!text) {
        error_set(error, ERR_NO_MEMORY, "out of memory (tuning)");
        return NULL;
    }
    if (tuning_parse(text, strlen(text), &again, error) == 0)
        return text;
    free(text);
    return NULL;
}
