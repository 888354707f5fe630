#include "cmd/arguments.h"

/* getopt's struct option and the configuration's have the same name. */
#define option getopt_option
#include <getopt.h>
#undef option
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search_paths.h"

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
    {'j', "jobs", required_argument, "N", TAKES_JOBS, "runs at a time, where memory allows them; 1"},
    {LETTER_CHECK, "check", no_argument, NULL, TAKES_CONFIG,
     "check everything, print the plan, exit"},
    {LETTER_PRINT, "print-config", no_argument, NULL, TAKES_CONFIG,
     "print every key, its value and its origin, exit"},
    {'q', "quiet", no_argument, NULL, 0, "print warnings and errors only"},
    {'v', "verbose", no_argument, NULL, 0, "print more details"},
    {'h', "help", no_argument, NULL, 0, "print this help"},
};
#define COMMON_COUNT (int)(sizeof common_table / sizeof *common_table)

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
    case 'j': cmd->jobs = value; break;
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

/* The key of the configuration that "--weight-decay=1e-4" stands for in other programs, or NULL. */
static const struct option *key_meant(const struct command *command, const char *word)
{
    if (!(command->takes & TAKES_CONFIG) || strncmp(word, "--", 2) != 0) return NULL;
    char *key = text_copy(word + 2);
    int length = (int)strcspn(key, "=");
    for (char *dash = key; (dash = strchr(dash, '-'));) *dash = '_';
    const struct option *option = option_named(key, length);
    free(key);
    return option;
}

static enum status refuse_unknown(const struct command *command, const struct grammar *grammar,
                                  const char *word)
{
    const char *names[COMMON_COUNT + CMD_OPTIONS_MAX];
    const struct option *key = key_meant(command, word);
    if (key)
        return fail(USAGE, "%s: no such option: %s; did you mean -s %s.%s=VALUE?", command->name, word,
                    key->section, key->field.name);
    for (int i = 0; i < grammar->count; i++) names[i] = grammar->longs[i].name;
    char *bare = text_copy(word + strspn(word, "-"));
    bare[strcspn(bare, "=")] = '\0';
    const char *near = strncmp(word, "--", 2) == 0 ? text_nearest(bare, names, grammar->count) : NULL;
    free(bare);
    if (near) return fail(USAGE, "%s: no such option: %s; did you mean --%s?", command->name, word, near);
    return fail(USAGE, "%s: no such option: %s; `amptrain %s --help` lists them", command->name, word,
                command->name);
}

/* getopt makes "=FILE" of "-r=FILE". */
static bool is_empty(int letter, const char *value)
{
    return letter != '?' && value && value[letter == 'r' && value[0] == '='] == '\0';
}

/* A path in the home folder, which a shell leaves as it is in "--weights=~/run" and "-r=~/run". */
static const char *expand(struct cmd *cmd, const char *value)
{
    bool marked = value && value[0] == '=';
    if (!value || value[marked] != '~') return value;
    return *array_push(cmd->expanded, cmd->expanded_count) = search_paths_expand(value + marked);
}

static enum status read_options(struct cmd *cmd, const struct grammar *grammar, int argc, char **argv)
{
    opterr = 0;
    optind = 0;
    for (;;) {
        int before = optind ? optind : 1;
        int letter = getopt_long(argc, argv, grammar->letters, grammar->longs, NULL);
        if (letter == -1) break;
        const char *word = argv[optind > before ? optind - 1 : before];
        if (letter == ':') return refuse_missing(cmd->command, word);
        if (is_empty(letter, optarg))
            return refuse_missing(cmd->command, argv[optind - 1 - (word == optarg)]);
        if (letter == '?') return refuse_unknown(cmd->command, grammar, word);
        const char *value = letter == 's' ? optarg : expand(cmd, optarg);
        if (letter >= LETTER_OWN)
            cmd->values[letter - LETTER_OWN] = value ? value : "";
        else
            take_common(cmd, letter, value);
    }
    cmd->arguments = argv + optind;
    cmd->argument_count = argc - optind;
    return OK;
}

static enum status refuse_argument(const struct cmd *cmd)
{
    const struct command *command = cmd->command;
    const char *argument = cmd->arguments[0], *meant = NULL;
    for (int i = 0; i < own_count(command); i++)
        if (strcmp(command->options[i].name, "weights") == 0 && !cmd->values[i]) meant = "--weights";
    if ((command->takes & TAKES_CONFIG) && !cmd->config && text_ends_in(argument, ".ini")) meant = "-c";
    if (!meant) return fail(USAGE, "%s: unexpected argument '%s'", command->name, argument);
    return fail(USAGE, "%s: unexpected argument '%s'; did you mean %s %s?", command->name, argument, meant,
                argument);
}

enum status arguments_parse(const struct command *command, int argc, char **argv, struct cmd *cmd)
{
    struct grammar grammar = grammar_of(command);
    *cmd = (struct cmd){.command = command};
    TRY(read_options(cmd, &grammar, argc, argv));
    if (cmd->help) return OK;
    if (cmd->argument_count > 0 && !(command->takes & TAKES_ARGUMENTS))
        return refuse_argument(cmd);
    return OK;
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

void arguments_help(const struct command *command, bool verbose)
{
    int column = printf("usage: amptrain %s%s", command->name, *command->usage ? " " : "");
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
