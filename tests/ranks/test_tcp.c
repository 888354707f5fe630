/* test_tcp.c: ranks whose connections end: by design, and by a failure. */
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

#include "comm/tcp_parts.h"
#include "tests/support/caught.h"
#include "tests/support/unit.h"

#define RANKS 3

/* Connects ranks of this process, each to each other one. */
static void connect_ranks(struct tcp *ranks[RANKS])
{
    for (int i = 0; i < RANKS; i++) ranks[i] = tcp_exchange_make(i, RANKS, 20);
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

/* Ranks that come to their end earlier than others wait for these. */
static void ranks_that_are_done_are_not_missed(void **state)
{
    for (int round = 0; round < 50; round++) {
        struct tcp *ranks[RANKS];
        struct caught caught;
        connect_ranks(ranks);
        caught_begin(&caught);
        close_ranks(ranks);
        caught_end(&caught);
        assert_int_equal(caught.errors, 0);
        text_free(&caught.words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_are_done_are_not_missed),
    };
    return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
