/* SPDX-License-Identifier: Apache-2.0 */
/* A loop of libnbd: asynchronous reads and nbd_poll. */
#include <libnbd.h>

#include "tests/bench/io/compare.h"

#define DEPTH_MAX 128

static struct nbd_handle *nbd;
static bool ended[DEPTH_MAX];

static int completed(void *arg, int *error)
{
    if (*error)
        compare_fail("a read of libnbd failed");
    *(bool *)arg = true;
    return 1;
}

void library_open(struct compare *c)
{
    nbd = nbd_create();
    if (!nbd || nbd_set_pread_initialize(nbd, false) != 0 || nbd_connect_uri(nbd, c->url) != 0)
        compare_fail(nbd_get_error());
}

static void start(struct compare *c, uint32_t i)
{
    nbd_completion_callback callback = {.callback = completed, .user_data = &ended[i]};
    ended[i] = false;
    if (nbd_aio_pread(nbd, c->buffer + (size_t)i * c->bytes, c->bytes, compare_offset(c), callback,
                      0) < 0)
        compare_fail(nbd_get_error());
}

uint64_t library_loop(struct compare *c)
{
    uint64_t sum = 0;
    uint32_t open = 0;
    bool idle[DEPTH_MAX] = {false};
    for (; open < c->depth; open++)
        start(c, open);
    while (open > 0) {
        bool over = compare_over(c);
        for (uint32_t i = 0; i < c->depth; i++) {
            if (!ended[i] || idle[i])
                continue;
            sum += c->bytes;
            idle[i] = over;
            open -= over;
            if (!over)
                start(c, i);
        }
        if (open > 0 && nbd_poll(nbd, -1) < 0)
            compare_fail(nbd_get_error());
    }
    return sum;
}
