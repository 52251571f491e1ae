#include "procs/engine/supervisor/children/exits.h"

#include <string.h>

#include "lib/base/assert.h"

const char *death_word(enum death_cause cause)
{
    static const char *const words[] = {
#define DEATH(name, word) word,
#include "procs/engine/supervisor/children/exits.tbl.h"
    };
    sl_assert(cause < DEATH__COUNT);
    return words[cause];
}

/* Who was killed for its heartbeat and then asked for was late first; a process that was asked for
 * ends by our signal, and its own status says nothing. */
enum death_cause death_cause_of(const struct death_facts *facts)
{
    if (facts->late)
        return DEATH_HEARTBEAT;
    if (facts->asked)
        return DEATH_ASKED;
    if (facts->too_slow)
        return DEATH_START;
    return facts->signal ? DEATH_SIGNAL : DEATH_EXIT;
}

void deaths_note(struct deaths *deaths, const struct death *death, const char *words)
{
    struct death *d = &deaths->ring[deaths->count++ % DEATHS_KEPT];
    size_t n = strnlen(words, DEATHS_WORDS_BYTES);
    *d = *death;
    if (n == DEATHS_WORDS_BYTES)
        for (n--; n > 0 && ((unsigned char)words[n] & 0xc0) == 0x80;)
            n--; /* the first byte left out does not continue a character */
    memcpy(d->words, words, n);
    d->words[n] = 0;
}

void deaths_restarted(struct deaths *deaths, uint32_t child)
{
    for (uint32_t i = deaths_kept(deaths); i-- > 0;) {
        struct death *d = &deaths->ring[(deaths->count - deaths_kept(deaths) + i) % DEATHS_KEPT];
        if (d->child == child) {
            d->restarted = true;
            return;
        }
    }
}

uint32_t deaths_kept(const struct deaths *deaths)
{
    return deaths->count < DEATHS_KEPT ? (uint32_t)deaths->count : DEATHS_KEPT;
}

const struct death *deaths_at(const struct deaths *deaths, uint32_t i)
{
    sl_assert(i < deaths_kept(deaths));
    return &deaths->ring[(deaths->count - deaths_kept(deaths) + i) % DEATHS_KEPT];
}
