/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a saved conversation. Any bytes give a conversation within the limits, or an error
 * of one line; saved and loaded again it is the same. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "procs/clients/conversation/conversation.h"
#include "tests/fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same_after_saving(const struct conversation *t, json_t *settings)
{
    static char path[PATH_MAX];
    struct conversation loaded = {0};
    json_t *again = NULL;
    struct error error = {0};
    if (!path[0])
        snprintf(path, sizeof path, "/dev/shm/sluice-fuzz-conversation.%d", (int)getpid());
    sl_assert(conversation_save(t, settings, path, true, &error) == 0);
    sl_assert(conversation_load(&loaded, &again, path, &error) == 0);
    sl_assert(loaded.count == t->count && json_equal(settings, again));
    for (size_t i = 0; i < t->count; i++)
        sl_assert(strcmp(loaded.turns[i].prompt, t->turns[i].prompt) == 0 &&
                  loaded.turns[i].response_bytes == t->turns[i].response_bytes &&
                  memcmp(loaded.turns[i].response, t->turns[i].response,
                         t->turns[i].response_bytes) == 0);
    conversation_clear(&loaded);
    json_decref(again);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_file f = fuzz_file_open(data, size);
    struct conversation t = {0};
    json_t *settings = NULL;
    struct error error = {0};
    if (conversation_load(&t, &settings, f.path, &error) != 0) {
        sl_assert(error.code != ERR_NONE && error.text[0] && !strchr(error.text, '\n'));
        sl_assert(t.count == 0 && !settings);
    } else {
        sl_assert(t.bytes <= CONVERSATION_BYTES_MAX);
        same_after_saving(&t, settings);
        json_decref(settings);
    }
    conversation_clear(&t);
    fuzz_file_close(&f);
    return 0;
}
