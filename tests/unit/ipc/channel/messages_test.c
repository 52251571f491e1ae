/* SPDX-License-Identifier: Apache-2.0 */
/* The message table and its validator: accepts valid messages, rejects everything else. */
#include "ipc/channel/messages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/unit/ipc/support.h"

#define ROLES 5

/* A buffer of the exact size, so that valgrind and the address sanitizer detect a read past the
 * end. */
static const char *why(const void *message, size_t bytes, enum msg_role me)
{
    void *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, message, bytes);
    const char *reason = msg_invalid(copy, bytes, me);
    free(copy);
    return reason;
}

#define CK_WHY(message, bytes, me, expected)                                                       \
    do {                                                                                           \
        const char *reason_ = why((message), (bytes), (me));                                       \
        ck_assert_msg(reason_ &&strcmp(reason_, (expected)) == 0, "got \"%s\", expected \"%s\"",   \
                      reason_ ? reason_ : "valid", (expected));                                    \
    } while (0)

union any {
    struct msg_head head;
    struct msg_demand demand;
    struct msg_hint hint;
    struct msg_loads loads;
    struct msg_flush flush;
    struct msg_dones dones;
    struct msg_control control;
    struct msg_ack ack;
    struct msg_pages pages;
};

static const struct {
    enum msg_type type;
    enum msg_role from, to;
    const char *name;
} expected[] = {
    {MSG_DEMAND, ROLE_COMPUTE, ROLE_CACHE, "DEMAND"},
    {MSG_HINT, ROLE_PREDICTOR, ROLE_CACHE, "HINT"},
    {MSG_LOADS, ROLE_CACHE, ROLE_LOADER, "LOADS"},
    {MSG_FLUSH, ROLE_CACHE, ROLE_LOADER, "FLUSH"},
    {MSG_FLUSHED, ROLE_LOADER, ROLE_CACHE, "FLUSHED"},
    {MSG_DONES, ROLE_LOADER, ROLE_CACHE, "DONES"},
    {MSG_CONTROL, ROLE_SUPERVISOR, ROLE_ANY, "CONTROL"},
    {MSG_ACK, ROLE_ANY, ROLE_SUPERVISOR, "ACK"},
    {MSG_TOKENS, ROLE_COMPUTE, ROLE_CACHE, "TOKENS"},
    {MSG_PAGES, ROLE_COMPUTE, ROLE_CACHE, "PAGES"},
    {MSG_KNOWN, ROLE_COMPUTE, ROLE_CACHE, "KNOWN"},
};

static enum msg_role receiver(unsigned row)
{
    return expected[row].to == ROLE_ANY ? ROLE_CACHE : expected[row].to;
}

/* A valid message of every type. */
static size_t make(union any *m, enum msg_type type)
{
    memset(m, 0, sizeof *m);
    switch (type) {
    case MSG_DEMAND:
        m->demand.count = 3;
        for (int i = 0; i < 3; i++)
            m->demand.wants[i] = (struct msg_want){.entry = 9, .tokens = 1, .need = 1};
        break;
    case MSG_HINT:
    case MSG_KNOWN:
        m->hint.count = 2;
        m->hint.predictions[0].probability = 0.5f;
        break;
    case MSG_LOADS:
        m->loads.count = 2;
        for (int i = 0; i < 2; i++) {
            m->loads.loads[i].priority = LOAD_DEMAND;
            m->loads.loads[i].runs_count = 2;
            for (int k = 0; k < 2; k++)
                m->loads.loads[i].runs[k] =
                    (struct msg_run){PAGE_BYTES, 2 * PAGE_BYTES, 3 * PAGE_BYTES};
        }
        break;
    case MSG_DONES: m->dones.count = 2; break;
    case MSG_PAGES: m->pages.count = 2; break;
    case MSG_CONTROL: m->control.kind = CONTROL_QUOTA; break;
    case MSG_ACK: m->ack.kind = CONTROL_POLL; break;
    case MSG_TOKENS:
    case MSG_FLUSH:
    case MSG_FLUSHED: break;
    }
    msg_seal(m, type, 3, 17);
    return msg_bytes(m);
}

START_TEST(every_type_is_taken_by_its_receiver_alone)
{
    for (unsigned row = 0; row < ARRAY_LEN(expected); row++) {
        union any m;
        size_t bytes = make(&m, expected[row].type);
        ck_assert_str_eq(msg_name(expected[row].type), expected[row].name);
        ck_assert_uint_eq(m.head.bytes, bytes);
        ck_assert_uint_eq(m.head.incarnation, 3);
        ck_assert_uint_eq(m.head.number, 17);
        ck_assert_ptr_null(why(&m, bytes, ROLE_ANY));
        for (unsigned role = 0; role < ROLES; role++) {
            bool mine = expected[row].to == ROLE_ANY ? role != expected[row].from
                                                     : role == expected[row].to;
            if (mine)
                ck_assert_ptr_null(why(&m, bytes, (enum msg_role)role));
            else
                CK_WHY(&m, bytes, (enum msg_role)role, "direction");
        }
    }
    ck_assert_str_eq(msg_name(0), "?");
    ck_assert_str_eq(msg_name(9999), "?");
}
END_TEST

START_TEST(truncated_and_extended_messages_are_rejected)
{
    for (unsigned row = 0; row < ARRAY_LEN(expected); row++) {
        union {
            union any m;
            unsigned char bytes[sizeof(union any) + 64];
        } u = {0};
        size_t bytes = make(&u.m, expected[row].type);
        for (size_t n = 0; n < bytes; n++) {
            CK_WHY(&u, n, receiver(row), "size");
            if (n < sizeof(struct msg_head))
                continue;
            u.m.head.bytes = (uint32_t)n; /* also when the header states this size */
            CK_WHY(&u, n, receiver(row), "size");
            u.m.head.bytes = (uint32_t)bytes;
        }
        for (size_t n = bytes + 1; n < bytes + 64; n++) {
            CK_WHY(&u, n, receiver(row), "size");
            u.m.head.bytes = (uint32_t)n;
            CK_WHY(&u, n, receiver(row), "size");
            u.m.head.bytes = (uint32_t)bytes;
        }
    }
}
END_TEST

START_TEST(wrong_heads_are_rejected)
{
    for (unsigned row = 0; row < ARRAY_LEN(expected); row++) {
        union any m;
        size_t bytes = make(&m, expected[row].type);
        m.head.magic ^= 1;
        CK_WHY(&m, bytes, receiver(row), "magic");
        make(&m, expected[row].type);
        m.head.version++;
        CK_WHY(&m, bytes, receiver(row), "version");
        make(&m, expected[row].type);
        static const uint16_t types[] = {0, 3, 6, 100, 255, 65535};
        for (unsigned i = 0; i < ARRAY_LEN(types); i++) {
            m.head.type = types[i];
            CK_WHY(&m, bytes, receiver(row), "type");
        }
        make(&m, expected[row].type);
        m.head.bytes = UINT32_MAX;
        CK_WHY(&m, bytes, receiver(row), "size");
    }
    static unsigned char big[MSG_BYTES_MAX + 1];
    CK_WHY(big, sizeof big, ROLE_CACHE, "size");
    CK_WHY(big, MSG_BYTES_MAX, ROLE_CACHE, "magic");
}
END_TEST

START_TEST(demand_fields)
{
    union any m;
    size_t bytes = make(&m, MSG_DEMAND);
    for (unsigned count = 0; count <= UINT16_MAX; count += count < 600 ? 1 : 999) {
        m.demand.count = (uint16_t)count;
        if (count == 3)
            ck_assert_ptr_null(why(&m, bytes, ROLE_CACHE));
        else
            CK_WHY(&m, bytes, ROLE_CACHE, count == 0 || count > MSG_WANTS_MAX ? "count" : "size");
    }
    make(&m, MSG_DEMAND);
    m.demand.wants[2].need = MSG_PRECISIONS;
    CK_WHY(&m, bytes, ROLE_CACHE, "precision");
    make(&m, MSG_DEMAND);
    m.demand.wants[2].tokens = 0;
    CK_WHY(&m, bytes, ROLE_CACHE, "token count");
    make(&m, MSG_DEMAND);
    m.demand.wants[1].reserved = 1;
    CK_WHY(&m, bytes, ROLE_CACHE, "reserved field");
    make(&m, MSG_DEMAND);
    m.demand.reserved = 1;
    CK_WHY(&m, bytes, ROLE_CACHE, "reserved field");

    make(&m, MSG_DEMAND);
    m.demand.count = MSG_WANTS_MAX;
    for (int i = 0; i < MSG_WANTS_MAX; i++)
        m.demand.wants[i] = (struct msg_want){.tokens = 1};
    msg_seal(&m, MSG_DEMAND, 1, 1);
    ck_assert_uint_eq(msg_bytes(&m), sizeof m.demand);
    ck_assert_ptr_null(why(&m, msg_bytes(&m), ROLE_CACHE));
}
END_TEST

START_TEST(hint_fields)
{
    union any m;
    size_t bytes = make(&m, MSG_HINT);
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, -0.5f, 1.5f};
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        m.hint.predictions[1].probability = bad[i];
        CK_WHY(&m, bytes, ROLE_CACHE, "probability");
    }
    make(&m, MSG_HINT);
    m.hint.prefill = 2;
    CK_WHY(&m, bytes, ROLE_CACHE, "prefill flag");
    m.hint.prefill = 1;
    m.hint.predictions[0].probability = 1;
    ck_assert_ptr_null(why(&m, bytes, ROLE_CACHE));
    m.hint.count = 0;
    CK_WHY(&m, bytes, ROLE_CACHE, "count");
    m.hint.count = MSG_HINTS_MAX + 1;
    CK_WHY(&m, bytes, ROLE_CACHE, "count");
    m.hint.count = 3;
    CK_WHY(&m, bytes, ROLE_CACHE, "size");
}
END_TEST

START_TEST(load_fields)
{
    static const struct {
        struct msg_run run;
        const char *why;
    } runs[] = {
        {{PAGE_BYTES + 1, 0, PAGE_BYTES}, "alignment"},
        {{0, PAGE_BYTES / 2, PAGE_BYTES}, "alignment"},
        {{0, 0, PAGE_BYTES - 1}, "alignment"},
        {{0, 0, 0}, "alignment"},
        {{UINT64_MAX - PAGE_BYTES + 1, 0, PAGE_BYTES}, "range"},
        {{0, UINT64_MAX - PAGE_BYTES + 1, 2 * PAGE_BYTES}, "range"},
        {{0, (uint64_t)1 << 63, PAGE_BYTES}, "range"},
        {{PAGE_BYTES, 0, (uint64_t)INT64_MAX - PAGE_BYTES + 1}, "range"},
    };
    union any m;
    size_t bytes = make(&m, MSG_LOADS);
    struct msg_load *last = &m.loads.loads[1];
    for (unsigned i = 0; i < ARRAY_LEN(runs); i++) {
        last->runs[1] = runs[i].run;
        CK_WHY(&m, bytes, ROLE_LOADER, runs[i].why);
        last->runs_count = 1; /* runs beyond the count are not checked */
        ck_assert_ptr_null(why(&m, bytes, ROLE_LOADER));
        make(&m, MSG_LOADS);
    }
    last->runs_count = 0;
    CK_WHY(&m, bytes, ROLE_LOADER, "count of runs");
    last->runs_count = MSG_RUNS_MAX + 1;
    CK_WHY(&m, bytes, ROLE_LOADER, "count of runs");
    make(&m, MSG_LOADS);
    last->priority = LOAD_DEMAND + 1;
    CK_WHY(&m, bytes, ROLE_LOADER, "priority");
    make(&m, MSG_LOADS);
    last->generation = (uint64_t)1 << 40;
    CK_WHY(&m, bytes, ROLE_LOADER, "generation");
    make(&m, MSG_LOADS);
    m.loads.reserved = 1;
    CK_WHY(&m, bytes, ROLE_LOADER, "reserved field");
    make(&m, MSG_LOADS);
    static const uint32_t counts[] = {0, MSG_LOADS_MAX + 1, UINT32_MAX};
    for (unsigned i = 0; i < ARRAY_LEN(counts); i++) {
        m.loads.count = counts[i];
        CK_WHY(&m, bytes, ROLE_LOADER, "count");
    }
    m.loads.count = 3; /* more than the message contains */
    CK_WHY(&m, bytes, ROLE_LOADER, "size");
    m.loads.count = 1;
    CK_WHY(&m, bytes, ROLE_LOADER, "size");
}
END_TEST

START_TEST(done_and_control_fields)
{
    union any m;
    size_t bytes = make(&m, MSG_DONES);
    static const int32_t status[] = {-1, INT32_MIN, 4096, INT32_MAX};
    for (unsigned i = 0; i < ARRAY_LEN(status); i++) {
        m.dones.dones[1].status = status[i];
        CK_WHY(&m, bytes, ROLE_CACHE, "status");
    }
    m.dones.dones[1].status = 5;
    ck_assert_ptr_null(why(&m, bytes, ROLE_CACHE));
    m.dones.dones[1].generation = UINT64_MAX;
    CK_WHY(&m, bytes, ROLE_CACHE, "generation");
    make(&m, MSG_DONES);
    m.dones.count = 0;
    CK_WHY(&m, bytes, ROLE_CACHE, "count");
    m.dones.count = MSG_LOADS_MAX + 1;
    CK_WHY(&m, bytes, ROLE_CACHE, "count");
    m.dones.count = 1;
    CK_WHY(&m, bytes, ROLE_CACHE, "size");

    static const uint32_t kinds[] = {0, CONTROL__COUNT, UINT32_MAX};
    for (unsigned i = 0; i < ARRAY_LEN(kinds); i++) {
        bytes = make(&m, MSG_CONTROL);
        m.control.kind = kinds[i];
        CK_WHY(&m, bytes, ROLE_CACHE, "kind");
        bytes = make(&m, MSG_ACK);
        m.ack.kind = kinds[i];
        CK_WHY(&m, bytes, ROLE_SUPERVISOR, "kind");
    }
    for (uint32_t kind = 1; kind < CONTROL__COUNT; kind++) {
        bytes = make(&m, MSG_CONTROL);
        m.control.kind = kind;
        ck_assert_ptr_null(why(&m, bytes, ROLE_LOADER));
    }
}
END_TEST

START_TEST(a_message_may_stand_at_any_address)
{
    static unsigned char buf[sizeof(union any) + 8];
    for (unsigned row = 0; row < ARRAY_LEN(expected); row++) {
        union any m;
        size_t bytes = make(&m, expected[row].type);
        for (unsigned shift = 0; shift < 8; shift++) {
            memcpy(buf + shift, &m, bytes);
            ck_assert_ptr_null(msg_invalid(buf + shift, bytes, receiver(row)));
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ipc messages");
    TCase *tc = tcase_create("messages");
    tcase_add_test(tc, every_type_is_taken_by_its_receiver_alone);
    tcase_add_test(tc, truncated_and_extended_messages_are_rejected);
    tcase_add_test(tc, wrong_heads_are_rejected);
    tcase_add_test(tc, demand_fields);
    tcase_add_test(tc, hint_fields);
    tcase_add_test(tc, load_fields);
    tcase_add_test(tc, done_and_control_fields);
    tcase_add_test(tc, a_message_may_stand_at_any_address);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
