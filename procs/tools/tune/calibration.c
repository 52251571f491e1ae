/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the text on which a model is measured. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "procs/tools/tune/tune.h"

#define READ_BYTES (64 * KIB)

static int is_text(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 4 && strcmp(e->d_name + n - 4, ".txt") == 0;
}

/* Adds the texts of a directory; they live until the program ends. */
static void add_directory(struct tune *t, const char *path)
{
    struct dirent **names = NULL;
    char name[2 * PATH_MAX];
    int count = scandir(path, &names, is_text, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s/%s", path, names[i]->d_name);
        if (t->texts < TUNE_TEXTS_MAX && (t->text[t->texts] = strdup(name)))
            t->texts++;
        free(names[i]);
    }
    if (count >= 0)
        free(names);
}

/* NAME or NAME.SUFFIX. */
static bool is_named(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/'), *own = slash ? slash + 1 : path;
    const char *dot = strrchr(own, '.');
    size_t n = strlen(name);
    return strcmp(own, name) == 0 || (dot && n == (size_t)(dot - own) && !strncmp(own, name, n));
}

static int keep_domain(struct tune *t, struct error *error)
{
    for (size_t i = 0; t->domain && i < t->texts; i++)
        if (is_named(t->text[i], t->domain)) {
            t->text[0] = t->text[i];
            t->texts = 1;
            return 0;
        }
    return t->domain
               ? error_set(error, ERR_BAD_INPUT, "--domain: no text is named '%.80s'", t->domain)
               : 0;
}

int calibration_find(struct tune *t, struct error *error)
{
    /* From the directory of the programs: in a build tree, in an installation. */
    static const char *const places[] = {"../share/sluice/calibration",
                                         "../../share/sluice/calibration"};
    char path[PATH_MAX + 64];
    for (size_t i = 0; t->texts == 0 && i < ARRAY_LEN(places); i++) {
        snprintf(path, sizeof path, "%s/%s", t->programs, places[i]);
        add_directory(t, path);
    }
    if (t->texts > 0)
        return keep_domain(t, error);
    return error_set(error, ERR_NOT_FOUND,
                     "the calibration text of sluice is not installed; use --text FILE");
}

void calibration_domain(const struct tune *t, char domain[TUNINGS_DOMAIN_BYTES])
{
    snprintf(domain, TUNINGS_DOMAIN_BYTES, "%s", t->domain ? t->domain : "");
    for (char *c = domain; *c; c++)
        if (*c < ' ' || *c > '~') /* a record is UTF-8 without control characters */
            *c = '?';
}

static int add_file(XXH3_state_t *state, const char *path)
{
    char buffer[READ_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && (n = read(fd, buffer, sizeof buffer)) > 0)
        XXH3_64bits_update(state, buffer, (size_t)n);
    int why = n < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return why;
}

int calibration_key(const struct tune *t, uint64_t *key, struct error *error)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return error_set(error, ERR_NO_MEMORY, "out of memory (hash of the text)");
    const int64_t options[] = {t->minutes, t->tokens, t->window};
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, options, sizeof options);
    int status = 0;
    for (size_t i = 0; status == 0 && i < t->texts; i++) {
        int why = add_file(state, t->text[i]);
        if (why != 0)
            status =
                error_set_errno(error, ERR_BAD_INPUT, why, "cannot read text %.200s", t->text[i]);
    }
    *key = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}
