/* SPDX-License-Identifier: Apache-2.0 */
/* sluice doctor: measures this machine and reports what the results mean for sluice.
 *
 * Measures storage devices (by reading a file, or a scratch file in a directory) and the memory,
 * and checks the requirements of an engine. Connects to no engine and changes nothing; the scratch
 * file has no name, so that it never remains. Uses at most 256 MiB of the device and, with a
 * model, half of the free memory at a time. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_error.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/kernels/kernels.h"
#include "procs/clients/common/options.h"
#include "procs/tools/doctor/doctor.h"

#define SECONDS_DEFAULT      10
#define EXPERT_BYTES_DEFAULT (4 * MIB)
#define EXPERT_BYTES_MAX     (16 * MIB) /* 16 of them are read at once */

#define PATHS_MAX 16

struct doctor {
    const char *paths[PATHS_MAX], *model;
    uint32_t path_count;
    uint64_t expert_bytes; /* 0: not given */
    double seconds;
    struct params params; /* engine parameters for the memory estimate */
    enum findings_form form;
    bool skip_device;
};

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: sluice doctor [[-m] FILE] [--path DIR|FILE]... [options]\n"
        "\n"
        "Whether a model fits this machine, with which budget, how fast, what limits it, and the\n"
        "next command; below them what explains it, with --all every measurement of storage,\n"
        "memory, CPU and GPU. Without a model: the machine. With --plan also the presets that\n"
        "--preset auto chooses from, fastest first, at --budget and --max-loss. Takes 10 to 25\n"
        "seconds. What is measured of GPUs is stored: with --model, later starts with --gpu\n"
        "choose the layers of the GPUs by it.\n"
        "\n"
        "  -m, --model FILE       model: minimum and recommended budget, tokens per second, "
        "advice\n"
        "  -p, --path DIR|FILE    storage device to measure, by a model file on it or a directory\n"
        "                         for a scratch file; repeatable (default: the model, else the\n"
        "                         current directory)\n"
        "      --expert-bytes N   largest read: the size of one expert (default: that of the\n"
        "                         model, else 4MiB)\n"
        "      --seconds N        time for all storage devices together (default %d)\n"
        "      --no-device        do not measure storage devices\n"
        "      --all              all measurements\n"
        "  -o, --output text|json  format on stdout (default text)\n"
        "      --json             the same as --output json\n"
        "\n"
        "Parameters of the engine that would run the model:\n",
        SECONDS_DEFAULT);
    params_help(out);
}

enum { OPT_EXPERT = 256, OPT_SECONDS, OPT_NO_DEVICE, OPT_ALL, OPT_JSON };

static const struct option options[] = {
    {"model", 1, NULL, 'm'},
    {"path", 1, NULL, 'p'},
    {"expert-bytes", 1, NULL, OPT_EXPERT},
    {"seconds", 1, NULL, OPT_SECONDS},
    {"no-device", 0, NULL, OPT_NO_DEVICE},
    {"output", 1, NULL, 'o'},
    {"all", 0, NULL, OPT_ALL},
    {"json", 0, NULL, OPT_JSON},
    {"help", 0, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int set_expert(struct doctor *d, const char *text, struct error *error)
{
    if (!bytes_parse(text, &d->expert_bytes) || d->expert_bytes < PAGE_BYTES ||
        d->expert_bytes > EXPERT_BYTES_MAX)
        return error_set(error, ERR_BAD_INPUT, "--expert-bytes: '%.40s' is not from 4KiB to 16MiB",
                         text);
    return 0;
}

static int one_option(struct doctor *d, int option, const char *value, struct error *error)
{
    int64_t number;
    switch (option) {
    case 'm': d->model = value; return 0;
    case 'p':
        if (d->path_count == PATHS_MAX)
            return error_set(error, ERR_BAD_INPUT, "--path: at most %d storage devices", PATHS_MAX);
        d->paths[d->path_count++] = value;
        return 0;
    case OPT_JSON: d->form = FINDINGS_JSON; return 0;
    case OPT_ALL: d->form = FINDINGS_ALL; return 0;
    case OPT_EXPERT: return set_expert(d, value, error);
    case OPT_SECONDS:
        if (option_i64("--seconds", value, 1, 600, &number, error) != 0)
            return -1;
        d->seconds = (double)number;
        return 0;
    case OPT_NO_DEVICE: d->skip_device = true; return 0;
    case 'o':
        if (strcmp(value, "json") == 0)
            d->form = FINDINGS_JSON;
        else if (strcmp(value, "text") != 0)
            return error_set(error, ERR_BAD_INPUT, "--output: '%.40s' is not text or json", value);
        return 0;
    case 'h': usage(stdout); exit(fflush(stdout) == 0 ? 0 : 1);
    default: sl_panic("option %d of the table is not handled", option);
    }
}

static int parse(struct doctor *d, int argc, char **argv, struct error *error)
{
    int option;
    params_defaults(&d->params);
    if (params_take_args(&d->params, &argc, argv, error) != 0)
        return -1;
    while ((option = getopt_long(argc, argv, ":m:p:o:h", options, NULL)) != -1)
        if ((option == '?' || option == ':'
                 ? option_error("doctor", option, argv, options, true, NULL, error)
                 : one_option(d, option, optarg, error)) != 0)
            return -1;
    if (option_model(&d->model, argc, argv, "", error) != 0)
        return -1;
    return 0;
}

/* Without --path: the model, if it is a file; a store is a directory and gets a scratch file on its
 * device. */
static void default_path(struct doctor *d)
{
    if (d->path_count == 0)
        d->paths[d->path_count++] = d->model ? d->model : ".";
}

/* Bytes of one expert, at most the largest read of doctor. */
static uint64_t expert_bytes_of(const struct doctor *d, const json_t *memory_estimate)
{
    if (d->expert_bytes)
        return d->expert_bytes;
    if (!memory_estimate)
        return EXPERT_BYTES_DEFAULT;
    struct model_facts m = model_facts_of(memory_estimate);
    uint64_t mean = m.expert_count ? m.expert_bytes / m.expert_count : EXPERT_BYTES_DEFAULT;
    mean = align_up(mean ? mean : 1, PAGE_BYTES);
    return mean < EXPERT_BYTES_MAX ? mean : EXPERT_BYTES_MAX;
}

/* All devices, in sections "device", "device 2", ...; experts are striped, so that bandwidths add
 * up. */
static int examine_storage(struct findings *f, struct doctor *d, const json_t *memory_estimate,
                           struct host_facts *facts, struct error *error)
{
    default_path(d);
    for (uint32_t i = 0; i < d->path_count; i++) {
        char section[24] = "device";
        struct storage_result result;
        struct storage_plan plan = {.path = d->paths[i],
                                    .expert_bytes = expert_bytes_of(d, memory_estimate),
                                    .chunk_bytes = align_down(d->params.io_size, PAGE_BYTES),
                                    .seconds = d->seconds / d->path_count};
        if (i > 0)
            snprintf(section, sizeof section, "device %u", i + 1);
        if (storage_examine(f, section, &plan, &result, error) != 0)
            return -1;
        for (uint32_t k = 0; k < ESTIMATE_DEPTHS; k++)
            facts->read_bytes_per_s[k] += result.bytes_per_s[k];
        facts->chunk_bytes = result.chunk_bytes;
        facts->scratch = facts->scratch || result.scratch;
    }
    return 0;
}

static int examine(struct findings *f, struct doctor *d, struct error *error)
{
    struct host_facts facts = {.chunk_bytes = MIB / 4};
    struct params quiet =
        d->params; /* with a GPU, its rates come first, and then the plan that is reported */
    if (strcmp(quiet.gpu, "off") != 0)
        snprintf(quiet.log_level, sizeof quiet.log_level, "error");
    json_t *memory_estimate = d->model ? model_memory_estimate(d->model, &quiet, error) : NULL;
    if (d->model && !memory_estimate)
        return -1;
    int rc = d->skip_device ? 0 : examine_storage(f, d, memory_estimate, &facts, error);
    if (rc == 0) {
        progress(f, "reading memory, about 2 s");
        memory_examine(f, d->params.threads ? (unsigned)d->params.threads : host_cpus(), &facts);
        host_examine(f, &facts);
        struct gpu_seen gpu;
        progress(f, "examining GPUs");
        gpu_examine(f, &d->params, &gpu);
        if (!memory_estimate) {
            gpu_store(f, &gpu, NULL);
            verdict_machine(f, &facts, host_available_bytes(), kernel_ops_select(NULL)->name,
                            host_cpus());
        } else {
            rc = model_examine(f, d->model, &d->params, memory_estimate, &facts, &gpu, error);
        }
    }
    if (rc == 0) {
        progress_close(f);
        findings_print(f, d->form);
        if (fflush(stdout) != 0)
            rc = error_set(error, ERR_FAILED, "cannot write to standard output");
    }
    json_decref(memory_estimate);
    return rc;
}

int main(int argc, char **argv)
{
    struct doctor d = {.seconds = SECONDS_DEFAULT};
    struct error error;
    struct findings findings;
    if (parse(&d, argc, argv, &error) != 0)
        return report("doctor", &error);
    findings_open(&findings);
    progress_open(&findings);
    int rc = examine(&findings, &d, &error);
    progress_close(&findings);
    findings_close(&findings);
    return rc == 0 ? 0 : report("doctor", &error);
}
