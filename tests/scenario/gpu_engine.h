/* SPDX-License-Identifier: Apache-2.0 */
/* Engines on a GPU that is memory of the process (tests/harness/cuda). */
#ifndef SLUICE_TESTS_SCENARIO_GPU_ENGINE_H
#define SLUICE_TESTS_SCENARIO_GPU_ENGINE_H

#include "tests/scenario/continued.h"

#define GPU_END_MS 60000
#define GPU_TOKENS 8
#define GPU_TRIAL  144 /* tokens until --gpu-policy auto has chosen */

extern char gpu_model[PATH_MAX]; /* of a test case */
extern const char *const
    gpu_qwen35moe[]; /* keys of a model of two layers, the first one with a recurrent state */

void gpu_fake(bool on); /* engines that start from now on have such GPUs */
/* The same by a copy in the directory of the test case, whose path is returned; and a file next to
 * it, which it looks for. */
void gpu_fake_copy(char path[PATH_MAX]);
void gpu_fake_file(const char *name, const char *text);
void gpu_fake_prompt(void); /* a GPU whose copies have always ended */
struct engine *gpu_start(const char *const options[]);
void gpu_reference(struct text *out); /* on the CPU */
/* The plan, and that compute has what is planned. */
void gpu_check_memory(struct engine *e);
uint64_t gpu_number(struct engine *e, const char *name); /* of "gpu" in the statistics */

/* Status 2, and one line with this text; returns the number that follows `after` in it. layers:
 * another option, or NULL. */
uint64_t gpu_rejected_with(const char *gpu, const char *budget, const char *layers,
                           const char *text, const char *after);
uint64_t gpu_rejected(const char *gpu, const char *budget, const char *text, const char *after);
/* The smallest budgets, for all layers and for the first one. */
uint64_t gpu_minimum(uint32_t layers);
uint64_t gpu_minimum_of_one(void);

#endif
