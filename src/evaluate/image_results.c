#include "evaluate/image_results.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/csv.h"

struct image_results {
    const struct evaluation *evaluation;
    const struct images *images;
    const struct data *data;
    int64_t row;                 /* of the outputs, that is next */
};

/* Its name in the data set; of images without names, the number there. */
static void add_name(const struct image_results *results, int64_t place, struct text *line)
{
    const struct dataset *dataset = results->images->dataset;
    int64_t index = images_index(results->images, place);
    const char *name = dataset->format->image_name ? dataset->format->image_name(dataset, index) : NULL;
    if (name) csv_text(line, name);
    else text_add(line, "%" PRId64, index);
}

static void add_class(const struct image_results *results, int64_t place, struct text *line)
{
    const struct answer *answer = &results->evaluation->answers[place];
    text_add(line, ",");
    if (answer->label >= 0) csv_text(line, results->data->class_names[answer->label]);
    text_add(line, ",");
    if (answer->label < 0 || answer->predicted < 0) {
        text_add(line, ",");
        return;
    }
    csv_text(line, results->data->class_names[answer->predicted]);
    text_add(line, ",%.9g", (double)answer->confidence);
}

/* Adds the names of the labels that have at least their threshold, or half of a target. */
static void add_labels(const struct data *data, const float *values, bool targets, struct text *line)
{
    struct text names = {0}, probabilities = {0};
    for (int i = 0; i < data->classes; i++) {
        double threshold = targets || !data->thresholds ? 0.5 : data->thresholds[i];
        if (!((double)values[i] >= threshold)) continue;
        text_add(&names, "%s%s", names.data ? ";" : "", data->class_names[i]);
        text_add(&probabilities, "%s%.9g", probabilities.data ? ";" : "", (double)values[i]);
    }
    text_add(line, ",");
    if (names.data) csv_text(line, names.data);
    if (!targets) text_add(line, ",%s", probabilities.data ? probabilities.data : "");
    text_free(&names);
    text_free(&probabilities);
}

/* Outputs are those of readable images. */
static void add_outputs(struct image_results *results, int64_t place, struct text *line)
{
    const struct evaluation *evaluation = results->evaluation;
    const struct data *data = results->data;
    const struct task_outputs *outputs = &evaluation->outputs;
    bool readable = results->row < outputs->images && evaluation->places[results->row] == place;
    if (!readable) {
        text_add(line, ",,,");
        return;
    }
    int64_t at = results->row++ * outputs->outputs;
    if (data->target == TARGET_LABELS) {
        add_labels(data, outputs->targets + at, true, line);
        add_labels(data, outputs->values + at, false, line);
        return;
    }
    const struct dataset *dataset = results->images->dataset;
    text_add(line, ",%.15g,", dataset->format->number(dataset, images_index(results->images, place)));
    if (isfinite(outputs->values[at])) task_value_print(data, outputs->values[at], line);
    text_add(line, ",");
}

static void add_ious(const struct image_results *results, int64_t place, struct text *line)
{
    int classes = results->data->classes;
    for (int c = 0; c < classes; c++) {
        double iou = (double)results->evaluation->ious[place * classes + c];
        text_add(line, isnan(iou) ? "," : ",%.9g", iou);
    }
}

static void add_header(const struct data *data, struct text *line)
{
    text_add(line, "name");
    for (int c = 0; data->target == TARGET_MASK && c < data->classes; c++) {
        text_add(line, ",");
        csv_text(line, data->class_names[c]);
    }
    text_add(line, data->target == TARGET_MASK ? "\n" : ",truth,prediction,probability\n");
}

static void add_line(struct image_results *results, int64_t place, struct text *line)
{
    add_name(results, place, line);
    if (results->data->target == TARGET_MASK) add_ious(results, place, line);
    else if (results->evaluation->answers) add_class(results, place, line);
    else add_outputs(results, place, line);
    text_add(line, "\n");
}

enum status image_results_write(const struct evaluation *evaluation, const struct images *images,
                                const struct data *data, const char *path)
{
    struct image_results results = {evaluation, images, data, 0};
    struct atomic_file file;
    struct text line = {0};
    TRY(atomic_file_begin(&directory_working, path, &file));
    add_header(data, &line);
    bool good = fwrite(line.data, 1, line.length, file.stream) == line.length;
    for (int64_t place = 0; good && place < images->count; place++) {
        line.length = 0;
        add_line(&results, place, &line);
        good = fwrite(line.data, 1, line.length, file.stream) == line.length;
    }
    text_free(&line);
    enum status status = good ? OK : directory_refuse(&directory_working, path, strerror(errno));
    enum status ended = atomic_file_end(&file, good);
    return status == OK ? ended : status;
}
