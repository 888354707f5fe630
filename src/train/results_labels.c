#include "train/results_labels.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/atomic_file.h"
#include "base/csv.h"
#include "base/members.h"
#include "base/memory.h"

#define LISTED 5
#define NAME_ROOM 32

struct label_result {
    int label;
    int64_t images;            /* that have it */
    double precision, f1, threshold;
};

static struct task_column column_of(const struct task_outputs *outputs, int label)
{
    return (struct task_column){outputs->values + label, outputs->targets + label, outputs->images,
                                outputs->outputs};
}

static struct label_result result_of(const struct evaluation *evaluation, const struct data *data, int label)
{
    const struct task_column column = column_of(&evaluation->outputs, label);
    struct label_result result = {
        .label = label,
        .precision = task_average_precision(&column),
        .threshold = data->thresholds ? data->thresholds[label] : 0.5,
    };
    for (int64_t i = 0; i < column.count; i++) result.images += column.targets[i * column.stride] > 0.5f;
    result.f1 = task_f1(&column, result.threshold);
    return result;
}

double *results_per_label(const struct evaluation *evaluation)
{
    const struct task_outputs *outputs = &evaluation->outputs;
    double *precision = memory_new((size_t)outputs->outputs, sizeof *precision);
    for (int i = 0; i < outputs->outputs; i++) {
        const struct task_column column = column_of(outputs, i);
        precision[i] = task_average_precision(&column);
    }
    return precision;
}

/* Labels without images come last. */
static int by_precision(const void *a, const void *b)
{
    const struct label_result *x = a, *y = b;
    if (isnan(x->precision) != isnan(y->precision)) return isnan(x->precision) ? 1 : -1;
    if (x->precision != y->precision && !isnan(x->precision)) return x->precision < y->precision ? -1 : 1;
    return x->label - y->label;
}

void results_labels_add(const struct evaluation *evaluation, const struct data *data, const char *when,
                        struct progress_table *table)
{
    struct label_result *results = memory_new((size_t)data->classes, sizeof *results);
    struct text worst = {0};
    char name[NAME_ROOM];
    for (int i = 0; i < data->classes; i++) results[i] = result_of(evaluation, data, i);
    qsort(results, (size_t)data->classes, sizeof *results, by_precision);
    for (int i = 0; i < data->classes && i < LISTED && results[i].precision < 1; i++)
        text_add(&worst, "%s%s (AP %.2f %%, F1 %.2f %% from %.3f on)", i ? ", " : "",
                 text_visible(data->class_names[results[i].label], name, sizeof name),
                 100 * results[i].precision, 100 * results[i].f1, results[i].threshold);
    if (worst.data) progress_table_add(table, "worst labels", "%s%s", worst.data, when);
    text_free(&worst);
    free(results);
}

void results_labels_json(const struct evaluation *evaluation, const struct data *data, struct text *object)
{
    member_key(object, "labels");
    for (int i = 0; i < data->classes; i++) {
        const struct label_result result = result_of(evaluation, data, i);
        text_add(object, i ? ",{" : "[{");
        member_bytes(object, "label", data->class_names[i]);
        member_integer(object, "images", result.images);
        member_number(object, "average_precision", result.precision);
        member_number(object, "f1", result.f1);
        member_number(object, "threshold", result.threshold);
        text_add(object, "}");
    }
    text_add(object, "]");
}

static void add_labels(const struct evaluation *evaluation, const struct data *data, struct text *out)
{
    text_add(out, "label,images,average_precision,f1,threshold\n");
    for (int i = 0; i < data->classes; i++) {
        const struct label_result result = result_of(evaluation, data, i);
        csv_text(out, data->class_names[i]);
        text_add(out, ",%" PRId64 ",", result.images);
        if (!isnan(result.precision)) text_add(out, "%.9g", result.precision);
        text_add(out, ",%.9g,%.9g\n", result.f1, result.threshold);
    }
}

static void add_values(const struct evaluation *evaluation, const struct images *images,
                       const struct data *data, struct text *out)
{
    const struct task_outputs *outputs = &evaluation->outputs;
    text_add(out, "name,value,prediction\n");
    for (int64_t i = 0; i < outputs->images && i < VALUES_MAX; i++) {
        int64_t index = images_index(images, evaluation->places[i]);
        char *name = dataset_image_path(images->dataset, index);
        csv_text(out, name ? name : "");
        text_add(out, ",%.15g,", images->dataset->format->number(images->dataset, index));
        task_value_print(data, outputs->values[i], out);
        text_add(out, "\n");
        free(name);
    }
}

enum status results_labels_write(const struct evaluation *evaluation, const struct images *images,
                                 const struct data *data, const struct directory *folder)
{
    struct text text = {0};
    bool labels = data->target == TARGET_LABELS;
    if (labels) add_labels(evaluation, data, &text);
    else add_values(evaluation, images, data, &text);
    const char *name = labels ? LABELS_FILE : VALUES_FILE;
    enum status status = atomic_file_write(folder, name, text.data, text.length);
    text_free(&text);
    return status;
}
