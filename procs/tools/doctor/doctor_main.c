/* SPDX-License-Identifier: Apache-2.0 */
/* sluice doctor: measures this machine and reports what the results mean for sluice.
 *
 * Measures storage devices (by reading a file, or a scratch file in a directory) and the memory,
 * and checks the requirements of an engine. Connects to no engine and changes nothing; the scratch
 * file has no name, so that it never remains. Uses at most 256 MiB of the device and, with a
 * model, half of the free memory at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/option_error.h"
#include "config/option_table.h"
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
    bool skip_storage;
    struct device_reads reads[PATHS_MAX]; /* those with direct reads */
    struct forward_devices devices;
};

static int take_expert_bytes(void *program, const char *value, struct error *error)
{
    struct doctor *d = program;
    if (!bytes_parse(value, &d->expert_bytes) || d->expert_bytes < PAGE_BYTES ||
        d->expert_bytes > EXPERT_BYTES_MAX)
        return error_set(error, ERR_BAD_INPUT, "--expert-bytes: '%.40s' is not from 4KiB to 16MiB",
                         value);
    return 0;
}

static int take_path(void *program, const char *value, struct error *error)
{
    struct doctor *d = program;
    if (d->path_count == PATHS_MAX)
        return error_set(error, ERR_BAD_INPUT, "--path: at most %d storage devices", PATHS_MAX);
    d->paths[d->path_count++] = value;
    return 0;
}

static int take_seconds(void *program, const char *value, struct error *error)
{
    struct doctor *d = program;
    int64_t number;
    if (option_i64("--seconds", value, 1, 600, &number, error) != 0)
        return -1;
    d->seconds = (double)number;
    return 0;
}

static int take_output(void *program, const char *value, struct error *error)
{
    struct doctor *d = program;
    if (strcmp(value, "json") == 0)
        d->form = FINDINGS_JSON;
    else if (strcmp(value, "text") != 0)
        return error_set(error, ERR_BAD_INPUT, "--output: '%.40s' is not text or json", value);
    return 0;
}

/* Another form than that of the text. */
static int take_form(void *program, int form, const char *value, struct error *error)
{
    struct doctor *d = program;
    (void)value, (void)error;
    d->form = (enum findings_form)form;
    return 0;
}

static const struct option_row rows[] = {
    {'m', "model", "FILE", OPTION_TEXT(struct doctor, model),
     "model: minimum and recommended budget, tokens per second, advice"},
    OPTION_OF_GROUP("budget"),
    {'p', "path", "DIR|FILE", OPTION_CALL(take_path),
     "storage device to measure, by a model file on it or a directory "
     "for a scratch file; repeatable (default: the model, else the "
     "current directory)"},
    {0, "expert-bytes", "N", OPTION_CALL(take_expert_bytes),
     "largest read: the size of one expert (default: that of the "
     "model, else 4MiB)"},
    {0, "seconds", "N", OPTION_CALL(take_seconds),
     "time for all storage devices together (default " OPTION_DIGITS(SECONDS_DEFAULT) ")"},
    {0, "no-device", NULL, OPTION_FLAG(struct doctor, skip_storage),
     "do not measure storage; then no speed is estimated unless "
     "all experts fit"},
    {0, "all", NULL, OPTION_NTH(take_form, FINDINGS_ALL), "all measurements"},
    {'o', "output", "text|json", OPTION_CALL(take_output), "format on stdout (default text)"},
    {0, "json", NULL, OPTION_NTH(take_form, FINDINGS_JSON), "the same as --output json"},
};

static const struct option_table options = {
    .command = "doctor",
    .before = "usage: sluice doctor [[-m] FILE] [--path DIR|FILE]... [options]\n"
              "\n"
              "Says whether a model fits this machine, with which budget, how fast it is, what\n"
              "limits it, and what to type next; then what explains it, and with --all every\n"
              "measurement of storage, memory, CPU and GPU. Without a model it describes the\n"
              "machine. It takes 10 to 30 seconds. Example:\n"
              "\n"
              "  sluice doctor -m model.gguf\n"
              "\n"
              "With --plan it also lists the presets that --preset auto chooses from, fastest\n"
              "first, at --budget and --max-loss. What is measured of GPUs is stored: with\n"
              "--model, later starts with --gpu choose the layers of the GPUs by it.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 26,
    .groups = {{"Parameters of the engine that would run the model:", params_options}},
};

static int parse(struct doctor *d, int argc, char **argv, struct error *error)
{
    params_defaults(&d->params);
    if (params_take_args(&d->params, &argc, argv, error) != 0)
        return -1;
    if (options_read(&options, d, argc, argv, error) != 0)
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
        struct storage_job job = {.path = d->paths[i],
                                  .expert_bytes = expert_bytes_of(d, memory_estimate),
                                  .chunk_bytes = align_down(d->params.io_size, PAGE_BYTES),
                                  .seconds = d->seconds / d->path_count};
        if (i > 0)
            snprintf(section, sizeof section, "device %u", i + 1);
        if (storage_examine(f, section, &job, &result, error) != 0)
            return -1;
        for (uint32_t k = 0; k < ESTIMATE_DEPTHS; k++)
            facts->read_bytes_per_s[k] += result.bytes_per_s[k];
        facts->chunk_bytes = result.chunk_bytes;
        facts->scratch = facts->scratch || result.scratch;
        if (result.reads.fd >= 0)
            d->reads[d->devices.count++] = result.reads;
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
    int rc = d->skip_storage ? 0 : examine_storage(f, d, memory_estimate, &facts, error);
    if (rc == 0) {
        progress(f, "reading memory, about 2 s");
        memory_examine(f, d->params.threads ? (unsigned)d->params.threads : host_cpus(), &facts);
        host_examine(f, &facts);
        struct gpu_seen gpu;
        gpu_examine(f, &d->params, &gpu);
        if (!memory_estimate) {
            gpu_store(f, &gpu, NULL);
            verdict_machine(f, &facts, host_available_bytes(), kernel_ops_select(NULL)->name,
                            host_cpus());
        } else {
            rc = model_examine(f, d->model, &d->params, memory_estimate, &facts, &gpu, &d->devices,
                               error);
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
    struct doctor d = {.seconds = SECONDS_DEFAULT, .devices.device = d.reads};
    struct error error;
    struct findings findings;
    if (parse(&d, argc, argv, &error) != 0)
        return report("doctor", &error);
    findings_open(&findings);
    progress_open(&findings);
    int rc = examine(&findings, &d, &error);
    progress_close(&findings);
    findings_close(&findings);
    for (uint32_t i = 0; i < d.devices.count; i++)
        close(d.reads[i].fd);
    return rc == 0 ? 0 : report("doctor", &error);
}
