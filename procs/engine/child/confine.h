/* SPDX-License-Identifier: Apache-2.0 */
/* The sandbox of a child (lib/sandbox): which files its service needs, and when each part starts.
 *
 * Called by the child runtime: files before the second thread starts, system calls when the process
 * is ready. Parameter sandbox: off: nothing happens; require: what is missing ends the process. The
 * parts in effect are in the process table. A forbidden call is the process's exit message. */
#ifndef SLUICE_ENGINE_CHILD_CONFINE_H
#define SLUICE_ENGINE_CHILD_CONFINE_H

#include "procs/engine/child/child.h"

void confine_files(struct child *child);
void confine_calls(struct child *child);

#endif
