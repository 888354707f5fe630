/* A small mailbox with random messages is compared with a plain queue, by one thread and by two. */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/shared_parts.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

#define CAPACITY ((size_t)4096)

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The bytes of message `number`: none, few, many, or all that the mailbox holds. */
static size_t bytes_of(uint64_t number)
{
    uint64_t random = mix(number);
    switch (random % 16) {
    case 0: return 0;
    case 1: return CAPACITY;
    case 2: return CAPACITY / 2 + random / 16 % 3 - 1;
    case 3: case 4: case 5: return random / 16 % (CAPACITY + 1);
    default: return random / 16 % 129;
    }
}

static void fill(unsigned char *message, uint64_t number)
{
    size_t bytes = bytes_of(number);
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = (number + 1) * 0x9e3779b97f4a7c15u + at;
        memcpy(message + at, &word, bytes - at < 8 ? bytes - at : 8);
    }
}

/* Both counts of messages, and positions, are about to wrap around. */
static struct shared_mailbox *mailbox_new(void)
{
    struct shared_mailbox *box = aligned_alloc(4096, sizeof *box + CAPACITY);
    assert_non_null(box);
    memset(box, 0, sizeof *box);
    atomic_init(&box->sent, UINT32_MAX - 5000);
    atomic_init(&box->received, UINT32_MAX - 5000);
    uint32_t newest = UINT32_MAX - 5001;
    box->messages[newest % SHARED_MAIL_MESSAGES].position = UINT64_MAX - 64 * CAPACITY;
    return box;
}

static bool try_put(struct shared_mailbox *box, uint64_t number)
{
    unsigned char message[CAPACITY];
    fill(message, number);
    return shared_mail_put(box, CAPACITY, message, bytes_of(number));
}

/* Takes the oldest message, which is to be that number. */
static void take(struct shared_mailbox *box, uint64_t number)
{
    unsigned char expected[CAPACITY], got[CAPACITY];
    const struct shared_message *oldest = shared_mail_oldest(box);
    assert_non_null(oldest);
    assert_int_equal(oldest->bytes, bytes_of(number));
    fill(expected, number);
    shared_mail_take(box, CAPACITY, got);
    assert_memory_equal(got, expected, bytes_of(number));
}

/* The queue is messages `taken` to `put`, of `bytes` together. Phases in which more are put than taken take
 * turns with others. */
static void a_mailbox_is_a_queue(void **state)
{
    long operations = rounds(200000, 10000000);
    struct shared_mailbox *box = mailbox_new();
    uint64_t put = 0, taken = 0, refused = 0;
    size_t bytes = 0, most = 0;
    for (long i = 0; i < operations; i++) {
        uint64_t random = mix((uint64_t)i + 0x5eed), puts = i / 3000 % 2 ? 5 : 3;
        if (random % 8 < puts) {
            bool done = try_put(box, put);
            if (put == taken) assert_true(done);
            if (put - taken == SHARED_MAIL_MESSAGES || bytes + bytes_of(put) > CAPACITY) assert_false(done);
            if (done) bytes += bytes_of(put++);
            else refused++;
            if (bytes > most) most = bytes;
        } else if (put > taken) {
            take(box, taken);
            bytes -= bytes_of(taken++);
        } else {
            assert_null(shared_mail_oldest(box));
        }
    }
    for (; taken < put; taken++) take(box, taken);
    assert_null(shared_mail_oldest(box));
    assert_int_equal(most, CAPACITY);
    figure("%ld operations: %" PRIu64 " messages, %" PRIu64 " had to wait", operations, put, refused);
    free(box);
}

/* Messages without bytes are limited in number alone. */
static void a_mailbox_holds_so_many_messages(void **state)
{
    struct shared_mailbox *box = mailbox_new();
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < SHARED_MAIL_MESSAGES; i++) assert_true(shared_mail_put(box, CAPACITY, NULL, 0));
        assert_false(shared_mail_put(box, CAPACITY, NULL, 0));
        for (int i = 0; i < SHARED_MAIL_MESSAGES; i++) shared_mail_take(box, CAPACITY, NULL);
        assert_null(shared_mail_oldest(box));
    }
    free(box);
}

/* The newest message is at the start of the ring, and so is the oldest that is left. */
static void a_full_lap_is_not_an_empty_one(void **state)
{
    char sent[CAPACITY] = "first", got[CAPACITY];
    struct shared_mailbox *box = mailbox_new();
    size_t most = CAPACITY;
    assert_true(shared_mail_put(box, most, sent, most - 100));
    assert_true(shared_mail_put(box, most, sent, 100));
    assert_false(shared_mail_put(box, most, "later", 6));
    shared_mail_take(box, most, got);
    assert_string_equal(got, "first");
    assert_true(shared_mail_put(box, most, "later", 6));
    assert_false(shared_mail_put(box, most, sent, most - 100));
    shared_mail_take(box, most, got);
    assert_false(shared_mail_put(box, most, sent, most));
    shared_mail_take(box, most, got);
    assert_string_equal(got, "later");
    free(box);
}

struct two {
    struct shared_mailbox *box;
    uint64_t messages;
};

static void *send_all(void *context)
{
    const struct two *two = context;
    for (uint64_t number = 0; number < two->messages; number++)
        while (!try_put(two->box, number)) sched_yield();
    return NULL;
}

static void one_thread_sends_what_another_receives(void **state)
{
    struct two two = {mailbox_new(), (uint64_t)rounds(50000, 1000000)};
    pthread_t sender;
    assert_int_equal(pthread_create(&sender, NULL, send_all, &two), 0);
    for (uint64_t number = 0; number < two.messages; number++) {
        while (!shared_mail_oldest(two.box)) sched_yield();
        take(two.box, number);
    }
    pthread_join(sender, NULL);
    figure("%" PRIu64 " messages between two threads", two.messages);
    free(two.box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mailbox_is_a_queue),
        cmocka_unit_test(a_mailbox_holds_so_many_messages),
        cmocka_unit_test(a_full_lap_is_not_an_empty_one),
        cmocka_unit_test(one_thread_sends_what_another_receives),
    };
    return cmocka_run_group_tests_name("mail", tests, NULL, NULL);
}
