/* SPDX-License-Identifier: Apache-2.0 */
/* Services of an engine: the table of child processes (config/services.tbl.h) and the rows of the
 * process table. */
#ifndef SLUICE_CONFIG_SERVICES_H
#define SLUICE_CONFIG_SERVICES_H

#include <stdint.h>

struct params;

#define SERVICE_LOADERS_MAX 16

enum service {
    SERVICE_SUPERVISOR, /* row 0; not in the table: it starts the others */
#define SERVICE(id, name, program, ready_ms, after, essential, oom) SERVICE_##id,
#include "config/services.tbl.h"
    SERVICE__COUNT
};

/* One row per service; SERVICE_LOADERS_MAX rows for the loaders. */
#define SERVICE_PROCESSES_MAX (SERVICE__COUNT - 1 + SERVICE_LOADERS_MAX)

struct service_info {
    enum service service;
    const char *name, *program;
    uint32_t ready_ms, after, essential, oom;
};

/* NULL for SERVICE_SUPERVISOR. */
const struct service_info *service_info(enum service service);
const char *service_name(enum service service);

/* Number of processes of a service in an engine with these parameters. */
uint32_t service_count(enum service service, const struct params *params);

#endif
