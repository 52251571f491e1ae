/* SPDX-License-Identifier: Apache-2.0 */
/* Says where the bytes of a file are in the objects of a RADOS pool: one object of its name, or
 * several as libradosstriper and `rados --striper put` make them. Those have the names NAME.%016x,
 * and the first of them has the layout and the size as attributes, in decimal (Ceph 16,
 * src/libradosstriper/RadosStriperImpl.cc; the arithmetic: Striper::file_to_extents).
 * Pure: nothing is read here. */
#ifndef SLUICE_IO_SERVER_RADOS_LAYOUT_H
#define SLUICE_IO_SERVER_RADOS_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/bytes.h"
#include "lib/io/server/url.h"

#define LAYOUT_NAME_BYTES  (IO_URL_TEXT_BYTES + 20)
#define LAYOUT_VALUE_BYTES 24 /* an attribute, with a NUL */

enum layout_attribute {
    LAYOUT_SIZE,
    LAYOUT_OBJECT_SIZE,
    LAYOUT_STRIPE_UNIT,
    LAYOUT_STRIPE_COUNT,
    LAYOUT_ATTRIBUTES
};
extern const char *const layout_attributes[LAYOUT_ATTRIBUTES]; /* their names */

struct layout {
    bool striped; /* else one object; the rest but the size is unused */
    uint64_t size;
    uint64_t object_size, stripe_unit, stripe_count;
};

/* A run of bytes of the file that is one in an object, too. */
struct extent {
    uint64_t object; /* number */
    uint64_t offset; /* in the object */
    uint64_t bytes;
};

/* A run of bytes that is one in an object is at least as long as this, but at an end: a read of a
 * few objects must contain a page. */
#define LAYOUT_RUN_BYTES_MIN (2 * KIB)

/* From the values of the attributes. NULL; or what is wrong, and *layout is not changed. */
const char *layout_take(struct layout *layout, char value[LAYOUT_ATTRIBUTES][LAYOUT_VALUE_BYTES]);

/* The longest extent that begins at this offset, at most `bytes` of it. */
struct extent layout_extent(const struct layout *layout, uint64_t offset, uint64_t bytes);

/* The name of an object of the file `name`. */
void layout_object(const struct layout *layout, const char *name, uint64_t object,
                   char to[LAYOUT_NAME_BYTES]);

#endif
