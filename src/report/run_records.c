#include "report/run_records.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/run.h"

static const char *const step_keys[] = {
    "step", "epoch", "loss", "lr", "loss_scale", "skipped", "grad_norm", "images_per_s", NULL,
};
static const char *const epoch_keys[] = {
    "step", "epoch", "train_loss", "train_top1", "val_loss", "val_top1", "val_top5", "val_map",
    "val_f1_micro", "val_f1_macro", "val_mae", "val_rmse", "val_mse", "val_r2", "val_miou", "val_dice",
    "val_pixel_accuracy", "images_per_s",
    "seconds", "joules", "device_peak_bytes", "host_peak_bytes", "data_wait_fraction", "skipped_steps",
    "bad_images", NULL,
};

static int key_count(const struct records_table *table)
{
    int count = 0;
    while (table->keys[count]) count++;
    return count;
}

static struct records_table table_new(const char *const *keys)
{
    struct records_table table = {.keys = keys};
    table.columns = memory_new((size_t)key_count(&table), sizeof *table.columns);
    return table;
}

static void table_free(struct records_table *table)
{
    for (int k = 0; table->columns && k < key_count(table); k++) free(table->columns[k]);
    free(table->columns);
}

/* Sums and differences of numbers up to this are finite; larger ones count as missing. Smaller ones than the
 * least count as 0: they have no powers of ten and no hundredths. */
#define NUMBER_MAX 1e300
#define NUMBER_LEAST 1e-300

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (fabs(number) < NUMBER_LEAST) return 0;
    return fabs(number) <= NUMBER_MAX ? number : NAN;
}

static void table_add(struct records_table *table, const json_t *line)
{
    for (int k = 0; k < key_count(table); k++) {
        int64_t count = table->count;
        *array_push(table->columns[k], count) = number_of(line, table->keys[k]);
    }
    table->count++;
}

static void record_take(json_t **kept, json_t *line)
{
    json_decref(*kept);
    *kept = json_incref(line);
}

static void add_line(void *context, json_t *line)
{
    struct run_records *records = context;
    const char *event = json_string_value(json_object_get(line, "event"));
    if (!event) return;
    if (strcmp(event, "step") == 0) table_add(&records->steps, line);
    else if (strcmp(event, "epoch") == 0) table_add(&records->epochs, line);
    else if (strcmp(event, "end") == 0) record_take(&records->end, line);
    else if (strcmp(event, "start") == 0) {
        record_take(&records->start, line);
        record_take(&records->end, NULL);
        records->starts++;
    }
}

enum status records_each(const struct directory *folder, void (*take)(void *context, json_t *line),
                         void *context)
{
    struct reason reason;
    FILE *file = directory_stream_within(folder, RUN_METRICS, "r", (int64_t)4 << 30, &reason);
    if (!file) return fail(BAD_DATA, "%s: has no run: %s: %s", folder->path, RUN_METRICS, reason.text);
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; (length = getline(&line, &room, file)) > 0;) {
        json_t *object = json_loadb(line, (size_t)length, 0, NULL);
        if (object) take(context, object);
        json_decref(object);
    }
    free(line);
    fclose(file);
    return OK;
}

enum status run_records_open(const struct directory *folder, struct run_records *records)
{
    *records = (struct run_records){
        .folder = folder, .steps = table_new(step_keys), .epochs = table_new(epoch_keys),
    };
    enum status status = records_each(folder, add_line, records);
    if (status == OK) records_read(folder, "config.ini", 1 << 20, &records->config);
    else run_records_close(records);
    return status;
}

void run_records_close(struct run_records *records)
{
    json_decref(records->start);
    json_decref(records->end);
    table_free(&records->steps);
    table_free(&records->epochs);
    text_free(&records->config);
    *records = (struct run_records){0};
}

const double *records_column(const struct records_table *table, const char *key)
{
    for (int k = 0; table->keys[k]; k++)
        if (strcmp(table->keys[k], key) == 0) return table->columns[k];
    return NULL;
}

double records_last(const struct records_table *table, const char *key)
{
    const double *column = records_column(table, key);
    for (int64_t i = table->count; column && i > 0; i--)
        if (isfinite(column[i - 1])) return column[i - 1];
    return NAN;
}

const char *records_memory(const struct run_records *records, char text[TEXT_BYTES])
{
    double peak = records_last(&records->epochs, "device_peak_bytes");
    return peak >= 0 ? text_bytes((uint64_t)fmin(peak, 1e18), text) : "";
}

double records_sum(const struct records_table *table, const char *key)
{
    const double *column = records_column(table, key);
    double sum = 0;
    for (int64_t i = 0; i < table->count; i++)
        if (isfinite(column[i])) sum += column[i];
    return sum;
}

double records_steps(const struct run_records *records)
{
    double steps = fmax(records_last(&records->steps, "step"), records_last(&records->epochs, "step"));
    return fmax(steps, number_of(records->end, "steps"));
}

double records_start_number(const struct run_records *records, const char *key)
{
    return number_of(records->start, key);
}

const char *records_start_text(const struct run_records *records, const char *key)
{
    const char *value = json_string_value(json_object_get(records->start, key));
    return value ? value : "";
}

const struct task_metric *records_metric(const struct run_records *records, const char **key)
{
    const struct data_task *task = task_named(records_start_text(records, "task"));
    const char *best = records_start_text(records, "checkpoint_best");
    int metric = strncmp(best, "val_", 4) == 0 ? task_metric_find(task, best + 4) : -1;
    *key = "val_loss";
    if (strcmp(best, *key) == 0) return NULL;
    if (metric < 0) metric = 0;
    for (int k = 0; epoch_keys[k]; k++) {
        const char *name = strncmp(epoch_keys[k], "val_", 4) == 0 ? epoch_keys[k] + 4 : "";
        if (strcmp(name, task->metrics[metric].key) == 0) *key = epoch_keys[k];
    }
    return &task->metrics[metric];
}

int64_t records_best_epoch(const struct run_records *records)
{
    const char *key = NULL;
    const struct task_metric *metric = records_metric(records, &key);
    const double *values = records_column(&records->epochs, key);
    const double *losses = records_column(&records->epochs, "val_loss");
    int64_t best = -1;
    for (int64_t i = 0; i < records->epochs.count; i++) {
        double than = best < 0 ? (double)NAN : values[best];
        if (isfinite(losses[i]) && task_better(metric, values[i], than)) best = i;
    }
    return best;
}

bool records_read(const struct directory *folder, const char *name, size_t most, struct text *text)
{
    struct reason unsaid;
    char *bytes;
    size_t count;
    if (!directory_read(folder, name, most, &bytes, &count, &unsaid)) return false;
    text_add(text, "%s", bytes);
    free(bytes);
    if (text->length == 0) text_free(text);
    return text->length > 0;
}

json_t *records_json(const struct run_records *records, const char *name)
{
    struct text text = {0};
    if (!records_read(records->folder, name, REPORT_FILE_MAX, &text)) return NULL;
    json_t *value = json_loads(text.data, 0, NULL);
    text_free(&text);
    return value;
}
