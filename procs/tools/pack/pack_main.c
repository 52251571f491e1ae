/* sluice pack: makes an expert store (format: lib/model/store/store.h) from a GGUF file or a Hugging Face
 * directory, and checks one.
 *
 *   source.c     GGUF or safetensors -> places of bytes      journal.c   what a killed pack had
 * done plan.c       tiers, types, stripes, offsets, room        workers.c   experts -> stripes
 *   model.c      model.gguf                                  check.c     --check
 *
 * The manifest is written last and by rename: a store that is not whole has none. A pack that was
 * killed goes on where it was, and makes the same bytes it would have made at once.
 *
 * Shared memory, messages: none. Memory: about 20 MiB a thread, whatever the model. The page cache
 * does not grow. Trust: nothing in the model; it is read through the checks of lib/model. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/tier.h"
#include "procs/tools/pack/pack.h"

#define THREADS_LEAST 4 /* requests in flight, also on a small machine */
#define THREADS_MOST  16

static const struct option long_options[] = {
    {"model", required_argument, NULL, 'm'},   {"out", required_argument, NULL, 'o'},
    {"tiers", required_argument, NULL, 't'},   {"method", required_argument, NULL, 'M'},
    {"dense", required_argument, NULL, 'D'},   {"stripes", required_argument, NULL, 's'},
    {"mirrors", required_argument, NULL, 'R'}, {"layout", required_argument, NULL, 'L'},
    {"threads", required_argument, NULL, 'T'}, {"rate", required_argument, NULL, 'r'},
    {"verify", no_argument, NULL, 'V'},        {"check", required_argument, NULL, 'c'},
    {"quiet", no_argument, NULL, 'q'},         {"output", required_argument, NULL, 'O'},
    {"json", no_argument, NULL, 'j'},          {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},       {NULL, 0, NULL, 0},
};

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: sluice pack -m MODEL -o DIR [OPTIONS]\n"
        "       sluice pack --check DIR [--threads N]\n"
        "\n"
        "Makes an expert store: every expert in one piece, aligned to pages, with checksums, at\n"
        "one or more precisions. MODEL is a GGUF file, or a directory of Hugging Face with\n"
        "config.json, tokenizer.json and safetensors files.\n"
        "\n"
        "  -m, --model MODEL     what is packed\n"
        "  -o, --out DIR         the store; made if need be\n"
        "      --tiers LIST      of native, int8, int4, int2 (default native)\n"
        "      --method METHOD   of int4 and int2: channel (a scale per row) or hqq (groups,\n"
        "                        half-quadratic; default)\n"
        "      --dense TIER      of attention, embeddings and shared experts: native (default),\n"
        "                        int8 or int4, per row; norms and routers stay as they are\n"
        "      --stripes LIST    a file, or a directory for it, on each device (default: one,\n"
        "                        in DIR)\n"
        "      --mirrors LIST    likewise: a second copy of each stripe, for when the first fails\n"
        "      --layout LAYOUT   striped: every expert is cut over all stripes (default); spread:\n"
        "                        each lies in one of them\n"
        "      --threads N       experts at once (default: twice the processors, %d to %d)\n"
        "      --rate BYTES      read and write at most so many bytes per second together\n"
        "      --verify          read everything back before the store is called whole\n"
        "      --quiet           no progress on stderr\n"
        "      --output text|json, --json  of the summary\n"
        "      --check DIR       verify all checksums of a store, and nothing else\n"
        "\n"
        "A pack that was killed goes on when it is called again with the same options.\n"
        "Exit status: 0 done, 1 failed, 2 bad usage, a bad model, or a damaged store.\n",
        THREADS_LEAST, THREADS_MOST);
}

/* ---- options ---- */

static int take_tiers(struct pack_options *o, const char *list, struct error *error)
{
    memset(o->tier_wanted, 0, sizeof o->tier_wanted);
    while (*list) {
        size_t n = strcspn(list, ",");
        int tier = 0;
        while (tier < TIER__COUNT && (strlen(store_tier_name((enum tier)tier)) != n ||
                                      memcmp(store_tier_name((enum tier)tier), list, n) != 0))
            tier++;
        if (tier == TIER__COUNT)
            return error_set(error, ERR_BAD_INPUT, "'%.*s' is no tier (native, int8, int4, int2)",
                             n < 40 ? (int)n : 40, list);
        o->tier_wanted[tier] = true;
        list += n + (list[n] == ',');
    }
    for (int tier = 0; tier < TIER__COUNT; tier++)
        if (o->tier_wanted[tier])
            return 0;
    return error_set(error, ERR_BAD_INPUT, "--tiers names no tier");
}

static int take_dense(struct pack_options *o, const char *word, struct error *error)
{
    for (int tier = TIER_NATIVE; tier < TIER__COUNT; tier++)
        if (tier != TIER_INT2 && strcmp(word, store_tier_name((enum tier)tier)) == 0) {
            o->dense = (enum tier)tier;
            return 0;
        }
    return error_set(error, ERR_BAD_INPUT, "--dense is native, int8 or int4");
}

static int take_threads(struct pack_options *o, const char *text, struct error *error)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == 0 || *end || n < 1 || n > PACK_THREADS_MAX)
        return error_set(error, ERR_BAD_INPUT, "--threads is a number from 1 to %d",
                         PACK_THREADS_MAX);
    o->threads = (unsigned)n;
    return 0;
}

static int take_option(struct pack_options *o, int option, struct error *error)
{
    switch (option) {
    case 'm': o->model = optarg; return 0;
    case 'o': o->dir = optarg; return 0;
    case 't': return take_tiers(o, optarg, error);
    case 'M':
        o->hqq = strcmp(optarg, "hqq") == 0;
        if (o->hqq || strcmp(optarg, "channel") == 0)
            return 0;
        return error_set(error, ERR_BAD_INPUT, "--method is channel or hqq");
    case 'D': return take_dense(o, optarg, error);
    case 's': o->stripes = optarg; return 0;
    case 'R': o->mirrors = optarg; return 0;
    case 'L':
        o->layout = store_layout_find(optarg);
        return o->layout < STORE_LAYOUT__COUNT
                   ? 0
                   : error_set(error, ERR_BAD_INPUT, "--layout is striped or spread");
    case 'T': return take_threads(o, optarg, error);
    case 'r':
        if (bytes_parse(optarg, &o->bytes_per_s) && o->bytes_per_s > 0)
            return 0;
        return error_set(error, ERR_BAD_INPUT, "--rate is a size, like 200MB");
    case 'V': o->verify = true; return 0;
    case 'c':
        o->check = true;
        o->dir = optarg;
        return 0;
    case 'q': o->quiet = true; return 0;
    case 'j': o->json = true; return 0;
    case 'O':
        o->json = strcmp(optarg, "json") == 0;
        if (o->json || strcmp(optarg, "text") == 0)
            return 0;
        return error_set(error, ERR_BAD_INPUT, "--output is text or json");
    case 'h': usage(stdout); exit(fflush(stdout) == 0 ? 0 : 1);
    case 'v': printf("sluice %s\n", SLUICE_VERSION); exit(0);
    default: sl_panic("option %d is in the table and not here", option);
    }
}

static int options_take(struct pack_options *o, int argc, char **argv, struct error *error)
{
    *o = (struct pack_options){
        .hqq = true, .dense = TIER_NATIVE, .tier_wanted = {[TIER_NATIVE] = true}};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":hm:o:", long_options, NULL)) != -1;) {
        if (c == '?' || c == ':')
            return error_set(error, ERR_BAD_INPUT,
                             "unknown or incomplete option %.80s (see sluice pack --help)",
                             argv[optind - 1]);
        if (take_option(o, c, error))
            return -1;
    }
    if (optind != argc || !o->dir || (!o->check && !o->model))
        return error_set(error, ERR_BAD_INPUT,
                         "name a model with -m and a directory with -o (see sluice pack --help)");
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    long threads = processors * 2 < THREADS_LEAST  ? THREADS_LEAST
                   : processors * 2 > THREADS_MOST ? THREADS_MOST
                                                   : processors * 2;
    if (o->threads == 0)
        o->threads = (unsigned)threads;
    return 0;
}

/* ---- the pack ---- */

static int open_dir(struct pack *p, struct error *error)
{
    char real[PATH_MAX];
    if (mkdir(p->options.dir, 0777) != 0 && errno != EEXIST)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot make %.250s", p->options.dir);
    p->dir_fd = open(p->options.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->dir_fd < 0 || !realpath(p->options.dir, real))
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", p->options.dir);
    if (strlen(real) + 64 >= sizeof p->dir || strcmp(real, "/") == 0)
        return error_set(error, ERR_BAD_INPUT, "%.250s is no directory for a store",
                         p->options.dir);
    strcpy(p->dir, real);
    return 0;
}

/* Everything between an opened source and a whole store. */
static int make_store(struct pack *p, struct error *error)
{
    if (open_dir(p, error) || pack_stripe_paths(p, error) || pack_plan(p, error) ||
        journal_open(p, error) || pack_room(p, error))
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
    journal_remove(p);
    return 0;
}

static json_t *tiers_summary(const struct pack *p)
{
    json_t *tiers = json_array();
    for (uint32_t t = 0; t < p->manifest.tier_count; t++) {
        uint64_t payload = 0, slots = 0;
        for (uint32_t layer = 0; layer < p->manifest.layers; layer++) {
            const struct store_group *g = store_group_of(&p->manifest, t, layer);
            payload += g->payload_bytes * p->manifest.experts;
            slots += g->slot_pages * PAGE_BYTES * p->manifest.experts;
        }
        json_array_append_new(
            tiers,
            json_pack("{s:s, s:s, s:s, s:I, s:I}", "tier",
                      store_tier_name(p->manifest.tier[t].tier), "method",
                      store_method_name(p->manifest.tier[t].method), "type",
                      tensor_type_info(store_group_of(&p->manifest, t, 0)->matrix[0].type)->name,
                      "payload_bytes", (json_int_t)payload, "bytes", (json_int_t)slots));
    }
    return tiers;
}

static int tell(const struct pack *p, struct error *error)
{
    const struct pack_meters *m = &p->meters;
    double seconds = (double)(clock_now_ns() - p->started_ns) / (double)NS_PER_S;
    uint64_t read = atomic_load(&m->bytes_read), written = atomic_load(&m->bytes_written);
    char a[16], b[16];
    if (p->options.json) {
        json_t *o = json_pack(
            "{s:s, s:s, s:s, s:I, s:I, s:o, s:I, s:s, s:b, s:I, s:I, s:I, s:f, s:f, s:f, s:s}",
            "model", p->options.model, "store", p->dir, "arch", p->manifest.arch, "layers",
            (json_int_t)p->manifest.layers, "experts", (json_int_t)p->manifest.experts, "tiers",
            tiers_summary(p), "stripes", (json_int_t)p->manifest.stripe_count, "layout",
            store_layout_name(p->manifest.layout), "mirrored",
            p->file_count > p->manifest.stripe_count, "resumed_experts", (json_int_t)p->resumed,
            "bytes_read", (json_int_t)read, "bytes_written", (json_int_t)written, "seconds",
            seconds, "drive_thread_seconds", (double)atomic_load(&m->drive_ns) / (double)NS_PER_S,
            "quantiser_thread_seconds", (double)atomic_load(&m->quantiser_ns) / (double)NS_PER_S,
            "bound", pack_bound(p));
        if (!o || json_dumpf(o, stdout, JSON_INDENT(2)) != 0)
            return error_set(error, ERR_IO, "cannot write the summary");
        printf("\n");
        json_decref(o);
    } else {
        printf("%s: %" PRIu32 " layers of %" PRIu32 " experts, %" PRIu32 " tiers; %s read, %s "
               "written in %.1f s, bound by the %s\n",
               p->dir, p->manifest.layers, p->manifest.experts, p->manifest.tier_count,
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
    source_close(&p->source);
}

static int run(struct pack *p, struct error *error)
{
    if (p->options.check)
        return check_store(&p->options, error);
    if (source_open(&p->source, p->options.model, error))
        return -1;
    int status = make_store(p, error);
    if (status == 0)
        status = tell(p, error);
    close_pack(p);
    return status;
}

int main(int argc, char **argv)
{
    static struct pack pack = {.dir_fd = -1, .journal_fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct error error;
    log_init("pack", LOG_LEVEL_INFO);
    if (options_take(&pack.options, argc, argv, &error) == 0 && run(&pack, &error) == 0)
        return 0;
    fprintf(stderr, "sluice pack: %s\n", error.text);
    return error_exit_status(error.code);
}
