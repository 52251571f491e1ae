/* SPDX-License-Identifier: Apache-2.0 */
/* sluice synth: writes a GGUF file with the shape of a real model and random weights.
 *
 * For speed measurements: such a file is read, cached and computed like the real model, and its
 * routing has the requested skew and locality (weights.h). Its text is meaningless. Threads
 * generate pieces, which are written in order to FILE.part; it is renamed when complete. Connects
 * to no engine. Trust: reads no untrusted data. */
#include <errno.h>
#include <getopt.h> /* optind */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/file/replace.h"
#include "procs/clients/common/options.h"
#include "procs/tools/synth/pipeline.h"
#include "procs/tools/synth/shape.h"
#include "procs/tools/synth/split.h"
#include "procs/tools/synth/vocabulary.h"

#define THREADS_DEFAULT_MAX 4
#define FREE_MARGIN         (64 * MIB) /* free space to leave on the file system */
#define PROGRESS_EVERY_NS   NS_PER_S

/* Option values that are applied to the shape later. */
struct chosen {
    struct mix_list mixes;
    bool pure;
    int64_t seed;
};

struct synth {
    struct shape shape;
    struct chosen chosen;
    const char *path;
    char part[PATH_MAX];
    int64_t threads;
    int64_t parts; /* --split; 0: one file */
    bool json, quiet, dry;
    uint64_t file_bytes;
    double seconds, waited; /* write time; part of it waiting for weights */
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

static int take_type(void *program, const char *value, struct error *error)
{
    struct synth *s = program;
    return mix_option(value, &s->chosen.mixes, error);
}

static void more_help(FILE *out)
{
    shape_help(out);
    mix_help(out);
}

static const struct option_row rows[] = {
    {'o', NULL, "FILE", OPTION_TEXT(struct synth, path),
     "output file; written as FILE.part and renamed at the end"},
    {0, "type", "TYPE[,TYPE...]", OPTION_CALL(take_type),
     "mix of tensor types, below (default Q4_0)"},
    {0, "pure", NULL, OPTION_FLAG(struct synth, chosen.pure),
     "every matrix of the type that gives the mix its name"},
    {0, "seed", "N", OPTION_NUMBER(struct synth, chosen.seed, 0, INT64_MAX),
     "of the random weights (default 1)"},
    {'t', "threads", "N", OPTION_NUMBER(struct synth, threads, 1, 16),
     "threads that generate weights (default: 1 per core, at most " OPTION_DIGITS(
         THREADS_DEFAULT_MAX) ")"},
    {0, "split", "N", OPTION_NUMBER(struct synth, parts, 2, MODEL_PARTS_MAX),
     "N files (2 to " OPTION_DIGITS(MODEL_PARTS_MAX) ") that are the parts of one model, "
                                                     "NAME-00001-of-0000N.gguf for -o NAME.gguf"},
    {0, "dry-run", NULL, OPTION_FLAG(struct synth, dry), "print the size, write nothing"},
    {0, "output", "text|json", OPTION_JSON(struct synth, json), "format on stdout (default text)"},
    {'q', "quiet", NULL, OPTION_FLAG(struct synth, quiet), "no progress on stderr"},
};

static const struct option_table options = {
    .command = "synth",
    .before = "usage: sluice synth -o FILE SHAPE [key=value ...] [options]\n"
              "\n"
              "Writes a GGUF file with the shape of a real model and random weights, for\n"
              "measuring speed, not quality. The same shape, keys and seed give the same bytes.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 29,
    .more = more_help,
};

static int parse(struct synth *s, int argc, char **argv, struct error *error)
{
    s->chosen = (struct chosen){.mixes = {{MIX_Q4_0}, 1}, .seed = 1};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    s->threads = cores < 1 ? 1 : cores > THREADS_DEFAULT_MAX ? THREADS_DEFAULT_MAX : cores;
    if (options_read(&options, s, argc, argv, error) != 0)
        return -1;
    if (optind == argc)
        return error_set(error, ERR_BAD_INPUT, "a shape is required (see sluice synth --help)");
    if (!s->path && !s->dry)
        return error_set(error, ERR_BAD_INPUT, "an output file is required: -o FILE");
    if (s->parts > 0 && s->path && split_check_name(s->path, error) != 0)
        return -1;
    if (shape_named(&s->shape, argv[optind++], error) != 0)
        return -1;
    for (; optind < argc; optind++)
        if (shape_set(&s->shape, argv[optind], error) != 0)
            return -1;
    s->shape.mixes = s->chosen.mixes;
    s->shape.pure = s->chosen.pure;
    s->shape.seed = (uint64_t)s->chosen.seed;
    return shape_finish(&s->shape, error);
}

/* ---- output ---- */

static int check_space(const struct synth *s, struct error *error)
{
    char dir[PATH_MAX], need[16], have[16];
    struct statvfs fs;
    snprintf(dir, sizeof dir, "%s", s->path);
    char *slash = strrchr(dir, '/');
    snprintf(slash ? slash + 1 : dir, 2, ".");
    if (statvfs(dir, &fs) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "%.300s", dir);
    uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    uint64_t need_bytes = s->file_bytes * (s->parts > 0 ? 2 : 1); /* whole, then in parts */
    if (available < need_bytes + FREE_MARGIN)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s: not enough space: the file needs %s, only %s free", dir,
                         bytes_format(need_bytes, need), bytes_format(available, have));
    return 0;
}

static void print_progress(const struct synth *s, uint64_t done, uint64_t start_ns, bool last)
{
    char a[16], b[16], c[16];
    double seconds = (double)(clock_now_ns() - start_ns) / 1e9;
    bool terminal = isatty(STDERR_FILENO);
    if (s->quiet)
        return;
    fprintf(stderr, "%ssynth: %s of %s, %s/s%s", terminal ? "\r" : "", bytes_format(done, a),
            bytes_format(s->file_bytes, b),
            bytes_format(seconds > 0 ? (uint64_t)((double)done / seconds) : 0, c),
            terminal && !last ? "   " : "\n");
}

static int write_pieces(struct synth *s, struct pipeline *p, struct gguf_writer *w,
                        struct error *error)
{
    uint64_t start_ns = clock_now_ns(), reported_ns = start_ns, done = 0, bytes;
    const void *piece;
    while ((piece = pipeline_next(p, &bytes)) != NULL) {
        if (interrupted)
            return error_set(error, ERR_CANCELLED, "interrupted; removed %s", s->part);
        if (gguf_writer_data(w, piece, bytes, error) != 0)
            return -1;
        done += bytes;
        if (clock_now_ns() - reported_ns > PROGRESS_EVERY_NS) {
            reported_ns = clock_now_ns();
            print_progress(s, done, start_ns, false);
        }
    }
    if (gguf_writer_end(w, error) != 0)
        return -1;
    s->seconds = (double)(clock_now_ns() - start_ns) / 1e9;
    s->waited = (double)pipeline_waited_ns(p) / 1e9;
    print_progress(s, s->file_bytes, start_ns, true);
    return 0;
}

static int write_file(struct synth *s, const struct weights *weights, struct gguf_writer *w,
                      struct error *error)
{
    int n = snprintf(s->part, sizeof s->part, "%s.part", s->path);
    if (n < 0 || n >= (int)sizeof s->part)
        return error_set(error, ERR_BAD_INPUT, "the path %.60s... is too long", s->path);
    if (check_space(s, error) != 0)
        return -1;
    struct pipeline *p = pipeline_open(weights, (unsigned)s->threads, error);
    if (!p)
        return -1;
    int rc = gguf_writer_start(w, s->part, error);
    if (rc == 0) {
        rc = write_pieces(s, p, w, error);
        if (rc == 0 && s->parts > 0)
            rc = split_write(s->part, s->path, (uint32_t)s->parts, error);
        int why = rc == 0 && s->parts == 0 ? file_replace(s->part, s->path, true) : 0;
        if (why != 0)
            rc = error_set_errno(error, ERR_IO, why, "cannot write %s", s->path);
        if (rc != 0 || s->parts > 0)
            unlink(s->part);
    }
    pipeline_close(p);
    return rc;
}

static uint64_t expert_bytes(const struct weights *weights)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < weights->count; i++)
        if (weights->tensors[i].dims == 3)
            bytes += weights->tensors[i].rows * weights->tensors[i].row_bytes;
    return bytes;
}

static int print(const struct synth *s, const struct weights *weights)
{
    uint64_t experts = expert_bytes(weights);
    const struct model_hparams *h = &s->shape.h;
    uint64_t layers = hparams_expert_layers(h), count = layers * h->experts;
    uint64_t per_token = experts / count * h->experts_used * layers;
    if (s->json) {
        json_t *o = json_pack(
            "{s:s*, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "file",
            s->dry ? NULL : s->path, "shape", s->shape.name, "arch", s->shape.arch->name, "type",
            mix_name(s->shape.mixes.mix[0]), "seed", (json_int_t)s->shape.seed, "bytes",
            (json_int_t)s->file_bytes, "expert_bytes", (json_int_t)experts, "one_expert_bytes",
            (json_int_t)(experts / count), "bytes_per_token", (json_int_t)per_token, "seconds",
            s->seconds, "waited_for_weights_seconds", s->waited);
        json_dumpf(o, stdout, JSON_INDENT(2));
        json_decref(o);
        printf("\n");
    } else {
        char all[16], part[16], one[16], token[16], rate[16];
        printf("%s %s, %s: %s, %s of it experts; %s per expert, %s of experts per token\n",
               s->shape.name, mix_name(s->shape.mixes.mix[0]), s->shape.arch->name,
               bytes_format(s->file_bytes, all), bytes_format(experts, part),
               bytes_format(experts / count, one), bytes_format(per_token, token));
        if (!s->dry)
            printf("written in %.1f s, %s/s, bound by %s\n", s->seconds,
                   bytes_format((uint64_t)((double)s->file_bytes / s->seconds), rate),
                   s->waited > s->seconds / 2 ? "the generation of weights" : "the device");
    }
    return fflush(stdout) == 0 ? 0 : -1;
}

/* A file may be meant for other programs. */
static void warn_of_types(const struct synth *s, const struct weights *weights)
{
    for (uint32_t i = 0; i < weights->count && !s->quiet; i++) {
        uint32_t type = weights->tensors[i].type;
        if (!tensor_type_computed(type)) {
            fprintf(stderr, "synth: this version of sluice cannot compute with %s (%s)\n",
                    tensor_type_info(type)->name, weights->tensors[i].name);
            return;
        }
    }
}

static int run(struct synth *s, struct error *error)
{
    struct weights weights;
    struct gguf_writer *w = gguf_writer_new(32);
    if (!w)
        return error_set(error, ERR_NO_MEMORY, "out of memory (GGUF writer)");
    shape_put_keys(&s->shape, w);
    int rc = vocabulary_put_keys(w, s->shape.h.vocab, error);
    if (rc == 0) {
        rc = weights_open(&weights, &s->shape, w, error);
        if (rc == 0 && (rc = gguf_writer_layout(w, error)) == 0) {
            s->file_bytes = gguf_writer_bytes(w);
            warn_of_types(s, &weights);
            rc = s->dry ? 0 : write_file(s, &weights, w, error);
            if (rc == 0 && print(s, &weights) != 0)
                rc = error_set(error, ERR_FAILED, "cannot write to standard output");
        }
        weights_close(&weights);
    }
    gguf_writer_free(w);
    return rc;
}

int main(int argc, char **argv)
{
    struct synth s = {0};
    struct error error;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return parse(&s, argc, argv, &error) == 0 && run(&s, &error) == 0 ? 0 : report("synth", &error);
}
