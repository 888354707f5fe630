#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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
#include "base/signature.h"
#include "cmd/cmd.h"
#include "cmd/sweep_grid.h"
#include "device/device.h"
#include "forecast/forecast.h"
#include "report/run_records.h"
#include "session/plausible.h"
#include "session/session_open.h"
#include "train/folder.h"

#define LOOK_NANOSECONDS 50000000L     /* how often ended runs are looked for */
#define TAKEN_SECONDS 60               /* in which runs of a sweep that was killed write checkpoints */
#define WORDS_HEAD "amptrain sweep: "  /* of the files of what runs say */

struct trial {
    const struct sweep_run *run;
    char *folder, *words;              /* of the run; the file of what it says, while it runs */
    pid_t pid;                         /* 0: it does not run */
    int slot;
    int64_t bytes;                     /* of memory, as planned; 0: not known */
    bool ended;
    enum status status;
};

struct sweeping {
    const struct cmd *cmd;
    struct sweep sweep;
    struct trial *trials;              /* [sweep.count] */
    int slots, running, gpus;
    bool *taken;                       /* [slots] */
    bool divided;                      /* each run has an equal part of the processors */
    int64_t memory, used;              /* that may be used; by runs that run; 0: not counted */
    double began;
    bool stopping;
};

static enum status read_settings(const struct cmd *cmd, const struct sweep_run *run,
                                 struct settings *settings)
{
    const struct settings_sources sources = {
        .file = cmd->config, .overrides = (const char *const *)run->sets, .override_count = run->set_count,
        .check = plausible_names,
    };
    return settings_read(&sources, settings);
}

/* Files of the names of those that the sweep writes and removes are its own. */
static enum status check_words(const struct sweeping *all)
{
    struct stat status;
    for (int i = 0; i < all->sweep.count; i++) {
        const char *words = all->trials[i].words;
        bool found = lstat(words, &status) == 0 && S_ISREG(status.st_mode);
        if (found && !signature_matches(&directory_working, words, WORDS_HEAD "*"))
            return fail(USAGE, "%s: was not written by amptrain and would be overwritten; name another "
                        "folder", words);
    }
    return OK;
}

/* Every mistake of a value is found before the first run begins. */
static enum status check_settings(const struct sweeping *all)
{
    for (int i = 0; i < all->sweep.count; i++) {
        struct settings settings = {.origins = NULL};
        TRY(read_settings(all->cmd, &all->sweep.runs[i], &settings));
        settings_free(&settings);
    }
    return OK;
}

/* How many GPUs the runs are for; 0: they are for the CPU. */
static int gpus_of(struct settings *settings)
{
    const struct session session = {.settings = settings};
    struct reason reason;
    if (session_device_kind(&session) != DEVICE_CUDA) return 0;
    for (const struct device_backend *const *backend = device_backends; *backend; backend++)
        if ((*backend)->kind == DEVICE_CUDA) return (*backend)->count(&reason);
    return 0;
}

static enum status set_slots(struct sweeping *all)
{
    struct settings settings = {.origins = NULL};
    size_t available, total;
    long jobs = 1;
    char *end = NULL;
    if (all->cmd->jobs) jobs = strtol(all->cmd->jobs, &end, 10);
    if (end && (end == all->cmd->jobs || *end != '\0' || jobs < 1 || jobs > 1024))
        return fail(USAGE, "sweep: -j must be a whole number between 1 and 1024, not '%s'", all->cmd->jobs);
    TRY(read_settings(all->cmd, &all->sweep.runs[0], &settings));
    all->gpus = gpus_of(&settings);
    bool named = strchr(settings.run.device, ':') || settings.parallel.gpus > 1;
    all->divided = all->gpus == 0 && jobs > 1 && !settings_given(&settings, "run", "threads");
    settings_free(&settings);
    int most = named ? 1 : all->gpus;
    if (all->gpus > 0 && jobs > most) {
        log_warning("sweep: -j %ld: a GPU runs one at a time; %d run%s", jobs, most, most == 1 ? "s" : "");
        jobs = most;
    }
    all->slots = (int)jobs;
    all->taken = memory_new((size_t)all->slots, sizeof *all->taken);
    if (all->gpus > 0 || jobs == 1) return OK;
    host_memory(&available, &total);
    all->memory = (int64_t)available;
    return OK;
}

/* Bytes of a training step, as planned; 0: it cannot be planned, which the run itself reports. */
static int64_t planned_bytes(const struct cmd *cmd, const struct sweep_run *run)
{
    const struct data_options data = {.file = cmd->config, .wanted = DATA_TRAIN | DATA_VAL};
    const struct forecast_options options = {.hosts = 1};
    struct settings settings = {.origins = NULL};
    struct session session;
    struct forecast forecast;
    int64_t bytes = 0;
    if (read_settings(cmd, run, &settings) != OK) return 0;
    if (session_open(&settings, &data, NULL, &session) == OK) {
        if (forecast_make(&session, &options, &forecast) == OK) {
            bytes = forecast.bytes.total;
            forecast_free(&forecast);
        }
        session_close(&session);
    }
    settings_free(&settings);
    return bytes;
}

/* ---- Runs ---- */

static char *const *arguments_of(const struct sweeping *all, const struct trial *trial)
{
    char **words = NULL;
    int count = 0;
    *array_push(words, count) = text_copy("amptrain");
    *array_push(words, count) = text_copy("train");
    *array_push(words, count) = text_copy("-q");
    if (all->cmd->config) *array_push(words, count) = text_format("--config=%s", all->cmd->config);
    for (int i = 0; i < trial->run->set_count; i++)
        *array_push(words, count) = text_format("-s%s", trial->run->sets[i]);
    int threads = host_processors() / all->slots;
    if (all->divided)
        *array_push(words, count) = text_format("-srun.threads=%d", threads > 0 ? threads : 1);
    if (all->gpus > 1 && all->slots > 1)
        *array_push(words, count) = text_format("-srun.device=cuda:%d", trial->slot);
    char *last = text_format("%s/checkpoint-last.safetensors", trial->folder);
    if (access(last, F_OK) == 0) *array_push(words, count) = text_copy("-r");
    free(last);
    *array_push(words, count) = text_format("--output=%s", trial->folder);
    *array_push(words, count) = NULL;
    return words;
}

/* In the new process: it has its own group, so that the terminal's signals reach the sweep alone, and stops
 * with a checkpoint when that ends. */
static void become_run(int words, char *const *arguments, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(FAILED);
    setpgid(0, 0);
    dup2(words, STDOUT_FILENO);
    dup2(words, STDERR_FILENO);
    program_file_run(arguments);
    log_line(LOG_ERROR, "this program's file cannot be run again: %s", strerror(errno));
    _exit(FAILED);
}

static void arguments_free(char *const *arguments)
{
    for (int i = 0; arguments[i]; i++) free(arguments[i]);
    free((void *)arguments);
}

static enum status start(struct sweeping *all, struct trial *trial)
{
    struct reason reason;
    int words = directory_file(&directory_working, trial->words, O_WRONLY | O_CREAT | O_TRUNC, &reason);
    if (words < 0) return directory_refuse(&directory_working, trial->words, reason.text);
    dprintf(words, WORDS_HEAD "%s\n", trial->run->name);
    while (all->taken[trial->slot]) trial->slot++;
    char *const *arguments = arguments_of(all, trial);
    pid_t parent = getpid();
    fflush(stdout);
    trial->pid = fork();
    if (trial->pid == 0) become_run(words, arguments, parent);
    close(words);
    arguments_free(arguments);
    if (trial->pid < 0) {
        trial->pid = 0;
        return fail(FAILED, "sweep: a run cannot be started: %s", strerror(errno));
    }
    all->taken[trial->slot] = true;
    all->running++;
    all->used += trial->bytes;
    log_info("%s: begins", trial->run->name);
    return OK;
}

/* The last line that a run said. */
static char *last_line(const struct trial *trial)
{
    struct text text = {0};
    if (!records_read(&directory_working, trial->words, 1 << 20, &text)) return text_copy("");
    while (text.length > 0 && text.data[text.length - 1] == '\n') text.data[--text.length] = '\0';
    const char *line = text.length > 0 ? strrchr(text.data, '\n') : NULL;
    char *copy = text_copy(line ? line + 1 : "");
    text_free(&text);
    return copy;
}

static void end(struct sweeping *all, struct trial *trial, int result)
{
    int code = WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result);
    trial->status = (enum status)code;
    trial->pid = 0;
    trial->ended = true;
    all->taken[trial->slot] = false;
    all->running--;
    all->used -= trial->bytes;
    if (trial->status == OK || trial->status == STOPPED) {
        log_info("%s: %s", trial->run->name, trial->status == OK ? "ends" : "stopped");
        unlink(trial->words);
        return;
    }
    char *line = last_line(trial);
    log_line(LOG_ERROR, "%s: exit status %d: %s (%s)", trial->run->name, code, line, trial->words);
    free(line);
}

/* Collects the runs that have ended. */
static void collect(struct sweeping *all)
{
    int result;
    for (pid_t pid; (pid = waitpid(-1, &result, WNOHANG)) > 0;)
        for (int i = 0; i < all->sweep.count; i++)
            if (all->trials[i].pid == pid) end(all, &all->trials[i], result);
}

/* At a signal, all of them stop with a checkpoint. */
static void pass_signals(struct sweeping *all)
{
    if (all->stopping || !signals_stop()) return;
    all->stopping = true;
    for (int i = 0; i < all->sweep.count; i++)
        if (all->trials[i].pid > 0) kill(all->trials[i].pid, SIGTERM);
}

/* True if a run fits beside those that run; one always may, but for its predecessor of a sweep that was just
 * killed, which is still ending. */
static bool fits(struct sweeping *all, struct trial *trial)
{
    if (all->running == all->slots) return false;
    if (clock_seconds() - all->began < TAKEN_SECONDS && folder_is_taken(trial->folder)) return false;
    if (all->memory == 0) return true;
    if (trial->bytes == 0) trial->bytes = planned_bytes(all->cmd, trial->run);
    return all->running == 0 || all->used + trial->bytes <= all->memory;
}

static enum status run_all(struct sweeping *all)
{
    enum status status = OK;
    int next = 0;
    signals_ready();
    while (all->running > 0 || (status == OK && !all->stopping && next < all->sweep.count)) {
        collect(all);
        pass_signals(all);
        while (status == OK && !all->stopping && next < all->sweep.count && fits(all, &all->trials[next]))
            status = start(all, &all->trials[next++]);
        bool more = all->running > 0 || next < all->sweep.count;
        if (more) nanosleep(&(struct timespec){.tv_nsec = LOOK_NANOSECONDS}, NULL);
    }
    return status;
}

/* ---- Results ---- */

struct result {
    const struct trial *trial;
    double value;                      /* of the best epoch; NAN: none was finite */
    const struct task_metric *metric;  /* by which it was the best; NULL: a loss */
    double epoch;
};

/* Without validation images it is the last training loss. */
static void take_records(const struct run_records *records, struct result *result)
{
    int64_t best = records_best_epoch(records);
    const char *key;
    result->metric = records_metric(records, &key);
    if (records_start_number(records, "val_images") > 0) {
        if (best >= 0) result->value = records_column(&records->epochs, key)[best];
        if (best >= 0) result->epoch = records_column(&records->epochs, "epoch")[best];
        return;
    }
    result->metric = NULL;
    result->value = records_last(&records->epochs, "train_loss");
    result->epoch = records_last(&records->epochs, "epoch");
}

static struct result result_of(const struct trial *trial)
{
    struct result result = {.trial = trial, .value = NAN, .epoch = NAN};
    char *metrics = text_format("%s/metrics.jsonl", trial->folder);
    struct directory folder = {0};
    struct run_records records = {0};
    if (access(metrics, R_OK) == 0 && directory_open(trial->folder, &folder) == OK &&
        run_records_open(&folder, &records) == OK)
        take_records(&records, &result);
    run_records_close(&records);
    directory_close(&folder);
    free(metrics);
    return result;
}

/* The best one first; those of one metric together. */
static int compare_results(const void *a, const void *b)
{
    const struct result *x = a, *y = b;
    bool none = isnan(x->value) || isnan(y->value);
    if (none) return isnan(x->value) - isnan(y->value);
    if (x->metric != y->metric) return strcmp(task_metric_title(x->metric), task_metric_title(y->metric));
    return task_better(y->metric, y->value, x->value) - task_better(x->metric, x->value, y->value);
}

static const char *state_of(const struct trial *trial, char state[32])
{
    if (!trial->ended) return "not begun";
    if (trial->status == OK) return "";
    if (trial->status == STOPPED) return "stopped";
    snprintf(state, 32, "failed (%d)", (int)trial->status);
    return state;
}

static void print_results(const struct result *results, int count)
{
    char number[TEXT_NUMBER], state[32];
    int width = 3;
    for (int i = 0; i < count; i++) {
        int length = (int)strlen(results[i].trial->run->name);
        if (length > width) width = length;
    }
    log_result("%-*s  %14s  %5s", width, "run", "best", "epoch");
    for (int i = 0; i < count; i++) {
        const struct result *r = &results[i];
        const char *best = isnan(r->value) ? "-" : task_metric_text(r->metric, r->value, number);
        log_result("%-*s  %14s  %5.0f  %s", width, r->trial->run->name, best, isnan(r->epoch) ? 0 : r->epoch,
                   state_of(r->trial, state));
    }
}

/* Runs that differ in fold and seed alone. */
struct group {
    const struct result *best;
    int count;
    struct cmd_spread spread;
};

static int by_group(const void *a, const void *b)
{
    const struct result *x = *(const struct result *const *)a, *y = *(const struct result *const *)b;
    int order = strcmp(x->trial->run->group, y->trial->run->group);
    return order != 0 ? order : (x > y) - (x < y);
}

static int by_best(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    return (x->best > y->best) - (x->best < y->best);
}

/* The next group of the sorted results, of those runs that have the best one's metric; returns its end. */
static int take_group(const struct result *const *sorted, int begin, int count, struct group *group)
{
    double *values = NULL;
    const char *name = sorted[begin]->trial->run->group;
    int end = begin, of = 0;
    for (; end < count && strcmp(sorted[end]->trial->run->group, name) == 0; end++)
        if (sorted[end]->metric == sorted[begin]->metric && !isnan(sorted[end]->value))
            *array_push(values, of) = sorted[end]->value;
    *group = (struct group){sorted[begin], of, cmd_spread(values, of)};
    free(values);
    return end;
}

/* Means over folds and seeds, in the order of the best run. */
static void print_groups(const struct result *results, int count)
{
    const struct result **sorted = memory_new((size_t)count, sizeof *sorted);
    struct group *groups = memory_new((size_t)count, sizeof *groups);
    int found = 0;
    for (int i = 0; i < count; i++) sorted[i] = &results[i];
    qsort(sorted, (size_t)count, sizeof *sorted, by_group);
    for (int at = 0; at < count; found++) at = take_group(sorted, at, count, &groups[found]);
    qsort(groups, (size_t)found, sizeof *groups, by_best);
    log_result("\n%-40s  %4s  %10s  %10s", "mean over folds and seeds", "runs", "mean", "deviation");
    for (int i = 0; i < found; i++) {
        const struct group *group = &groups[i];
        const struct task_metric *metric = group->best->metric;
        bool percent = metric && metric->percent;
        int unit = percent ? 100 : 1;
        char deviation[32] = "-";
        if (group->count == 0) continue;
        if (group->count > 1) snprintf(deviation, sizeof deviation, "%.3g", unit * group->spread.deviation);
        log_result("%-40s  %4d  %10.*f  %10s", group->best->trial->run->group, group->count, percent ? 2 : 4,
                   unit * group->spread.mean, deviation);
    }
    free(sorted);
    free(groups);
}

/* compare's page of all runs. */
static void write_page(const struct sweeping *all, const struct result *results)
{
    char **words = NULL, *output = text_format("--output=%s/compare.html", all->cmd->output);
    int count = 0, runs = 0, result;
    char first[] = "amptrain", second[] = "compare", third[] = "-q";
    *array_push(words, count) = first;
    *array_push(words, count) = second;
    *array_push(words, count) = third;
    *array_push(words, count) = output;
    for (int i = 0; i < all->sweep.count; i++) {
        if (isnan(results[i].value)) continue;
        *array_push(words, count) = results[i].trial->folder;
        runs++;
    }
    *array_push(words, count) = NULL;
    pid_t pid = runs > 1 ? fork() : -1;
    if (pid == 0) {
        int nothing = open("/dev/null", O_WRONLY);
        dup2(nothing, STDOUT_FILENO);
        program_file_run(words);
        _exit(FAILED);
    }
    if (pid > 0 && waitpid(pid, &result, 0) == pid && result == 0) log_info("%s written", output + 9);
    free(output);
    free(words);
}

static void report(const struct sweeping *all)
{
    struct result *results = memory_new((size_t)all->sweep.count, sizeof *results);
    for (int i = 0; i < all->sweep.count; i++) results[i] = result_of(&all->trials[i]);
    qsort(results, (size_t)all->sweep.count, sizeof *results, compare_results);
    print_results(results, all->sweep.count);
    if (all->sweep.repeats) print_groups(results, all->sweep.count);
    write_page(all, results);
    free(results);
}

/* The first failure's; or that of being stopped. */
static enum status sweep_status(const struct sweeping *all)
{
    for (int i = 0; i < all->sweep.count; i++)
        if (all->trials[i].ended && all->trials[i].status != OK && all->trials[i].status != STOPPED)
            return all->trials[i].status;
    return all->stopping ? STOPPED : OK;
}

static enum status open_all(struct cmd *cmd, struct sweeping *all)
{
    long folds, random;
    TRY(cmd_number(cmd, "folds", 2, 0, &folds));
    TRY(cmd_number(cmd, "random", 1, 0, &random));
    const struct sweep_options options = {.sets = cmd->sets, .set_count = cmd->set_count, .folds = (int)folds,
                                          .random = (int)random};
    TRY(sweep_make(&options, &all->sweep));
    TRY(check_settings(all));
    if (!cmd->output) return fail(USAGE, "sweep: name a folder for the runs with -o");
    all->trials = memory_new((size_t)all->sweep.count, sizeof *all->trials);
    for (int i = 0; i < all->sweep.count; i++) {
        const struct sweep_run *run = &all->sweep.runs[i];
        all->trials[i] = (struct trial){.run = run, .folder = text_format("%s/%s", cmd->output, run->name),
                                        .words = text_format("%s/%s.txt", cmd->output, run->name)};
    }
    return set_slots(all);
}

static void close_all(struct sweeping *all)
{
    for (int i = 0; all->trials && i < all->sweep.count; i++) {
        free(all->trials[i].folder);
        free(all->trials[i].words);
    }
    free(all->trials);
    free(all->taken);
    sweep_free(&all->sweep);
}

static enum status sweep_run(struct cmd *cmd)
{
    struct sweeping all = {.cmd = cmd, .began = clock_seconds()};
    struct reason reason;
    if (cmd->print_config) return fail(USAGE, "sweep: --print-config is for one run; --check lists the runs");
    enum status status = open_all(cmd, &all);
    if (status == OK && cmd->check) {
        for (int i = 0; i < all.sweep.count; i++) log_result("%s", all.sweep.runs[i].name);
    } else if (status == OK) {
        log_info("%d runs, %d at a time", all.sweep.count, all.slots);
        if (!directory_make(cmd->output, 0777, &reason))
            status = fail(FAILED, "%s: cannot create the folder: %s", cmd->output, reason.text);
        if (status == OK) status = check_words(&all);
        if (status == OK) status = run_all(&all);
        if (status == OK) report(&all);
        if (status == OK) status = sweep_status(&all);
    }
    close_all(&all);
    return status;
}

static const struct cmd_option options[] = {
    {"folds", "N", "make each run N times, with data.fold=1/N to N/N"},
    {"random", "N", "make N runs with values drawn at random"},
    {0},
};

const struct command cmd_sweep = {
    .name = "sweep",
    .usage = "-c FILE -s SECTION.KEY=A,B,C... [--folds N] [--random N] [-j N] -o DIR",
    .help = "Trains with every combination of some values.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT | TAKES_SIGNALS | TAKES_JOBS,
    .options = options,
    .run = sweep_run,
};
