/* Storage devices, as the supervisor sees them: what each was told to be like, which copies its
 * loader has, and which of these are in quarantine (shm/run_devices.h). */
#include "config/devices.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/supervisor/supervisor.h"

int devices_resolve(struct supervisor *s, struct error *error)
{
    struct params *p = &s->params;
    uint32_t count = devices_count(p);
    if (count == 0)
        return 0;
    if (s->model->stripe_count == 0 && p->loaders == 1 && count <= SERVICE_LOADERS_MAX)
        p->loaders = count;
    if (count != p->loaders)
        return error_set(error, ERR_BAD_INPUT,
                         "--devices names %" PRIu32 " devices for %" PRIu64
                         " loaders; give one for each",
                         count, p->loaders);
    for (uint32_t i = 0; i < count; i++)
        if (devices_take(p, i, &s->device, NULL, error) != 0)
            return -1;
    return 0;
}

const struct params *device_params(struct supervisor *s, uint32_t loader)
{
    struct error error;
    int rc = devices_take(&s->params, loader, &s->device, NULL, &error);
    sl_assert(rc == 0); /* devices_resolve looked at all of them */
    return &s->device;
}
