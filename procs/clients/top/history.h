/* SPDX-License-Identifier: Apache-2.0 */
/* History of the last samples for graphs: a ring. */
#ifndef SLUICE_CLIENTS_TOP_HISTORY_H
#define SLUICE_CLIENTS_TOP_HISTORY_H

#include "procs/clients/top/page/canvas.h"
#include "procs/clients/top/rates.h"

#define HISTORY_MOMENTS 512

struct moment {
    double tokens_per_s, bytes_per_s, hit;
};

struct history {
    uint64_t count; /* total added */
    struct moment at[HISTORY_MOMENTS];
};

void history_add(struct history *h, const struct rates *f);

/* Draws as many graphs as fit, the newest sample at the right. */
void history_draw(const struct history *h, struct canvas *c, unsigned row, unsigned rows,
                  unsigned columns);

#endif
