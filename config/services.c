/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up rows of the table of child processes. */
#include "config/services.h"

#include <stddef.h>

#include "config/params.h"

static const struct service_info table[] = {
#define SERVICE(id, name, program, ready_ms, after, essential, oom)                                \
    {SERVICE_##id, name, program, ready_ms, after, essential, oom},
#include "config/services.tbl.h"
};

const struct service_info *service_info(enum service service)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].service == service)
            return &table[i];
    return NULL;
}

const char *service_name(enum service service)
{
    const struct service_info *info = service_info(service);
    return info ? info->name : "supervisor";
}

uint32_t service_count(enum service service, const struct params *params)
{
    switch (service) {
    case SERVICE_LOADER: return (uint32_t)params->loaders;
    case SERVICE_RECORDER: return params->trace[0] != '\0';
    case SERVICE_GATEWAY: return params->http[0] != '\0';
    default: return 1;
    }
}
