/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what servers and their users give. The first byte says which parser gets the rest:
 * u: a URL; its host is where it says, and parsing the same text with an address put in is right,
 * too. c: a file of credentials; what is taken can be a line of a request. k, K: the heads of a
 * cache file, K with right hashes; an expert is in one slot. h: the head of an answer, line by
 * line. l: the attributes of a striped file, and an offset; its extents are in its objects. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/io/server/http/credentials.h"
#include "lib/io/server/http/transfer.h"
#include "lib/io/server/rados/layout.h"
#include "lib/io/server/url.h"
#include "procs/engine/child/run_cache.h"
#include "procs/engine/loader/cache/index.h"
#include "procs/engine/loader/cache/slots.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_url(const char *text)
{
    struct io_url url;
    struct error error;
    if (io_url_parse(text, &url, &error) != 0) {
        sl_assert(error.code == ERR_BAD_INPUT && error.text[0]);
        return;
    }
    sl_assert(io_url_is(text) && url.backend != 0);
    sl_assert((size_t)url.host_at + url.host_bytes <= strlen(text));
    if (url.backend == IO_RADOS)
        sl_assert(url.pool[0] && url.name[0] && !url.host[0]);
    else
        sl_assert(!url.tcp || (url.port > 0 && url.host[0]));
    sl_assert(url.tcp == (url.ports[0] != 0));
    sl_assert(url.tcp || url.socket[0] == '/');
    (void)io_url_numeric(&url);
    for (const char *at = url.target; *at; at++)
        sl_assert(*at > ' ' && *at <= '~');
}

static void check_text(const char *text)
{
    for (; *text; text++)
        sl_assert(*text > ' ' && *text <= '~');
}

static void check_credentials(const char *text, size_t bytes)
{
    struct credentials c;
    struct error error;
    if (credentials_parse(text, bytes, "default", &c, &error) != 0) {
        sl_assert(!c.id[0] && !c.secret[0] && !c.token[0]);
        return;
    }
    sl_assert(c.id[0] && c.secret[0]);
    check_text(c.id);
    check_text(c.secret);
    check_text(c.token);
}

static void check_head(const char *text, size_t bytes)
{
    static const struct identity any;
    static struct transfer t;
    char why[REMOTE_WHY_BYTES];
    t = (struct transfer){.identity = &any, .bytes = 100, .offset = 1000};
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t n = end ? (size_t)(end - text) - at + 1 : bytes - at;
        transfer_head_line(&t, text + at, n);
        at += n;
    }
    sl_assert(t.wait_s <= TRANSFER_WAIT_MAX_S);
    sl_assert(memchr(t.found.tag, 0, sizeof t.found.tag));
    sl_assert(transfer_judge(&t, CURLE_OK, why) != TRANSFER_RIGHT && why[0]);
}

#define CACHE_ENTRIES    16u
#define CACHE_SLOTS      8u
#define CACHE_SLOT_BYTES (4 * (uint64_t)PAGE_BYTES)

static uint32_t take_slots(const char *bytes, size_t count, bool seal, struct index_found *found)
{
    uint32_t n = 0;
    for (uint32_t slot = 0; slot < CACHE_SLOTS && slot < count; slot++) {
        struct cache_slot_head head;
        memcpy(&head, bytes + slot * sizeof head, sizeof head);
        if (seal)
            cache_slot_head_seal(&head);
        if (!cache_slot_head_right(&head, CACHE_SLOT_BYTES))
            continue;
        sl_assert(head.bytes > 0 && head.bytes <= CACHE_SLOT_BYTES - PAGE_BYTES);
        found[n++] = (struct index_found){.entry = head.entry, .slot = slot, .stamp = head.stamp};
    }
    return n;
}

static void check_cache(const char *bytes, size_t size, bool seal)
{
    struct cache_head head = {.magic = 0}, wanted = {.magic = RUN_CACHE_MAGIC};
    struct index_found found[CACHE_SLOTS];
    struct cache_index x;
    wanted.slot_bytes = CACHE_SLOT_BYTES;
    cache_head_seal(&wanted);
    memcpy(&head, bytes, size < sizeof head ? size : sizeof head);
    if (seal)
        cache_head_seal(&head);
    bool right = cache_head_judge(&head, &wanted) == CACHE_FILE_RIGHT;
    wanted.identity = head.identity; /* any, of a server that is not connected */
    cache_head_seal(&wanted);
    sl_assert(right == (memcmp(&head, &wanted, sizeof head) == 0));
    if (size < sizeof head || index_create(&x, CACHE_SLOTS, CACHE_ENTRIES) != 0)
        return;
    uint32_t count = take_slots(bytes + sizeof head,
                                (size - sizeof head) / sizeof(struct cache_slot_head), seal, found);
    index_build(&x, found, count);
    sl_assert(x.used <= count);
    for (uint32_t slot = 0; slot < CACHE_SLOTS; slot++)
        if (x.slot[slot].state == INDEX_VALID)
            sl_assert(index_find(&x, x.slot[slot].entry) == slot);
    index_destroy(&x);
}

/* Five words. */
static void check_layout(char *text)
{
    char value[LAYOUT_ATTRIBUTES][LAYOUT_VALUE_BYTES] = {""}, *rest = text;
    for (size_t i = 0; i < LAYOUT_ATTRIBUTES && rest; i++) {
        const char *word = strsep(&rest, " ");
        memcpy(value[i], word, strnlen(word, LAYOUT_VALUE_BYTES - 1));
    }
    struct layout l;
    if (layout_take(&l, value))
        return;
    uint64_t at = rest ? strtoull(rest, NULL, 10) >> 2 : 0;
    struct extent e = layout_extent(&l, at, 1000);
    char name[LAYOUT_NAME_BYTES];
    sl_assert(e.bytes > 0 && e.bytes <= 1000 && e.offset + e.bytes <= l.object_size);
    layout_object(&l, "name", e.object, name);
    l.striped = false;
    sl_assert(layout_extent(&l, at, 1000).offset == at);
    layout_object(&l, "name", 0, name);
    sl_assert(strcmp(name, "name") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 4096)
        return 0;
    size_t n = size - 1;
    char *text = malloc(n + 1); /* of this size, so that a read behind it is seen */
    if (!text)
        return 0;
    memcpy(text, data + 1, n);
    text[n] = 0;
    if (data[0] == 'u')
        check_url(text);
    else if (data[0] == 'c')
        check_credentials(text, n);
    else if (data[0] == 'k' || data[0] == 'K')
        check_cache(text, n, data[0] == 'K');
    else if (data[0] == 'l')
        check_layout(text);
    else
        check_head(text, n);
    free(text);
    return 0;
}
