/* memory_report.h: writes memory.json: the memory that a run used, and its plan. */
#pragma once

#include "train/run.h"

#define MEMORY_REPORT_FILE "memory.json"

/* Writes memory.json at the end of a run, with memory.report=yes. A write error is only a warning. */
void memory_report(const struct run *run);
