/* SPDX-License-Identifier: Apache-2.0 */
/* Run directories of private engines. They are named after the client's pid, so that a later client
 * can check whether the owner still exists. */
#ifndef SLUICE_CLIENTS_COMMON_PRIVATE_ENGINE_H
#define SLUICE_CLIENTS_COMMON_PRIVATE_ENGINE_H

#include <sys/types.h>

/* The client's pid in the name of such a run ("own-123", "bench-123-1"); 0: not such a name. */
pid_t private_instance_pid(const char *run);

/* Removes the run directory of this client's private engine, unless a process still holds its lock.
 * Runs with other names are kept. */
void private_instance_remove(const char *run);

/* Removes run directories of clients that have exited, e.g. after kill -9. */
void private_instances_sweep(void);

#endif
