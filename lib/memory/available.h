/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the machine, and of the memory cgroups that this process runs in. */
#ifndef SLUICE_MEMORY_AVAILABLE_H
#define SLUICE_MEMORY_AVAILABLE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum cgroup_version { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };

/* Where the memory controller of `version` is mounted. False: nowhere. */
bool cgroup_find_mount(enum cgroup_version version, char out[PATH_MAX]);

/* The cgroup of this process in that hierarchy, below its mount: "/a/b". False: none. */
bool cgroup_find_group(enum cgroup_version version, char out[PATH_MAX]);

/* Bytes that this process can still take: of the machine (MemAvailable), and within the limit of
 * every cgroup above it. Page cache of a cgroup is given back when memory is needed, so it does not
 * count as taken. UINT64_MAX: not known; 0: nothing is left. */
uint64_t memory_available(void);

/* The second of these alone; UINT64_MAX: no cgroup has a limit. */
uint64_t cgroup_available(void);

/* Both with /proc and the mounts below the directory `root`, "" for the real ones. */
uint64_t memory_available_at(const char *root);
uint64_t cgroup_available_at(const char *root);

/* Anonymous memory of this process; 0: not known. */
uint64_t memory_private(void);

#endif
