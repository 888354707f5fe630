/* run_report.h: writes report.html, a one-page report from the files of a run folder. */
#pragma once

#include "train/run.h"

#define RUN_REPORT_FILE "report.html"

/* BAD_DATA if the folder has no metrics. Sections whose files are missing are omitted. */
enum status run_report_write(const struct directory *folder);

/* Writes memory.svg at the end of a run; and the report of a run that has ended, in this process or in an
 * earlier one that did not write it. Write errors are only warnings. */
void run_report_map(const struct run *run);
void run_report_of(const struct run *run, bool before);
