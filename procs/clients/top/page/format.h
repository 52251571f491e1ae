/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in few characters, for columns. Each returns `out`, which has 16 bytes. Pure
 * functions. */
#ifndef SLUICE_CLIENTS_TOP_PAGE_FORMAT_H
#define SLUICE_CLIENTS_TOP_PAGE_FORMAT_H

#include <stdint.h>

/* A number in five characters at most: "12.3", "1234", "12.3K". */
const char *format_number(double value, char out[16]);
/* A count, likewise: without a fraction unless it has a unit. */
const char *format_count(double value, char out[16]);
/* A share in five characters at most: "66.4%", "100%". */
const char *format_share(double share, char out[16]);
/* A time in eight characters at most: "850 us", "384.0 ms", "12.3 s". */
const char *format_us(double us, char out[16]);
/* A size in five characters: "552K", "4.2M", "1023M". */
const char *format_size(uint64_t bytes, char out[16]);

#endif
