/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: rendering of conversations. Input: a byte for the template (its family, whether it
 * starts with BOS), then messages, each a byte for its role and a text up to a NUL; if the first
 * byte is 0xff, a template to be recognised. Outside the ranges of the template, a prompt consists
 * of the texts of the messages and nothing else. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/chat/chat.h"

#define MESSAGES  32
#define BYTES_MAX 4096
#define RECOGNISE 0xff

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Templates may move messages, but split none. */
static void check_prompt(const struct chat_prompt *p, const struct chat_message *m, size_t count)
{
    size_t written = 0, sent = 0, last = 0;
    char *outside = malloc(p->bytes + 1);
    sl_assert(outside && text_ranges_valid(&p->written, p->bytes) && p->text[p->bytes] == 0);
    for (size_t i = 0; i < p->written.count; i++) {
        struct text_range r = p->written.at[i];
        memcpy(outside + (last - written), p->text + last, r.from - last);
        written += r.to - r.from;
        last = r.to;
    }
    memcpy(outside + (last - written), p->text + last, p->bytes - last);
    size_t bytes = p->bytes - written;
    for (size_t i = 0; i < count; i++) {
        sl_assert(m[i].bytes == 0 || memmem(outside, bytes, m[i].text, m[i].bytes));
        sent += m[i].bytes;
    }
    sl_assert(sent == bytes);
    free(outside);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chat_message m[MESSAGES];
    struct chat_prompt p;
    struct error error = {.code = ERR_NONE};
    size_t count = 0;
    if (size == 0)
        return 0;
    if (data[0] == RECOGNISE) {
        sl_assert(chat_recognise((const char *)data + 1, size - 1) < CHAT__COUNT);
        return 0;
    }
    struct model_chat chat = {.family = (data[0] >> 1) % CHAT__COUNT,
                              .bos_first = data[0] & 1,
                              .bos = "<s>",
                              .eos = "</s>"};
    for (size_t at = 1; at < size && count < MESSAGES; count++) {
        const char *text = (const char *)data + at + 1;
        size_t bytes = strnlen(text, size - at - 1);
        m[count] =
            (struct chat_message){(enum chat_role)(data[at] % CHAT_ROLE__COUNT), text, bytes};
        at += bytes + 2;
    }
    if (chat_render(&chat, m, count, BYTES_MAX, &p, &error) == 0) {
        sl_assert(p.bytes <= BYTES_MAX);
        check_prompt(&p, m, count);
    } else {
        sl_assert(error.code == ERR_BAD_INPUT && !p.text && p.written.count == 0);
    }
    chat_prompt_free(&p);
    return 0;
}
