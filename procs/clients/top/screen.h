/* The page on a terminal: ncurses, keys, and looking again and again. */
#ifndef SLUICE_CLIENTS_TOP_SCREEN_H
#define SLUICE_CLIENTS_TOP_SCREEN_H

#include "lib/base/error.h"

/* Until the person leaves or a signal comes. 0, or -1 with *error. */
int screen_run(const char *run, double interval, struct error *error);

#endif
