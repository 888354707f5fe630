#include "report/run_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/watch.h"
#include "forecast/memory_map.h"
#include "format/chart.h"
#include "report/run_report_parts.h"
#include "train/progress.h"

#define LISTED 100           /* bad images, warnings */

/* The head. */

static void add_tile(struct text *out, const char *name, const char *value)
{
    text_add(out, "<div><b>");
    text_html(out, value);
    text_add(out, "</b>%s</div>\n", name);
}

static void add_count_tile(struct text *out, const char *name, double count)
{
    char number[TEXT_NUMBER];
    if (isfinite(count)) add_tile(out, name, text_number(count, 0, NULL, number));
}

static void add_results(const struct run_records *records, struct text *out)
{
    const struct records_table *epochs = &records->epochs;
    int64_t best = records_best_epoch(records);
    char number[TEXT_NUMBER], time[PROGRESS_TIME], bytes[TEXT_BYTES];
    const char *key = NULL;
    const struct task_metric *metric = records_metric(records, &key);
    if (best >= 0) {
        char *name = text_format("best %s, epoch %.0f", task_metric_title(metric),
                                 records_column(epochs, "epoch")[best]);
        add_tile(out, name, task_metric_text(metric, records_column(epochs, key)[best], number));
        free(name);
        if (metric)
            add_tile(out, "validation loss then",
                     text_number(records_column(epochs, "val_loss")[best], 4, NULL, number));
    }
    add_count_tile(out, "epochs", (double)epochs->count);
    add_count_tile(out, "steps", records_steps(records));
    add_tile(out, "time in epochs", progress_time(records_sum(epochs, "seconds"), time));
    add_count_tile(out, "images/s", records_last(epochs, "images_per_s"));
    const char *memory = records_memory(records, bytes);
    double joules = records_sum(epochs, "joules");
    joules += json_number_value(json_object_get(records->end, "joules"));
    if (joules > 0) add_tile(out, "energy", text_energy(joules, number));
    if (*memory) add_tile(out, "memory", memory);
    add_count_tile(out, "skipped steps", records_sum(epochs, "skipped_steps"));
    add_count_tile(out, "bad images", records_sum(epochs, "bad_images"));
}

static void add_head(const struct run_records *records, const char *title, struct text *out)
{
    const char *reason = json_string_value(json_object_get(records->end, "reason"));
    text_add(out, "<h1>");
    text_html(out, title);
    text_add(out, "</h1>\n<p class=\"grey\">");
    text_html(out, records_start_text(records, "model"));
    text_add(out, " in ");
    text_html(out, records_start_text(records, "precision"));
    text_add(out, " on ");
    text_html(out, records_start_text(records, "device"));
    text_add(out, "; %s", reason ? "ended: " : "not ended");
    text_html(out, reason ? reason : "");
    text_add(out, "</p>\n<div class=\"tiles\">\n");
    add_results(records, out);
    text_add(out, "</div>\n");
}

/* Curves. */

static struct chart_line line_of(const struct records_table *table, const char *key, const char *name)
{
    return (struct chart_line){name, records_column(table, "step"), records_column(table, key), table->count,
                               false};
}

/* The steps with skipped ones; the caller frees them. */
static double *skipped_steps(const struct records_table *steps, int64_t *count)
{
    const double *step = records_column(steps, "step"), *skipped = records_column(steps, "skipped");
    double *marks = NULL;
    *count = 0;
    for (int64_t i = 0; i < steps->count; i++)
        if (skipped[i] > 0 && isfinite(step[i])) *array_push(marks, *count) = step[i];
    return marks;
}

/* Without loss scaling, the scale is always 1. */
static bool is_scaled(const struct records_table *steps)
{
    const double *scale = records_column(steps, "loss_scale");
    for (int64_t i = 0; i < steps->count; i++)
        if (isfinite(scale[i]) && scale[i] != 1) return true;
    return false;
}

static void add_curves(const struct run_records *records, struct text *out)
{
    const struct records_table *steps = &records->steps, *epochs = &records->epochs;
    int64_t skipped;
    double *marks = skipped_steps(steps, &skipped);
    struct chart_line loss[] = {line_of(steps, "loss", "step"), line_of(epochs, "train_loss", "epoch"),
                                line_of(epochs, "val_loss", "validation")};
    const struct chart_line accuracy[] = {
        line_of(epochs, "train_top1", "training top-1"), line_of(epochs, "val_top1", "validation top-1"),
        line_of(epochs, "val_top5", "validation top-5"),
    };
    const struct chart_line labels[] = {
        line_of(epochs, "val_map", "mAP"), line_of(epochs, "val_f1_micro", "F1, micro"),
        line_of(epochs, "val_f1_macro", "F1, macro"),
    };
    const struct chart_line errors[] = {line_of(epochs, "val_mae", "mean absolute error"),
                                        line_of(epochs, "val_rmse", "root mean square error")};
    const struct chart_line pixels[] = {
        line_of(epochs, "val_miou", "mean IoU"), line_of(epochs, "val_dice", "Dice"),
        line_of(epochs, "val_pixel_accuracy", "pixel accuracy"),
    };
    const struct chart_line r2 = line_of(epochs, "val_r2", "validation");
    const struct chart_line lr = line_of(steps, "lr", "learning rate");
    const struct chart_line scale = line_of(steps, "loss_scale", "loss scale");
    const struct chart_line norm = line_of(steps, "grad_norm", "norm");
    struct chart_line rates[] = {line_of(steps, "images_per_s", "since the last line"),
                                 line_of(epochs, "images_per_s", "of the epoch")};
    const struct chart_line wait = line_of(epochs, "data_wait_fraction", "waiting");
    const struct chart charts[] = {
        {.title = "Loss", .log_if_wide = true, .lines = loss, .count = 3, .marks = marks,
         .mark_count = skipped},
        {.title = "Accuracy", .unit = "%", .scale = 100, .lines = accuracy, .count = 3},
        {.title = "Labels", .unit = "%", .scale = 100, .lines = labels, .count = 3},
        {.title = "Pixels", .unit = "%", .scale = 100, .lines = pixels, .count = 3},
        {.title = "Errors", .log_if_wide = true, .lines = errors, .count = 2},
        {.title = "R2", .lines = &r2, .count = 1},
        {.title = "Learning rate", .from_zero = true, .lines = &lr, .count = 1},
        {.title = "Loss scale", .log = true, .lines = &scale, .count = is_scaled(steps), .marks = marks,
         .mark_count = skipped},
        {.title = "Gradient norm", .log = true, .lines = &norm, .count = 1, .marks = marks,
         .mark_count = skipped},
        {.title = "Throughput", .unit = "images/s", .from_zero = true, .lines = rates, .count = 2},
        {.title = "Waiting for data", .unit = "% of an epoch", .scale = 100, .from_zero = true,
         .lines = &wait, .count = 1},
    };
    loss[0].faint = rates[0].faint = true;
    html_section(out, "curves", "Curves");
    text_add(out, "<div class=\"charts\">\n");
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) {
        struct chart chart = charts[i];
        chart.x_name = "step";
        chart.mark_name = "skipped steps";
        chart_add(&chart, out);
    }
    text_add(out, "</div>\n");
    free(marks);
}

/* Data. */

/* The first lines of a file that `wanted` accepts, as text: fields end with tabs. */
static int64_t add_lines(const char *text, bool (*wanted)(const char *line), struct text *out)
{
    int64_t count = 0;
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *copy = text_format("%.*s", (int)(end - line), line);
        if (wanted(copy) && count++ < LISTED) {
            text_html(out, copy);
            text_add(out, "\n");
        }
        free(copy);
    }
    return count;
}

static void add_file(const struct run_records *records, const char *name, bool (*wanted)(const char *line),
                     const char *title, struct text *out)
{
    struct text text = {0}, lines = {0};
    if (!records_read(records->folder, name, REPORT_FILE_MAX, &text)) return;
    int64_t count = add_lines(text.data, wanted, &lines);
    if (count > 0)
        text_add(out, "<details><summary>%s: %" PRId64 "%s</summary><div class=\"scroll\"><pre>%s</pre></div>"
                 "</details>\n", title, count, count > LISTED ? ", the first 100" : "", lines.data);
    text_free(&lines);
    text_free(&text);
}

static bool any_line(const char *line)
{
    return line[0] != '\0';
}

static bool is_warning(const char *line)
{
    const char *word = strchr(line, ' ');
    return word && (strncmp(word, " warning:", 9) == 0 || strncmp(word, " error:", 7) == 0);
}

/* The smallest and the largest class. */
static void add_class_sizes(const struct run_records *records, const char *key, struct text *out)
{
    const json_t *counts = json_object_get(records->start, key), *count;
    double least = INFINITY, most = 0;
    size_t i;
    json_array_foreach(counts, i, count) {
        least = fmin(least, json_number_value(count));
        most = fmax(most, json_number_value(count));
    }
    if (json_array_size(counts) == 0) return;
    text_add(out, ", %.0f", least);
    if (most > least) text_add(out, " to %.0f", most);
    text_add(out, " in a class");
}

static void add_data(const struct run_records *records, struct text *out)
{
    html_section(out, "data", "Data");
    text_add(out, "<p>%.0f training images", fmax(0, records_start_number(records, "train_images")));
    add_class_sizes(records, "train_per_class", out);
    text_add(out, "; %.0f for validation", fmax(0, records_start_number(records, "val_images")));
    add_class_sizes(records, "val_per_class", out);
    text_add(out, "</p>\n");
    add_file(records, "bad-images.txt", any_line, "Images that could not be used", out);
    add_file(records, "log.txt", is_warning, "Warnings and errors", out);
}

/* Memory. */

static void add_bytes(const struct run_records *records, struct text *out)
{
    static const struct {
        const char *key, *name;
    } rows[] = {{"arena_bytes", "arena: activations, gradients, workspaces"},
                {"live_bytes_bound", "largest sum of live tensors, a lower bound of the arena"},
                {"store_bytes", "parameters, optimizer state, statistics"},
                {"total_bytes", "total, including batches on the device"}};
    const json_t *plan = json_object_get(records->start, "plan");
    char bytes[TEXT_BYTES];
    text_add(out, "<table>\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t value = json_integer_value(json_object_get(plan, rows[i].key));
        text_add(out, "<tr><td>%s</td><td class=\"n\">%s</td></tr>\n", rows[i].name,
                 text_bytes((uint64_t)value, bytes));
    }
    text_add(out, "</table>\n");
}

static void add_memory(const struct run_records *records, struct text *out)
{
    struct text map = {0};
    if (!json_object_get(records->start, "plan")) return;
    html_section(out, "memory", "Memory");
    add_bytes(records, out);
    if (!records_read(records->folder, MEMORY_MAP_FILE, REPORT_FILE_MAX, &map)) return;
    /* In a frame without scripts, because the file comes from the folder. */
    text_add(out, "<p class=\"grey\">The arena during a step: time across, addresses up; point at a box "
             "for its tensor.</p>\n<div class=\"scroll tall wide\"><iframe class=\"map\" sandbox=\"\" "
             "loading=\"lazy\" style=\"max-width:%dpx;aspect-ratio:%d/%d\" title=\"memory map\" "
             "src=\"data:image/svg+xml;base64,", MEMORY_MAP_WIDTH, MEMORY_MAP_WIDTH, MEMORY_MAP_HEIGHT);
    text_base64(out, (const uint8_t *)map.data, map.length);
    text_add(out, "\"></iframe></div>\n");
    text_free(&map);
}

/* Configuration and environment. */

static void add_environment(const struct run_records *records, struct text *out)
{
    static const char *const keys[] = {"version", "device", "libraries", "threads", "ranks", "model",
                                       "params", "precision", "batch", "seed"};
    html_section(out, "configuration", "Configuration and environment");
    text_add(out, "<table>\n");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(records->start, keys[i]);
        if (!value) continue;
        text_add(out, "<tr><td>%s</td>", keys[i]);
        if (json_is_string(value)) html_cell(out, json_string_value(value));
        else text_add(out, "<td>%.15g</td>", json_number_value(value));
        text_add(out, "</tr>\n");
    }
    text_add(out, "</table>\n<p class=\"grey\">%s</p>\n",
             records->starts > 1 ? "The run was resumed; the rows are those of its last part." : "");
    if (!records->config.data) return;
    text_add(out, "<details><summary>config.ini</summary><div class=\"scroll\"><pre>");
    text_html(out, records->config.data);
    text_add(out, "</pre></div></details>\n");
}

static char *title_of(const struct run_records *records)
{
    const char *path = records->folder->path, *name = strrchr(path, '/');
    return text_format("amptrain: %s", name && name[1] ? name + 1 : path);
}

static void add_page(const struct run_records *records, struct text *out)
{
    char *title = title_of(records);
    html_begin(out, title);
    add_head(records, title, out);
    add_curves(records, out);
    report_add_classes(records, out);
    report_add_targets(records, out);
    report_add_scores(records, out);
    report_add_mistakes(records, out);
    add_data(records, out);
    add_memory(records, out);
    report_add_profile(records, out);
    add_environment(records, out);
    html_end(out);
    free(title);
}

enum status run_report_write(const struct directory *folder)
{
    struct run_records records;
    struct text page = {0};
    TRY(run_records_open(folder, &records));
    add_page(&records, &page);
    enum status status = atomic_file_write(folder, RUN_REPORT_FILE, page.data, page.length);
    text_free(&page);
    run_records_close(&records);
    return status;
}

void run_report_map(const struct run *run)
{
    const struct programs *programs = &run->programs;
    if (!run->session->settings->run.report) return;
    const struct forecast forecast = {.compiled = programs->training.compiled, .bytes = programs->bytes};
    struct memory_map map = memory_map_make(&forecast);
    if (memory_map_draw(run->session, &map, MEMORY_MAP_FILE, &run->folder.at) != OK)
        log_warning("the memory map was not drawn; `amptrain plan` draws it");
    memory_map_free(&map);
}

void run_report_of(const struct run *run, bool before)
{
    const struct directory *folder = &run->folder.at;
    if (!run->session->settings->run.report || (before && directory_has(folder, RUN_REPORT_FILE))) return;
    struct watch *watch = watch_begin(WATCH_SECONDS, "%s: writing the report", folder->path);
    enum status status = run_report_write(folder);
    watch_end(watch);
    if (status != OK) log_warning("the report was not written; `amptrain report` writes it");
}
