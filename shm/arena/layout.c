/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the arena into a region for dense weights and one per size class of experts. */
#include "lib/base/assert.h"
#include "shm/arena/arena.h"

/* Counts a slot in the class of its size; classes stay in ascending order. False when full. */
static bool count_slot(struct arena_layout *layout, uint64_t slot_bytes)
{
    uint32_t at = 0;
    while (at < layout->classes && layout->class[at].slot_bytes < slot_bytes)
        at++;
    if (at < layout->classes && layout->class[at].slot_bytes == slot_bytes) {
        layout->class[at].slots++;
        return true;
    }
    if (layout->classes == ARENA_CLASSES_MAX)
        return false;
    for (uint32_t i = layout->classes; i > at; i--)
        layout->class[i] = layout->class[i - 1];
    layout->class[at] =
        (struct arena_class){.slot_bytes = slot_bytes, .stride_bytes = slot_bytes, .slots = 1};
    if (arena_class_huge(&layout->class[at]))
        layout->class[at].stride_bytes = align_up(slot_bytes, HUGE_PAGE_BYTES);
    layout->classes++;
    return true;
}

/* Start (*at) and end (*end) of a dense entry placed at or after `at`. A large one does not share
 * its huge pages. False on overflow. */
static bool layout_dense(uint64_t slot_bytes, uint64_t *at, uint64_t *end)
{
    bool huge = slot_bytes >= ARENA_HUGE_MIN;
    if (*at > (uint64_t)INT64_MAX || slot_bytes > (uint64_t)INT64_MAX)
        return false;
    *at = huge ? align_up(*at, HUGE_PAGE_BYTES) : *at;
    *end = *at + (huge ? align_up(slot_bytes, HUGE_PAGE_BYTES) : slot_bytes);
    return true;
}

/* Places the regions one after the other; false when the file would exceed the maximum file
 * size. */
static bool layout_regions(struct arena_layout *layout)
{
    uint64_t at = layout->dense_offset;
    bool over = add_overflows(at, layout->dense_region_bytes, &at);
    for (uint32_t i = 0; i < layout->classes; i++) {
        struct arena_class *class = &layout->class[i];
        uint64_t bytes;
        over |= at > (uint64_t)INT64_MAX;
        if (arena_class_huge(class) && !over)
            at = align_up(at, HUGE_PAGE_BYTES);
        class->region_offset = at;
        over |= mul_overflows(class->stride_bytes, class->slots, &bytes);
        over |= add_overflows(at, bytes, &at);
    }
    layout->bytes = at;
    return !over && at <= (uint64_t)INT64_MAX;
}

int arena_layout_make(const struct model_index *model, struct arena_layout *layout,
                      struct error *error)
{
    *layout = (struct arena_layout){.dense_offset = PAGE_BYTES};
    const struct model_entry *entries = model_index_entries(model);
    uint64_t dense_end = layout->dense_offset;
    for (uint32_t i = 0; i < model_experts_end(model); i++) {
        uint64_t bytes = entries[i].slot_bytes;
        if (i == model_table_entry(model))
            continue;
        if (bytes == 0 && entries[i].extents == 0) /* in a layer without experts */
            continue;
        if (bytes == 0 || bytes % PAGE_BYTES != 0 || bytes > (uint64_t)INT64_MAX)
            return error_set(error, ERR_BAD_INPUT, "entry %u: invalid slot of %llu bytes", i,
                             (unsigned long long)bytes);
        if (i < model->dense_count) {
            uint64_t at = dense_end;
            if (!layout_dense(bytes, &at, &dense_end))
                return error_set(error, ERR_BAD_INPUT, "the dense tensors are too large");
        } else if (entries[i].extents > 0 && !count_slot(layout, bytes)) { /* absent: no slot */
            return error_set(error, ERR_BAD_INPUT,
                             "the model has more than %d different expert sizes",
                             ARENA_CLASSES_MAX);
        }
    }
    layout->pages_offset = dense_end;
    if (add_overflows(dense_end, (uint64_t)model->page_count * PAGE_BYTES, &dense_end))
        return error_set(error, ERR_BAD_INPUT, "the dense tensors are too large");
    layout->dense_region_bytes = dense_end - layout->dense_offset;
    if (!layout_regions(layout))
        return error_set(error, ERR_BAD_INPUT,
                         "the model exceeds the maximum file size of the arena");
    return 0;
}

uint64_t arena_dense_offset(const struct model_index *model, const struct arena_layout *layout,
                            uint32_t entry)
{
    const struct model_entry *entries = model_index_entries(model);
    uint64_t at = layout->dense_offset, end = at;
    if (entry >= model_experts_end(model))
        return layout->pages_offset + (uint64_t)(entry - model_experts_end(model)) * PAGE_BYTES;
    sl_assert(entry < model->dense_count);
    if (entry == model_table_entry(model))
        return 0;
    for (uint32_t i = 0; i <= entry; i++) {
        if (i == model_table_entry(model))
            continue;
        at = end;
        bool fits = layout_dense(entries[i].slot_bytes, &at, &end);
        sl_assert(fits); /* checked by arena_layout_make */
    }
    return at;
}

bool arena_class_has(const struct arena_class *class, uint64_t offset)
{
    return offset >= class->region_offset &&
           (offset - class->region_offset) % class->stride_bytes == 0 &&
           (offset - class->region_offset) / class->stride_bytes < class->slots;
}

uint32_t arena_class_of(const struct arena_layout *layout, uint64_t slot_bytes)
{
    uint32_t low = 0, high = layout->classes;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (layout->class[middle].slot_bytes < slot_bytes)
            low = middle + 1;
        else
            high = middle;
    }
    sl_assert(low < layout->classes && layout->class[low].slot_bytes == slot_bytes);
    return low;
}
