/* run_report.h: writes report.html, a one-page report from the files of a run folder. */
#pragma once

#include "train/run.h"

#define RUN_REPORT_FILE "report.html"

/* BAD_DATA where the folder has no metrics. Files that are missing leave out their sections. */
enum status run_report_write(const struct directory *folder);

/* Of a run that ends: memory.svg. Of one that has ended, now or in a process before this one, which may have
 * left it out: the report. That something cannot be written is said, and no failure. */
void run_report_map(const struct run *run);
void run_report_of(const struct run *run, bool before);
