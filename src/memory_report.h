/* memory_report.h: writes memory.json: the memory that a run used, and its plan. */
#pragma once

#include "train/run.h"

#define MEMORY_REPORT_FILE "memory.json"

/* Of a run that ends, with memory.report=yes. That it cannot be written is said, and no failure. */
void memory_report(const struct run *run);
