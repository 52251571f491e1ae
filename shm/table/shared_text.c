/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads a line of text under a version number. */
#include "shm/table/shared_text.h"

#include <string.h>

#include "lib/base/bytes.h"

#define TRIES 64

void shared_text_set(struct shared_text *t, const char *text)
{
    uint64_t words[ARRAY_LEN(t->words)] = {0};
    size_t n = strnlen(text, SHARED_TEXT_BYTES);
    if (n == SHARED_TEXT_BYTES)
        for (n--; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
            n--;
    memcpy(words, text, n);
    uint32_t version = atomic_load_explicit(&t->version, memory_order_relaxed);
    atomic_store_explicit(&t->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        atomic_store_explicit(&t->words[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&t->version, version + 2, memory_order_release);
}

void shared_text_get(const struct shared_text *t, char out[SHARED_TEXT_BYTES])
{
    uint64_t words[ARRAY_LEN(t->words)];
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = atomic_load_explicit(&t->version, memory_order_acquire);
        for (size_t k = 0; k < ARRAY_LEN(words); k++)
            words[k] = atomic_load_explicit(&t->words[k], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        uint32_t after = atomic_load_explicit(&t->version, memory_order_relaxed);
        if (before == after && before % 2 == 0) {
            memcpy(out, words, SHARED_TEXT_BYTES);
            out[SHARED_TEXT_BYTES - 1] = 0;
            return;
        }
    }
    out[0] = 0;
}
