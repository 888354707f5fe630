#include "train/results_labels.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/atomic_file.h"
#include "base/csv.h"
#include "base/members.h"
#include "base/memory.h"
#include "train/results_scores.h"

#define LISTED 5
#define NAME_ROOM 32

double *results_per_label(const struct evaluation *evaluation)
{
    const struct task_outputs *outputs = &evaluation->outputs;
    double *precision = memory_new((size_t)outputs->outputs, sizeof *precision);
    for (int i = 0; i < outputs->outputs; i++) {
        const struct task_column column = {outputs->values + i, outputs->targets + i, outputs->images,
                                           outputs->outputs};
        precision[i] = task_average_precision(&column);
    }
    return precision;
}

struct ranked_label {
    int label;
    double precision;
};

/* Labels without images come last. */
static int by_precision(const void *a, const void *b)
{
    const struct ranked_label *x = a, *y = b;
    if (isnan(x->precision) != isnan(y->precision)) return isnan(x->precision) ? 1 : -1;
    if (x->precision != y->precision && !isnan(x->precision)) return x->precision < y->precision ? -1 : 1;
    return x->label - y->label;
}

static double threshold_of(const struct data *data, int label)
{
    return data->thresholds ? data->thresholds[label] : 0.5;
}

void results_labels_add(const struct scores *scores, const struct data *data, const char *when,
                        struct progress_table *table)
{
    struct ranked_label *ranked = memory_new((size_t)data->classes, sizeof *ranked);
    struct text worst = {0};
    char name[NAME_ROOM];
    for (int i = 0; i < data->classes; i++)
        ranked[i] = (struct ranked_label){i, scores->each[i].values.average_precision};
    qsort(ranked, (size_t)data->classes, sizeof *ranked, by_precision);
    for (int i = 0; i < data->classes && i < LISTED && ranked[i].precision < 1; i++)
        text_add(&worst, "%s%s (AP %.2f %%, F1 %.2f %% from %.3f on)", i ? ", " : "",
                 text_visible(data->class_names[ranked[i].label], name, sizeof name),
                 100 * ranked[i].precision, 100 * scores->each[ranked[i].label].values.f1,
                 threshold_of(data, ranked[i].label));
    if (worst.data) progress_table_add(table, "worst labels", "%s%s", worst.data, when);
    text_free(&worst);
    free(ranked);
}

void results_labels_json(const struct scores *scores, const struct data *data, struct text *object)
{
    member_key(object, "labels");
    for (int i = 0; i < data->classes; i++) {
        text_add(object, i ? ",{" : "[{");
        member_bytes(object, "label", data->class_names[i]);
        member_integer(object, "images", scores->each[i].images);
        results_scores_class(scores, i, object);
        member_number(object, "threshold", threshold_of(data, i));
        text_add(object, "}");
    }
    text_add(object, "]");
}

/* Nothing where it is not defined. */
static void add_number(double value, struct text *out)
{
    text_add(out, ",");
    if (!isnan(value)) text_add(out, "%.9g", value);
}

static void add_labels(const struct scores *scores, const struct data *data, struct text *out)
{
    text_add(out, "label,images,average_precision,f1,threshold\n");
    for (int i = 0; i < data->classes; i++) {
        csv_text(out, data->class_names[i]);
        text_add(out, ",%" PRId64, scores->each[i].images);
        add_number(scores->each[i].values.average_precision, out);
        add_number(scores->each[i].values.f1, out);
        add_number(threshold_of(data, i), out);
        text_add(out, "\n");
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

enum status results_labels_write(const struct evaluation *evaluation, const struct scores *scores,
                                 const struct images *images, const struct data *data,
                                 const struct directory *folder)
{
    struct text text = {0};
    bool labels = data->target == TARGET_LABELS;
    if (labels) add_labels(scores, data, &text);
    else add_values(evaluation, images, data, &text);
    const char *name = labels ? LABELS_FILE : VALUES_FILE;
    enum status status = atomic_file_write(folder, name, text.data, text.length);
    text_free(&text);
    return status;
}
