/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of striped files. */
#include "lib/io/server/rados/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_DIGITS       18 /* below 2^63 */
#define OBJECT_BYTES_MAX  (1ull << 32)
#define STRIPES_COUNT_MAX (1ull << 20)

const char *const layout_attributes[LAYOUT_ATTRIBUTES] = {
    "striper.size", "striper.layout.object_size", "striper.layout.stripe_unit",
    "striper.layout.stripe_count"};

static bool number(const char *text, uint64_t *to)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > SIZE_DIGITS || text[digits])
        return false;
    *to = strtoull(text, NULL, 10);
    return true;
}

const char *layout_take(struct layout *layout, char value[LAYOUT_ATTRIBUTES][LAYOUT_VALUE_BYTES])
{
    struct layout l = {.striped = true};
    bool right = number(value[LAYOUT_SIZE], &l.size) &&
                 number(value[LAYOUT_OBJECT_SIZE], &l.object_size) &&
                 number(value[LAYOUT_STRIPE_UNIT], &l.stripe_unit) &&
                 number(value[LAYOUT_STRIPE_COUNT], &l.stripe_count);
    if (!right || l.stripe_unit == 0 || l.object_size == 0 || l.object_size > OBJECT_BYTES_MAX ||
        l.object_size % l.stripe_unit != 0 || l.stripe_count == 0 ||
        l.stripe_count > STRIPES_COUNT_MAX)
        return "its layout is malformed";
    if ((l.stripe_count == 1 ? l.object_size : l.stripe_unit) < LAYOUT_RUN_BYTES_MIN)
        return "its stripes have less than 2 KiB";
    *layout = l;
    return NULL;
}

struct extent layout_extent(const struct layout *layout, uint64_t offset, uint64_t bytes)
{
    const struct layout *l = layout;
    if (!l->striped)
        return (struct extent){.offset = offset, .bytes = bytes};
    uint64_t unit = offset / l->stripe_unit, in_unit = offset % l->stripe_unit;
    uint64_t stripe = unit / l->stripe_count, units = l->object_size / l->stripe_unit;
    struct extent e = {.object = stripe / units * l->stripe_count + unit % l->stripe_count,
                       .offset = stripe % units * l->stripe_unit + in_unit};
    uint64_t most = l->stripe_count == 1 ? l->object_size - e.offset : l->stripe_unit - in_unit;
    e.bytes = bytes < most ? bytes : most;
    return e;
}

void layout_object(const struct layout *layout, const char *name, uint64_t object,
                   char to[LAYOUT_NAME_BYTES])
{
    if (layout->striped)
        snprintf(to, LAYOUT_NAME_BYTES, "%s.%016" PRIx64, name, object);
    else
        snprintf(to, LAYOUT_NAME_BYTES, "%s", name);
}
