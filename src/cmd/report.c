#include "base/log.h"
#include "cmd/cmd.h"
#include "report/run_report.h"
#include "train/folder.h"

static enum status report_run(struct cmd *cmd)
{
    struct directory folder;
    if (cmd->argument_count != 1) return fail(USAGE, "report: give one run folder");
    TRY(directory_open(cmd->arguments[0], &folder));
    enum status status = folder_check_files(&folder, FOLDER_REPORT);
    if (status == OK) status = run_report_write(&folder);
    if (status == OK) log_info("%s/" RUN_REPORT_FILE " written", folder.path);
    directory_close(&folder);
    return status;
}

const struct command cmd_report = {
    .name = "report",
    .usage = "DIR",
    .help = "Writes DIR/report.html, a one-page report of a run.",
    .takes = TAKES_ARGUMENTS,
    .run = report_run,
};
