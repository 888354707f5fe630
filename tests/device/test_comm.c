/* Ranks of one host are processes; what they exchange through shared memory arrives, whatever its size. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/compare.h"
#include "comm/group.h"
#include "comm/host_file.h"
#include "comm/mpi_ranks.h"
#include "comm/nccl_exchange.h"
#include "comm/shared.h"
#include "comm/shared_block.h"
#include "tests/support/caught.h"
#include "tests/support/refuse.h"
#include "tests/support/unit.h"

#define RANKS_MAX 4

/* The work of a rank; false: something is wrong. */
typedef bool (*part)(struct comm *comm);

static void begin_rank(int descriptor, int rank, double timeout, part play)
{
    struct comm *comm;
    alarm(60);
    if (shared_open(dup(descriptor), rank, timeout, &comm) != OK) exit(2);
    bool good = play(comm);
    comm_close(comm);
    exit(good ? 0 : 1);
}

/* Ends as long as all ranks do. ended[r]: as waitpid has it. */
static void play_ranks(int count, double timeout, part play, int ended[RANKS_MAX])
{
    int descriptor;
    pid_t pids[RANKS_MAX];
    assert_int_equal(shared_block_create(count, &descriptor), OK);
    fflush(NULL);
    for (int rank = 0; rank < count; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] == 0) begin_rank(descriptor, rank, timeout, play);
    }
    close(descriptor);
    for (int rank = 0; rank < count; rank++)
        assert_int_equal(waitpid(pids[rank], &ended[rank], 0), pids[rank]);
}

static void all_are_right(part play)
{
    for (int count = 1; count <= RANKS_MAX; count++) {
        int ended[RANKS_MAX];
        play_ranks(count, 0, play, ended);
        for (int rank = 0; rank < count; rank++) assert_int_equal(ended[rank], 0);
    }
}

static const size_t sizes[] = {
    0, 1, 3, 64, 4097, SHARED_SLOT_BYTES / 4, SHARED_SLOT_BYTES - 1, SHARED_SLOT_BYTES, SHARED_SLOT_BYTES + 1,
    2 * SHARED_SLOT_BYTES + 4095,
};
#define SIZES (sizeof sizes / sizeof *sizes)

/* Bytes that tell who sends what to whom, and where they belong. */
static unsigned char byte_of(int from, int to, size_t i)
{
    uint64_t x = i * 0x9e3779b97f4a7c15u + (uint64_t)(from * 31 + to * 7 + 1);
    return (unsigned char)((x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u >> 56);
}

static void put(unsigned char *data, size_t bytes, int from, int to)
{
    for (size_t i = 0; i < bytes; i++) data[i] = byte_of(from, to, i);
}

static bool holds(const unsigned char *data, size_t bytes, int from, int to)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != byte_of(from, to, i)) return false;
    return true;
}

/* Memory of exactly as many bytes, so that a sanitizer sees the first one behind. */
static unsigned char *room(size_t bytes)
{
    return calloc(bytes ? bytes : 1, 1);
}

static bool gather(struct comm *comm, size_t bytes, bool of_step)
{
    size_t count = (size_t)comm->count;
    unsigned char *from = room(bytes), *to = room(count * bytes);
    put(from, bytes, comm->rank, 0);
    bool good = of_step ? comm->exchange->all_gather(comm, from, to, bytes, NULL) == OK
                        : comm_all_gather(comm, from, to, bytes) == OK;
    for (size_t rank = 0; rank < count; rank++) good = good && holds(to + rank * bytes, bytes, (int)rank, 0);
    free(from);
    free(to);
    return good;
}

static bool swap_all(struct comm *comm, size_t bytes)
{
    size_t count = (size_t)comm->count;
    unsigned char *from = room(count * bytes), *to = room(count * bytes);
    for (size_t rank = 0; rank < count; rank++) put(from + rank * bytes, bytes, comm->rank, (int)rank);
    bool good = comm->exchange->all_to_all(comm, from, to, bytes, NULL) == OK;
    for (size_t rank = 0; rank < count; rank++)
        good = good && holds(to + rank * bytes, bytes, (int)rank, comm->rank);
    free(from);
    free(to);
    return good;
}

static bool spread(struct comm *comm, size_t bytes, int root)
{
    unsigned char *data = room(bytes);
    if (comm->rank == root) put(data, bytes, root, 0);
    bool good = comm_broadcast(comm, root, data, bytes) == OK && holds(data, bytes, root, 0);
    free(data);
    return good;
}

static bool all_collectives(struct comm *comm)
{
    for (size_t i = 0; i < SIZES; i++) {
        if (!gather(comm, sizes[i], false) || !gather(comm, sizes[i], true)) return false;
        if (!swap_all(comm, sizes[i]) || !spread(comm, sizes[i], (int)i % comm->count)) return false;
        if (comm_barrier(comm) != OK) return false;
    }
    return true;
}

static void collectives_bring_every_byte(void **state)
{
    all_are_right(all_collectives);
}

static bool small_ones_in_haste(struct comm *comm)
{
    for (int i = 0; i < 2000; i++)
        if (!gather(comm, 8, false) || !swap_all(comm, (size_t)(i % 5))) return false;
    return true;
}

static void many_in_a_row_keep_apart(void **state)
{
    all_are_right(small_ones_in_haste);
}

/* All send before anyone receives, as stages of a pipeline do. */
static bool send_round(struct comm *comm)
{
    int next = (comm->rank + 1) % comm->count, last = (comm->rank + comm->count - 1) % comm->count;
    bool good = true;
    for (size_t turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < SIZES; i++) {
            unsigned char *from = room(sizes[i]);
            put(from, sizes[i], comm->rank, next);
            good = good && comm->exchange->send(comm, next, from, sizes[i], NULL) == OK;
            free(from);
        }
        for (size_t i = 0; i < SIZES; i++) {
            unsigned char *to = room(sizes[i]);
            good = good && comm->exchange->receive(comm, last, to, sizes[i], NULL) == OK &&
                   holds(to, sizes[i], last, comm->rank);
            free(to);
        }
    }
    return good;
}

static void messages_arrive_in_their_order(void **state)
{
    all_are_right(send_round);
}

/* More messages than the ring holds: the sender waits for the receiver. */
static bool send_many(struct comm *comm)
{
    int messages = 3 * SHARED_MAIL_MESSAGES;
    for (int i = 0; i < messages && comm->rank < 2 && comm->count > 1; i++) {
        int got = i;
        enum status status = comm->rank == 0 ? comm->exchange->send(comm, 1, &i, sizeof i, NULL)
                                             : comm->exchange->receive(comm, 0, &got, sizeof got, NULL);
        if (status != OK || got != i) return false;
    }
    return true;
}

static void a_full_mailbox_is_waited_for(void **state)
{
    all_are_right(send_many);
}

enum wait { IN_BARRIER, IN_BROADCAST, IN_GATHER, IN_RECEIVE };

/* True if the call fails, and says so. */
static bool fails(struct comm *comm, enum wait wait, size_t bytes, const char *words)
{
    struct caught caught;
    char own[2] = {0}, all[2 * RANKS_MAX];
    enum status status = OK;
    caught_begin(&caught);
    if (wait == IN_BARRIER) status = comm_barrier(comm);
    if (wait == IN_BROADCAST) status = comm_broadcast(comm, 0, own, bytes);
    if (wait == IN_GATHER) status = comm_all_gather(comm, own, all, bytes);
    int next = (comm->rank + 1) % comm->count;
    if (wait == IN_RECEIVE) status = comm->exchange->receive(comm, next, own, bytes, NULL);
    caught_end(&caught);
    bool good = status == FAILED && caught.errors == 1 && caught_has(&caught, words);
    text_free(&caught.words);
    return good;
}

static bool one_dies(struct comm *comm)
{
    if (comm_barrier(comm) != OK) return false;
    if (comm->rank == 1) raise(SIGKILL);
    return fails(comm, IN_BARRIER, 0, "rank 1 has ended");
}

static bool one_dies_who_should_send(struct comm *comm)
{
    if (comm_barrier(comm) != OK) return false;
    if (comm->rank == 1) raise(SIGKILL);
    const char *words = "rank 0 waits in receive, but rank 1 has ended";
    return comm->rank == 2 || fails(comm, IN_RECEIVE, 1, words);
}

static void others_go_on_without(part play)
{
    int ended[RANKS_MAX];
    double began = clock_seconds();
    play_ranks(3, 0, play, ended);
    assert_true(clock_seconds() - began < 20);
    assert_true(WIFSIGNALED(ended[1]) && WTERMSIG(ended[1]) == SIGKILL);
    assert_int_equal(ended[0], 0);
    assert_int_equal(ended[2], 0);
}

static void a_rank_that_is_killed_ends_all_waits(void **state)
{
    others_go_on_without(one_dies);
    others_go_on_without(one_dies_who_should_send);
}

static bool one_stays_away(struct comm *comm)
{
    if (comm_barrier(comm) != OK) return false;
    if (comm->rank == 1) return fails(comm, IN_BARRIER, 0, "rank 1 has waited for 0.2");
    sleep(2);
    return true;
}

static void a_wait_ends_after_its_timeout(void **state)
{
    int ended[RANKS_MAX];
    play_ranks(2, 0.2, one_stays_away, ended);
    assert_int_equal(ended[0], 0);
    assert_int_equal(ended[1], 0);
}

/* A rank that has not begun has not ended: it is waited for until the time is up. */
static void ranks_that_never_begin(void **state)
{
    struct comm *comm;
    struct caught caught;
    enum status barrier, send = OK;
    int block;
    assert_int_equal(shared_block_create(2, &block), OK);
    assert_int_equal(shared_open(block, 0, 0.1, &comm), OK);
    caught_begin(&caught);
    barrier = comm_barrier(comm);
    for (int i = 0; send == OK && i <= SHARED_MAIL_MESSAGES; i++)
        send = comm->exchange->send(comm, 1, NULL, 0, NULL);
    caught_end(&caught);
    comm_close(comm);
    assert_int_equal(barrier, FAILED);
    assert_int_equal(send, FAILED);
    assert_true(caught_has(&caught, "rank 0 has waited for 0.1"));
    assert_true(caught_has(&caught, "s in send"));
    text_free(&caught.words);
}

static bool ask_for_different_things(struct comm *comm)
{
    if (comm->rank == 0) return fails(comm, IN_BROADCAST, 1, "rank 1 is in all_gather of 1 bytes");
    return fails(comm, IN_GATHER, 1, "rank 0 is in broadcast of 1 bytes");
}

static bool ask_for_different_sizes(struct comm *comm)
{
    return fails(comm, IN_GATHER, comm->rank == 0 ? 1 : 2, "all_gather of 1 bytes");
}

static bool message_of_another_size(struct comm *comm)
{
    char byte = 0;
    if (comm->rank == 1) return comm->exchange->send(comm, 0, &byte, 1, NULL) == OK;
    return fails(comm, IN_RECEIVE, 2, "rank 1 sends 1 bytes where rank 0 is to receive 2");
}

static bool broadcasts_of_different_roots(struct comm *comm)
{
    struct caught caught;
    char byte = 0;
    caught_begin(&caught);
    enum status status = comm_broadcast(comm, comm->rank, &byte, 1);
    caught_end(&caught);
    bool good = status == FAILED && caught_has(&caught, "is in broadcast of 1 bytes while rank");
    text_free(&caught.words);
    return good;
}

static bool parts_of_different_sizes(struct comm *comm)
{
    struct caught caught;
    char from[8] = {0}, to[8];
    caught_begin(&caught);
    enum status status = comm->exchange->all_to_all(comm, from, to, comm->rank == 0 ? 2 : 4, NULL);
    caught_end(&caught);
    bool good = status == FAILED && caught_has(&caught, "all_to_all of 4 bytes");
    text_free(&caught.words);
    return good;
}

static void different_calls_are_an_error(void **state)
{
    static const part parts[] = {ask_for_different_things, ask_for_different_sizes, message_of_another_size,
                                 broadcasts_of_different_roots, parts_of_different_sizes};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int ended[RANKS_MAX];
        play_ranks(2, 0, parts[i], ended);
        assert_int_equal(ended[0], 0);
        assert_int_equal(ended[1], 0);
    }
}

static bool share_a_file(struct comm *comm)
{
    int64_t bytes = comm->rank == 0 ? 4096 : 100;
    int file;
    uint32_t number = 0;
    if (host_file_open(comm, &bytes, &file) != OK || bytes != 4096 || file < 0) return false;
    if (comm->rank == comm->count - 1) number = 12345;
    if (number > 0 && pwrite(file, &number, 4, 1000) != 4) return false;
    bool good = comm_barrier(comm) == OK && pread(file, &number, 4, 1000) == 4 && number == 12345;
    close(file);
    return good;
}

/* Every second rank. */
static bool exchange_in_groups(struct comm *comm)
{
    const struct group_ranks ranks = {comm->rank % 2, 2, 2};
    if (comm->count < 4) return true;
    struct comm *group = group_open(comm, &ranks);
    bool good = group->rank == comm->rank / 2 && group->count == 2;
    for (size_t i = 0; i < SIZES; i++)
        good = good && gather(group, sizes[i], true) && swap_all(group, sizes[i]);
    int number = comm->rank;
    good = good && comm_broadcast(group, 1, &number, sizes[3] - 60) == OK && number == ranks.first + 2;
    group_close(group);
    return good;
}

static bool group_fails(struct comm *group, size_t gathered, size_t broadcast, const char *words)
{
    struct caught caught;
    char own[16] = {0}, all[64];
    enum status status;
    caught_begin(&caught);
    if (broadcast > 0) status = comm_broadcast(group, 0, own, broadcast);
    else status = group->exchange->all_gather(group, own, all, gathered, NULL);
    caught_end(&caught);
    bool good = status == FAILED && caught_has(&caught, words);
    text_free(&caught.words);
    return good;
}

static bool groups_of_different_sizes(struct comm *comm)
{
    struct comm *group = group_open(comm, &(struct group_ranks){0, 1, comm->count});
    size_t own = comm->rank == 0 ? 8 : 16;
    bool good = group_fails(group, SHARED_MAIL_BYTES + 1, 0, "too many for one message") &&
                group_fails(group, own, 0, "where rank") && group_fails(group, 0, own, "all_gather of");
    group_close(group);
    return good;
}

static void groups_exchange_among_themselves(void **state)
{
    assert_null(group_open(NULL, &(struct group_ranks){0, 1, 1}));
    all_are_right(exchange_in_groups);
    int ended[RANKS_MAX];
    play_ranks(2, 0, groups_of_different_sizes, ended);
    assert_int_equal(ended[0], 0);
    assert_int_equal(ended[1], 0);
}

static bool find_least(struct comm *comm)
{
    int64_t number = 10 - comm->rank;
    return comm_minimum(comm, &number) == OK && number == 11 - comm->count;
}

static bool report_and_listen(struct comm *comm)
{
    comm_report(comm, &(struct comm_progress){.phase = COMM_STEP, .step = 3, .saved = 2});
    struct comm_request request = comm_requested(comm);
    return request.stop == 0 && request.checkpoints == 0 && request.statuses == 0;
}

/* Two ranks, of which the other one, on another host, has what this one has; so many more of its calls are
 * possible. */
static struct comm_backend others_backend;
static int calls_left;

static enum status other_broadcast(struct comm *comm, int root, void *data, size_t bytes)
{
    return calls_left-- > 0 ? OK : FAILED;
}

static enum status other_all_gather(struct comm *comm, const void *from, void *to, size_t bytes)
{
    if (calls_left-- <= 0) return FAILED;
    memset(to, 0, 2 * bytes);
    memcpy((char *)to + (size_t)comm->rank * bytes, from, bytes);
    return OK;
}

static enum status other_barrier(struct comm *comm)
{
    return calls_left-- > 0 ? OK : FAILED;
}

static enum status with_other(struct comm *comm, int work)
{
    int64_t number = 4096;
    double sum = 1;
    int file = -1;
    enum status status = OK;
    if (work == 0) status = compare_texts(comm, "a = 1\n");
    if (work == 1) status = comm_minimum(comm, &number);
    if (work == 2) status = comm_sum(comm, &sum, 1);
    if (work == 3) status = host_file_open(comm, &number, &file);
    assert_true(file >= 0 || comm->local_rank > 0 || status != OK || work != 3);
    if (status != OK) assert_true(number == 4096 && sum == 1 && file == -1);
    if (file >= 0) close(file);
    return status;
}

static void a_failed_exchange_is_passed_on(void **state)
{
    others_backend = (struct comm_backend){.broadcast = other_broadcast, .all_gather = other_all_gather,
                                           .barrier = other_barrier};
    for (int rank = 0; rank < 2; rank++) {
        struct comm comm = {.backend = &others_backend, .rank = rank, .count = 2, .local_rank = rank};
        static const int needed[] = {3, 1, 1, 2};
        for (int work = rank; work < 4; work++)
            for (int calls = 0; calls <= needed[work]; calls++) {
                calls_left = calls;
                assert_int_equal(with_other(&comm, work), calls < needed[work] ? FAILED : OK);
            }
        assert_int_equal(comm_requested(&comm).stop, 0);
        comm_report(&comm, &(struct comm_progress){.step = 1});
    }
}

/* Without it, ranks of the host share nothing, which is no error. */
static void a_file_that_cannot_be_made_is_not_offered(void **state)
{
    static const char *const calls[] = {"memfd_create", "ftruncate"};
    struct comm comm = {.backend = &others_backend, .count = 2};
    for (size_t i = 0; i < 2; i++) {
        int64_t bytes = 4096;
        int file = 5;
        calls_left = 2;
        refuse(calls[i], 0);
        assert_int_equal(host_file_open(&comm, &bytes, &file), OK);
        assert_true(refuse_struck());
        assert_int_equal(file, -1);
    }
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    struct host_file_offer offer = host_file_offer(pipes[0]);
    offer.file++;
    assert_int_equal(host_file_accept(&offer), -1);
    refuse("fstat", 0);
    assert_int_equal(host_file_offer(pipes[0]).file, 0);
    assert_true(refuse_struck());
    offer.descriptor = 1 << 20;
    assert_int_equal(host_file_accept(&offer), -1);
    offer.descriptor = -1;
    assert_int_equal(host_file_accept(&offer), -1);
    close(pipes[0]);
    close(pipes[1]);
}

/* A block that two ranks of this process use. */
static enum status use_block(void)
{
    struct comm *comm;
    int block;
    char byte = 1;
    TRY(shared_block_create(2, &block));
    enum status status = shared_open(block, 0, 0, &comm);
    if (status != OK) {
        close(block);
        return status;
    }
    status = comm->exchange->send(comm, 1, &byte, 1, NULL);
    if (status == OK) status = comm->exchange->send(comm, 0, &byte, 1, NULL);       /* to itself */
    if (status == OK) status = comm->exchange->receive(comm, 0, &byte, 1, NULL);
    comm_close(comm);
    return status;
}

static void a_system_that_refuses_is_reported(void **state)
{
    static const char *const calls[] = {"memfd_create", "ftruncate", "pwrite", "pread", "mmap"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        bool more = true;
        for (int before = 0; more; before++) {
            struct caught caught;
            refuse(calls[i], before);
            caught_begin(&caught);
            enum status status = use_block();
            caught_end(&caught);
            more = refuse_struck();
            assert_int_equal(status, more ? FAILED : OK);
            assert_int_equal(caught.errors, more);
            assert_true(more || before > 0);
            text_free(&caught.words);
        }
    }
}

static void ranks_that_others_started_are_counted(void **state)
{
    const char *by = "nobody";
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMI_SIZE");
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    assert_int_equal(mpi_ranks_count(&by), 1);
    assert_string_equal(by, "nobody");
    setenv("PMI_SIZE", "3", 1);
    assert_int_equal(mpi_ranks_count(&by), 3);
    assert_string_equal(by, "PMI_SIZE");
    assert_int_equal(mpi_ranks_count(NULL), 3);
    unsetenv("PMI_SIZE");
    unsetenv("SLURM_STEP_NUM_TASKS");
}

/* More ranks, or parts, need more memory; one needs none. */
static void memory_of_exchanges(void **state)
{
    const struct nccl_use parts = {.parts = true}, sums = {0};
    assert_int_equal(nccl_exchange_bytes(1, parts), 0);
    assert_true(nccl_exchange_bytes(2, sums) > 0);
    assert_true(nccl_exchange_bytes(2, parts) > nccl_exchange_bytes(2, sums));
    assert_true(nccl_exchange_bytes(4, parts) > nccl_exchange_bytes(2, parts));
}

static bool add_up(struct comm *comm)
{
    double numbers[2] = {comm->rank + 0.5, 1};
    return comm_sum(comm, numbers, 2) == OK && numbers[0] == 0.5 * comm->count * comm->count &&
           numbers[1] == comm->count;
}

static void numbers_are_added(void **state)
{
    all_are_right(add_up);
    all_are_right(find_least);
    all_are_right(report_and_listen);
}

static void ranks_of_a_host_share_a_file(void **state)
{
    all_are_right(share_a_file);
}

static bool have_the_same_text(struct comm *comm)
{
    return compare_texts(comm, "a = 1\nb = 2\n") == OK && compare_texts(comm, "") == OK;
}

/* The first rank that has another text says so, all fail. */
static bool have_different_texts(struct comm *comm)
{
    struct caught caught;
    caught_begin(&caught);
    enum status status = compare_texts(comm, comm->rank < 2 ? "a = 1\nb = 2\nc = 3\n" : "a = 1\nb = 5\n");
    caught_end(&caught);
    bool good = status == (comm->count > 2 ? USAGE : OK) && caught.errors == (comm->rank == 2);
    if (comm->rank == 2) good = good && caught_has(&caught, "rank 2 has 'b = 5' where rank 0 has 'b = 2'");
    text_free(&caught.words);
    return good;
}

static void different_texts_are_named(void **state)
{
    all_are_right(have_the_same_text);
    all_are_right(have_different_texts);
}

static void one_rank_alone_needs_no_comm(void **state)
{
    int from = 5, to = 0;
    assert_int_equal(comm_count(NULL), 1);
    assert_int_equal(comm_rank(NULL), 0);
    assert_int_equal(comm_barrier(NULL), OK);
    assert_int_equal(comm_all_gather(NULL, &from, &to, sizeof from), OK);
    assert_int_equal(to, 5);
    double number = 1.5;
    assert_int_equal(comm_sum(NULL, &number, 1), OK);
    assert_true(number == 1.5);
    assert_int_equal(comm_all_gather(NULL, NULL, NULL, 0), OK);
    assert_int_equal(comm_broadcast(NULL, 0, NULL, 0), OK);
    assert_int_equal(compare_texts(NULL, "a"), OK);
    comm_report(NULL, &(struct comm_progress){.step = 1});
    assert_int_equal(comm_requested(NULL).stop, 0);
    comm_close(NULL);
}

static void another_file_is_no_block(void **state)
{
    struct comm *comm;
    struct caught caught;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    caught_begin(&caught);
    bool good = shared_open(pipes[0], 0, 0, &comm) == FAILED && shared_open(-1, 0, 0, &comm) == FAILED;
    caught_end(&caught);
    assert_true(good && caught_has(&caught, "is not memory shared by ranks"));
    text_free(&caught.words);
    close(pipes[0]);
    close(pipes[1]);
    FILE *zeros = tmpfile();
    assert_non_null(zeros);
    assert_int_equal(ftruncate(fileno(zeros), 1 << 16), 0);
    caught_begin(&caught);
    enum status status = shared_open(fileno(zeros), 0, 0, &comm);
    caught_end(&caught);
    assert_int_equal(status, FAILED);
    text_free(&caught.words);
    fclose(zeros);
    shared_block_unmap(NULL);
}

/* Where in its file what is mapped at an address begins. */
static unsigned long offset_of(const void *mapped)
{
    char line[512];
    unsigned long from, offset = 1;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%*x %*s %lx", &from, &offset) == 2 && from == (unsigned long)mapped) break;
    assert_true(feof(maps) == 0);
    fclose(maps);
    return offset;
}

/* Processors other than x86's have pages of up to 64 KiB, and only multiples of a page can be mapped. */
static void mailboxes_begin_at_pages_of_any_size(void **state)
{
    int block;
    struct shared_mailbox *box;
    assert_int_equal(shared_block_create(3, &block), OK);
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            assert_int_equal(shared_mailbox_map(block, 3, from, to, &box), OK);
            assert_int_equal(offset_of(box) % 65536, 0);
            shared_mailbox_unmap(box);
        }
    close(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_bring_every_byte),
        cmocka_unit_test(many_in_a_row_keep_apart),
        cmocka_unit_test(messages_arrive_in_their_order),
        cmocka_unit_test(a_full_mailbox_is_waited_for),
        cmocka_unit_test(mailboxes_begin_at_pages_of_any_size),
        cmocka_unit_test(a_rank_that_is_killed_ends_all_waits),
        cmocka_unit_test(a_wait_ends_after_its_timeout),
        cmocka_unit_test(ranks_that_never_begin),
        cmocka_unit_test(different_calls_are_an_error),
        cmocka_unit_test(different_texts_are_named),
        cmocka_unit_test(numbers_are_added),
        cmocka_unit_test(ranks_of_a_host_share_a_file),
        cmocka_unit_test(groups_exchange_among_themselves),
        cmocka_unit_test(a_failed_exchange_is_passed_on),
        cmocka_unit_test(a_file_that_cannot_be_made_is_not_offered),
        cmocka_unit_test(a_system_that_refuses_is_reported),
        cmocka_unit_test(ranks_that_others_started_are_counted),
        cmocka_unit_test(memory_of_exchanges),
        cmocka_unit_test(one_rank_alone_needs_no_comm),
        cmocka_unit_test(another_file_is_no_block),
    };
    return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
}
