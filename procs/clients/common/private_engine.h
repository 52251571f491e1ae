/* Runs a client makes for itself: named after it, so that whoever finds the directory of one knows
 * whether anybody can still want it. */
#ifndef SLUICE_CLIENTS_COMMON_PRIVATE_ENGINE_H
#define SLUICE_CLIENTS_COMMON_PRIVATE_ENGINE_H

#include <sys/types.h>

/* The client's pid in the name of such a run ("own-123", "bench-123-1"); 0: another kind of name.
 */
pid_t own_run_pid(const char *run);

/* Removes the directory of this client's own run, once no process of its engine holds it. Runs with
 * names that people gave stay. */
void own_run_remove(const char *run);

/* Removes those of clients that are gone, as kill -9 leaves them. */
void own_runs_sweep(void);

#endif
