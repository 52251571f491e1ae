/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files: JSON, and a second file with the large tables. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/file/replace.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/limits.h"
#include "lib/plan/table.h"
#include "lib/text/printable.h"

#define TABLES_SUFFIX      ".tables"
#define TABLES_HASH_DIGITS 16

/* ---- reading ---- */

static int bad(struct error *error, const char *what)
{
    return error_set(error, ERR_BAD_INPUT, "invalid plan: %s", what);
}

static bool hex_parse(const char *text, uint8_t *out, size_t bytes)
{
    if (!text || strlen(text) != 2 * bytes)
        return false;
    for (size_t i = 0; i < 2 * bytes; i++) {
        const char *digits = "0123456789abcdef", *d = strchr(digits, text[i]);
        if (!d)
            return false;
        out[i / 2] = (uint8_t)((i % 2 ? out[i / 2] << 4 : 0) | (d - digits));
    }
    return true;
}

static bool hex_u64(const json_t *value, uint64_t *out)
{
    uint8_t bytes[8];
    if (!hex_parse(json_string_value(value), bytes, sizeof bytes))
        return false;
    *out = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        *out = *out << 8 | bytes[i];
    return true;
}

static bool count_in(const json_t *root, const char *name, uint32_t max, uint32_t *out)
{
    const json_t *value = json_object_get(root, name);
    json_int_t n = json_integer_value(value);
    *out = (uint32_t)n;
    return json_is_integer(value) && n >= 1 && n <= (json_int_t)max;
}

static int array_find(const char *name, bool tables)
{
    for (int a = 0; name && a < PLAN_ARRAY__COUNT; a++)
        if (strcmp(plan_array_infos[a].name, name) == 0)
            return plan_in_tables((enum plan_array)a) == tables ? a : -1;
    return -1;
}

/* A name of an untrusted file, for an error message. */
static struct printable printable_name(const char *text)
{
    return printable(text, strlen(text));
}

struct parsed { /* parts of a plan file, not yet checked */
    const json_t *scalars, *arrays, *tables, *table_names;
    uint64_t bits, table_bytes, table_hash, text_hash;
    uint32_t layers, experts, experts_used, cells;
    uint8_t model_hash[PLAN_HASH_BYTES];
};

static int parse_head(const json_t *root, struct parsed *p, struct error *error)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, "sluice-plan") != 0)
        return error_set(error, ERR_BAD_INPUT, "not a plan: \"format\" is not \"sluice-plan\"");
    if (json_integer_value(json_object_get(root, "version")) != PLAN_VERSION)
        return error_set(error, ERR_BAD_INPUT, "unsupported plan version; supported is %u",
                         PLAN_VERSION);
    if (!hex_parse(json_string_value(json_object_get(root, "model_hash")), p->model_hash,
                   PLAN_HASH_BYTES))
        return bad(error, "model_hash is not 32 hex digits");
    if (!hex_u64(json_object_get(root, "text_hash"), &p->text_hash))
        return bad(error, "text_hash is not 16 hex digits");
    if (!count_in(root, "layers", MODEL_LAYERS_MAX, &p->layers) ||
        !count_in(root, "experts", MODEL_EXPERTS_MAX, &p->experts) ||
        !count_in(root, "experts_used", p->experts, &p->experts_used))
        return bad(error, "layers, experts or experts_used is out of range");
    const json_t *cells = json_object_get(root, "cells");
    p->cells = (uint32_t)json_integer_value(cells);
    if (!json_is_integer(cells) || json_integer_value(cells) < 0 ||
        json_integer_value(cells) > (json_int_t)(PLAN_TABLES_MAX / sizeof(struct plan_cell)))
        return bad(error, "cells is out of range");
    p->scalars = json_object_get(root, "scalars");
    p->arrays = json_object_get(root, "arrays");
    p->tables = json_object_get(root, "tables");
    if (!json_is_object(p->scalars) || !json_is_object(p->arrays))
        return bad(error, "scalars or arrays is missing");
    return 0;
}

/* Plans of older versions have fewer candidates of auto. */
static uint64_t candidates_of(size_t elements)
{
    uint64_t cells = (uint64_t)PLAN_AUTO_SHARES * PLAN_AUTO_BANDWIDTHS;
    return elements % cells == 0 ? elements / cells : 0;
}

static bool has_size(enum plan_array a, size_t elements, uint64_t wanted)
{
    if (plan_array_infos[a].size == PLAN_SIZE_AUTO)
        return candidates_of(elements) > 0 && elements <= wanted;
    return elements == wanted;
}

/* The place of an element of the file: more candidates are added at the end. */
static uint64_t place_of(enum plan_array a, size_t element, size_t elements)
{
    if (plan_array_infos[a].size != PLAN_SIZE_AUTO)
        return element;
    uint64_t candidates = candidates_of(elements);
    return element / candidates * PLAN_AUTO_CANDIDATES + element % candidates;
}

/* Finds the arrays before their memory is allocated. */
static int parse_names(struct parsed *p, struct error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)p->arrays, name, value)
    {
        int a = array_find(name, false);
        const struct plan shape = {
            .layers = p->layers, .experts = p->experts, .experts_used = p->experts_used};
        if (a < 0)
            return error_set(error, ERR_BAD_INPUT, "invalid plan: unknown array '%.40s'",
                             printable_name(name).text);
        uint64_t wanted = plan_array_count(&shape, (enum plan_array)a);
        if (!json_is_array(value) || !has_size((enum plan_array)a, json_array_size(value), wanted))
            return error_set(error, ERR_BAD_INPUT,
                             "invalid plan: %s does not have %" PRIu64 " elements", name, wanted);
        p->bits |= plan_array_bit((enum plan_array)a);
    }
    if (!p->tables)
        return 0;
    const json_t *bytes = json_object_get(p->tables, "bytes");
    p->table_names = json_object_get(p->tables, "arrays");
    p->table_bytes = (uint64_t)json_integer_value(bytes);
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0 ||
        p->table_bytes > PLAN_TABLES_MAX || !json_is_array(p->table_names) ||
        !hex_u64(json_object_get(p->tables, "xxh3"), &p->table_hash))
        return bad(error, "tables lacks valid bytes, xxh3 or arrays");
    for (size_t i = 0; i < json_array_size(p->table_names); i++) {
        int a = array_find(json_string_value(json_array_get(p->table_names, i)), true);
        if (a < 0 || (p->bits & plan_array_bit((enum plan_array)a)))
            return bad(error, "tables has an unknown or duplicate array");
        p->bits |= plan_array_bit((enum plan_array)a);
    }
    return 0;
}

static int take_scalars(struct plan *plan, const struct parsed *p, struct error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)p->scalars, name, value)
    {
        int s = 0;
        while (s < PLAN_SCALAR__COUNT && strcmp(plan_scalars[s].name, name) != 0)
            s++;
        if (s == PLAN_SCALAR__COUNT)
            return error_set(error, ERR_BAD_INPUT, "invalid plan: unknown scalar '%.40s'",
                             printable_name(name).text);
        double v = json_number_value(value);
        if (!json_is_number(value) || !plan_scalar_right((enum plan_scalar)s, v))
            return error_set(error, ERR_BAD_INPUT, "invalid plan: %s is not from %g to %g", name,
                             plan_scalars[s].min, plan_scalars[s].max);
        plan->scalar[s] = v;
    }
    return 0;
}

static int take_arrays(struct plan *plan, const struct parsed *p, struct error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)p->arrays, name, value)
    {
        enum plan_array a = (enum plan_array)array_find(name, false);
        for (size_t i = 0; i < json_array_size(value); i++) {
            const json_t *element = json_array_get(value, i);
            double v = json_is_number(element) ? json_number_value(element) : (double)NAN;
            if ((!json_is_number(element) && !json_is_null(element)) || !plan_element_right(a, v))
                return error_set(error, ERR_BAD_INPUT, "invalid plan: %s[%zu] is not from %g to %g",
                                 name, i, plan_array_infos[a].min, plan_array_infos[a].max);
            plan_set(plan, a, place_of(a, i, json_array_size(value)), v);
        }
    }
    return 0;
}

static int take_tables(struct plan *plan, const struct parsed *p, const uint8_t *tables,
                       size_t bytes, struct error *error)
{
    uint64_t wanted = 0;
    for (size_t i = 0; i < json_array_size(p->table_names); i++) {
        int a = array_find(json_string_value(json_array_get(p->table_names, i)), true);
        wanted += plan_array_bytes(plan, (enum plan_array)a);
    }
    if (bytes != p->table_bytes || wanted != bytes)
        return error_set(error, ERR_BAD_INPUT,
                         "invalid plan: its tables file has %zu bytes, expected %" PRIu64, bytes,
                         wanted);
    if (XXH3_64bits(tables, bytes) != p->table_hash)
        return bad(error, "the tables file belongs to another plan (wrong checksum)");
    for (size_t i = 0, at = 0; i < json_array_size(p->table_names); i++) {
        int a = array_find(json_string_value(json_array_get(p->table_names, i)), true);
        uint64_t n = plan_array_bytes(plan, (enum plan_array)a);
        memcpy((uint8_t *)plan + plan->offset[a], tables + at, n);
        at += n;
    }
    return 0;
}

/* Compares the sizes before memory is allocated for the tables. */
static bool tables_plausible(const struct parsed *p)
{
    const struct plan shape = {.layers = p->layers,
                               .experts = p->experts,
                               .experts_used = p->experts_used,
                               .cells = p->cells};
    uint64_t bytes = 0;
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++)
        if (plan_in_tables((enum plan_array)a) && (p->bits & plan_array_bit((enum plan_array)a)))
            bytes += plan_array_bytes(&shape, (enum plan_array)a);
    return bytes == p->table_bytes;
}

static struct plan *parse_root(const json_t *root, const void *tables, size_t tables_bytes,
                               struct error *error)
{
    struct parsed p = {0};
    if (parse_head(root, &p, error) != 0 || parse_names(&p, error) != 0)
        return NULL;
    if (!tables_plausible(&p)) {
        bad(error, "the size of tables does not match layers, experts and cells");
        return NULL;
    }
    struct plan *plan =
        plan_create(p.layers, p.experts, p.experts_used, p.model_hash, p.bits, p.cells, error);
    if (!plan)
        return NULL;
    plan->text_hash = p.text_hash;
    if (take_scalars(plan, &p, error) != 0 || take_arrays(plan, &p, error) != 0 ||
        (p.table_names && take_tables(plan, &p, tables, tables_bytes, error) != 0) ||
        plan_check(plan, plan->bytes, error) != 0) {
        free(plan);
        return NULL;
    }
    return plan;
}

struct plan *plan_parse(const char *text, size_t bytes, const void *tables, size_t tables_bytes,
                        struct error *error)
{
    json_error_t where;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!root) {
        error_set(error, ERR_BAD_INPUT, "invalid plan: line %d: %.100s", where.line,
                  printable_name(where.text).text);
        return NULL;
    }
    struct plan *plan = parse_root(root, tables, tables_bytes, error);
    json_decref(root);
    return plan;
}

/* Reads a file of at most max bytes; NULL with *error. */
static char *read_file(const char *path, size_t max, size_t *bytes, struct error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    char *text = NULL;
    if (fd < 0 || fstat(fd, &st) != 0)
        error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open");
    else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > max)
        error_set(error, ERR_BAD_INPUT, "not a regular file of at most %zu bytes", max);
    else if (!(text = malloc((size_t)st.st_size + 1)))
        error_set(error, ERR_NO_MEMORY, "out of memory");
    *bytes = 0;
    while (text && *bytes < (size_t)st.st_size) {
        ssize_t n = read(fd, text + *bytes, (size_t)st.st_size - *bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            error_set_errno(error, ERR_IO, n < 0 ? errno : EIO, "cannot read");
            free(text);
            text = NULL;
            break;
        }
        *bytes += (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    return text;
}

/* Adds the path to an error. */
static struct plan *fail_with_path(const char *path, const struct error *why, struct error *error)
{
    error_set(error, why->code, "%.150s: %.230s", path, why->text);
    return NULL;
}

/* The tables file is in the same directory; a name with a slash is rejected, so that a plan cannot
 * refer to other directories. */
static int read_tables(const char *path, const json_t *root, char **tables, size_t *bytes,
                       struct error *error)
{
    const json_t *about = json_object_get(root, "tables");
    *tables = NULL;
    *bytes = 0;
    if (!about)
        return 0;
    const char *name = json_string_value(json_object_get(about, "file"));
    if (!name || !*name || strchr(name, '/') || name[0] == '.')
        return bad(error, "tables has no valid file name");
    const char *slash = strrchr(path, '/');
    char full[4096];
    int n = snprintf(full, sizeof full, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
    if (n < 0 || (size_t)n >= sizeof full)
        return bad(error, "path too long");
    struct error why;
    *tables = read_file(full, PLAN_TABLES_MAX, bytes, &why);
    return *tables ? 0
                   : error_set(error, why.code, "tables file %.100s: %.200s",
                               printable_name(name).text, why.text);
}

struct plan *plan_read(const char *path, struct error *error)
{
    struct error why;
    size_t bytes, tables_bytes;
    char *text = read_file(path, PLAN_FILE_MAX, &bytes, &why), *tables;
    if (!text)
        return fail_with_path(path, &why, error);
    json_error_t where;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    free(text);
    if (!root) {
        error_set(&why, ERR_BAD_INPUT, "invalid plan: line %d: %.100s", where.line,
                  printable_name(where.text).text);
        return fail_with_path(path, &why, error);
    }
    struct plan *plan = NULL;
    if (read_tables(path, root, &tables, &tables_bytes, &why) == 0)
        plan = parse_root(root, tables, tables_bytes, &why);
    free(tables);
    json_decref(root);
    return plan ? plan : fail_with_path(path, &why, error);
}

/* ---- writing ---- */

static json_t *number(double v, bool whole)
{
    return isnan(v) ? json_null() : whole ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *array_json(const struct plan *plan, enum plan_array a)
{
    json_t *out = json_array();
    bool whole = plan_array_infos[a].element != PLAN_ELEMENT_F32;
    for (uint64_t i = 0, n = plan_array_count(plan, a); i < n; i++)
        json_array_append_new(out, number(plan_get(plan, a, i), whole));
    return out;
}

static json_t *plan_json(const struct plan *plan, json_t *tables)
{
    char hash[2 * PLAN_HASH_BYTES + 1], text[17];
    json_t *scalars = json_object(), *arrays = json_object();
    snprintf(text, sizeof text, "%016" PRIx64, plan->text_hash);
    for (int s = 0; s < PLAN_SCALAR__COUNT; s++)
        if (!isnan(plan->scalar[s]))
            json_object_set_new(scalars, plan_scalars[s].name, json_real(plan->scalar[s]));
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++)
        if (plan->offset[a] && !plan_in_tables((enum plan_array)a))
            json_object_set_new(arrays, plan_array_infos[a].name,
                                array_json(plan, (enum plan_array)a));
    json_t *root = json_pack("{s:s, s:i, s:s, s:s, s:i, s:i, s:i, s:I, s:o, s:o}", "format",
                             "sluice-plan", "version", (int)PLAN_VERSION, "model_hash",
                             plan_hash_text(plan->model_hash, hash), "text_hash", text, "layers",
                             (int)plan->layers, "experts", (int)plan->experts, "experts_used",
                             (int)plan->experts_used, "cells", (json_int_t)plan->cells, "scalars",
                             scalars, "arrays", arrays);
    if (tables)
        json_object_set_new(root, "tables", tables);
    return root;
}

static int write_whole(const char *path, const void *bytes, size_t count, struct error *error)
{
    char partial[4096];
    int n = snprintf(partial, sizeof partial, "%s.partial", path);
    if (n < 0 || (size_t)n >= sizeof partial)
        return error_set(error, ERR_BAD_INPUT, "%.100s...: path too long", path);
    int fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool good = fd >= 0;
    for (size_t done = 0; good && done < count;) {
        ssize_t w = write(fd, (const char *)bytes + done, count - done);
        if (w < 0 && errno == EINTR)
            continue;
        good = w > 0;
        done += good ? (size_t)w : 0;
    }
    if (fd >= 0)
        good = close(fd) == 0 && good;
    int why = good ? file_replace(partial, path, true) : errno;
    if (why == 0)
        return 0;
    error_set_errno(error, ERR_IO, why, "cannot write %.200s", path);
    unlink(partial);
    return -1;
}

static json_t *write_tables(const struct plan *plan, const char *path, struct error *error)
{
    uint64_t bytes = 0, at = 0;
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++)
        if (plan->offset[a] && plan_in_tables((enum plan_array)a))
            bytes += plan_array_bytes(plan, (enum plan_array)a);
    uint8_t *tables = malloc(bytes);
    char file[4096], hash[17];
    if (!tables) {
        error_set(error, ERR_NO_MEMORY, "out of memory (tables of a plan)");
        return NULL;
    }
    json_t *names = json_array();
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++)
        if (plan->offset[a] && plan_in_tables((enum plan_array)a)) {
            uint64_t count = plan_array_bytes(plan, (enum plan_array)a);
            memcpy(tables + at, (const uint8_t *)plan + plan->offset[a], count);
            json_array_append_new(names, json_string(plan_array_infos[a].name));
            at += count;
        }
    snprintf(hash, sizeof hash, "%016" PRIx64, (uint64_t)XXH3_64bits(tables, bytes));
    int n = snprintf(file, sizeof file, "%s.%s" TABLES_SUFFIX, path, hash);
    const char *slash = strrchr(file, '/');
    json_t *about = NULL;
    if (n < 0 || (size_t)n >= sizeof file)
        error_set(error, ERR_BAD_INPUT, "%.100s...: path too long", path);
    else if (write_whole(file, tables, bytes, error) == 0)
        about = json_pack("{s:s, s:I, s:s, s:O}", "file", slash ? slash + 1 : file, "bytes",
                          (json_int_t)bytes, "xxh3", hash, "arrays", names);
    json_decref(names);
    free(tables);
    return about;
}

/* "NAME.HASH.tables" of a plan NAME, or "NAME.tables" as older versions wrote it. */
static bool is_tables_of(const char *file, const char *plan_name)
{
    size_t n = strlen(plan_name);
    if (strncmp(file, plan_name, n) != 0)
        return false;
    file += n;
    if (file[0] == '.' && strspn(file + 1, "0123456789abcdef") == TABLES_HASH_DIGITS)
        file += 1 + TABLES_HASH_DIGITS;
    return strcmp(file, TABLES_SUFFIX) == 0;
}

/* Removes the tables of earlier writes, also of one that was killed. They do no harm if they
 * stay. */
static void remove_old_tables(const char *path, const char *current)
{
    char dir_path[4096];
    const char *slash = strrchr(path, '/');
    snprintf(dir_path, sizeof dir_path, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    DIR *dir = opendir(dir_path);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        if (is_tables_of(e->d_name, slash ? slash + 1 : path) &&
            (!current || strcmp(e->d_name, current) != 0))
            unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        closedir(dir);
}

/* An element as JSON: the value of jansson, its place in an array, and its text, which is copied
 * while it grows. */
#define JSON_ELEMENT_BYTES 128

uint64_t plan_write_bytes(const struct plan *plan)
{
    uint64_t bytes = PLAN_SCALAR__COUNT * JSON_ELEMENT_BYTES;
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++)
        if (plan->offset[a])
            bytes += plan_in_tables((enum plan_array)a)
                         ? plan_array_bytes(plan, (enum plan_array)a)
                         : JSON_ELEMENT_BYTES * plan_array_count(plan, (enum plan_array)a);
    return bytes;
}

int plan_write(const struct plan *plan, const char *path, struct error *error)
{
    json_t *tables = NULL;
    bool large = false;
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++)
        large = large || (plan->offset[a] && plan_in_tables((enum plan_array)a));
    if (large && !(tables = write_tables(plan, path, error)))
        return -1;
    json_t *root = plan_json(plan, tables);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    int status = text ? write_whole(path, text, strlen(text), error)
                      : error_set(error, ERR_NO_MEMORY, "out of memory (plan to write)");
    if (status == 0)
        remove_old_tables(path, json_string_value(json_object_get(tables, "file")));
    json_decref(root); /* with `tables` */
    free(text);
    return status;
}
