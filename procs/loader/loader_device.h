/* The file a loader reads: the model itself or a copy of it on another device. Knows whether it
 * still is the file that was inspected, and comes back by itself when the right file does. */
#ifndef SLUICE_LOADER_DEVICE_H
#define SLUICE_LOADER_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/params.h"
#include "lib/model/model_index.h"

struct device {
    char path[1024];
    int fd; /* -1: not open */
    bool want_direct, direct;
    bool gone; /* not the inspected file: nothing may be read from it */
    uint64_t next_check_ns;
    const struct model_file_id *inspected; /* borrowed from the model segment */
    struct model_file_id id;               /* of the open file: its own when it is a copy */
};

/* Opens and checks. A file that cannot be used leaves the device `gone`, with the reason logged. */
void device_open(struct device *d, const char *path, bool direct,
                 const struct model_file_id *inspected);

/* Once a second, and at once after device_suspect. `idle`: no read is in flight, so that the
 * descriptor may be replaced. */
void device_tend(struct device *d, uint64_t now_ns, bool idle);
void device_suspect(struct device *d);

/* The file system takes no direct reads after all: go on through the page cache. */
void device_fall_back(struct device *d);

/* After a buffered read: the page cache it caused is dropped again. */
void device_drop_cache(const struct device *d, uint64_t offset, uint64_t bytes);

#endif
