/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what compare.c and the loops of the libraries share. */
#ifndef SLUICE_BENCH_IO_COMPARE_H
#define SLUICE_BENCH_IO_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/random.h"
#include "lib/io/server/url.h"

struct compare {
    const char *url;
    struct io_url parsed;
    uint64_t file_bytes;
    uint32_t bytes, depth; /* of each read; reads in flight */
    char *buffer;          /* depth * bytes */
    struct random random;
    uint64_t end_ns; /* of this loop */
};

/* Where the next read begins. */
uint64_t compare_offset(struct compare *c);
bool compare_over(const struct compare *c);
_Noreturn void compare_fail(const char *what);

/* A connection of the library's own, with whatever a good loop needs. */
void library_open(struct compare *c);
/* Random reads at queue depth until compare_over, with as little else as the library permits. Bytes
 * that were read. */
uint64_t library_loop(struct compare *c);

#endif
