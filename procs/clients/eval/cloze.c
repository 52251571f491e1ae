/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the items of a cloze task, and judges their answers. */
#include "procs/clients/eval/cloze.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

#define Z_95 1.959964

uint32_t cloze_context(uint32_t window)
{
    return window - window / 4;
}

uint32_t cloze_place(uint32_t item)
{
    return item % CLOZE_CHOICES;
}

static bool same_file(const struct offline_text *t, uint32_t a, uint32_t b)
{
    return !t->path || t->path[a] == t->path[b];
}

/* The first window after `first` that is of another file. */
static uint32_t file_end(const struct offline_text *t, uint32_t first)
{
    uint32_t end = first;
    while (end < t->windows && same_file(t, first, end))
        end++;
    return end;
}

/* Writes the windows of an item, of a file with windows [first, end). */
static void make_item(const struct offline_text *from, uint32_t item, uint32_t first, uint32_t end,
                      uint32_t *ids)
{
    uint32_t window = from->window, context = cloze_context(window), files = end - first;
    for (uint32_t c = 0; c < CLOZE_CHOICES; c++) {
        /* 0 for the place of the true one */
        uint32_t turn = (c + CLOZE_CHOICES - cloze_place(item)) % CLOZE_CHOICES;
        uint32_t distance = (uint32_t)((uint64_t)turn * files / CLOZE_CHOICES);
        uint32_t other = first + (item - first + distance) % files;
        memcpy(ids + (size_t)c * window, offline_window(from, item), context * sizeof *ids);
        memcpy(ids + (size_t)c * window + context, offline_window(from, other) + context,
               (window - context) * sizeof *ids);
    }
}

static int check(const struct offline_text *t, struct error *error)
{
    for (uint32_t first = 0, end; first < t->windows; first = end) {
        end = file_end(t, first);
        if (end - first < CLOZE_CHOICES)
            return error_set(error, ERR_BAD_INPUT,
                             "a text has %u windows of %u tokens, and --cloze takes continuations "
                             "from %d different ones; use a longer text, or more items",
                             end - first, t->window, CLOZE_CHOICES);
    }
    return 0;
}

int cloze_make(struct offline_text *text, struct error *error)
{
    if (check(text, error) != 0)
        return -1;
    uint32_t windows = text->windows * CLOZE_CHOICES;
    uint32_t *ids = malloc((size_t)windows * text->window * sizeof *ids);
    uint16_t *path = malloc(windows * sizeof *path);
    if (!ids || !path) {
        free(ids);
        free(path);
        return error_set(error, ERR_NO_MEMORY, "out of memory (%u items)", text->windows);
    }
    for (uint32_t first = 0, end; first < text->windows; first = end) {
        end = file_end(text, first);
        for (uint32_t i = first; i < end; i++)
            make_item(text, i, first, end, ids + (size_t)i * CLOZE_CHOICES * text->window);
    }
    for (uint32_t i = 0; i < windows; i++)
        path[i] = text->path ? text->path[i / CLOZE_CHOICES] : 0;
    free(text->ids);
    free(text->path);
    text->ids = ids;
    text->path = path;
    text->windows = windows;
    offline_text_rehash(text);
    return 0;
}

/* The most probable choice; CLOZE_CHOICES if two are. */
static uint32_t answer(const double *nll)
{
    uint32_t best = 0;
    bool tie = false;
    for (uint32_t c = 1; c < CLOZE_CHOICES; c++) {
        tie = nll[c] == nll[best] || (tie && nll[c] > nll[best]);
        best = nll[c] < nll[best] ? c : best;
    }
    return tie ? CLOZE_CHOICES : best;
}

struct cloze_result cloze_judge(const double *nll, const double *reference, uint32_t items)
{
    double n = items, right = 0, reference_right = 0, both = 0, same = 0;
    for (uint32_t i = 0; i < items; i++) {
        uint32_t a = answer(nll + (size_t)i * CLOZE_CHOICES);
        uint32_t b = answer(reference + (size_t)i * CLOZE_CHOICES), place = cloze_place(i);
        right += a == place;
        reference_right += b == place;
        both += a == place && b == place;
        same += a == b;
    }
    double won = right - both, lost = reference_right - both, by = won - lost;
    double half = Z_95 * sqrt(won + lost - by * by / n) / n;
    return (struct cloze_result){.right = right / n,
                                 .reference_right = reference_right / n,
                                 .low = by / n - half,
                                 .high = by / n + half,
                                 .same = same / n};
}

void cloze_keep_true(struct offline_losses *l, double *reference)
{
    sl_assert(l->windows % CLOZE_CHOICES == 0);
    l->windows /= CLOZE_CHOICES;
    l->top1_same = 0;
    for (uint32_t i = 0; i < l->windows; i++) {
        uint32_t from = i * CLOZE_CHOICES + cloze_place(i);
        l->nll[i] = l->nll[from];
        reference[i] = reference[from];
        if (!l->kld)
            continue;
        memmove(l->kld + (size_t)i * l->scored, l->kld + (size_t)from * l->scored,
                l->scored * sizeof *l->kld);
        l->same[i] = l->same[from];
        l->top1_same += l->same[i];
    }
}
