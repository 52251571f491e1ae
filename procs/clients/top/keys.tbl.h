/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the screen, also the source of the help page. KEY(name, key, help): the handler is
 * key_<name> of screen.c. */
KEY(quit, 'q', "quit")
KEY(help, 'h', "show this page")
KEY(pause, 'p', "pause / resume")
KEY(sort, 's', "sort processes: start, cpu, memory, messages, restarts")
KEY(map, 'm', "map: resident precision or heat")
KEY(faster, '+', "refresh more often")
KEY(slower, '-', "refresh less often")
KEY(up, KEY_UP, "scroll the map up")
KEY(down, KEY_DOWN, "scroll the map down")
KEY(redraw, 'L' - '@', "redraw the screen")
#undef KEY
