/* The launcher of ranks: what they say is merged, and whatever happens to one of them, all end, with its exit
 * code. The ranks are this program, started anew with the name of a part. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/signals.h"
#include "cmd/launcher.h"
#include "tests/support/process.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

#define RANKS_MAX 4

/* In the ranks. */

static void tell(struct comm *comm, enum comm_phase phase, int64_t step, int64_t saved)
{
    comm_report(comm, &(struct comm_progress){.phase = phase, .step = step, .saved = saved});
}

static enum status play_well(struct comm *comm)
{
    int own = comm->rank, all[RANKS_MAX];
    TRY(comm_all_gather(comm, &own, all, sizeof own));
    for (int rank = 0; rank < comm->count; rank++)
        if (all[rank] != rank) return FAILED;
    return OK;
}

static enum status play_stopped(struct comm *comm)
{
    return comm_barrier(comm) == OK ? STOPPED : FAILED;
}

static enum status play_talking(struct comm *comm)
{
    log_info("all say this");
    if (comm->rank > 0) log_warning("two say this");
    if (comm->rank == 2) fprintf(stderr, "a line without an end");
    return comm_barrier(comm);
}

static enum status play_killed(struct comm *comm)
{
    tell(comm, COMM_STEP, 5, comm->rank == 0 ? 4 : -1);
    TRY(comm_barrier(comm));
    if (comm->rank == 1) raise(SIGKILL);
    return comm_barrier(comm);
}

static enum status play_one_fails(struct comm *comm)
{
    TRY(comm_barrier(comm));
    if (comm->rank == 2) return (fail)(BAD_DATA, "a file is gone");
    return comm_barrier(comm);
}

static enum status play_all_fail(struct comm *comm)
{
    if (comm->rank == 0) usleep(50000);
    return (fail)(USAGE, "a key is wrong");
}

static enum status play_one_fails_later(struct comm *comm)
{
    tell(comm, COMM_STEP, 7, -1);
    TRY(comm_barrier(comm));
    if (comm->rank == 1) return (fail)(NO_DEVICE, "a device is broken");
    return comm_barrier(comm);
}

static enum status play_one_hangs(struct comm *comm)
{
    tell(comm, COMM_STEP, 9, 8);
    TRY(comm_barrier(comm));
    if (comm->rank == 2) raise(SIGSTOP);
    return comm_barrier(comm);
}

static enum status play_all_hang(struct comm *comm)
{
    tell(comm, COMM_STEP, 9, 8);
    TRY(comm_barrier(comm));
    sleep(60);
    return OK;
}

static enum status play_one_stops_at_once(struct comm *comm)
{
    if (comm->rank == 2) raise(SIGSTOP);
    return comm_barrier(comm);
}

static enum status play_one_sleeps_at_once(struct comm *comm)
{
    if (comm->rank == 2) sleep(60);
    return comm_barrier(comm);
}

/* For longer than a rank may take that does nothing. */
static enum status play_one_computes(struct comm *comm)
{
    double began = clock_seconds();
    while (comm->rank == 2 && clock_seconds() - began < 3) {}
    return comm_barrier(comm);
}

static enum status play_until_asked(struct comm *comm)
{
    TRY(comm_barrier(comm));
    if (comm->rank == 0) fprintf(stderr, "ready\n");
    struct comm_request asked = {0};
    for (int i = 0; i < 6000 && asked.stop == 0; i++) {
        usleep(10000);
        asked = comm_requested(comm);
    }
    return asked.stop == SIGTERM && asked.checkpoints == 1 && asked.statuses == 1 ? STOPPED : FAILED;
}

static const struct part {
    const char *name;
    enum status (*play)(struct comm *comm);
} parts[] = {
    {"well", play_well},           {"stopped", play_stopped},     {"talking", play_talking},
    {"killed", play_killed},       {"one_fails", play_one_fails}, {"all_fail", play_all_fail},
    {"later", play_one_fails_later}, {"one_hangs", play_one_hangs}, {"all_hang", play_all_hang},
    {"until_asked", play_until_asked}, {"one_stops_at_once", play_one_stops_at_once},
    {"one_sleeps_at_once", play_one_sleeps_at_once}, {"one_computes", play_one_computes},
};

static int play(struct comm *comm, const char *name)
{
    enum status status = FAILED;
    alarm(60);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(parts[i].name, name) == 0) status = parts[i].play(comm);
    comm_close(comm);
    return (int)status;
}

/* In the test. */

/* The result of a launcher. */
struct outcome {
    int status;              /* of launcher_run */
    double seconds;
    char said[4096];
};

static int ranks = 3;
static const char *log_file;

static enum status launch(const char *name, double timeout)
{
    char *argv[] = {"test_launcher", text_copy(name), NULL};
    const struct launcher_options options = {.ranks = ranks, .argv = argv, .timeout = timeout,
                                             .log = log_file};
    enum status status = launcher_run(&options);
    free(argv[1]);
    return status;
}

static struct outcome outcome_of(const char *name, double timeout)
{
    struct outcome outcome = {0};
    FILE *file = tmpfile();
    int shown = dup(STDERR_FILENO);
    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    double began = clock_seconds();
    outcome.status = (int)launch(name, timeout);
    outcome.seconds = clock_seconds() - began;
    dup2(shown, STDERR_FILENO);
    close(shown);
    rewind(file);
    size_t length = fread(outcome.said, 1, sizeof outcome.said - 1, file);
    outcome.said[length] = '\0';
    fclose(file);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    return outcome;
}

static void good_ends_are_passed_on(void **state)
{
    struct outcome outcome = outcome_of("well", 0);
    assert_string_equal(outcome.said, "");
    assert_int_equal(outcome.status, OK);
    assert_int_equal(outcome_of("stopped", 0).status, STOPPED);
}

static void what_several_say_is_said_once(void **state)
{
    struct outcome outcome = outcome_of("talking", 0);
    assert_int_equal(outcome.status, OK);
    assert_string_equal(outcome.said, "all say this\n"
                                      "ranks 1, 2: amptrain: warning: two say this\n"
                                      "rank 2: a line without an end\n");
}

static void a_killed_rank_ends_all(void **state)
{
    struct outcome outcome = outcome_of("killed", 0);
    assert_int_equal(outcome.status, 128 + SIGKILL);
    assert_string_equal(outcome.said,
                        "amptrain: rank 1 was killed by signal 9 (Killed) in training after step 5; "
                        "the last checkpoint is of step 4: the same command with -r resumes\n");
    assert_true(outcome.seconds < 20);
}

static void the_first_failure_is_the_run_s(void **state)
{
    struct outcome outcome = outcome_of("one_fails", 0);
    assert_string_equal(outcome.said, "rank 2: amptrain: a file is gone\n");
    assert_int_equal(outcome.status, BAD_DATA);
    outcome = outcome_of("all_fail", 0);
    assert_string_equal(outcome.said, "amptrain: a key is wrong\n");
    assert_int_equal(outcome.status, USAGE);
    outcome = outcome_of("later", 0);
    assert_string_equal(outcome.said, "rank 1: amptrain: a device is broken\n"
                                      "amptrain: rank 1 ended with exit code 4 in training after step 7; "
                                      "there is no checkpoint\n");
    assert_int_equal(outcome.status, NO_DEVICE);
}

static void ranks_that_stand_still_are_ended(void **state)
{
    struct outcome outcome = outcome_of("one_hangs", 0.5);
    assert_non_null(strstr(outcome.said, "amptrain: rank 2 has made no progress for "));
    assert_non_null(strstr(outcome.said, "in training after step 9; the last checkpoint is of step 8"));
    assert_int_equal(outcome.status, FAILED);
    outcome = outcome_of("all_hang", 0.5);
    assert_non_null(strstr(outcome.said, "amptrain: no rank has made progress for "));
    assert_int_equal(outcome.status, FAILED);
    assert_true(outcome.seconds < 20);
}

static void starting_up_is_watched(void **state)
{
    const char *words = "amptrain: rank 2 has made no progress for ";
    struct outcome outcome = outcome_of("one_stops_at_once", 0.5);
    assert_int_equal(outcome.status, FAILED);
    assert_non_null(strstr(outcome.said, words));
    assert_non_null(strstr(outcome.said, "while others wait for it, while it started\n"));
    outcome = outcome_of("one_sleeps_at_once", 0.2);
    assert_int_equal(outcome.status, FAILED);
    const char *warning = strstr(outcome.said, "amptrain: warning: rank 2 has made no progress for ");
    assert_non_null(warning);
    assert_non_null(strstr(warning, "while it started; the run ends after 2 s\n"));
    assert_non_null(strstr(warning, words));
    assert_int_equal(outcome_of("one_computes", 0.2).status, OK);
}

/* A launcher in a process of its own, whose ranks have begun. `lives`: reading ends when all are gone. */
static pid_t launch_apart(const char *name, int *lives)
{
    int ends[2];
    char line[64] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        dup2(ends[1], STDERR_FILENO);
        _exit((int)launch(name, 0));
    }
    close(ends[1]);
    assert_true(read(ends[0], line, sizeof line - 1) > 0);
    assert_string_equal(line, "ready\n");
    *lives = ends[0];
    return pid;
}

/* How the launcher ended, when all that held its stderr are gone. */
static int wait_for_all(pid_t pid, int lives)
{
    char byte;
    int result;
    assert_int_equal(read(lives, &byte, 1), 0);
    assert_int_equal(waitpid(pid, &result, 0), pid);
    close(lives);
    return result;
}

static void signals_reach_the_ranks(void **state)
{
    int lives;
    pid_t pid = launch_apart("until_asked", &lives);
    kill(pid, SIGHUP);
    kill(pid, SIGUSR2);
    kill(pid, SIGTERM);
    int result = wait_for_all(pid, lives);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), STOPPED);
}

static void ranks_end_with_their_launcher(void **state)
{
    int lives;
    pid_t pid = launch_apart("until_asked", &lives);
    kill(pid, SIGKILL);
    int result = wait_for_all(pid, lives);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
}

/* A launcher adds to the first rank's log what that one does not know. */
static void the_log_has_all(void **state)
{
    char path[] = "/tmp/test_launcher.XXXXXX", log[4096] = "";
    close(mkstemp(path));
    log_file = path;
    outcome_of("all_fail", 0);                 /* before the first rank has told of itself */
    outcome_of("later", 0);
    log_file = NULL;
    FILE *file = fopen(path, "re");
    size_t length = fread(log, 1, sizeof log - 1, file);
    fclose(file);
    unlink(path);
    assert_true(length > 0);
    char *second = strchr(log, '\n') + 1;
    assert_non_null(strstr(log, " error: rank 1: a device is broken\n"));
    assert_true(strstr(log, "rank 1: ") < second);
    assert_non_null(strstr(second, " error: rank 1 ended with exit code 4 in training after step 7; "));
    assert_int_equal(strchr(second, '\n')[1], '\0');
}

static int open_descriptors(void)
{
    int count = 0;
    for (int i = 0; i < 256; i++) count += fcntl(i, F_GETFD) >= 0;
    return count;
}

static int entries_of(const char *folder)
{
    DIR *directory = opendir(folder);
    int count = 0;
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

static void nothing_is_left_behind(void **state)
{
    static const struct {
        const char *part;
        int status;
    } ends[] = {{"well", OK}, {"stopped", STOPPED}, {"killed", 128 + SIGKILL}, {"later", NO_DEVICE}};
    long count = rounds(8, 200);
    /* In the short form, other tests may run at the same time. */
    bool alone = count > 8;
    outcome_of("well", 0);
    int descriptors = open_descriptors(), shared = entries_of("/dev/shm");
    long memory = process_status("VmRSS:");
    for (long i = 0; i < count; i++) {
        ranks = i % 2 == 0 ? 2 : 4;
        assert_int_equal(outcome_of(ends[i / 2 % 4].part, 0).status, ends[i / 2 % 4].status);
        assert_int_equal(open_descriptors(), descriptors);
        assert_true(!alone || entries_of("/dev/shm") == shared);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    }
    ranks = 3;
    figure("%ld starts and stops: %ld KiB more resident memory", count, process_status("VmRSS:") - memory);
    assert_true(process_status("VmRSS:") - memory < 4096);
}

int main(int argc, char **argv)
{
    struct comm *comm;
    int absent;
    signals_hold();
    if (launcher_join(&(struct tcp_ranks_options){.stages = 1, .parts = 1}, &comm, &absent) != OK) return FAILED;
    if (comm) return play(comm, argc > 1 ? argv[1] : "");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_ends_are_passed_on),
        cmocka_unit_test(what_several_say_is_said_once),
        cmocka_unit_test(a_killed_rank_ends_all),
        cmocka_unit_test(the_first_failure_is_the_run_s),
        cmocka_unit_test(ranks_that_stand_still_are_ended),
        cmocka_unit_test(starting_up_is_watched),
        cmocka_unit_test(signals_reach_the_ranks),
        cmocka_unit_test(ranks_end_with_their_launcher),
        cmocka_unit_test(the_log_has_all),
        cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests_name("launcher", tests, NULL, NULL);
}
