/* Keys of the screen. KEY(name, key, help): the handler is key_<name> of screen.c. What is shown by
 * 'h' is made from it. */
KEY(quit, 'q', "leave")
KEY(help, 'h', "this page")
KEY(pause, 'p', "stand still, and go on")
KEY(sort, 's', "sort processes: start, cpu, memory, messages, restarts")
KEY(map, 'm', "map: tier that is resident, or heat")
KEY(faster, '+', "look more often")
KEY(slower, '-', "look less often")
KEY(up, KEY_UP, "move the map up")
KEY(down, KEY_DOWN, "move the map down")
KEY(redraw, 'L' - '@', "draw the screen anew")
#undef KEY
