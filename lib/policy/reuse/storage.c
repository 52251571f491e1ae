/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what is worth reading from storage, and when a prefix is written to it. */
#include "lib/policy/reuse/reuse.h"

#define OPEN_NS        2000000ull    /* a file is opened, and its head and tokens are read */
#define DELAY_NS       1000000000ull /* at least */
#define DELAY_BYTES_NS 4             /* per byte: a gigabyte 4 s */
#define DELAY_LITTLE   8             /* times longer when less than an eighth is new */

bool reuse_reads(uint64_t cost_ns, uint64_t bytes, double bytes_per_ns)
{
    return (double)cost_ns > (double)OPEN_NS + (double)bytes / bytes_per_ns;
}

uint64_t reuse_store_delay_ns(uint64_t bytes, uint32_t rows, uint32_t stored)
{
    uint64_t delay = DELAY_NS + bytes * DELAY_BYTES_NS;
    bool little = stored > 0 && (rows - stored) < rows / 8;
    return little ? delay * DELAY_LITTLE : delay;
}
