/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/text/printable.h"

struct printable printable(const char *text, size_t bytes)
{
    struct printable w;
    size_t n = bytes < sizeof w.text - 1 ? bytes : sizeof w.text - 1;
    for (size_t i = 0; i < n; i++)
        w.text[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    w.text[n] = 0;
    return w;
}
