/* run_report_parts.h: declarations shared by the files that write the report. */
#pragma once

#include "format/html_page.h"
#include "report/run_records.h"

/* Accuracies by class, the confusion matrix, mistakes: from confusion.csv and mistakes.json. */
void report_add_classes(const struct run_records *records, struct text *out);
void report_add_mistakes(const struct run_records *records, struct text *out);

/* Adds predictions beside values for numbers, from values.csv; a table of labels for several labels, from
 * labels.csv. */
void report_add_targets(const struct run_records *records, struct text *out);

/* Scores by class or label, calibration and thresholds: from scores.json. */
void report_add_scores(const struct run_records *records, struct text *out);

/* The stages and layers of profile.json. */
void report_add_profile(const struct run_records *records, struct text *out);
