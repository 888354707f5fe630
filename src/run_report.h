/* run_report.h: report.html: a run as one page, out of what its folder has. */
#pragma once

#include "train/run.h"

#define RUN_REPORT_FILE "report.html"

/* BAD_DATA where the folder has no metrics. Files that are missing leave out their sections. */
enum status run_report_write(const struct directory *folder);

/* Of a run that has ended: its memory map and its mistakes are written first. That something cannot be
 * written is said, and no failure. */
void run_report_of(const struct run *run);
