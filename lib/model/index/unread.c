/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a file that nothing reads: an unknown one may state a computation that is left out, so
 * each is named once. Tensors need no such list: an unknown one is rejected
 * (lib/model/arch/tensors.c). */
#include <inttypes.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/model/index/derive.h"
#include "lib/text/printable.h"

#define LINES_MAX 16 /* of the log */

static const char *const harmless[] = {
#define HARMLESS(name, why) name,
#include "lib/model/index/harmless.tbl.h"
};

static bool fits(const char *row, const char *arch, const char *name, size_t bytes)
{
    if (row[0] == '.') {
        size_t n = strlen(arch);
        if (bytes < n || memcmp(name, arch, n) != 0)
            return false;
        name += n;
        bytes -= n;
    }
    size_t n = strlen(row);
    if (row[n - 1] == '*')
        return bytes >= n - 1 && memcmp(name, row, n - 1) == 0;
    return bytes == n && memcmp(name, row, n) == 0;
}

static bool is_harmless(const char *arch, const char *name, size_t bytes)
{
    for (size_t i = 0; i < ARRAY_LEN(harmless); i++)
        if (fits(harmless[i], arch, name, bytes))
            return true;
    return false;
}

static void add(struct model_index *m, const char *name)
{
    size_t used = strlen(m->unread), n = strlen(name);
    m->unread_count++;
    if (used + n + 2 <= sizeof m->unread) {
        memcpy(m->unread + used, name, n);
        m->unread[used + n] = '\n';
    }
}

void index_report_unread(const struct gguf *g, struct model_index *m)
{
    for (uint32_t i = 0; i < g->key_count; i++) {
        const char *name = g->header + g->keys[i].name_at;
        uint32_t bytes = g->keys[i].name_bytes;
        if (gguf_key_read(g, i) || is_harmless(m->arch, name, bytes))
            continue;
        add(m, printable(name, bytes).text);
        if (m->unread_count <= LINES_MAX)
            log_warn("key '%s' of the model file is not used: if the model needs it, its text is "
                     "wrong",
                     printable(name, bytes).text);
    }
    if (m->unread_count > LINES_MAX)
        log_warn("%" PRIu64 " more keys of the model file are not used",
                 m->unread_count - LINES_MAX);
}

bool model_index_unread(const struct model_index *m, size_t *at, char name[MODEL_UNREAD_BYTES])
{
    const char *end = strchr(m->unread + *at, '\n');
    if (!end)
        return false;
    size_t n = (size_t)(end - m->unread) - *at;
    memcpy(name, m->unread + *at, n);
    name[n] = 0;
    *at += n + 1;
    return true;
}
