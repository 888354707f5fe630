#include "cmd.h"

/* getopt's struct option and the configuration's have the same name. */
#define option getopt_option
#include <getopt.h>
#undef option
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "launcher.h"
#include "session/checkpoint.h"
#include "session/session_open.h"

const struct command *const command_table[] = {
    &cmd_train, &cmd_eval, &cmd_predict, &cmd_plan, &cmd_summary, &cmd_bench, &cmd_pack, &cmd_export,
    &cmd_average, &cmd_init, &cmd_lr, &cmd_report, &cmd_compare, &cmd_profile, &cmd_ops, &cmd_models,
    &cmd_formats, &cmd_devices, NULL,
};

/* An option that several commands share. */
struct common {
    char letter;
    const char *name;
    int argument;              /* getopt's has_arg */
    const char *shown;         /* name of the argument in the help */
    unsigned takes;            /* 0: every command */
    const char *help;
};

enum { LETTER_CHECK = 1, LETTER_PRINT = 2, LETTER_OWN = 256 };

static const struct common common_table[] = {
    {'c', "config", required_argument, "FILE", TAKES_CONFIG, "configuration file"},
    {'s', "set", required_argument, "SECTION.KEY=VALUE", TAKES_CONFIG,
     "set a key, overriding the file (repeatable)"},
    {'o', "output", required_argument, "PATH", TAKES_OUTPUT, "write results there"},
    {'r', "resume", optional_argument, "[=FILE]", TAKES_RESUME,
     "resume from the newest valid checkpoint, or FILE"},
    {LETTER_CHECK, "check", no_argument, NULL, TAKES_CONFIG,
     "check everything, print the plan, exit"},
    {LETTER_PRINT, "print-config", no_argument, NULL, TAKES_CONFIG,
     "print every key, its value and its origin, exit"},
    {'q', "quiet", no_argument, NULL, 0, "print warnings and errors only"},
    {'v', "verbose", no_argument, NULL, 0, "print more details"},
    {'h', "help", no_argument, NULL, 0, "print this help"},
};
#define COMMON_COUNT (int)(sizeof common_table / sizeof *common_table)

const struct command *command_find(const char *name)
{
    for (int i = 0; command_table[i]; i++)
        if (strcmp(command_table[i]->name, name) == 0) return command_table[i];
    return NULL;
}

static bool takes(const struct command *command, const struct common *common)
{
    return common->takes == 0 || (command->takes & common->takes);
}

static int own_count(const struct command *command)
{
    int count = 0;
    while (command->options && command->options[count].name) count++;
    return count;
}

/* getopt's has_arg. */
static int own_takes(const struct cmd_option *own)
{
    if (!own->argument) return no_argument;
    return own->argument[0] == '[' ? optional_argument : required_argument;
}

/* Arguments of getopt_long. */
struct grammar {
    char letters[3 * COMMON_COUNT + 3];
    struct getopt_option longs[COMMON_COUNT + CMD_OPTIONS_MAX + 1];
    int count;
};

static void add_letter(struct grammar *grammar, const struct common *common)
{
    static const char *const colons[] = {
        [no_argument] = "", [required_argument] = ":", [optional_argument] = "::",
    };
    size_t length = strlen(grammar->letters);
    snprintf(grammar->letters + length, sizeof grammar->letters - length, "%c%s", common->letter,
             colons[common->argument]);
}

static struct grammar grammar_of(const struct command *command)
{
    struct grammar grammar = {.letters = ":"};
    for (int i = 0; i < COMMON_COUNT; i++) {
        const struct common *common = &common_table[i];
        if (!takes(command, common)) continue;
        if (common->letter >= ' ') add_letter(&grammar, common);
        grammar.longs[grammar.count++] =
            (struct getopt_option){common->name, common->argument, NULL, common->letter};
    }
    for (int i = 0; i < own_count(command); i++) {
        const struct cmd_option *own = &command->options[i];
        grammar.longs[grammar.count++] = (struct getopt_option){
            own->name, own_takes(own), NULL, LETTER_OWN + i};
    }
    return grammar;
}

static void take_common(struct cmd *cmd, int letter, const char *value)
{
    switch (letter) {
    case 'c': cmd->config = value; break;
    case 's': *array_push(cmd->sets, cmd->set_count) = value; break;
    case 'o': cmd->output = value; break;
    case 'r':
        cmd->resume = true;
        if (value) cmd->resume_file = value + (value[0] == '=');
        break;
    case LETTER_CHECK: cmd->check = true; break;
    case LETTER_PRINT: cmd->print_config = true; break;
    case 'q': cmd->quiet = true; break;
    case 'v': cmd->verbose = true; break;
    case 'h': cmd->help = true; break;
    }
}

static enum status refuse_missing(const struct command *command, const char *word)
{
    return fail(USAGE, "%s: the option %s needs a value", command->name, word);
}

static enum status refuse_unknown(const struct command *command, const struct grammar *grammar,
                                  const char *word)
{
    const char *names[COMMON_COUNT + CMD_OPTIONS_MAX];
    for (int i = 0; i < grammar->count; i++) names[i] = grammar->longs[i].name;
    char *bare = text_copy(word + strspn(word, "-"));
    bare[strcspn(bare, "=")] = '\0';
    const char *near = strncmp(word, "--", 2) == 0 ? text_nearest(bare, names, grammar->count) : NULL;
    free(bare);
    if (near) return fail(USAGE, "%s: no such option: %s; did you mean --%s?", command->name, word, near);
    return fail(USAGE, "%s: no such option: %s; `amptrain %s --help` lists them", command->name, word,
                command->name);
}

/* Of "-r=FILE", getopt makes "=FILE". */
static bool is_empty(int letter, const char *value)
{
    return letter != '?' && value && value[letter == 'r' && value[0] == '='] == '\0';
}

static enum status read_options(struct cmd *cmd, const struct grammar *grammar, int count, char **words)
{
    opterr = 0;
    optind = 0;
    for (;;) {
        int before = optind ? optind : 1;
        int letter = getopt_long(count, words, grammar->letters, grammar->longs, NULL);
        if (letter == -1) break;
        const char *word = words[optind > before ? optind - 1 : before];
        if (letter == ':') return refuse_missing(cmd->command, word);
        if (is_empty(letter, optarg))
            return refuse_missing(cmd->command, words[optind - 1 - (word == optarg)]);
        if (letter == '?') return refuse_unknown(cmd->command, grammar, word);
        if (letter >= LETTER_OWN)
            cmd->values[letter - LETTER_OWN] = optarg ? optarg : "";
        else
            take_common(cmd, letter, optarg);
    }
    cmd->arguments = words + optind;
    cmd->argument_count = count - optind;
    return OK;
}

enum status cmd_parse(const struct command *command, int count, char **words, struct cmd *cmd)
{
    struct grammar grammar = grammar_of(command);
    *cmd = (struct cmd){.command = command};
    TRY(read_options(cmd, &grammar, count, words));
    if (cmd->help) return OK;
    if (cmd->argument_count > 0 && !(command->takes & TAKES_ARGUMENTS))
        return fail(USAGE, "%s: unexpected argument '%s'", command->name, cmd->arguments[0]);
    return OK;
}

void cmd_free(struct cmd *cmd)
{
    free(cmd->sets);
    free(cmd->weights);
    free(cmd->recalled);
    if (cmd->settings.origins) settings_free(&cmd->settings);
    *cmd = (struct cmd){0};
}

#define HELP_WIDTH 79      /* columns */
#define HELP_COLUMN 31     /* column of descriptions */

/* The length of a piece that must not be broken: brackets, or an option with its argument. */
static int help_part(const char *words)
{
    int depth = 0, length = 0;
    for (; words[length]; length++) {
        char letter = words[length], next = words[length + 1];
        depth += (letter == '[' || letter == '(') - (letter == ']' || letter == ')');
        if (letter == ' ' && depth == 0 && !(next >= 'A' && next <= 'Z')) break;
    }
    return length;
}

/* Wraps text from `column` on; further lines begin at `indent`. */
static void help_fold(const char *words, int column, int indent)
{
    for (int length; *words; words += length + (words[length] == ' ')) {
        length = help_part(words);
        if (column > indent && column + 1 + length > HELP_WIDTH)
            column = printf("\n%*s", indent, "") - 1;
        else if (column > indent)
            column += printf(" ");
        column += printf("%.*s", length, words);
    }
    printf("\n");
}

static void help_line(const char *left, const char *help)
{
    int column = printf("  %-*s ", HELP_COLUMN - 3, left);
    help_fold(help, column, HELP_COLUMN);
}

static void help_common(const struct common *common)
{
    char left[64], argument[32] = "";
    if (common->shown)
        snprintf(argument, sizeof argument, "%s%s", common->shown[0] == '[' ? "" : " ", common->shown);
    if (common->letter >= ' ')
        snprintf(left, sizeof left, "-%c, --%s%s", common->letter, common->name, argument);
    else
        snprintf(left, sizeof left, "    --%s%s", common->name, argument);
    help_line(left, common->help);
}

void cmd_help(const struct command *command, bool verbose)
{
    int column = printf("usage: amptrain %s ", command->name);
    help_fold(command->usage, column, column);
    printf("%s\n\n", command->help);
    for (int i = 0; i < own_count(command); i++) {
        const struct cmd_option *own = &command->options[i];
        char left[64];
        snprintf(left, sizeof left, "    --%s%s%s", own->name, own_takes(own) == required_argument ? " " : "",
                 own->argument ? own->argument : "");
        help_line(left, own->help);
    }
    for (int i = 0; i < COMMON_COUNT; i++)
        if (takes(command, &common_table[i])) help_common(&common_table[i]);
    if (!(command->takes & TAKES_CONFIG)) return;
    if (!verbose) {
        printf("\nThe keys of the configuration are in amptrain.ini(5), and here with --verbose.\n");
        return;
    }
    struct text options = {0};
    settings_help(&options);
    printf("\nConfiguration keys, by section of FILE or for --set:\n\n%s", options.data);
    text_free(&options);
}

const char *cmd_value(const struct cmd *cmd, const char *option)
{
    for (int i = 0; i < own_count(cmd->command); i++)
        if (strcmp(cmd->command->options[i].name, option) == 0) return cmd->values[i];
    return NULL;
}

enum status cmd_number(const struct cmd *cmd, const char *option, long least, long otherwise, long *value)
{
    const char *text = cmd_value(cmd, option);
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : otherwise;
    if (text && (end == text || *end != '\0' || number < least || number > 1000000000))
        return fail(USAGE, "%s: --%s must be a whole number of at least %ld, not '%s'", cmd->command->name,
                    option, least, text);
    *value = number;
    return OK;
}

static char *checkpoint_of(const char *folder)
{
    static const char *const names[] = {CHECKPOINT_BEST, CHECKPOINT_LAST, CHECKPOINT_PREVIOUS};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = text_format("%s/%s", folder, names[i]);
        if (access(path, F_OK) == 0) return path;
        free(path);
    }
    return NULL;
}

enum status cmd_weights(struct cmd *cmd, const char **path)
{
    const char *named = cmd_value(cmd, "weights");
    if (!named)
        return fail(USAGE, "%s: --weights is missing; see `amptrain %s --help`", cmd->command->name,
                    cmd->command->name);
    if (!cmd->weights) {
        bool folder = directory_is(named);
        cmd->weights = folder ? checkpoint_of(named) : text_copy(named);
        if (!cmd->weights) return fail(BAD_CHECKPOINT, "%s: there is no checkpoint in this folder", named);
        if (folder) log_info("%s: the weights of this run", cmd->weights);
    }
    *path = cmd->weights;
    return OK;
}

void cmd_recall_config(struct cmd *cmd)
{
    char *path = cmd->output ? text_format("%s/config.ini", cmd->output) : NULL;
    if (path && access(path, F_OK) == 0) cmd->config = cmd->recalled = path;
    else free(path);
}

static enum status refuse_input(const char *path, const char *which)
{
    return fail(USAGE, "%s: is an input of this command (%s); write to another file", path, which);
}

enum status cmd_check_output(const struct cmd *cmd, const char *path)
{
    const char *weights = cmd->weights;
    struct stat status;
    if (stat(path, &status) != 0) return OK;
    if (!S_ISREG(status.st_mode)) return fail(USAGE, "%s: cannot be replaced: not a regular file", path);
    if (cmd->config && file_same(cmd->config, path)) return refuse_input(path, "--config");
    if (weights && file_same(weights, path)) return refuse_input(path, "--weights");
    const struct option *option =
        cmd->settings.origins ? settings_find_file(&cmd->settings, cmd->config, path) : NULL;
    if (option) return refuse_input(path, option->field.name);
    log_info("%s: exists and is overwritten", path);
    return OK;
}

enum status cmd_session(struct cmd *cmd, unsigned wanted, const struct data_hint *hint,
                        struct session *session)
{
    const struct data_options data = {.file = cmd->config, .wanted = wanted, .hint = hint};
    return session_open(&cmd->settings, &data, cmd->comm, session);
}

void cmd_any_batch(struct cmd *cmd)
{
    const struct settings *settings = &cmd->settings;
    if (settings->parallel.gpus > 1) settings_derive(&cmd->settings, "parallel", "gpus", "1");
    if (settings->parallel.stages > 1) settings_derive(&cmd->settings, "parallel", "stages", "1");
    if (settings->parallel.microbatches != 1)
        settings_derive(&cmd->settings, "parallel", "microbatches", "1");
    if (cmd->settings.train.batch > 0) return;
    settings_derive(&cmd->settings, "train", "batch", "128");
    settings_derive(&cmd->settings, "train", "accumulate", "1");
}

char *cmd_output(const struct cmd *cmd)
{
    if (cmd->output) return text_copy(cmd->output);
    const char *named = cmd->settings.run.output;
    return named && *named ? settings_path(&cmd->settings, cmd->config, named) : NULL;
}

static enum status launch_ranks(const struct cmd *cmd)
{
    const struct settings *settings = &cmd->settings;
    struct launcher_options options = {
        .ranks = (int)settings->parallel.gpus, .words = cmd->words, .timeout = settings->parallel.timeout,
    };
    if (strncmp(settings->run.device, "cuda:", 5) == 0)
        return settings_refuse(settings, "run", "device", "'%s' is one GPU; with parallel.gpus = %d, 'cuda' "
                               "gives each rank its own", settings->run.device, options.ranks);
    char *output = cmd_output(cmd), *log = output ? text_format("%s/log.txt", output) : NULL;
    options.log = log;
    enum status status = launcher_run(&options);
    free(log);
    free(output);
    return status;
}

/* Under mpirun and srun: the number of processes that they started. */
static enum status take_count(struct cmd *cmd, const struct comm *comm)
{
    struct settings *settings = &cmd->settings;
    char count[16];
    if (!comm || settings->parallel.gpus == comm->count) return OK;
    if (settings_given(settings, "parallel", "gpus"))
        return settings_refuse(settings, "parallel", "gpus", "%d ranks were started", comm->count);
    snprintf(count, sizeof count, "%d", comm->count);
    settings_derive(settings, "parallel", "gpus", count);
    return OK;
}

enum status cmd_ranks(struct cmd *cmd, enum status (*run)(struct cmd *cmd, struct comm *comm))
{
    struct comm *comm;
    TRY(launcher_join(cmd->settings.parallel.timeout, &comm));
    if (!comm && cmd->settings.parallel.gpus > 1) return launch_ranks(cmd);
    cmd->comm = comm;
    enum status status = take_count(cmd, comm);
    if (status == OK) status = run(cmd, comm);
    if (comm) comm->failed = status != OK && status != STOPPED;
    comm_close(comm);
    return status;
}
