/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on sizes: alignment, overflow-checked sums, parsing and formatting. */
#ifndef SLUICE_BASE_BYTES_H
#define SLUICE_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_BYTES                                                                                 \
    4096u /* unit of O_DIRECT, hole-punching and quota; compared with sysconf at start */
#define HUGE_PAGE_BYTES ((uint64_t)2 << 20) /* on hosts with 4 KiB pages */
#define KIB             ((uint64_t)1 << 10)
#define MIB             ((uint64_t)1 << 20)
#define GIB             ((uint64_t)1 << 30)
#define ARRAY_LEN(a)    (sizeof(a) / sizeof((a)[0]))

static inline uint64_t align_down(uint64_t x, uint64_t unit)
{
    return x - x % unit;
}

static inline uint64_t align_up(uint64_t x, uint64_t unit)
{
    return align_down(x + unit - 1, unit);
}

static inline bool add_overflows(uint64_t a, uint64_t b, uint64_t *sum)
{
    return __builtin_add_overflow(a, b, sum);
}

static inline bool mul_overflows(uint64_t a, uint64_t b, uint64_t *product)
{
    return __builtin_mul_overflow(a, b, product);
}

/* "4GiB", "512MiB", "64KiB", "4G", "4GB" (decimal), "1.5GiB", plain bytes. False when malformed or
 * too large. */
bool bytes_parse(const char *text, uint64_t *bytes);

/* "500MB/s", "1GiB/s"; "/s" is optional. Bytes per second, > 0. */
bool speed_parse(const char *text, double *bytes_per_s);

/* "12.5%" or "12.5" -> 12.5, 0 < value <= 100. */
bool percent_parse(const char *text, double *percent);

/* `percent` of `whole`, rounded down. 12.5 % of 256 is 32 and 29 % of 100 is 29: the percentage
 * counts as a decimal number of six places, which a double is not exactly. 0 < percent <= 100. */
uint64_t percent_of(double percent, uint64_t whole);

/* Formats a size as "1.5 GiB": at most 15 characters and NUL. Returns buf. */
const char *bytes_format(uint64_t bytes, char buf[16]);

#endif
