/* test_tcp.c: ranks whose connections end: by design, and by a failure. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/group.h"
#include "comm/tcp_parts.h"
#include "tests/support/caught.h"
#include "tests/support/unit.h"

#define RANKS 3
#define TIMEOUT 20               /* seconds: far more than tests take that do not wait for it */

/* Connects ranks of this process, each to each other one. */
static void connect_ranks(struct tcp *ranks[RANKS])
{
    for (int i = 0; i < RANKS; i++) ranks[i] = tcp_exchange_make(i, RANKS, TIMEOUT);
    for (int i = 0; i < RANKS; i++)
        for (int k = 0; k < i; k++) {
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
            ranks[i]->peers[k].socket = pair[0];
            ranks[k]->peers[i].socket = pair[1];
            snprintf(ranks[i]->peers[k].host, TCP_HOST, "host%d", k);
            snprintf(ranks[k]->peers[i].host, TCP_HOST, "host%d", i);
        }
}

static void *close_rank(void *rank)
{
    comm_close(rank);
    return NULL;
}

/* All at once, since those that have not failed meet for that. */
static void close_ranks(struct tcp *ranks[RANKS])
{
    pthread_t threads[RANKS];
    for (int i = 0; i < RANKS; i++)
        if (ranks[i]) assert_int_equal(pthread_create(&threads[i], NULL, close_rank, ranks[i]), 0);
    for (int i = 0; i < RANKS; i++)
        if (ranks[i]) pthread_join(threads[i], NULL);
}

static void post(void *semaphore)
{
    sem_post(semaphore);
}

static bool within(sem_t *semaphore, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)seconds;
    return sem_timedwait(semaphore, &until) == 0;
}

/* A killed process: its connections end without a word. */
static void kill_rank(struct tcp *rank)
{
    for (int i = 0; i < RANKS; i++)
        if (i != rank->comm.rank) shutdown(rank->peers[i].socket, SHUT_RDWR);
}

static void fail_ranks(struct tcp *ranks[RANKS])
{
    for (int i = 0; i < RANKS; i++)
        if (ranks[i]) ranks[i]->comm.failed = true;
}

static void a_killed_rank_is_noticed_by_all_who_watch(void **state)
{
    struct tcp *ranks[RANKS];
    struct caught caught;
    sem_t lost, also_lost;
    sem_init(&lost, 0, 0);
    sem_init(&also_lost, 0, 0);
    connect_ranks(ranks);
    struct comm *group = group_open(&ranks[0]->comm, &(struct group_ranks){0, 1, 2});
    assert_int_equal(comm_watch(&ranks[0]->comm, post, &lost), OK);
    assert_int_equal(comm_watch(group, post, &also_lost), OK);
    assert_int_equal(comm_alive(&ranks[0]->comm), OK);
    kill_rank(ranks[2]);
    bool called = within(&lost, 10), also_called = within(&also_lost, 10);
    caught_begin(&caught);
    enum status first = comm_alive(group), second = comm_alive(&ranks[0]->comm);
    caught_end(&caught);
    assert_true(called && also_called);
    assert_int_equal(first, FAILED);
    assert_int_equal(second, FAILED);
    assert_true(caught_has(&caught, "rank 0 waits in a step, but rank 2 on host2 has ended"));
    assert_int_equal(caught.errors, 1);
    group_close(group);
    fail_ranks(ranks);
    close_ranks(ranks);
    text_free(&caught.words);
    sem_destroy(&also_lost);
    sem_destroy(&lost);
}

/* Rank 1 has failed because of rank 2, whose connection to rank 0 still stands. */
static void the_rank_that_failed_first_is_named(void **state)
{
    struct tcp *ranks[RANKS];
    struct caught caught;
    sem_t lost;
    sem_init(&lost, 0, 0);
    connect_ranks(ranks);
    assert_int_equal(comm_watch(&ranks[0]->comm, post, &lost), OK);
    ranks[1]->comm.failed = true;
    ranks[1]->lost = 2;
    comm_close(&ranks[1]->comm);
    ranks[1] = NULL;
    bool called = within(&lost, 10);
    caught_begin(&caught);
    enum status status = comm_alive(&ranks[0]->comm);
    caught_end(&caught);
    assert_true(called);
    assert_int_equal(status, FAILED);
    assert_true(caught_has(&caught, "but rank 2 on host2 has ended"));
    fail_ranks(ranks);
    close_ranks(ranks);
    text_free(&caught.words);
    sem_destroy(&lost);
}

static void *ask(void *rank)
{
    comm_alive(rank);
    return NULL;
}

/* Rank 2 stands still: it does not answer, in contrast to rank 1, which waits for it, too. */
static void a_rank_that_stands_still_is_named(void **state)
{
    struct tcp *ranks[RANKS];
    struct caught caught;
    pthread_t thread;
    sem_t lost;
    sem_init(&lost, 0, 0);
    connect_ranks(ranks);
    for (int i = 0; i < 2; i++) {
        ranks[i]->timeout = 0.5;
        assert_int_equal(comm_watch(&ranks[i]->comm, post, &lost), OK);
        comm_report(&ranks[i]->comm, &(struct comm_progress){.phase = COMM_STEP});
    }
    bool called = within(&lost, 10) && within(&lost, 10);
    caught_begin(&caught);
    bool started = pthread_create(&thread, NULL, ask, &ranks[1]->comm) == 0;
    enum status status = comm_alive(&ranks[0]->comm);
    if (started) pthread_join(thread, NULL);
    caught_end(&caught);
    assert_true(called && started);
    assert_int_equal(status, FAILED);
    assert_true(caught_has(&caught, "rank 0 has waited for "));
    assert_true(caught_has(&caught, "rank 1 has waited for "));
    assert_true(caught_has(&caught, " s for rank 2 on host2 in a step"));
    assert_int_equal(caught.errors, 2);
    fail_ranks(ranks);
    close_ranks(ranks);
    text_free(&caught.words);
    sem_destroy(&lost);
}

/* Ranks that come to their end earlier than others wait for these. */
static void ranks_that_are_done_are_not_missed(void **state)
{
    for (int round = 0; round < 50; round++) {
        struct tcp *ranks[RANKS];
        struct caught caught;
        sem_t lost;
        sem_init(&lost, 0, 0);
        connect_ranks(ranks);
        for (int i = 0; i < RANKS; i++) assert_int_equal(comm_watch(&ranks[i]->comm, post, &lost), OK);
        caught_begin(&caught);
        close_ranks(ranks);
        caught_end(&caught);
        assert_int_equal(caught.errors, 0);
        text_free(&caught.words);
        assert_int_equal(sem_trywait(&lost), -1);
        sem_destroy(&lost);
    }
}

static void stay(void *entered)
{
    sem_post(entered);
    for (;;) pause();
}

/* The thread stays until the process ends. */
static void an_abort_that_hangs_keeps_nobody_from_ending(void **state)
{
    struct tcp *ranks[RANKS];
    static sem_t entered;
    sem_init(&entered, 0, 0);
    connect_ranks(ranks);
    assert_int_equal(comm_watch(&ranks[0]->comm, stay, &entered), OK);
    kill_rank(ranks[2]);
    assert_true(within(&entered, 10));
    double began = clock_seconds();
    fail_ranks(ranks);
    close_ranks(ranks);
    assert_true(clock_seconds() - began < TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_noticed_by_all_who_watch),
        cmocka_unit_test(the_rank_that_failed_first_is_named),
        cmocka_unit_test(a_rank_that_stands_still_is_named),
        cmocka_unit_test(ranks_that_are_done_are_not_missed),
        cmocka_unit_test(an_abort_that_hangs_keeps_nobody_from_ending),
    };
    return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
