/* SPDX-License-Identifier: Apache-2.0 */
/* sluice pack: makes an expert store (format: lib/model/store/store.h) from a GGUF file or a
 * Hugging Face directory, and checks one.
 *
 *   source.c    GGUF or safetensors files -> extents    dense.c    dense tensors -> --dense
 *   store_layout.c  precisions, types, stripes, offsets workers.c  experts -> stripes
 *   model.c     model.gguf                              journal.c  finished units, resume
 *   quantise.c  precisions -> types, rows               check.c    --check
 *   planned.c   --plan                                  publish/   -o URL
 *
 * The manifest is written last and by rename: an incomplete store has none. A killed pack resumes
 * where it stopped, and the result is byte-identical to that of an uninterrupted one.
 *
 * Shared memory, messages: none. Memory: about 12 MiB per thread, for any model, at most --memory.
 * The page cache does not grow. Trust: the model is untrusted input, read through the checks of
 * lib/model. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h> /* optind */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/io/server/url.h"
#include "lib/memory/available.h"
#include "lib/model/store/base.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"
#include "procs/tools/pack/pack.h"

#define DEFAULT_THREADS_MIN 4 /* keeps several requests in flight on small machines */
#define DEFAULT_THREADS_MAX 16
#define PROGRAM_BYTES       (4 * MIB) /* code, libraries, stacks */

/* ---- options ---- */

static int take_precisions(void *program, const char *list, struct error *error)
{
    struct pack_options *o = program;
    o->given.precisions = true;
    memset(o->precision_wanted, 0, sizeof o->precision_wanted);
    while (*list) {
        size_t n = strcspn(list, ",");
        int precision = 0;
        while (precision < PRECISION__COUNT &&
               (strlen(precision_name((enum precision)precision)) != n ||
                memcmp(precision_name((enum precision)precision), list, n) != 0))
            precision++;
        if (precision == PRECISION__COUNT)
            return error_set(error, ERR_BAD_INPUT,
                             "--precisions: unknown precision '%.*s' (native, int8, int4, int2)",
                             n < 40 ? (int)n : 40, list);
        o->precision_wanted[precision] = true;
        list += n + (list[n] == ',');
    }
    for (int precision = 0; precision < PRECISION__COUNT; precision++)
        if (o->precision_wanted[precision])
            return 0;
    return error_set(error, ERR_BAD_INPUT, "--precisions: the list is empty");
}

static int take_threads(void *program, const char *text, struct error *error)
{
    struct pack_options *o = program;
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == 0 || *end || n < 1 || n > PACK_THREADS_MAX)
        return error_set(error, ERR_BAD_INPUT, "--threads: must be a number from 1 to %d",
                         PACK_THREADS_MAX);
    o->threads = (unsigned)n;
    return 0;
}

static int take_method(void *program, const char *value, struct error *error)
{
    struct pack_options *o = program;
    o->given.method = true;
    return quant_method_option("--method", value, &o->method, error);
}

static int take_dense(void *program, const char *value, struct error *error)
{
    struct pack_options *o = program;
    o->given.dense = true;
    return precision_dense_option("--dense", value, &o->dense, NULL, error);
}

static int take_fp8(void *program, const char *value, struct error *error)
{
    struct pack_options *o = program;
    o->fp8_type = strcmp(value, "Q8_0") == 0 ? TENSOR_Q8_0 : TENSOR_BF16;
    return strcmp(value, tensor_type_info(o->fp8_type)->name) == 0
               ? 0
               : error_set(error, ERR_BAD_INPUT, "--fp8: must be BF16 or Q8_0");
}

static int take_layout(void *program, const char *value, struct error *error)
{
    struct pack_options *o = program;
    o->layout = store_layout_find(value);
    return o->layout < STORE_LAYOUT__COUNT
               ? 0
               : error_set(error, ERR_BAD_INPUT, "--layout: must be striped or spread");
}

static int take_rate(void *program, const char *value, struct error *error)
{
    struct pack_options *o = program;
    if (bytes_parse(value, &o->bytes_per_s) && o->bytes_per_s > 0)
        return 0;
    return error_set(error, ERR_BAD_INPUT, "--rate: must be a size such as 200MB");
}

static int take_memory(void *program, const char *value, struct error *error)
{
    struct pack_options *o = program;
    if (bytes_parse(value, &o->memory) && o->memory > 0)
        return 0;
    return error_set(error, ERR_BAD_INPUT, "--memory: '%.40s' is not a size", value);
}

static int take_check(void *program, const char *value, struct error *error)
{
    struct pack_options *o = program;
    (void)error;
    o->check = true;
    o->dir = value;
    return 0;
}

static const struct option_row rows[] = {
    {'m', "model", "MODEL", OPTION_TEXT(struct pack_options, model), "the model to pack"},
    {'o', "out", "DIR", OPTION_TEXT(struct pack_options, dir),
     "directory of the store; created if missing. Or a URL (http, https, s3, "
     "rados): the store is made here and then sent there"},
    {0, "stage", "DIR", OPTION_TEXT(struct pack_options, stage),
     "with a URL: make the store in DIR and keep it (default: a directory "
     "here, removed at the end). Without -m: send the store that DIR has"},
    {0, "staged", "DIR", OPTION_TEXT(struct pack_options, staged), NULL},
    {0, "plan", "PLAN", OPTION_TEXT(struct pack_options, plan),
     "precisions, method and dense precision as sluice plan --preset "
     "edgemoe chose them, and those of mixed-two and "
     "mixed-two-resident-first; the options below change single ones"},
    {0, "edgemoe-only", NULL, OPTION_FLAG(struct pack_options, widths_only),
     "with --plan: of its precisions only those of edgemoe"},
    {0, "precisions", "LIST", OPTION_CALL(take_precisions),
     "of native, int8, int4, int2 (default native)"},
    {0, "method", "METHOD", OPTION_CALL(take_method),
     "of int4 and int2: channel (a scale per row; default) or hqq "
     "(half-quadratic, per group)"},
    {0, "dense", "PRECISION", OPTION_CALL(take_dense),
     "of attention, embeddings and shared experts: native (default), "
     "int8 or int4, per row; norms and routers are not changed"},
    {0, "fp8", "TYPE", OPTION_CALL(take_fp8),
     "what FP8 weights of a Hugging Face directory become: BF16 "
     "(default) or Q8_0"},
    {0, "stripes", "LIST", OPTION_TEXT(struct pack_options, stripes),
     "a file, or a directory for it, per device (default: one file in "
     "DIR)"},
    {0, "mirrors", "LIST", OPTION_TEXT(struct pack_options, mirrors),
     "likewise for a second copy of each stripe, read if the first fails"},
    {0, "layout", "LAYOUT", OPTION_CALL(take_layout),
     "striped: every expert is split over all stripes (default); spread: "
     "each expert is in one stripe"},
    {0, "delta", NULL, OPTION_FLAG(struct pack_options, delta),
     "native experts stay in the model file, which the store then needs; "
     "with --plan only the precision of each expert is stored"},
    {0, "threads", "N", OPTION_CALL(take_threads),
     "experts packed in parallel (default: 2 per CPU, " OPTION_DIGITS(
         DEFAULT_THREADS_MIN) " to " OPTION_DIGITS(DEFAULT_THREADS_MAX) ")"},
    {0, "memory", "SIZE", OPTION_CALL(take_memory),
     "maximum memory of this program: fewer threads than --threads if "
     "they do not fit (default: 7/8 of the available memory)"},
    {0, "rate", "SIZE", OPTION_CALL(take_rate),
     "limit of bytes read and written per second, in total"},
    {0, "verify", NULL, OPTION_FLAG(struct pack_options, verify),
     "read all experts back before the store is completed"},
    {0, "quiet", NULL, OPTION_FLAG(struct pack_options, quiet), "no progress on stderr"},
    {0, "output", "text|json", OPTION_JSON(struct pack_options, json),
     "format of the summary (default text)"},
    {0, "check", "DIR", OPTION_CALL(take_check), "only verify all checksums of a store"},
    {0, "json", NULL, OPTION_FLAG(struct pack_options, json), "the same as --output json"},
};

static const struct option_table options = {
    .command = "pack",
    .before = "usage: sluice pack -m MODEL -o DIR|URL [OPTIONS]\n"
              "       sluice pack --check DIR [--threads N] [--memory SIZE]\n"
              "\n"
              "Makes an expert store: every expert contiguous, page-aligned, with checksums, at\n"
              "one or more precisions. MODEL is a GGUF file, or a Hugging Face directory with\n"
              "config.json, tokenizer.json (or tiktoken.model or hy.tiktoken) and safetensors\n"
              "files.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 24,
    .after = "\n"
             "An interrupted pack is resumed by running it again with the same options.\n"
             "Exit status: 0 done, 1 failed, 2 bad usage, a bad model, or a damaged store.\n",
};

/* What is left is for the system, and for the cgroup's other processes. */
static uint64_t default_memory(void)
{
    uint64_t available = memory_available();
    return available == UINT64_MAX ? available : available - available / 8;
}

/* From where to where. */
static int options_place(struct pack_options *o, int argc, char **argv, struct error *error)
{
    o->named = o->dir;
    if (o->staged)
        o->dir = o->staged;
    else if (!o->check && o->dir && io_url_is(o->dir))
        o->url = o->dir;
    bool sends = o->url && o->stage && !o->model && optind == argc; /* a store that is there */
    if (!o->check && !sends && option_model(&o->model, argc, argv, "", error) != 0)
        return -1;
    if (optind != argc || !o->dir || (!o->check && !sends && !o->model))
        return error_set(error, ERR_BAD_INPUT, "use -m MODEL and -o DIR (see sluice pack --help)");
    if (o->stage && !o->url && !o->staged)
        return error_set(error, ERR_BAD_INPUT, "--stage is for -o URL");
    return o->url ? pack_check_url(o, error) : 0;
}

static int options_take(struct pack_options *o, int argc, char **argv, struct error *error)
{
    *o = (struct pack_options){.method = QUANT_METHOD_DEFAULT,
                               .dense = PRECISION_NATIVE,
                               .fp8_type = TENSOR_BF16,
                               .precision_wanted = {[PRECISION_NATIVE] = true}};
    if (options_read(&options, o, argc, argv, error) != 0)
        return -1;
    if (options_place(o, argc, argv, error) != 0)
        return -1;
    if (o->delta && (o->stripes || o->mirrors))
        return error_set(error, ERR_BAD_INPUT,
                         "--delta has one stripe, in the directory of the store");
    if (o->delta && (o->given.precisions ? o->precision_wanted[PRECISION_NATIVE] : !o->plan))
        return error_set(error, ERR_BAD_INPUT,
                         "--delta: use --plan, or --precisions without native");
    if (o->delta)
        o->layout = STORE_SPREAD;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    long threads = cpus * 2 < DEFAULT_THREADS_MIN   ? DEFAULT_THREADS_MIN
                   : cpus * 2 > DEFAULT_THREADS_MAX ? DEFAULT_THREADS_MAX
                                                    : cpus * 2;
    if (o->threads == 0)
        o->threads = (unsigned)threads;
    if (o->memory == 0)
        o->memory = default_memory();
    return 0;
}

int pack_fit_threads(struct pack_options *o, uint64_t each, struct error *error)
{
    char given[16], needed[16];
    struct mallinfo2 heap = mallinfo2(); /* of all threads; nothing else is large */
    uint64_t used = PROGRAM_BYTES + heap.arena + heap.hblkhd;
    uint64_t fit = (o->memory - (used < o->memory ? used : o->memory)) / each;
    if (fit == 0)
        return error_set(error, ERR_BUDGET_TOO_SMALL,
                         "memory of %s is too small: one thread needs %s",
                         bytes_format(o->memory, given), bytes_format(used + each, needed));
    if (fit < o->threads) {
        log_info("%" PRIu64 " of %u threads, to stay within %s of memory (--memory)", fit,
                 o->threads, bytes_format(o->memory, given));
        o->threads = (unsigned)fit;
    }
    return 0;
}

/* ---- pack ---- */

static int open_dir(struct pack *p, struct error *error)
{
    char real[PATH_MAX];
    if (mkdir(p->options.dir, 0777) != 0 && errno != EEXIST)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot create %.250s", p->options.dir);
    p->dir_fd = open(p->options.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->dir_fd < 0 || !realpath(p->options.dir, real))
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", p->options.dir);
    if (strlen(real) + 64 >= sizeof p->dir || strcmp(real, "/") == 0)
        return error_set(error, ERR_BAD_INPUT, "%.250s cannot be the directory of a store",
                         p->options.dir);
    strcpy(p->dir, real);
    return 0;
}

/* Makes the store from the open source. */
static int make_store(struct pack *p, struct error *error)
{
    if (open_dir(p, error) || pack_stripe_paths(p, error) || pack_lay_out(p, error) ||
        pack_fit_workers(p, error) || journal_open(p, error) || pack_check_space(p, error))
        return -1;
    p->started_ns = clock_now_ns();
    if (pack_model(p, error))
        return -1;
    store_make_id(&p->manifest);
    if (pack_stripes(p, error) || journal_resume(p, error) || pack_experts(p, error) ||
        source_unchanged(&p->source, error) || (p->options.verify && journal_verify(p, error)))
        return -1;
    if (store_write_entries(p->dir_fd, &p->manifest, p->table, error) ||
        store_write_manifest(p->dir_fd, &p->manifest, NULL, error))
        return -1;
    if (!p->options.staged) /* else all is not done yet */
        journal_remove(p);
    return 0;
}

static json_t *precisions_summary(const struct pack *p)
{
    json_t *precisions = json_array();
    for (uint32_t t = 0; t < p->manifest.precision_count; t++) {
        uint64_t payload = 0, slots = 0;
        for (uint32_t layer = 0; layer < p->manifest.layers; layer++) {
            const struct store_group *g = store_group_of(&p->manifest, t, layer);
            payload += g->payload_bytes * p->manifest.experts;
            slots += g->slot_pages * PAGE_BYTES * p->manifest.experts;
        }
        json_array_append_new(
            precisions,
            json_pack("{s:s, s:s, s:s, s:I, s:I}", "precision",
                      precision_name(p->manifest.precision[t].precision), "method",
                      quant_method_name(p->manifest.precision[t].method), "type",
                      tensor_type_info(store_group_of(&p->manifest, t, 0)->matrix[0].type)->name,
                      "payload_bytes", (json_int_t)payload, "bytes", (json_int_t)slots));
    }
    return precisions;
}

static int print_summary(const struct pack *p, struct error *error)
{
    const struct pack_meters *m = &p->meters;
    double seconds = (double)(clock_now_ns() - p->started_ns) / (double)NS_PER_S;
    uint64_t read = atomic_load(&m->bytes_read), written = atomic_load(&m->bytes_written);
    char a[16], b[16];
    if (p->options.json) {
        json_t *o = json_pack(
            "{s:s, s:s, s:s, s:I, s:I, s:o, s:I, s:s, s:b, s:I, s:I, s:I, s:f, s:f, s:f, s:s}",
            "model", p->options.model, "store", p->options.staged ? p->options.named : p->dir,
            "arch", p->manifest.arch, "layers", (json_int_t)p->manifest.layers, "experts",
            (json_int_t)p->manifest.experts, "precisions", precisions_summary(p), "stripes",
            (json_int_t)p->manifest.stripe_count, "layout", store_layout_name(p->manifest.layout),
            "mirrored", p->file_count > p->manifest.stripe_count, "resumed_experts",
            (json_int_t)p->resumed, "bytes_read", (json_int_t)read, "bytes_written",
            (json_int_t)written, "seconds", seconds, "device_thread_seconds",
            (double)atomic_load(&m->storage_ns) / (double)NS_PER_S, "quantiser_thread_seconds",
            (double)atomic_load(&m->quantiser_ns) / (double)NS_PER_S, "bound", pack_bound(p));
        if (!o || json_dumpf(o, stdout, JSON_INDENT(2)) != 0)
            return error_set(error, ERR_IO, "cannot write the summary");
        printf("\n");
        json_decref(o);
    } else {
        printf("%s: %" PRIu32 " layers of %" PRIu32 " experts, %" PRIu32 " precisions; %s read, %s "
               "written in %.1f s, bound by the %s\n",
               p->dir, p->manifest.layers, p->manifest.experts, p->manifest.precision_count,
               bytes_format(read, a), bytes_format(written, b), seconds, pack_bound(p));
    }
    return fflush(stdout) == 0 ? 0 : error_set(error, ERR_IO, "cannot write the summary");
}

static void close_pack(struct pack *p)
{
    for (uint32_t f = 0; f < PACK_FILES_MAX; f++)
        free(p->file_path[f]);
    free(p->manifest.groups);
    free(p->table);
    free(p->done);
    free(p->pending);
    if (p->journal_fd >= 0)
        close(p->journal_fd);
    if (p->dir_fd >= 0)
        close(p->dir_fd);
    free(p->chosen);
    source_close(&p->source);
}

/* Before anything is made: what an engine cannot read is not packed. */
static int check_base(const struct source *s, struct error *error)
{
    if (s->is_hf)
        return error_set(error, ERR_BAD_INPUT, "--delta needs a GGUF file");
    if (s->index->part_count <= STORE_BASE_PARTS_MAX)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "--delta: the model is split into %" PRIu32
                     " files, more than %d: merge them, or pack without --delta",
                     s->index->part_count, STORE_BASE_PARTS_MAX);
}

static int run(struct pack *p, struct error *error)
{
    if (pack_confine(&p->options, error) != 0)
        return -1;
    if (p->options.check)
        return check_store(&p->options, error);
    if (source_open(&p->source, p->options.model, p->options.fp8_type, error))
        return -1;
    int status = p->options.delta ? check_base(&p->source, error) : 0;
    if (status == 0 && p->options.plan)
        status = pack_take_plan(p, error);
    if (status == 0)
        status = make_store(p, error);
    if (status == 0)
        status = print_summary(p, error);
    close_pack(p);
    return status;
}

int main(int argc, char **argv)
{
    static struct pack pack = {.dir_fd = -1, .journal_fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct error error;
    log_init("pack", LOG_LEVEL_INFO);
    int status = options_take(&pack.options, argc, argv, &error);
    if (status == 0 && pack.options.staged) /* its parent sends the store */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (status == 0)
        status =
            pack.options.url ? pack_publish(&pack.options, argc, argv, &error) : run(&pack, &error);
    if (status >= 0)
        return status;
    fprintf(stderr, "sluice pack: %s\n", error.text);
    return error_exit_status(error.code);
}
