#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "conf/ini.h"
#include "format/chart.h"
#include "format/html_page.h"
#include "report/run_records.h"
#include "train/progress.h"
#include "train/results.h"

#define NAME_WIDTH 26
#define VALUE_WIDTH 22       /* at least */

/* A row of the table: its name, and the value of each run. */
#define TITLE "amptrain: runs compared"

struct row {
    char *name;
    char **values;
};

struct comparison {
    struct directory *folders;   /* [count] */
    struct run_records *runs;
    struct ini *settings;        /* of config.ini */
    int count;
    struct row *rows;            /* differences; from `results` on, results */
    int row_count, results;
    bool repeated;               /* one configuration, with other folds or seeds */
    bool crossed;                /* each configuration was validated on each fold that one has */
    struct text mean;            /* of their results; empty if not repeated, or if a run has none */
};

static void row_free(const struct comparison *all, struct row *row)
{
    for (int i = 0; i < all->count; i++) free(row->values[i]);
    free(row->values);
    free(row->name);
}

static void comparison_close(struct comparison *all)
{
    for (int i = 0; i < all->row_count; i++) row_free(all, &all->rows[i]);
    free(all->rows);
    text_free(&all->mean);
    for (int i = 0; i < all->count; i++) {
        ini_free(&all->settings[i]);
        run_records_close(&all->runs[i]);
        directory_close(&all->folders[i]);
    }
    free(all->settings);
    free(all->runs);
    free(all->folders);
}

static enum status open_run(const char *path, int i, struct comparison *all)
{
    TRY(directory_open(path, &all->folders[i]));
    TRY(run_records_open(&all->folders[i], &all->runs[i]));
    if (!all->runs[i].config.data) return OK;
    char *config = ini_fold(all->runs[i].config.data);
    enum status status = ini_read_text("config.ini", config, &all->settings[i]);
    free(config);
    return status;
}

static bool all_same(const struct comparison *all, const struct row *row)
{
    for (int i = 1; i < all->count; i++)
        if (strcmp(row->values[0], row->values[i]) != 0) return false;
    return true;
}

static struct row row_new(const struct comparison *all, char *name)
{
    return (struct row){name, memory_new((size_t)all->count, sizeof(char *))};
}

static void row_add(struct comparison *all, struct row row, bool also_same)
{
    if (also_same || !all_same(all, &row)) *array_push(all->rows, all->row_count) = row;
    else row_free(all, &row);
}

/* Differences. */

static const char *setting_of(const struct ini *settings, const char *section, const char *key)
{
    for (int i = 0; i < settings->count; i++) {
        const struct ini_entry *entry = &settings->entries[i];
        if (entry->key && strcmp(entry->section, section) == 0 && strcmp(entry->key, key) == 0)
            return entry->value[0] ? entry->value : "(empty)";
    }
    return "-";
}

/* The settings of run `of`, except those that an earlier run has as well. */
static void add_settings(struct comparison *all, int of)
{
    for (int e = 0; e < all->settings[of].count; e++) {
        const struct ini_entry *entry = &all->settings[of].entries[e];
        bool known = !entry->key;
        for (int i = 0; i < of && !known; i++)
            known = strcmp(setting_of(&all->settings[i], entry->section, entry->key), "-") != 0;
        if (known) continue;
        struct row row = row_new(all, text_format("%s.%s", entry->section, entry->key));
        for (int i = 0; i < all->count; i++)
            row.values[i] = text_copy(setting_of(&all->settings[i], entry->section, entry->key));
        row_add(all, row, false);
    }
}

static void add_start(struct comparison *all)
{
    static const char *const keys[] = {"version", "device", "libraries", "threads", "ranks", "model",
                                       "params", "precision", "batch", "train_images", "val_images",
                                       "val_set"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        struct row row = row_new(all, text_copy(keys[k]));
        for (int i = 0; i < all->count; i++) {
            double number = records_start_number(&all->runs[i], keys[k]);
            row.values[i] = isfinite(number) ? text_format("%.15g", number)
                                             : text_copy(records_start_text(&all->runs[i], keys[k]));
        }
        row_add(all, row, false);
    }
}

static const char *val_set_of(const struct comparison *all, int run)
{
    return records_start_text(&all->runs[run], "val_set");
}

/* The following are asked while the rows are settings. */

/* True if two runs' settings differ in folds and seeds alone. */
static bool are_repetitions(const struct comparison *all, int a, int b)
{
    for (int r = 0; r < all->row_count; r++) {
        const struct row *row = &all->rows[r];
        if (strcmp(row->name, "data.fold") != 0 && strcmp(row->name, "run.seed") != 0 &&
            strcmp(row->values[a], row->values[b]) != 0) return false;
    }
    return true;
}

static bool all_are_repetitions(const struct comparison *all)
{
    for (int i = 1; i < all->count; i++)
        if (!are_repetitions(all, 0, i)) return false;
    return all->row_count > 0;
}

static bool on_same_fold(const struct comparison *all, int a, int b)
{
    for (int r = 0; r < all->row_count; r++)
        if (strcmp(all->rows[r].name, "data.fold") == 0)
            return strcmp(all->rows[r].values[a], all->rows[r].values[b]) == 0;
    return true;
}

/* True if there is a run of a's configuration on b's fold. */
static bool is_crossed(const struct comparison *all, int a, int b)
{
    for (int i = 0; i < all->count; i++)
        if (are_repetitions(all, a, i) && on_same_fold(all, b, i)) return true;
    return false;
}

/* True if validation images differ by the fold alone, and each configuration has each fold: then means over
 * folds compare. */
static bool are_crossed(const struct comparison *all)
{
    for (int a = 0; a < all->count; a++)
        for (int b = 0; b < all->count; b++) {
            bool same = strcmp(val_set_of(all, a), val_set_of(all, b)) == 0;
            if ((on_same_fold(all, a, b) && !same) || !is_crossed(all, a, b)) return false;
        }
    return true;
}

/* Accuracies on different images do not compare, but those of folds have a mean. */
static void warn_of_val_sets(const struct comparison *all, char **names)
{
    const char *first = "";
    int of = 0;
    if (all->crossed) return;
    for (int i = 0; i < all->count; i++) {
        const char *set = val_set_of(all, i);
        if (!*set || strcmp(set, first) == 0) continue;
        if (*first) {
            log_warning("%s and %s were validated on different images (data.val, data.val_fraction, "
                        "data.fold, data.split_seed): their accuracies and losses do not compare", names[of],
                        names[i]);
            return;
        }
        first = set;
        of = i;
    }
}

/* Results. */

static void describe_best(const struct run_records *run, struct text *out)
{
    int64_t best = records_best_epoch(run);
    char number[TEXT_NUMBER];
    const char *key = NULL;
    const struct task_metric *metric = records_metric(run, &key);
    if (best < 0) return;
    text_add(out, "%s in epoch %.0f",
             task_metric_text(metric, records_column(&run->epochs, key)[best], number),
             records_column(&run->epochs, "epoch")[best]);
}

static void describe_last(const struct run_records *run, struct text *out)
{
    char number[TEXT_NUMBER];
    const char *key = NULL;
    const struct task_metric *metric = records_metric(run, &key);
    double last = records_last(&run->epochs, key);
    if (isfinite(last)) text_add(out, "%s", task_metric_text(metric, last, number));
}

static void describe_loss(const struct run_records *run, struct text *out)
{
    double train = records_last(&run->epochs, "train_loss"), val = records_last(&run->epochs, "val_loss");
    if (isfinite(train)) text_add(out, "%.4f", train);
    if (isfinite(val)) text_add(out, " / %.4f", val);
}

static void describe_length(const struct run_records *run, struct text *out)
{
    text_add(out, "%lld / %.0f", (long long)run->epochs.count, fmax(0, records_steps(run)));
}

static void describe_time(const struct run_records *run, struct text *out)
{
    char time[PROGRESS_TIME];
    text_add(out, "%s", progress_time(records_sum(&run->epochs, "seconds"), time));
}

static void describe_rate(const struct run_records *run, struct text *out)
{
    double rate = records_last(&run->epochs, "images_per_s");
    if (isfinite(rate)) text_add(out, "%.1f", rate);
}

static void describe_memory(const struct run_records *run, struct text *out)
{
    char bytes[TEXT_BYTES];
    text_add(out, "%s", records_memory(run, bytes));
}

static void describe_skipped(const struct run_records *run, struct text *out)
{
    text_add(out, "%.0f", records_sum(&run->epochs, "skipped_steps"));
}

static void describe_end(const struct run_records *run, struct text *out)
{
    const char *reason = json_string_value(json_object_get(run->end, "reason"));
    text_add(out, "%s", reason ? reason : "not ended");
}

/* The mean of all runs' best epochs, and the standard deviation. */
static void describe_mean(struct comparison *all)
{
    char mean[TEXT_NUMBER], deviation[TEXT_NUMBER];
    const struct task_metric *metric = NULL;
    double *values = memory_new((size_t)all->count, sizeof *values);
    int count = 0;
    for (int i = 0; i < all->count; i++) {
        const char *key = NULL;
        int64_t best = records_best_epoch(&all->runs[i]);
        metric = records_metric(&all->runs[i], &key);
        if (best >= 0) values[count++] = records_column(&all->runs[i].epochs, key)[best];
    }
    struct cmd_spread spread = cmd_spread(values, count);
    if (count == all->count)
        text_add(&all->mean, "mean of %d: %s, standard deviation %s", count,
                 task_metric_text(metric, spread.mean, mean),
                 task_metric_text(metric, spread.deviation, deviation));
    free(values);
}

/* A mean of scores.json, or another number of it. */
static void describe_score(const struct run_records *run, const char *of, const char *key, bool percent,
                           struct text *out)
{
    char number[TEXT_NUMBER];
    json_t *scores = records_json(run, SCORES_FILE);
    const json_t *value = json_object_get(json_object_get(scores, of), key);
    double shown = json_number_value(value) * (percent ? 100 : 1);
    if (json_is_number(value))
        text_add(out, "%s", text_number(shown, percent ? 2 : 4, percent ? "%" : NULL, number));
    json_decref(scores);
}

static void describe_f1(const struct run_records *run, struct text *out)
{
    describe_score(run, "macro", "f1", true, out);
}

static void describe_roc_auc(const struct run_records *run, struct text *out)
{
    describe_score(run, "macro", "roc_auc", false, out);
}

static void describe_average_precision(const struct run_records *run, struct text *out)
{
    describe_score(run, "macro", "average_precision", true, out);
}

static void describe_ece(const struct run_records *run, struct text *out)
{
    describe_score(run, "calibration", "ece", true, out);
}

static const char *criterion_of(const struct run_records *run)
{
    const char *key;
    return task_metric_title(records_metric(run, &key));
}

/* True if all runs were judged by one criterion. */
static bool have_one_criterion(const struct comparison *all)
{
    for (int i = 1; i < all->count; i++)
        if (strcmp(criterion_of(&all->runs[0]), criterion_of(&all->runs[i])) != 0) return false;
    return true;
}

static bool any_value(const struct comparison *all, const struct row *row)
{
    for (int i = 0; i < all->count; i++)
        if (row->values[i][0]) return true;
    return false;
}

static void add_results(struct comparison *all)
{
    static const struct {
        const char *name;
        void (*describe)(const struct run_records *run, struct text *out);
        bool judged;             /* a value of the criterion, whose name it has */
    } results[] = {
        {"best", describe_best, true}, {"last", describe_last, true},
        {"best macro F1", describe_f1, false}, {"best ROC AUC", describe_roc_auc, false},
        {"best average precision", describe_average_precision, false},
        {"best calibration error", describe_ece, false},
        {"last loss, train / val", describe_loss, false}, {"epochs / steps", describe_length, false},
        {"time in epochs", describe_time, false}, {"images/s", describe_rate, false},
        {"memory", describe_memory, false}, {"skipped steps", describe_skipped, false},
        {"end", describe_end, false},
    };
    bool one = have_one_criterion(all);
    all->results = all->row_count;
    for (size_t r = 0; r < sizeof results / sizeof *results; r++) {
        bool named = results[r].judged && one;
        struct row row = row_new(all, text_format("%s%s%s", results[r].name, named ? " " : "",
                                                  named ? criterion_of(&all->runs[0]) : ""));
        for (int i = 0; i < all->count; i++) {
            struct text value = {0};
            if (results[r].judged && !one) text_add(&value, "%s ", criterion_of(&all->runs[i]));
            results[r].describe(&all->runs[i], &value);
            row.values[i] = value.data ? value.data : text_copy("");
        }
        if (any_value(all, &row)) row_add(all, row, true);
        else row_free(all, &row);
    }
}

/* The table, as text and as a page. */

/* For text_visible, which writes up to four characters per byte. */
static size_t visible_bytes(const char *value) { return 4 * strlen(value) + 8; }

static void print_value(const char *value, int width)
{
    char *shown = memory_new(visible_bytes(value), 1);
    printf("  %-*s", width, text_visible(value, shown, visible_bytes(value)));
    free(shown);
}

static int value_width(const char *value)
{
    char *shown = memory_new(visible_bytes(value), 1);
    int width = (int)strlen(text_visible(value, shown, visible_bytes(value)));
    free(shown);
    return width;
}

/* The width of a run's column. */
static int column_width(const struct comparison *all, const char *name, int run)
{
    int widest = value_width(name);
    for (int r = 0; r < all->row_count; r++) {
        int width = value_width(all->rows[r].values[run]);
        if (width > widest) widest = width;
    }
    return widest > VALUE_WIDTH ? widest : VALUE_WIDTH;
}

static void print_table(const struct comparison *all, char **names)
{
    int *widths = memory_new((size_t)all->count, sizeof *widths);
    printf("%-*s", NAME_WIDTH, "");
    for (int i = 0; i < all->count; i++) {
        widths[i] = column_width(all, names[i], i);
        print_value(names[i], widths[i]);
    }
    for (int r = 0; r < all->row_count; r++) {
        printf("%s\n%-*s", r == all->results ? "\n" : "", NAME_WIDTH, all->rows[r].name);
        for (int i = 0; i < all->count; i++) print_value(all->rows[r].values[i], widths[i]);
    }
    printf("\n");
    free(widths);
}

static void add_table(const struct comparison *all, char **names, struct text *out)
{
    text_add(out, "<div class=\"scroll tall\"><table><thead><tr><th></th>");
    for (int i = 0; i < all->count; i++) {
        text_add(out, "<th class=\"c%d\">", i % CHART_LINES);
        text_html(out, names[i]);
        text_add(out, "</th>");
    }
    text_add(out, "</tr></thead><tbody>\n");
    for (int r = 0; r < all->row_count; r++) {
        text_add(out, "<tr>");
        html_cell(out, all->rows[r].name);
        for (int i = 0; i < all->count; i++) html_cell(out, all->rows[r].values[i]);
        text_add(out, "</tr>\n");
    }
    text_add(out, "</tbody></table></div>\n");
}

static void add_curves(const struct comparison *all, char **names, struct text *out)
{
    static const struct {
        const char *title, *key, *unit;
        double scale;
        bool of_steps, log, log_if_wide, from_zero;
    } curves[] = {
        {.title = "Validation accuracy", .key = "val_top1", .unit = "%", .scale = 100},
        {.title = "mAP", .key = "val_map", .unit = "%", .scale = 100},
        {.title = "Mean IoU", .key = "val_miou", .unit = "%", .scale = 100},
        {.title = "Mean absolute error", .key = "val_mae", .log_if_wide = true},
        {.title = "Validation loss", .key = "val_loss", .log_if_wide = true},
        {.title = "Training loss", .key = "train_loss", .log_if_wide = true},
        {.title = "Learning rate", .key = "lr", .of_steps = true, .from_zero = true},
        {.title = "Gradient norm", .key = "grad_norm", .of_steps = true, .log = true},
        {.title = "Throughput", .key = "images_per_s", .unit = "images/s", .from_zero = true},
    };
    struct chart_line lines[CHART_LINES];
    int count = all->count < CHART_LINES ? all->count : CHART_LINES;
    html_section(out, "curves", "Curves");
    text_add(out, "<div class=\"charts\">\n");
    for (size_t c = 0; c < sizeof curves / sizeof *curves; c++) {
        for (int i = 0; i < count; i++) {
            const struct records_table *of = curves[c].of_steps ? &all->runs[i].steps : &all->runs[i].epochs;
            lines[i] = (struct chart_line){names[i], records_column(of, "step"),
                                           records_column(of, curves[c].key), of->count, false};
        }
        const struct chart chart = {
            .title = curves[c].title, .unit = curves[c].unit, .x_name = "step", .scale = curves[c].scale,
            .log = curves[c].log, .log_if_wide = curves[c].log_if_wide, .from_zero = curves[c].from_zero,
            .lines = lines, .count = count,
        };
        chart_add(&chart, out);
    }
    text_add(out, "</div>\n");
}

static enum status write_page(const struct comparison *all, char **names, const char *path)
{
    struct text page = {0};
    html_begin(&page, TITLE);
    text_add(&page, "<h1>Runs compared</h1>\n");
    add_table(all, names, &page);
    if (all->mean.data) text_add(&page, "<p>%s</p>\n", all->mean.data);
    add_curves(all, names, &page);
    html_end(&page);
    enum status status = atomic_file_write(&directory_working, path, page.data, page.length);
    if (status == OK) log_info("%s written", path);
    text_free(&page);
    return status;
}

static enum status compare_run(struct cmd *cmd)
{
    struct comparison all = {0};
    char **names = cmd->arguments;
    enum status status = OK;
    if (cmd->argument_count < 2) return fail(USAGE, "compare: give two or more run folders");
    if (cmd->output) TRY(cmd_check_output(cmd, cmd->output, HTML_HEAD TITLE "</title>*"));
    all.folders = memory_new((size_t)cmd->argument_count, sizeof *all.folders);
    all.runs = memory_new((size_t)cmd->argument_count, sizeof *all.runs);
    all.settings = memory_new((size_t)cmd->argument_count, sizeof *all.settings);
    for (; all.count < cmd->argument_count && status == OK; all.count++)
        status = open_run(names[all.count], all.count, &all);
    if (status == OK) {
        for (int i = 0; i < all.count; i++) add_settings(&all, i);
        all.repeated = all_are_repetitions(&all);
        all.crossed = are_crossed(&all);
        add_start(&all);
        add_results(&all);
        if (all.repeated) describe_mean(&all);
        print_table(&all, names);
        if (all.mean.data) printf("\n%s\n", all.mean.data);
        warn_of_val_sets(&all, names);
        if (cmd->output) status = write_page(&all, names, cmd->output);
    }
    comparison_close(&all);
    return status;
}

const struct command cmd_compare = {
    .name = "compare",
    .usage = "RUN RUN... [-o FILE.html]",
    .help = "Compares configurations and results of runs.",
    .takes = TAKES_ARGUMENTS | TAKES_OUTPUT,
    .run = compare_run,
};
