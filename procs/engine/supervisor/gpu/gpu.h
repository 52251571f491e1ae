/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of compute (--gpu): which there are, how many layers each has, and their statistics. */
#ifndef SLUICE_ENGINE_SUPERVISOR_GPU_GPU_H
#define SLUICE_ENGINE_SUPERVISOR_GPU_GPU_H

#include "procs/engine/supervisor/supervisor.h"

/* gpu.c: --gpu. Whether there are such GPUs, and the module for them. layout.c: then, with the
 * model, the layers of each and the layout of its memory. gpu_without: -1, or 0 with the CPU where
 * that is allowed (--gpu auto). stats.c: for compute, and for statistics: NULL without a GPU. */
bool gpu_required(const struct supervisor *s);
const char *gpu_test_module(const struct supervisor *s);
int gpu_without(struct supervisor *s, struct error *error);
int gpu_find(struct supervisor *s, struct error *error);
int gpu_lay_out(struct supervisor *s, struct error *error);
void gpu_publish(const struct supervisor *s, struct procs_gpus *out);
/* Groups of --threads threads in compute: for the layers on the CPU, and with each GPU for experts
 * that it has not (--gpu-policy). */
uint32_t gpu_thread_groups(const struct supervisor *s);
json_t *gpu_stats(struct supervisor *s);
json_t *gpu_choice_stats(
    const struct supervisor *s); /* NULL with --gpu off, and where no GPU can be used */
/* times.c: 0 with t->known, or without it and a line in the log; -1 with ERR_NO_MEMORY. For
 * gpu_times_close. */
int gpu_times_open(struct supervisor *s, struct gpu_times *t, struct error *error);
void gpu_times_close(struct gpu_times *t);
/* As planned now: seconds of a token, and of a layer of a GPU. */
double gpu_times_token(const struct supervisor *s, const struct gpu_times *t);
double gpu_times_layer(const struct supervisor *s, const struct gpu_times *t, uint32_t gpu);

#endif
