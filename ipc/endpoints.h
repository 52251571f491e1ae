/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints: socket paths inside the run directory, all defined here. */
#ifndef SLUICE_IPC_ENDPOINTS_H
#define SLUICE_IPC_ENDPOINTS_H

#include <stddef.h>

#include <stdbool.h>

#include "lib/base/error.h"

#define RUN_NAME_DEFAULT "default"
#define RUN_NAME_MAX     32  /* letters, digits, '.', '_', '-'; not starting with '.' */
#define ENDPOINT_BYTES   108 /* sun_path */
#define RUN_LOCK_FILE                                                                              \
    "lock" /* flock'ed by every process of an engine; contains the supervisor's pid */

/* X(NAME, file, listener, dialer). %u in a file name is a loader number or service number. */
#define ENDPOINTS(X)                                                                               \
    X(CONTROL, "control.sock", "supervisor", "clients (JSON)")                                     \
    X(ENGINE, "engine.sock", "compute", "clients (JSON)")                                          \
    X(CACHE_COMPUTE, "cache-compute.sock", "cache", "compute")                                     \
    X(CACHE_PREDICTOR, "cache-predictor.sock", "cache", "predictor")                               \
    X(CACHE_LOADER, "cache-loader.%u.sock", "cache", "loader")                                     \
    X(SUPERVISOR_CHILD, "supervisor.%u.sock", "supervisor", "the child of that process-table row")

enum endpoint {
#define X(name, file, listener, dialer) ENDPOINT_##name,
    ENDPOINTS(X)
#undef X
        ENDPOINT__COUNT
};

/* Path of the run directory of a name: $SLUICE_RUN_DIR/NAME, else $XDG_RUNTIME_DIR/sluice/NAME,
 * else /tmp/sluice-UID/NAME. Does not create it. -1 with ERR_BAD_INPUT for a bad name or a path too
 * long for sockets; the message names the cause. */
int run_dir_path(const char *run_name, char out[ENDPOINT_BYTES], struct error *error);

/* Creates the directory and its parents with mode 0700; checks owner and mode of existing ones. */
int run_dir_create(const char *run_dir, struct error *error);

/* Full path of an endpoint in a run directory; number fills %u. -1 when too long. */
int endpoint_path(const char *run_dir, enum endpoint endpoint, unsigned number,
                  char out[ENDPOINT_BYTES], struct error *error);

/* Whether an engine makes sockets of this file name. */
bool endpoint_is_file(const char *name);

/* Opens a run directory, not through a link; it must belong to this user. Returns the descriptor
 * (close-on-exec) or -1. */
int run_dir_open(const char *run_dir, struct error *error);

/* Locks a run directory for an engine, retrying for wait_ms, and writes this process's pid into the
 * lock file. Returns the descriptor (close-on-exec; children get duplicates) or -1; ERR_BUSY names
 * the holder. */
int run_dir_lock(const char *run_dir, unsigned wait_ms, struct error *error);

/* State of a run directory. LOCKED: an engine runs; GONE: it has exited; UNKNOWN: no readable lock
 * file. */
enum run_state { RUN_UNKNOWN, RUN_GONE, RUN_LOCKED };
enum run_state run_dir_state(const char *run_dir);

#endif
