/* cmd.h: the commands of the program, each one file and one table row, and what they share. */
#pragma once

#include <stdbool.h>

#include "conf/settings.h"
#include "session/session.h"

/* Common options that a command takes besides -q, -v and -h. */
enum cmd_takes {
    TAKES_CONFIG = 1,     /* -c, -s, --check, --print-config */
    TAKES_OUTPUT = 2,     /* -o */
    TAKES_RESUME = 4,     /* -r */
    TAKES_ARGUMENTS = 8,  /* positional arguments */
    TAKES_JOBS = 32,      /* -j; values of -s that are several: the command reads the configuration itself */
    TAKES_SIGNALS = 16,   /* those of signals_watch, which are blocked until the command is ready for them */
};

/* A long option of one command's own. */
struct cmd_option {
    const char *name;
    const char *argument;   /* "FILE"; "[=FILE]": may be left out; NULL: a switch */
    const char *help;
};

#define CMD_OPTIONS_MAX 11

/* A parsed command line. */
struct cmd {
    const struct command *command;
    char **argv;                           /* main's */
    const char *config;
    const char **sets;
    int set_count;
    const char *output, *jobs;
    bool resume, restarted;      /* restarted: this process follows one that failed (restarts.h) */
    const char *resume_file;
    bool check, print_config, help, quiet, verbose;
    const char *values[CMD_OPTIONS_MAX];   /* of the command's own options; "" when given without one */
    char **arguments;
    int argument_count;
    char **expanded;                       /* values of options that began with "~" */
    int expanded_count;
    char *weights;                         /* as cmd_weights found it */
    char *recalled;                        /* the configuration as cmd_recall_config found it */
    struct comm *comm;                     /* with other ranks, while cmd_ranks runs; NULL: none */
    struct settings settings;              /* loaded when the command takes a configuration */
};

struct command {
    const char *name;
    const char *usage;                     /* what follows the name */
    const char *help;                      /* one sentence */
    unsigned takes;
    const struct cmd_option *options;      /* ended by a row whose name is NULL; NULL: none */
    enum status (*run)(struct cmd *cmd);
};
extern const struct command *const command_table[];   /* ended by NULL */
const struct command *command_find(const char *name);

void cmd_free(struct cmd *cmd);

/* The value of an own option; NULL: not given. */
const char *cmd_value(const struct cmd *cmd, const char *option);

/* Reads an option as a whole number from `least` to CMD_NUMBER_MAX; `otherwise` when not given. */
#define CMD_NUMBER_MAX 1000000000
enum status cmd_number(const struct cmd *cmd, const char *option, long least, long otherwise, long *value);

/* The file of --weights, or the best checkpoint of the run folder that it names; the last one of a run
 * without validation. */
enum status cmd_weights(struct cmd *cmd, const char **path);

/* If a run is resumed without -c: uses the configuration in its folder, if there is one. */
void cmd_recall_config(struct cmd *cmd);

/* The mean of repeated runs, and their standard deviation; NAN: there is only one. */
struct cmd_spread {
    double mean, deviation;
};
struct cmd_spread cmd_spread(const double *values, int count);

/* The run folder: -o as it stands, run.output from the configuration file's folder; NULL: none. The caller
 * frees it. */
char *cmd_output(const struct cmd *cmd);

/* Before long work: checks that a file to be written can be created, and that an existing one is none of the
 * command's inputs and has the signature of what the command writes (base/signature.h): USAGE otherwise. So
 * no checkpoint of a run is replaced, nor any other kind of file. Reports that a file is replaced. */
enum status cmd_check_output(const struct cmd *cmd, const char *path, const char *signature);

/* Checks that files can be created in a folder. */
enum status cmd_check_folder(const char *path);

/* Opens the session of the command's configuration. `wanted`, `hint`: as in struct data_options. */
enum status cmd_session(struct cmd *cmd, unsigned wanted, const struct data_hint *hint,
                        struct session *session);

/* Calls run(cmd, NULL) or, with parallel.gpus above one, starts the ranks, each of which calls this function
 * again and then run(cmd, comm). */
enum status cmd_ranks(struct cmd *cmd, enum status (*run)(struct cmd *cmd, struct comm *comm));

/* --check: everything that can be checked beforehand, and the plan. */
enum status cmd_check(struct cmd *cmd);
