#include "base/log.h"
#include "cmd/cmd.h"
#include "report/mlflow.h"
#include "report/run_report.h"
#include "report/wandb.h"
#include "train/folder.h"

struct target {
    const char *option;
    enum status (*write)(const struct directory *folder, const char *path);
};

static const struct target targets[] = {{"mlflow", mlflow_write}, {"wandb", wandb_write}};
enum { TARGETS = sizeof targets / sizeof *targets };

static enum status write_page(const struct directory *folder)
{
    TRY(folder_check_files(folder, FOLDER_REPORT));
    TRY(run_report_write(folder));
    log_info("%s/" RUN_REPORT_FILE " written", folder->path);
    return OK;
}

static enum status report_run(struct cmd *cmd)
{
    struct directory folder;
    enum status status = OK;
    int written = 0;
    if (cmd->argument_count != 1) return fail(USAGE, "report: give one run folder");
    TRY(directory_open(cmd->arguments[0], &folder));
    for (int i = 0; i < TARGETS && status == OK; i++) {
        const char *path = cmd_value(cmd, targets[i].option);
        if (!path) continue;
        status = targets[i].write(&folder, path);
        if (status == OK) log_info("%s: added to %s", folder.path, path);
        written++;
    }
    if (written == 0) status = write_page(&folder);
    directory_close(&folder);
    return status;
}

static const struct cmd_option options[] = {
    {"mlflow", "STORE", "instead, add the run to this folder of MLflow's (its file store)"},
    {"wandb", "FOLDER", "instead, add it to this folder as W&B's client does offline, for 'wandb sync'"},
    {0},
};

const struct command cmd_report = {
    .name = "report",
    .usage = "DIR [--mlflow STORE] [--wandb FOLDER]",
    .help = "Writes DIR/report.html, a one-page report of a run.",
    .options = options,
    .takes = TAKES_ARGUMENTS,
    .run = report_run,
};
