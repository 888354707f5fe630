#include "base/log.h"
#include "cmd/cmd.h"
#include "report/mlflow.h"
#include "report/run_report.h"
#include "train/folder.h"

static enum status report_run(struct cmd *cmd)
{
    struct directory folder;
    if (cmd->argument_count != 1) return fail(USAGE, "report: give one run folder");
    TRY(directory_open(cmd->arguments[0], &folder));
    const char *mlflow = cmd_value(cmd, "mlflow");
    enum status status = mlflow ? mlflow_write(&folder, mlflow) : folder_check_files(&folder, FOLDER_REPORT);
    if (status == OK && mlflow) log_info("%s: added to %s", folder.path, mlflow);
    if (status == OK && !mlflow) status = run_report_write(&folder);
    if (status == OK && !mlflow) log_info("%s/" RUN_REPORT_FILE " written", folder.path);
    directory_close(&folder);
    return status;
}

static const struct cmd_option options[] = {
    {"mlflow", "STORE", "instead, add the run to this folder of MLflow's (its file store)"},
    {0},
};

const struct command cmd_report = {
    .name = "report",
    .usage = "DIR [--mlflow STORE]",
    .help = "Writes DIR/report.html, a one-page report of a run.",
    .options = options,
    .takes = TAKES_ARGUMENTS,
    .run = report_run,
};
