/* SPDX-License-Identifier: Apache-2.0 */
/* Interactive display on a terminal with ncurses. */
#ifndef SLUICE_CLIENTS_TOP_SCREEN_H
#define SLUICE_CLIENTS_TOP_SCREEN_H

#include "lib/base/error.h"

/* Runs until q is pressed or a signal arrives. 0, or -1 with *error. */
int screen_run(const char *run, double interval, struct error *error);

#endif
