/* SPDX-License-Identifier: Apache-2.0 */
/* All run directories of a user: those of running engines, and what engines that were killed
 * left. */
#ifndef SLUICE_IPC_RUN_DIRS_H
#define SLUICE_IPC_RUN_DIRS_H

#include "ipc/endpoints.h"

/* Calls visit with the name of every directory whose engine runs. */
void run_dirs_running(void (*visit)(const char *name, void *arg), void *arg);

/* Removes the files that an engine makes in its run directory, but not its lock. Through the
 * descriptor and only names of this program: a user who can exchange the directory's path must not
 * choose what is removed. */
void run_dir_files_remove(int dir_fd);

/* Removes the run directories of engines that have exited: directories of this user with a lock
 * file that no process has locked and whose process is gone. Only names that an engine makes are
 * removed; any other file keeps its directory. The directory named `except` is left. Returns the
 * number removed. */
unsigned run_dirs_sweep(const char *except);

#endif
