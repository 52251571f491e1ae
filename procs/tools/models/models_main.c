/* SPDX-License-Identifier: Apache-2.0 */
/* sluice models: the tunings that later starts find. Trust: the records are untrusted (lib/tunings
 * checks them). */
#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "config/option_table.h"
#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/terminal/terminal.h"
#include "lib/tunings/tunings.h"
#include "procs/clients/common/options.h"
#include "procs/tools/models/models.h"

struct models {
    bool json, raw;
    unsigned count;
    json_t *all;
};

static const struct option_row rows[] = {
    {0, "output", "text|json", OPTION_JSON(struct models, json), "format on stdout (default text)"},
    {0, "raw", NULL, OPTION_FLAG(struct models, raw),
     "control characters in names go to a terminal unchanged"},
};

static const struct option_table options = {
    .command = "models",
    .before = "usage: sluice models [--output text|json] [--raw]\n"
              "       sluice models rm FILE|HASH\n"
              "\n"
              "Lists the tunings of `sluice tune`: model, allowed loss, budget, preset, size of\n"
              "the store, last use; and stores that no tuning uses: an interrupted one\n"
              "continues with the same command. `rm` removes all of a model, with the stores.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 22,
};

static void when(int64_t seconds, char text[32])
{
    time_t t = (time_t)seconds;
    struct tm tm;
    if (!localtime_r(&t, &tm) || strftime(text, 32, "%Y-%m-%d %H:%M", &tm) == 0)
        snprintf(text, 32, "-");
}

static void head(struct models *m)
{
    if (m->count++ == 0)
        printf("%-32s %6s %10s %-22s %10s %-16s %s\n", "HASH", "LOSS", "BUDGET", "PRESET", "STORE",
               "USED", "MODEL");
}

static void print_one(void *arg, const char *hash, const char *path, const struct tuning *t)
{
    struct models *m = arg;
    char budget[16], store[16], used[32];
    struct error error;
    if (m->json) {
        char *text = tuning_format(t, &error);
        json_t *object = text ? json_loads(text, 0, NULL) : NULL;
        json_object_set_new(object, "hash", json_string(hash));
        json_object_set_new(object, "record", json_string(path));
        json_object_set_new(object, "used", json_integer(t->used));
        json_object_set_new(object, "model_is_there", json_boolean(access(t->model, R_OK) == 0));
        json_array_append_new(m->all, object);
        free(text);
        return;
    }
    head(m);
    when(t->used, used);
    printf("%-32s %5.3g%% %10s %-22s %10s %-16s %s%s\n", hash, t->max_loss,
           t->budget ? bytes_format(t->budget, budget) : "default",
           t->store[0] ? t->preset : "lossless", bytes_format(t->store_bytes, store), used,
           t->model, access(t->model, R_OK) == 0 ? "" : " (missing)");
}

/* What an interrupted or replaced tuning left, and what cannot be judged since a record cannot be
 * read. */
static void print_unused(void *arg, const struct tuning_store *s)
{
    struct models *m = arg;
    char bytes[16];
    bool unknown = s->use == TUNING_STORE_UNKNOWN;
    if (s->use == TUNING_STORE_USED || s->files == 0)
        return;
    if (m->json) {
        json_t *object = json_pack("{s:s, s:s, s:I, s:b}", "hash", s->hash,
                                   unknown ? "kept_store" : "unused_store", s->path, "store_bytes",
                                   (json_int_t)s->bytes, "unused", !unknown);
        json_array_append_new(m->all, object);
        return;
    }
    head(m);
    printf("%-32s %6s %10s %-22s %10s %-16s %s\n", s->hash, "-", "-",
           unknown ? "store, use unknown" : "unused store", bytes_format(s->bytes, bytes), "-",
           s->path);
}

static void print_ignored(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "sluice models: %s\n", line);
}

static int list(struct models *m, struct error *error)
{
    m->all = json_array();
    int status = tunings_each(print_one, print_ignored, m, error);
    if (status == 0)
        status = tunings_each_store(print_unused, m, error);
    if (status == 0 && !m->json && m->count == 0)
        printf("no tunings; 'sluice tune -m FILE --max-loss 1%%' makes one. A model needs none: "
               "use it with -m FILE\n");
    if (status == 0 && m->json) {
        json_dumpf(m->all, stdout, JSON_INDENT(2));
        printf("\n");
    }
    json_decref(m->all);
    return status == 0 ? output_end(error) : -1;
}

static int run(struct models *m, int argc, char **argv, struct error *error)
{
    char freed[16];
    uint64_t bytes = 0;
    if (optind == argc) {
        terminal_guard(m->raw);
        return list(m, error);
    }
    if (strcmp(argv[optind], "rm") != 0 || optind + 2 != argc)
        return error_set(error, ERR_BAD_INPUT,
                         "use 'sluice models' or 'sluice models rm FILE|HASH'");
    if (models_remove(argv[optind + 1], &bytes, error) != 0)
        return -1;
    printf("removed, %s freed\n", bytes_format(bytes, freed));
    return output_end(error);
}

int main(int argc, char **argv)
{
    struct models m = {.json = false};
    struct error error;
    log_init("models", LOG_LEVEL_INFO);
    int status = options_read(&options, &m, argc, argv, &error);
    if (status == 0)
        status = run(&m, argc, argv, &error);
    return status == 0 ? 0 : report("models", &error);
}
