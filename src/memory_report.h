/* memory_report.h: memory.json, the memory that a run has used, beside what was planned for it. */
#pragma once

#include "train/run.h"

#define MEMORY_REPORT_FILE "memory.json"

/* Of a run that ends, with memory.report=yes. That it cannot be written is said, and no failure. */
void memory_report(const struct run *run);
