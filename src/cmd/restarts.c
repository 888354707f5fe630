#include "cmd/restarts.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/program_file.h"
#include "base/signals.h"

#define RESTARTED "AMPTRAIN_RESTARTED"   /* how often so far */

bool restarts_take(struct cmd *cmd)
{
    const char *restarted = getenv(RESTARTED);
    if (!restarted) return false;
    if (atoi(restarted) > 0) {
        cmd->restarted = cmd->resume = true;
        cmd->resume_file = NULL;
    }
    return true;
}

/* Goes on as the run in the new process, which has its own group, so that the terminal's signals only reach
 * the first one, and stops with a checkpoint when that ends. */
static void become_run(const struct cmd *cmd, long restarted, pid_t parent)
{
    char number[24];
    sigset_t child;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(FAILED);
    setpgid(0, 0);
    signal(SIGTTOU, SIG_IGN);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_UNBLOCK, &child, NULL);
    snprintf(number, sizeof number, "%ld", restarted);
    setenv(RESTARTED, number, 1);
    program_file_run(cmd->argv);
    log_line(LOG_ERROR, "this program's file cannot be run again: %s", strerror(errno));
    _exit(FAILED);
}

static bool is_stop(int number)
{
    return number == SIGINT || number == SIGTERM || number == SIGUSR1;
}

/* Waits for the process's end, and passes signals on. */
static int watch(pid_t process, const sigset_t *signals, bool *stopped)
{
    int result;
    if (signals_stop()) kill(process, signals_stop());
    for (;;) {
        int number = sigwaitinfo(signals, NULL);
        if (number == SIGCHLD && waitpid(process, &result, WNOHANG) == process) return result;
        if (number <= 0 || number == SIGCHLD) continue;
        *stopped = *stopped || is_stop(number);
        kill(process, number);
    }
}

static bool is_worth_it(int result)
{
    int status = WEXITSTATUS(result);
    return WIFSIGNALED(result) || status == FAILED || status == NO_DEVICE || status > 128;
}

static void add_end(int result, char said[64])
{
    if (WIFSIGNALED(result)) snprintf(said, 64, "was killed by signal %d", WTERMSIG(result));
    else snprintf(said, 64, "failed with status %d", WEXITSTATUS(result));
}

enum status restarts_run(struct cmd *cmd, long count)
{
    sigset_t signals;
    signals_set(&signals);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    bool stopped = signals_stop() != 0;
    for (long restarted = 0;; restarted++) {
        pid_t parent = getpid(), process = fork();
        if (process < 0) return fail(FAILED, "cannot start the run: %s", strerror(errno));
        if (process == 0) become_run(cmd, restarted, parent);
        int result = watch(process, &signals, &stopped);
        char said[64];
        add_end(result, said);
        if (stopped || restarted == count || !is_worth_it(result))
            return WIFSIGNALED(result) ? (enum status)(128 + WTERMSIG(result))
                                       : (enum status)WEXITSTATUS(result);
        log_warning("the run %s; it is started again from its last checkpoint (%ld of %ld times)", said,
                    restarted + 1, count);
    }
}
