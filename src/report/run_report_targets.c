/* run_report_targets.c: results of the best epoch where targets are no classes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv_reader.h"
#include "base/memory.h"
#include "format/chart.h"
#include "report/run_report_parts.h"
#include "train/results_labels.h"

#define COLUMNS_MAX 5
#define LABELS_LISTED 1000

/* A file of the folder; `reader` is behind its header. */
struct table {
    struct text text;
    struct csv_reader reader;
};

/* False: there is none with this header. */
static bool table_open(const struct run_records *records, const char *name, const char *header,
                       struct table *table)
{
    struct reason unsaid;
    char *fields[COLUMNS_MAX];
    *table = (struct table){0};
    if (!records_read(records->folder, name, REPORT_FILE_MAX, &table->text)) return false;
    size_t length = strlen(header);
    bool good = strncmp(table->text.data, header, length) == 0 && table->text.data[length] == '\n' &&
                csv_reader_open(&table->reader, table->text.data, table->text.length, &unsaid) &&
                csv_reader_next(&table->reader, fields, COLUMNS_MAX, &unsaid) > 0;
    if (!good) text_free(&table->text);
    return good;
}

/* NAN if it is no number. */
static double number_of(const char *field)
{
    char *end;
    double value = strtod(field, &end);
    return end == field || *end ? NAN : value;
}

/* Numbers. */

static void add_values(const struct run_records *records, struct text *out)
{
    struct table table;
    struct reason unsaid;
    char *fields[COLUMNS_MAX];
    double *values = NULL, *predictions = NULL;
    int64_t count = 0, predicted = 0;
    if (!table_open(records, VALUES_FILE, "name,value,prediction", &table)) return;
    while (csv_reader_next(&table.reader, fields, COLUMNS_MAX, &unsaid) == 3) {
        *array_push(values, count) = number_of(fields[1]);
        *array_push(predictions, predicted) = number_of(fields[2]);
    }
    const struct scatter scatter = {"Predictions", "value", "prediction", values, predictions, count};
    html_section(out, "values", "Values");
    text_add(out, "<p class=\"grey\">Validation images in the best epoch; on the line a prediction is "
             "right.</p>\n");
    chart_add_scatter(&scatter, out);
    free(values);
    free(predictions);
    text_free(&table.text);
}

/* Labels. */

struct label {
    char *fields[COLUMNS_MAX];
    double precision;
};

/* The least precision first; those without images last. */
static int by_precision(const void *a, const void *b)
{
    const struct label *x = a, *y = b;
    if (isnan(x->precision) != isnan(y->precision)) return isnan(x->precision) ? 1 : -1;
    if (x->precision != y->precision && !isnan(x->precision)) return x->precision < y->precision ? -1 : 1;
    return strcmp(x->fields[0], y->fields[0]);
}

static void add_label(const struct label *label, struct text *out)
{
    text_add(out, "<tr>");
    html_cell(out, label->fields[0]);
    html_number(out, number_of(label->fields[1]), 0);
    html_number(out, 100 * label->precision, 1);
    double share = fmin(fmax(label->precision, 0), 1);
    text_add(out, "<td class=\"bar\" style=\"--v:%.1f%%\"></td>", isnan(share) ? 0 : 100 * share);
    html_number(out, 100 * number_of(label->fields[3]), 1);
    html_number(out, number_of(label->fields[4]), 3);
    text_add(out, "</tr>\n");
}

static void add_labels(const struct run_records *records, struct text *out)
{
    struct table table;
    struct reason unsaid;
    struct label label, *labels = NULL;
    int64_t count = 0;
    if (!table_open(records, LABELS_FILE, "label,images,average_precision,f1,threshold", &table)) return;
    while (csv_reader_next(&table.reader, label.fields, COLUMNS_MAX, &unsaid) == COLUMNS_MAX) {
        label.precision = number_of(label.fields[2]);
        label.fields[0] += label.fields[0][0] == '\'';          /* of csv_text */
        *array_push(labels, count) = label;
    }
    if (count > 0) qsort(labels, (size_t)count, sizeof *labels, by_precision);
    html_section(out, "labels", "Labels");
    text_add(out, "<p class=\"grey\">In the best epoch.</p>\n<div class=\"scroll\"><table><thead><tr>"
             "<th>label</th><th class=\"n\">images</th><th class=\"n\">average precision, %%</th><th></th>"
             "<th class=\"n\">F1, %%</th><th class=\"n\">from this probability on</th></tr></thead>"
             "<tbody>\n");
    for (int64_t i = 0; i < count && i < LABELS_LISTED; i++) add_label(&labels[i], out);
    text_add(out, "</tbody></table></div>\n");
    free(labels);
    text_free(&table.text);
}

void report_add_targets(const struct run_records *records, struct text *out)
{
    add_labels(records, out);
    add_values(records, out);
}
