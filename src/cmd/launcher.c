#include "cmd/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/directory.h"
#include "base/host.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/program_file.h"
#include "base/signals.h"
#include "base/text.h"
#include "cmd/launcher_lines.h"
#include "comm/mpi_ranks.h"
#include "comm/pmix_ranks.h"
#include "comm/shared.h"
#include "comm/shared_block.h"

/* A rank's place, from its environment. */
#define RANK "AMPTRAIN_RANK"
#define BLOCK "AMPTRAIN_BLOCK"
#define TERMINAL "AMPTRAIN_TERMINAL"

/* Without parallel.timeout: seconds, or so many steps if those take longer. */
#define TIMEOUT_SECONDS 60.0
#define TIMEOUT_STEPS 20.0
/* Factors of the timeout outside of steps, where progress is rarer: after the timeout itself a warning names
 * the rank that is waited for. */
static const double timeout_factor[] = {
    [COMM_START] = 10, [COMM_STEP] = 1, [COMM_EVALUATION] = 10, [COMM_CHECKPOINT] = 10, [COMM_END] = 10,
};
/* Seconds in which other ranks may fail for the same reason as the first one. */
#define GRACE 0.2
/* Seconds in which killed processes should be gone. */
#define REAP_SECONDS 30.0

struct child {
    pid_t pid;
    int pidfd, output;           /* -1: closed */
    bool ended;
    int result;                  /* of waitpid, once ended */
};

struct launcher {
    const struct launcher_options *options;
    int descriptor;
    struct shared_block *block;
    struct child *children;
    struct pollfd *polled;       /* signals, then for each rank its end and its output */
    int signals;
    struct lines *lines;
    int first;                   /* the rank that failed first; -1: none */
    double failed;               /* when that was noticed */
    double progressed;           /* when a rank last made progress */
    double asked;                /* when the ranks were asked to stop; 0: not yet */
    double first_step;           /* when this run's first step ended; 0: not yet */
    int64_t step_then;
    uint64_t progress;           /* reports and exchanges of all ranks so far, and work (work_of) */
    bool warned;                 /* that there has been none since */
};

/* Until the first rank has reported, the log may belong to another run. */
static void write_log(void *context, enum log_level level, const char *line)
{
    const struct launcher *launcher = context;
    const char *path = launcher->options->log;
    bool begun = launcher->block && atomic_load(&launcher->block->ranks[0].reports) > 0;
    struct reason unsaid;
    if (!path || !begun) return;
    int file = directory_file(&directory_working, path, O_WRONLY | O_CREAT | O_APPEND, &unsaid);
    if (file < 0) return;
    char stamp[LOG_STAMP];
    log_stamp(level, stamp);
    char *stamped = text_format("%s%s\n", stamp, line);
    /* If it cannot be written, it was at least printed. */
    ssize_t written = write(file, stamped, strlen(stamped));
    (void)written;
    free(stamped);
    close(file);
}

/* Starting. */

static enum status open_launcher(struct launcher *launcher)
{
    int ranks = launcher->options->ranks;
    launcher->children = memory_new((size_t)ranks, sizeof *launcher->children);
    launcher->polled = memory_new((size_t)(1 + 2 * ranks), sizeof *launcher->polled);
    const struct log_sink log = {write_log, launcher};
    launcher->lines = lines_new(ranks, isatty(STDERR_FILENO), log);
    log_set_sink(log);
    for (int rank = 0; rank < ranks; rank++)
        launcher->children[rank] = (struct child){.pidfd = -1, .output = -1, .ended = true};
    sigset_t watched;
    signals_set(&watched);
    launcher->signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (launcher->signals < 0) return fail(FAILED, "signals cannot be received: %s", strerror(errno));
    TRY(shared_block_create(ranks, &launcher->descriptor));
    return shared_block_map(launcher->descriptor, &launcher->block);
}

static void close_launcher(struct launcher *launcher)
{
    for (int rank = 0; rank < launcher->options->ranks; rank++) {
        if (launcher->children[rank].pidfd >= 0) close(launcher->children[rank].pidfd);
        if (launcher->children[rank].output >= 0) close(launcher->children[rank].output);
    }
    log_set_sink((struct log_sink){0});
    lines_free(launcher->lines);
    shared_block_unmap(launcher->block);
    if (launcher->descriptor >= 0) close(launcher->descriptor);
    if (launcher->signals >= 0) close(launcher->signals);
    free(launcher->children);
    free(launcher->polled);
}

static void set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* In the new process. It has its own process group, so that signals of the terminal only reach the launcher;
 * it may nevertheless write to the terminal; and it ends with the launcher. */
static void become_rank(const struct launcher *launcher, int rank, int output, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(FAILED);
    setpgid(0, 0);
    signal(SIGTTOU, SIG_IGN);
    if (rank == 0 && isatty(STDERR_FILENO)) set_number(TERMINAL, dup(STDERR_FILENO));
    dup2(output, STDERR_FILENO);
    fcntl(launcher->descriptor, F_SETFD, 0);
    set_number(RANK, rank);
    set_number(BLOCK, launcher->descriptor);
    int threads = host_processors() / launcher->options->ranks;
    if (!getenv("OMP_NUM_THREADS")) set_number("OMP_NUM_THREADS", threads > 0 ? threads : 1);
    program_file_run(launcher->options->argv);
    log_line(LOG_ERROR, "rank %d: this program's file cannot be run again: %s", rank, strerror(errno));
    _exit(FAILED);
}

static enum status start_rank(struct launcher *launcher, int rank)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail(FAILED, "no pipe for rank %d: %s", rank, strerror(errno));
    struct child *child = &launcher->children[rank];
    pid_t parent = getpid();
    child->output = ends[0];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    child->pid = fork();
    if (child->pid == 0) become_rank(launcher, rank, ends[1], parent);
    child->ended = child->pid < 0;
    close(ends[1]);
    if (child->pid < 0) return fail(FAILED, "rank %d cannot be started: %s", rank, strerror(errno));
    child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    if (child->pidfd < 0) return fail(FAILED, "rank %d cannot be watched: %s", rank, strerror(errno));
    return OK;
}

/* The end of a rank. */

static bool is_failure(const struct child *child)
{
    if (!WIFEXITED(child->result)) return true;
    return WEXITSTATUS(child->result) != OK && WEXITSTATUS(child->result) != STOPPED;
}

static enum status exit_status(const struct child *child)
{
    if (WIFEXITED(child->result)) return (enum status)WEXITSTATUS(child->result);
    return (enum status)(128 + WTERMSIG(child->result));
}

static const char *const phase_names[] = {
    [COMM_START] = "while it started", [COMM_STEP] = "in training", [COMM_EVALUATION] = "in evaluation",
    [COMM_CHECKPOINT] = "at a checkpoint", [COMM_END] = "at the end",
};

static enum comm_phase phase_of(const struct launcher *launcher, int rank)
{
    uint32_t phase = atomic_load(&launcher->block->ranks[rank].phase);
    return phase <= COMM_END ? (enum comm_phase)phase : COMM_START;
}

/* "in training after step 12345; the last checkpoint is of step 12000: the same command with -r resumes" */
static void add_place(const struct launcher *launcher, int rank, struct text *out)
{
    const struct shared_rank *own = &launcher->block->ranks[rank];
    int64_t saved = -1;
    for (int other = 0; other < launcher->options->ranks; other++) {
        const struct shared_rank *its = &launcher->block->ranks[other];
        if (atomic_load(&its->pid) != 0 && atomic_load(&its->saved) > saved) saved = atomic_load(&its->saved);
    }
    enum comm_phase phase = phase_of(launcher, rank);
    text_add(out, "%s", phase_names[phase]);
    if (phase != COMM_START) text_add(out, " after step %" PRId64, (int64_t)atomic_load(&own->step));
    if (phase != COMM_START && saved < 0) text_add(out, "; there is no checkpoint");
    if (saved >= 0)
        text_add(out, "; the last checkpoint is of step %" PRId64 ": the same command with -r resumes",
                 saved);
}

/* A rank that failed by itself before or after training has already printed the reason. */
static void report_failure(const struct launcher *launcher)
{
    const struct child *child = &launcher->children[launcher->first];
    enum comm_phase phase = phase_of(launcher, launcher->first);
    bool said = phase == COMM_START || phase == COMM_END;
    if (WIFEXITED(child->result) && WEXITSTATUS(child->result) < 126 && said) return;
    struct text text = {0};
    if (WIFEXITED(child->result))
        text_add(&text, "rank %d ended with exit code %d ", launcher->first, WEXITSTATUS(child->result));
    else
        text_add(&text, "rank %d was killed by signal %d (%s) ", launcher->first, WTERMSIG(child->result),
                 strsignal(WTERMSIG(child->result)));
    add_place(launcher, launcher->first, &text);
    log_line(LOG_ERROR, "%s", text.data);
    text_free(&text);
}

/* The failed rank whose end the others noticed; -1: none has failed. */
static int first_failure(const struct launcher *launcher)
{
    int lost = (int)atomic_load(&launcher->block->lost) - 1, first = -1;
    for (int rank = launcher->options->ranks - 1; rank >= 0; rank--) {
        const struct child *child = &launcher->children[rank];
        bool failed = child->ended && child->pid > 0 && is_failure(child);
        if (failed && (first < 0 || first != lost)) first = rank;
    }
    return first;
}

static void note_ends(struct launcher *launcher)
{
    for (int rank = 0; rank < launcher->options->ranks; rank++) {
        struct child *child = &launcher->children[rank];
        if (!child->ended) child->ended = waitpid(child->pid, &child->result, WNOHANG) == child->pid;
    }
    int first = launcher->first < 0 ? first_failure(launcher) : -1;
    if (first < 0) return;
    const struct child *child = &launcher->children[first];
    launcher->first = first;
    launcher->failed = clock_seconds();
    if (child->output >= 0) lines_read(launcher->lines, first, child->output);
    lines_only(launcher->lines, first);
}

static void kill_ranks(struct launcher *launcher)
{
    for (int rank = 0; rank < launcher->options->ranks; rank++)
        if (!launcher->children[rank].ended) kill(launcher->children[rank].pid, SIGKILL);
}

static bool any_running(const struct launcher *launcher)
{
    for (int rank = 0; rank < launcher->options->ranks; rank++)
        if (!launcher->children[rank].ended) return true;
    return false;
}

/* Signals. */

static void end_at_once(struct launcher *launcher, int number)
{
    kill_ranks(launcher);
    signal(number, SIG_DFL);
    raise(number);
    signals_release();
}

/* Ranks that open data do not see a request to stop, and have nothing to save. */
static void end_starting_ranks(struct launcher *launcher)
{
    bool due = launcher->asked > 0 && clock_seconds() - launcher->asked > SIGNALS_GRACE;
    bool starting = phase_of(launcher, 0) == COMM_START;
    if (due && starting) end_at_once(launcher, atomic_load(&launcher->block->stop));
}

static void forward_signal(struct launcher *launcher, int number)
{
    struct shared_block *block = launcher->block;
    int none = 0;
    if (number == SIGHUP) {
        atomic_fetch_add(&block->checkpoints, 1);
    } else if (number == SIGUSR2) {
        atomic_fetch_add(&block->statuses, 1);
    } else if (atomic_compare_exchange_strong(&block->stop, &none, number)) {
        launcher->asked = clock_seconds();
    } else {
        end_at_once(launcher, number);         /* asked twice */
    }
}

static void take_signals(struct launcher *launcher)
{
    struct signalfd_siginfo got;
    while (read(launcher->signals, &got, sizeof got) == (ssize_t)sizeof got)
        forward_signal(launcher, (int)got.ssi_signo);
}

/* Ranks without progress. */

static double factor_of(const struct launcher *launcher)
{
    double factor = 1;
    for (int rank = 0; rank < launcher->options->ranks; rank++) {
        double its = timeout_factor[phase_of(launcher, rank)];
        if (!launcher->children[rank].ended && its > factor) factor = its;
    }
    return factor;
}

static double timeout_of(const struct launcher *launcher)
{
    const struct shared_rank *first = &launcher->block->ranks[0];
    double seconds = launcher->options->timeout;
    int64_t steps = launcher->first_step > 0 ? atomic_load(&first->step) - launcher->step_then : 0;
    if (seconds == 0 && steps > 0)
        seconds = TIMEOUT_STEPS * (launcher->progressed - launcher->first_step) / (double)steps;
    if (launcher->options->timeout == 0 && seconds < TIMEOUT_SECONDS) seconds = TIMEOUT_SECONDS;
    return seconds;
}

/* A rank that starts up, such as one that lists a data set, exchanges nothing for long: what counts then is
 * the time of the processor that it takes, in tenths of seconds. Ranks that wait take some as well, so only
 * those are asked that others may wait for. */
static uint64_t work_of(const struct launcher *launcher, int rank)
{
    const struct shared_rank *ranks = launcher->block->ranks;
    clockid_t clock;
    struct timespec used;
    for (int other = 0; other < launcher->options->ranks; other++)
        if (atomic_load(&ranks[other].exchanges) < atomic_load(&ranks[rank].exchanges)) return 0;
    bool known = phase_of(launcher, rank) == COMM_START && !launcher->children[rank].ended &&
                 clock_getcpuclockid(launcher->children[rank].pid, &clock) == 0 &&
                 clock_gettime(clock, &used) == 0;
    return known ? (uint64_t)used.tv_sec * 10 + (uint64_t)used.tv_nsec / 100000000 : 0;
}

static void note_progress(struct launcher *launcher)
{
    const struct shared_rank *ranks = launcher->block->ranks;
    uint64_t progress = 0;
    for (int rank = 0; rank < launcher->options->ranks; rank++)
        progress += atomic_load(&ranks[rank].reports) + atomic_load(&ranks[rank].exchanges) +
                    work_of(launcher, rank);
    if (progress == launcher->progress) return;
    launcher->progress = progress;
    launcher->warned = false;
    launcher->progressed = clock_seconds();
    if (launcher->first_step > 0 || phase_of(launcher, 0) != COMM_STEP) return;
    launcher->first_step = launcher->progressed;
    launcher->step_then = atomic_load(&ranks[0].step);
}

/* Stopped by a signal such as SIGSTOP. */
static bool is_stopped(const struct child *child)
{
    siginfo_t info = {0};
    return !child->ended && waitid(P_PID, (id_t)child->pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

/* The rank that is stopped, or has reached fewer exchanges than others; -1: all have reached equally many. */
static int find_slowest(const struct launcher *launcher)
{
    const struct shared_rank *ranks = launcher->block->ranks;
    int behind = 0;
    bool all_same = true;
    for (int rank = 0; rank < launcher->options->ranks; rank++)
        if (is_stopped(&launcher->children[rank])) return rank;
    for (int rank = 1; rank < launcher->options->ranks; rank++) {
        uint64_t its = atomic_load(&ranks[rank].exchanges), least = atomic_load(&ranks[behind].exchanges);
        all_same = all_same && its == least;
        if (its < least) behind = rank;
    }
    return all_same ? -1 : behind;
}

static void add_stall(const struct launcher *launcher, int behind, double still, struct text *text)
{
    if (behind < 0)
        text_add(text, "no rank has made progress for %.0f s, all at the same point, ", still);
    else
        text_add(text, "rank %d has made no progress for %.0f s while others wait for it, ", behind, still);
    add_place(launcher, behind < 0 ? 0 : behind, text);
}

static void end_hung_ranks(struct launcher *launcher)
{
    note_progress(launcher);
    double still = clock_seconds() - launcher->progressed, timeout = timeout_of(launcher);
    if (still < timeout) return;
    int behind = find_slowest(launcher);
    bool stopped = behind >= 0 && is_stopped(&launcher->children[behind]);
    bool ends = stopped || still >= factor_of(launcher) * timeout;
    struct text text = {0};
    add_stall(launcher, behind, still, &text);
    if (ends)
        log_line(LOG_ERROR, "%s", text.data);
    else if (!launcher->warned)
        log_warning("%s; the run ends after %.0f s", text.data, factor_of(launcher) * timeout);
    text_free(&text);
    launcher->warned = true;
    if (!ends) return;
    launcher->first = behind < 0 ? 0 : behind;
    kill_ranks(launcher);
}

/* Watching. */

static double seconds_to_wait(const struct launcher *launcher)
{
    if (launcher->first >= 0) return GRACE / 4;
    if (lines_wait(launcher->lines)) return 0.1;
    double timeout = launcher->options->timeout;
    return timeout > 0 && timeout < 4 ? timeout / 4 : 1;
}

static void wait_for_events(struct launcher *launcher)
{
    struct pollfd *polled = launcher->polled;
    int count = launcher->options->ranks;
    polled[0] = (struct pollfd){.fd = launcher->signals, .events = POLLIN};
    for (int rank = 0; rank < count; rank++) {
        const struct child *child = &launcher->children[rank];
        polled[1 + 2 * rank] = (struct pollfd){.fd = child->ended ? -1 : child->pidfd, .events = POLLIN};
        polled[2 + 2 * rank] = (struct pollfd){.fd = child->output, .events = POLLIN};
    }
    poll(polled, (nfds_t)(1 + 2 * count), (int)(1000 * seconds_to_wait(launcher)));
}

static void handle_events(struct launcher *launcher)
{
    const struct pollfd *polled = launcher->polled;
    if (polled[0].revents) take_signals(launcher);
    note_ends(launcher);
    for (int rank = 0; rank < launcher->options->ranks; rank++) {
        struct child *child = &launcher->children[rank];
        if (polled[2 + 2 * rank].revents && !lines_read(launcher->lines, rank, child->output)) {
            close(child->output);
            child->output = -1;
        }
    }
    lines_show(launcher->lines, false);
}

static void watch(struct launcher *launcher)
{
    launcher->progressed = clock_seconds();
    while (any_running(launcher) && launcher->first < 0) {
        wait_for_events(launcher);
        handle_events(launcher);
        end_starting_ranks(launcher);
        if (launcher->first < 0) end_hung_ranks(launcher);
    }
}

/* If a rank failed by itself, others may fail for the same reason, which is then printed once. */
static void end_all(struct launcher *launcher)
{
    double began = clock_seconds();
    bool grace = launcher->failed > 0 && WIFEXITED(launcher->children[launcher->first].result);
    while (any_running(launcher) && clock_seconds() - began < REAP_SECONDS) {
        if (!grace || clock_seconds() - launcher->failed > GRACE) kill_ranks(launcher);
        wait_for_events(launcher);
        handle_events(launcher);
    }
}

static void read_the_rest(struct launcher *launcher)
{
    for (int rank = 0; rank < launcher->options->ranks; rank++) {
        const struct child *child = &launcher->children[rank];
        if (child->output >= 0) lines_read(launcher->lines, rank, child->output);
    }
    lines_show(launcher->lines, true);
}

static enum status start_and_watch(struct launcher *launcher)
{
    enum status status = open_launcher(launcher);
    for (int rank = 0; rank < launcher->options->ranks && status == OK; rank++)
        status = start_rank(launcher, rank);
    if (status == OK && signals_stop()) atomic_store(&launcher->block->stop, signals_stop());
    if (status == OK)
        watch(launcher);
    else if (launcher->block)
        kill_ranks(launcher);
    if (launcher->block) end_all(launcher);
    read_the_rest(launcher);
    if (status != OK) return status;
    if (launcher->failed > 0) report_failure(launcher);
    if (launcher->first >= 0 && launcher->failed == 0) return FAILED;
    return exit_status(&launcher->children[launcher->first < 0 ? 0 : launcher->first]);
}

enum status launcher_run(const struct launcher_options *options)
{
    struct launcher launcher = {.options = options, .descriptor = -1, .signals = -1, .first = -1};
    signal(SIGPIPE, SIG_IGN);
    signals_hold();
    signals_ready();
    enum status status = start_and_watch(&launcher);
    close_launcher(&launcher);
    return status;
}

/* In a rank. */

static int number_of(const char *name)
{
    const char *value = getenv(name);
    return value ? atoi(value) : -1;
}

/* For processes that mpirun or srun started. */
static enum status join_job(double timeout, struct comm **comm)
{
    TRY(pmix_ranks_open(timeout, comm));
    return *comm ? OK : mpi_ranks_open(timeout, comm);
}

enum status launcher_join(const struct tcp_ranks_options *options, struct comm **comm, int *absent)
{
    *comm = NULL;
    *absent = 0;
    bool launched = getenv(RANK) && getenv(BLOCK);
    if (!launched && tcp_ranks_started()) return tcp_ranks_open(options, comm, absent);
    if (!launched) return mpi_ranks_count(NULL) > 1 ? join_job(options->timeout, comm) : OK;
    int rank = number_of(RANK), block = number_of(BLOCK);
    fcntl(block, F_SETFD, FD_CLOEXEC);
    return shared_open(block, rank, 0, comm);
}

int launcher_terminal(void)
{
    return number_of(TERMINAL);
}
