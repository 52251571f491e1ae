/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of doctor: findings, and the checks that make them. */
#ifndef SLUICE_TOOLS_DOCTOR_DOCTOR_H
#define SLUICE_TOOLS_DOCTOR_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/params.h"
#include "lib/base/error.h"
#include "lib/model/index/model_index.h"
#include "lib/rates/rates.h"
#include "lib/tensor/tensor_type.h"
#include "procs/tools/doctor/estimate.h"

/* ---- findings.c: text lines and fields of the JSON document, made by the same calls; progress
 * ---- */

struct progress;

struct findings {
    json_t *root;              /* {"section": {"name": value, ...}, ...}, and "lines" in order */
    struct progress *progress; /* NULL: none is shown */
};

void findings_open(struct findings *f);
void findings_close(struct findings *f);

/* Adds one finding: `value` to the document under section and name (takes the reference), and a
 * line with `text` (NULL: the value) and `meaning`, its consequence for sluice (a printf
 * format). */
void finding(struct findings *f, const char *section, const char *name, json_t *value,
             const char *text, const char *meaning, ...) __attribute__((format(printf, 6, 7)));

/* With two significant digits, since an estimate bears no more: 1800, 18, 1.8, 0.018. */
#define DIGITS_BYTES 24
const char *two_digits(double value, char out[DIGITS_BYTES]);

/* Adds a field of the document without a line. Takes the reference. */
void finding_quiet(struct findings *f, const char *section, const char *name, json_t *value);

/* FINDINGS_SHORT: the verdict and the sections that explain it. Lines of text break at the
 * terminal's width. */
enum findings_form { FINDINGS_SHORT, FINDINGS_ALL, FINDINGS_JSON };
void findings_print(const struct findings *f, enum findings_form form);

/* Shows the current step on stderr: on a terminal one line that also counts the seconds, else a
 * line for each call. Without progress_open nothing is shown. */
void progress_open(struct findings *f);
void progress(struct findings *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void progress_close(struct findings *f);

/* ---- verdict.c: what the measurements mean, in five lines; section "verdict" ---- */

struct verdict {
    const char *path;
    const struct model_facts *model;
    const struct host_facts *host;
    const struct estimate *estimates; /* [ESTIMATE_SHARES] */
    uint64_t budget_given;            /* 0: the recommended one */
    uint64_t ctx_size;
    bool reads_known; /* a storage device was measured */
};
void verdict_model(struct findings *f, const struct verdict *v);
/* Without a model. */
void verdict_machine(struct findings *f, const struct host_facts *a, uint64_t available,
                     const char *isa, unsigned cpus);

/* ---- checks ---- */

struct storage_job {
    const char *path;      /* directory (a scratch file is created in it) or file */
    uint64_t expert_bytes; /* the largest read size */
    uint64_t chunk_bytes;  /* size of a loader's reads, whole pages */
    double seconds;        /* for all cells together */
};

/* A device as loaders read it; both borrowed. */
struct device_reads {
    int fd; /* O_DIRECT */
    uint32_t chunk_bytes;
    uint64_t bytes; /* of the file; at least chunk_bytes */
    const struct io_backend *backend;
};

struct storage_result {
    double bytes_per_s[ESTIMATE_DEPTHS]; /* of chunks, the best method, per depth */
    uint64_t chunk_bytes;
    bool scratch;
    struct device_reads reads; /* fd: for close(); -1: no direct reads */
};

/* host.c: system facts; also fills the fields of `facts` that the advice needs. */
void host_examine(struct findings *f, struct host_facts *facts);

/* gpu.c: GPUs of the NVIDIA driver, the CUDA module, what can be measured of the GPUs of `params`
 * (--gpu off and auto: the first); *seen: the rates of those that were measured. */
#define DOCTOR_GPUS_MAX 16
struct gpu_seen {
    uint32_t count;
    struct rates_gpu gpu[DOCTOR_GPUS_MAX];
};
void gpu_examine(struct findings *f, const struct params *params, struct gpu_seen *seen);

/* gpu_model.c: stores the rates of this machine for later starts and for bench (lib/rates); cpu may
 * be NULL. */
void gpu_store(struct findings *f, const struct gpu_seen *seen, const struct rates_cpu *cpu);
/* A model on the GPUs: what --gpu-budget of the first one holds, the layers that an engine would
 * have on them, and its speed. Rates are stored already. */
struct gpu_model {
    const char *path;
    const struct model_index *index;
    const struct model_facts *facts;
    const struct host_facts *host;
    const struct cost_cpu *cpu;
};
int gpu_model_report(struct findings *f, const struct gpu_seen *seen, const struct gpu_model *m,
                     const struct params *params, struct error *error);

/* memory.c: read bandwidth of one thread and of `threads`, in bytes/s; takes about 1.5 s. */
void memory_examine(struct findings *f, unsigned threads, struct host_facts *facts);
/* Bytes per second that so many threads read of an array of `bytes`; takes about 0.6 s. 0: there is
 * no memory for it. */
double memory_rate(uint64_t bytes, unsigned threads);

/* storage.c: read bandwidth by size, depth and read method, reported in the given section. The
 * scratch file is removed. -1 with an error. */
int storage_examine(struct findings *f, const char *section, const struct storage_job *job,
                    struct storage_result *result, struct error *error);

/* forward: seconds per token with everything resident, with the threads and kernels of `params`:
 * decode at up to 128 tokens of context, prefill of up to 512 tokens in chunks, and what decode
 * takes more with a context of params->ctx_size. Takes up to 2.75 times `bytes` of memory, and
 * about 8 s. */
struct forward_speed {
    double decode_s, prefill_s; /* 0: unknown */
    double experts_s, output_s; /* of decode_s */
    double context_s;           /* in addition to decode_s */
    uint32_t context_measured;  /* tokens of context that it was measured with; 0: none */
    uint32_t chunk;             /* tokens per pass of prefill */
    /* While the devices are read: decode takes so many times as long, beside so many bytes per
     * second. 0: unknown. */
    double slowdown, busy_bytes_per_s;
};
struct forward_devices {
    const struct device_reads *device; /* [count] */
    uint32_t count;
};
int forward_measure(const struct model_index *index, const struct params *params, uint64_t bytes,
                    const struct forward_devices *devices, struct forward_speed *out,
                    struct error *error);

/* model.c: the memory estimate of the budget ledger for a model (new reference; NULL with an
 * error), and the findings made from it. */
json_t *model_memory_estimate(const char *model, const struct params *params, struct error *error);
struct model_facts model_facts_of(const json_t *memory_estimate);
int model_examine(struct findings *f, const char *model, const struct params *params,
                  const json_t *memory_estimate, struct host_facts *facts,
                  const struct gpu_seen *gpu, const struct forward_devices *devices,
                  struct error *error);

/* ranking.c: what the preset auto would run at this budget and loss, by the predictions of --plan,
 * fastest first. */
void ranking_report(struct findings *f, const struct model_facts *m, const struct host_facts *a,
                    const struct params *params, const json_t *memory_estimate);

/* CPUs on which this process may run. */
unsigned host_cpus(void);

/* All caches of the last level together; 0: unknown. */
uint64_t host_cache_bytes(void);

/* The memory that can be used without swapping, within the memory cgroups of this process; 0: not
 * known. */
uint64_t host_available_bytes(void);

/* Memory to stream through so that the caches do not help, at most a quarter of what is free. */
uint64_t host_stream_bytes(void);

#endif
