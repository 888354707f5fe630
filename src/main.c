/* main.c: finds the command, parses its arguments, runs it, and exits with its status. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/log.h"
#include "base/memory.h"
#include "base/omp_spin.h"
#include "base/signals.h"
#include "cmd/arguments.h"
#include "cmd/trained.h"
#include "conf/options.h"
#include "device/device.h"
#include "session/plausible.h"

static void print_help(void)
{
    signals_release();
    printf("usage: amptrain [COMMAND] [OPTION]...\n"
           "Trains networks that give images a class, several labels or a number.\n\n");
    for (int i = 0; command_table[i]; i++)
        printf("  %-10s %s\n", command_table[i]->name, command_table[i]->help);
    printf("\n`amptrain COMMAND --help` lists a command's options; the manual is amptrain(1),\n"
           "amptrain.ini(5) and amptrain-model(5).\n");
}

static void print_version(void)
{
    signals_release();
    printf("amptrain " PACKAGE_VERSION "\n");
    for (int i = 0; device_backends[i]; i++) {
        struct text libraries = {0};
        device_backends[i]->libraries(&libraries);
        printf("%s: %s\n", device_backends[i]->name, libraries.data ? libraries.data : "");
        text_free(&libraries);
    }
}

static enum status refuse_command(const char *name)
{
    if (text_ends_in(name, ".ini"))
        return fail(USAGE, "there is no command '%s'; did you mean -c %s?", name, name);
    const char *names[32];
    int count = 0;
    for (; command_table[count] && count < 32; count++) names[count] = command_table[count]->name;
    const char *near = text_nearest(name, names, count);
    if (near) return fail(USAGE, "there is no command '%s'; did you mean '%s'?", name, near);
    return fail(USAGE, "there is no command '%s'; `amptrain --help` lists them", name);
}

static enum status print_settings(const struct cmd *cmd)
{
    struct text text = {0};
    settings_print(&cmd->settings, true, &text);
    printf("%s", text.data ? text.data : "");
    text_free(&text);
    return OK;
}

static bool needs_settings(const struct cmd *cmd)
{
    return (cmd->command->takes & TAKES_CONFIG) && !(cmd->command->takes & TAKES_JOBS);
}

static enum status load_settings(struct cmd *cmd)
{
    if (cmd_value(cmd, "weights")) return trained_settings(cmd);
    if (cmd->resume && !cmd->config) cmd_recall_config(cmd);
    const struct settings_sources sources = {
        .file = cmd->config, .overrides = cmd->sets, .override_count = cmd->set_count,
        .check = plausible_names,
    };
    return settings_read(&sources, &cmd->settings);
}

static void take_signals(const struct cmd *cmd)
{
    bool only_tells = cmd->help || cmd->check || cmd->print_config;
    if ((cmd->command->takes & TAKES_SIGNALS) && !only_tells)
        signals_watch();
    else
        signals_release();
}

static enum status run(struct cmd *cmd)
{
    take_signals(cmd);
    if (cmd->help) {
        arguments_help(cmd->command, cmd->verbose);
        return OK;
    }
    if (cmd->quiet) log_set_level(LOG_WARNING);
    if (cmd->verbose) log_set_level(LOG_DETAIL);
    if (needs_settings(cmd)) TRY(load_settings(cmd));
    if (!needs_settings(cmd)) return cmd->command->run(cmd);
    if (cmd->print_config) return print_settings(cmd);
    if (cmd->check) return cmd_value(cmd, "weights") && !cmd->config ? trained_check(cmd) : cmd_check(cmd);
    return cmd->command->run(cmd);
}

/* -q, -v, -qv, --quiet: options of every command, without a value, which may precede its name. */
static bool is_global(const char *word)
{
    static const char *const names[] = {"--quiet", "--verbose"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(word, names[i]) == 0) return true;
    return word[0] == '-' && word[1] != '\0' && strspn(word + 1, "qv") == strlen(word + 1);
}

/* Finds the command's name behind such options, and moves it to their front: "amptrain -q predict" is
 * "amptrain predict -q". */
static void move_command(int argc, char **words)
{
    int at = 1;
    while (at < argc && is_global(words[at])) at++;
    if (at == argc || words[at][0] == '-') return;
    char *name = words[at];
    memmove(words + 2, words + 1, (size_t)(at - 1) * sizeof *words);
    words[1] = name;
}

/* The least stack: with less, functions of ours and of libraries would run beyond its end. */
#define STACK_BYTES ((rlim_t)256 << 10)

static enum status check_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES) return OK;
    return fail(FAILED, "the stack is limited to %llu KiB, and at least %llu KiB are needed (ulimit -s)",
                (unsigned long long)limit.rlim_cur >> 10, (unsigned long long)STACK_BYTES >> 10);
}

static enum status run_words(int argc, char **argv, char **words)
{
    TRY(check_stack());
    const struct command *command = command_find("train");
    bool named = argc > 1 && words[1][0] != '-';
    if (named) command = command_find(words[1]);
    if (!command) return refuse_command(words[1]);
    struct cmd cmd;
    enum status status = arguments_parse(command, argc - named, words + named, &cmd);
    cmd.argv = argv;
    if (status == OK) status = run(&cmd);
    cmd_free(&cmd);
    return status;
}

static enum status dispatch(int argc, char **argv)
{
    char **words = memory_new((size_t)argc + 1, sizeof *words);
    memcpy(words, argv, (size_t)argc * sizeof *words);
    move_command(argc, words);
    enum status status = run_words(argc, argv, words);
    free(words);
    return status;
}

static bool is(const char *word, const char *letter, const char *name)
{
    return strcmp(word, letter) == 0 || strcmp(word, name) == 0;
}

/* If a standard stream is closed, the next opened file would become it. A placeholder is opened instead,
 * which refuses reads or writes. */
static void keep_streams(void)
{
    for (int stream = 0; stream <= 2; stream++)
        if (fcntl(stream, F_GETFD) < 0) open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
}

/* jansson does not distinguish parse errors from lack of memory. */
static void *json_memory(size_t bytes)
{
    return memory_new(bytes, 1);
}

static void no_memory_for_objects(void)
{
    memory_none("a library's objects");
}

/* If libraries have no memory for small allocations, the program ends as for its own. oneDNN would throw a
 * C++ exception, which cannot be caught here. */
static void watch_memory(void)
{
    json_set_alloc_funcs(json_memory, free);
    void (*(*set_new_handler)(void (*)(void)))(void) = dlsym(RTLD_DEFAULT, "_ZSt15set_new_handlerPFvvE");
    if (set_new_handler) set_new_handler(no_memory_for_objects);
}

/* Runs before the libraries' constructors, which take longer than main does until a command has set up
 * signals. A wheel's program does that itself: no library may (python/wheel-program.c). */
#ifdef main
void amptrain_hold(void)
{
    signals_hold();
}
#else
__attribute__((section(".preinit_array"), used)) static void (*const hold)(void) = signals_hold;
#endif

/* OpenMP creates as many threads as its environment says, and aborts if the system cannot. */
static void bound_threads(void)
{
#ifdef _OPENMP
    int most = (int)option_find("run", "threads")->field.max, wanted = omp_get_max_threads();
    if (wanted <= most) return;
    log_warning("OMP_NUM_THREADS: %d threads are too many; %d are used", wanted, most);
    omp_set_num_threads(most);
#endif
}

/* Output lost to a full disk or a closed pipe is an error, too, unless there is another one already. */
static enum status close_output(enum status status)
{
    int error = fflush(stdout) != 0 || ferror(stdout) ? errno : log_results_error();
    if (error == 0 || status != OK) return status;
    return fail(FAILED, "cannot write to standard output: %s", strerror(error));
}

int main(int argc, char **argv)
{
    keep_streams();
    signal(SIGXFSZ, SIG_IGN);        /* a write beyond the limit of file sizes fails, and is reported */
    omp_spin_shorten(argv);
    watch_memory();
    bound_threads();
    enum status status = OK;
    if (argc < 2) {
        print_help();
        status = USAGE;
    } else if (strcmp(argv[1], "help") == 0 && argc == 3) {
        char *asked[] = {argv[0], argv[2], "--help", NULL};
        status = dispatch(3, asked);
    } else if (is(argv[1], "-h", "--help") || strcmp(argv[1], "help") == 0) {
        print_help();
    } else if (is(argv[1], "-V", "--version")) {
        print_version();
    } else {
        status = dispatch(argc, argv);
    }
    return (int)close_output(status);
}
