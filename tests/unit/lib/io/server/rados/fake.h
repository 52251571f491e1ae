/* SPDX-License-Identifier: Apache-2.0 */
/* A librados without a cluster, for tests of the backend: objects in memory, and operations that a
 * thread of its own answers, not at all, or with an error. */
#ifndef SLUICE_TESTS_FAKE_RADOS_H
#define SLUICE_TESTS_FAKE_RADOS_H

#include <stdbool.h>
#include <stdint.h>

/* An object of these bytes, which remain the caller's; one of this name is replaced by a newer
 * version. sizes: of its layout, as attributes; NULL: none. bytes NULL: it is removed. */
void fake_object(const char *name, const void *bytes, uint64_t size, const uint64_t sizes[4]);

/* Operations on this object get no answer; NULL: all are answered again. "": on any object. */
void fake_silent(const char *name);

/* Reads give this errno; connecting does, too, or alone. 0: they succeed. */
void fake_errors(int reads, int connecting);

/* The monitors of ceph.conf; static. NULL: it has none. */
void fake_monitors(const char *hosts);

/* What the last client was given. */
const char *fake_user(void);
const char *fake_setting(const char *key); /* NULL: not set */
const char *fake_pool(void);

/* Operations that were started, and that have not ended. */
unsigned fake_started(void), fake_open(void);

#endif
