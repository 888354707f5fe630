#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/members.h"
#include "cmd/trained.h"
#include "data/dataset/detect.h"
#include "evaluate/evaluate.h"
#include "evaluate/image_results.h"
#include "evaluate/knn.h"
#include "evaluate/mistakes.h"
#include "format/npy.h"
#include "session/preprocessing.h"
#include "train/folder.h"
#include "train/metrics.h"
#include "train/results.h"

static enum status logits_add(void *context, const float *values, int images, int classes)
{
    return npy_add(context, values, (size_t)images * (size_t)classes);
}

/* --knn; 0: it is not given. */
static enum status neighbours_of(const struct cmd *cmd, int *k)
{
    static const char *const others[] = {"logits", "flip", "split"};
    long number;
    TRY(cmd_number(cmd, "knn", 1, 0, &number));
    *k = (int)number;
    for (size_t i = 0; *k > 0 && i < sizeof others / sizeof *others; i++)
        if (cmd_value(cmd, others[i])) return fail(USAGE, "eval: --knn excludes --%s", others[i]);
    return OK;
}

static void add_results(const struct evaluation *evaluation, const struct data *data, struct text *out)
{
    const struct data_task *task = task_of(data);
    member_integer(out, "images", evaluation->images);
    if (task->ranked) member_integer(out, "errors", evaluation->errors);
    for (int i = 0; task->metrics[i].key; i++)
        member_number(out, task->metrics[i].key, evaluation->metrics[i]);
    member_number(out, "loss", evaluation->loss);
    if (evaluation->neighbours > 0) member_integer(out, "knn", evaluation->neighbours);
}

static void print_json(const struct evaluation *evaluation, const struct data *data)
{
    struct text out = {0};
    add_results(evaluation, data, &out);
    member_integer(&out, "bad_images", evaluation->bad);
    results_json(evaluation, data, &out);
    printf("{%s}\n", out.data);
    text_free(&out);
}

static void print_metrics(const struct evaluation *evaluation, const struct data_task *task)
{
    char number[TEXT_NUMBER];
    printf("%" PRId64 " images: ", evaluation->images);
    for (int i = 0; task->metrics[i].key; i++)
        printf("%s %s, ", task->metrics[i].title,
               task_metric_text(&task->metrics[i], evaluation->metrics[i], number));
    printf("loss %s\n", text_number(evaluation->loss, 4, NULL, number));
}

static void print_classes(const struct evaluation *evaluation, const struct data *data)
{
    char number[TEXT_NUMBER], by[96], top5[32] = "";
    int k = evaluation->neighbours;
    if (k > 0) snprintf(by, sizeof by, "by %d nearest neighbour%s", k, k == 1 ? "" : "s");
    else snprintf(by, sizeof by, "loss %s", text_number(evaluation->loss, 4, NULL, number));
    if (data->classes > 10) snprintf(top5, sizeof top5, "top5 %.2f %%, ", 100 * evaluation->top5);
    printf("%" PRId64 " images, %" PRId64 " error%s: top1 %.2f %%, %s%s\n", evaluation->images,
           evaluation->errors, evaluation->errors == 1 ? "" : "s", 100 * evaluation->top1, top5,
           by);
}

static void print_results(const struct evaluation *evaluation, const struct data *data)
{
    struct progress_table table = {.count = 0};
    const struct data_task *task = task_of(data);
    if (task->ranked) print_classes(evaluation, data);
    else print_metrics(evaluation, task);
    results_add(evaluation, data, "", &table);
    for (int i = 0; i < table.count; i++) printf("%s: %s\n", table.rows[i].name, table.rows[i].value);
    if (evaluation->bad > 0) printf("unusable images: %" PRId64 "\n", evaluation->bad);
}

static const char *split_of(const struct cmd *cmd)
{
    const char *split = cmd_value(cmd, "split");
    return split ? split : "val";
}

static bool flips(const struct cmd *cmd)
{
    return cmd_value(cmd, "flip") || cmd->settings.augment.val_flip;
}

static enum status write_line(const struct directory *folder, const struct cmd *cmd, const struct data *data,
                              const struct evaluation *evaluation)
{
    struct metrics metrics = {0};
    struct text line = {0};
    int64_t shift = cmd->settings.augment.val_shift;
    text_add(&line, "{\"event\":\"eval\"");
    member_string(&line, "split", split_of(cmd));
    member_bytes(&line, "weights", cmd->weights);
    if (flips(cmd)) text_add(&line, ",\"flip\":true");
    if (shift > 0) member_integer(&line, "shift", shift);
    add_results(evaluation, data, &line);
    member_number(&line, "time", evaluation->seconds);
    text_add(&line, "}");
    enum status status = metrics_open(folder, "metrics.jsonl", &metrics);
    if (status == OK) status = metrics_line(&metrics, line.data);
    if (status == OK) status = metrics_sync(&metrics);
    metrics_close(&metrics);
    text_free(&line);
    return status;
}

/* Writes to a folder that no run is using. */
static enum status write_records(const struct cmd *cmd, const struct mistakes *mistakes)
{
    const struct evaluation *evaluation = mistakes->evaluation;
    struct folder folder;
    TRY(folder_visit(cmd->output, &folder));
    enum status status = write_line(&folder.at, cmd, mistakes->data, evaluation);
    if (status == OK)
        status = results_write(evaluation, mistakes->images, mistakes->data, &folder.at);
    if (status == OK) status = mistakes_write(mistakes, &folder.at);
    folder_close(&folder);
    return status;
}

static enum status record(const struct cmd *cmd, struct trained *trained, const struct images *images,
                          const struct evaluation *evaluation)
{
    struct mistakes mistakes = {.evaluation = evaluation, .images = images, .data = &trained->session.data};
    TRY(mistakes_explain(&trained->session, &trained->store, &trained->step, &mistakes));
    enum status status = write_records(cmd, &mistakes);
    mistakes_free(&mistakes);
    return status;
}

static enum status check_records(const char *path)
{
    struct folder folder;
    TRY(folder_visit(path, &folder));
    folder_close(&folder);
    return OK;
}

/* Says it where ROC AUC and average precision would take too much memory. */
static void say_scores(const struct evaluation *evaluation, const struct data *data)
{
    char taken[TEXT_BYTES], most[TEXT_BYTES];
    if (!evaluation->answers || evaluation->scores || evaluation->neighbours > 0) return;
    uint64_t bytes = (uint64_t)evaluation->seen * (uint64_t)data->classes * sizeof(float);
    log_info("ROC AUC and average precision are left out: %" PRId64 " images of %d classes would take %s, "
             "more than %s", evaluation->seen, data->classes, text_bytes(bytes, taken),
             text_bytes(SCORES_BYTES_ALONE, most));
}

/* Prints the results, and writes those of --results. */
static enum status tell(const struct cmd *cmd, const struct evaluation *evaluation,
                        const struct images *images, const struct data *data)
{
    say_scores(evaluation, data);
    if (cmd_value(cmd, "json")) print_json(evaluation, data);
    else print_results(evaluation, data);
    const char *path = cmd_value(cmd, "results");
    return path ? image_results_write(evaluation, images, data, path) : OK;
}

static enum status evaluate_split(struct cmd *cmd, struct trained *trained)
{
    const struct session *session = &trained->session;
    const struct data *data = &session->data;
    struct images images = strcmp(split_of(cmd), "train") == 0 ? data->train : data->val;
    images.h = data->val.h;
    images.w = data->val.w;
    if (!images.dataset) return fail(USAGE, "eval: there are no validation data: data.val is not set");
    struct evaluate_options options = {.views = {flips(cmd), (int)cmd->settings.augment.val_shift},
                                       .scores_bytes = SCORES_BYTES_ALONE, .ious = cmd_value(cmd, "results")};
    struct npy_file logits = {0};
    const char *path = cmd_value(cmd, "logits");
    if (path && data->target == TARGET_MASK)
        return fail(USAGE, "eval: --logits is not for networks that label pixels: "
                    "predict --probabilities writes these");
    if (path) {
        enum status opened = npy_begin(path, (int64_t[]){images.count, data->classes}, 2, &logits);
        if (opened != OK) return npy_end(&logits, opened);
        options.logits = logits_add;
        options.context = &logits;
    }
    struct evaluation evaluation = {0};
    enum status status = evaluate(session, &images, &trained->step, &options, &evaluation);
    status = npy_end(&logits, status);
    if (status == OK && path && evaluation.bad > 0)
        log_warning("%s: %" PRId64 " of %" PRId64 " rows are NaN: their images could not be used", path,
                    evaluation.bad, images.count);
    if (status == OK) status = tell(cmd, &evaluation, &images, data);
    if (status == OK && cmd->output) status = record(cmd, trained, &images, &evaluation);
    evaluation_free(&evaluation);
    return status;
}

static enum status evaluate_neighbours(const struct cmd *cmd, int k, struct trained *trained)
{
    struct session *session = &trained->session;
    const struct data *data = &session->data;
    struct evaluation evaluation;
    if (!data->val.dataset) return fail(USAGE, "eval: there are no validation data: data.val is not set");
    TRY(preprocessing_open(session, false));
    TRY(knn_evaluate(session, &trained->store, k, &evaluation));
    const struct mistakes mistakes = {.evaluation = &evaluation, .images = &data->val, .data = data};
    enum status status = tell(cmd, &evaluation, &data->val, data);
    if (status == OK && cmd->output) status = write_records(cmd, &mistakes);
    evaluation_free(&evaluation);
    return status;
}

/* The format of validation data from the command line: what their files show, even if the run's data had
 * another one, unless -s names it. */
static void take_format(struct cmd *cmd, const char *path)
{
    const char *format = cmd->settings.data.format;
    bool named = settings_on_command(&cmd->settings, "data", "format");
    const char *found = !format ? detect_format(path) : named ? NULL : detect_other(format, path);
    if (format && found) log_info("%s: read as data.format=%s, not %s", path, found, format);
    if (found) settings_derive(&cmd->settings, "data", "format", found);
}

/* Validation data from the command line, whose path is relative to the working folder, not to the
 * configuration's. */
static enum status take_val(struct cmd *cmd)
{
    const char *named = cmd_value(cmd, "val");
    if (!named) return OK;
    char *path = realpath(named, NULL);
    enum status status = settings_take(&cmd->settings, "data", "val", path ? path : named, "eval: --val");
    settings_derive(&cmd->settings, "data", "val_fraction", "0");
    settings_derive(&cmd->settings, "data", "fold", "");
    take_format(cmd, named);
    free(path);
    return status;
}

/* The run may have been on another machine. */
static enum status check_images(const struct cmd *cmd, bool train)
{
    bool val = !train && cmd->settings.data.val;
    const char *path = val ? cmd->settings.data.val : cmd->settings.data.train;
    bool named = cmd->config || cmd_value(cmd, "val") ||
                 settings_on_command(&cmd->settings, "data", val ? "val" : "train");
    if (named || !path || access(path, F_OK) == 0 || errno != ENOENT) return OK;
    return fail(BAD_DATA, "%s: the run's images are not there; %s names others", path,
                train ? "-s data.train=PATH" : "--val PATH");
}

static enum status eval_run(struct cmd *cmd)
{
    const char *split = split_of(cmd);
    bool train = strcmp(split, "train") == 0;
    int k;
    if (!train && strcmp(split, "val") != 0)
        return fail(USAGE, "eval: --split must be train or val, not '%s'", split);
    TRY(neighbours_of(cmd, &k));
    if (cmd_value(cmd, "logits")) TRY(cmd_check_output(cmd, cmd_value(cmd, "logits"), NPY_SIGNATURE));
    if (cmd_value(cmd, "results"))
        TRY(cmd_check_output(cmd, cmd_value(cmd, "results"), IMAGE_RESULTS_SIGNATURE));
    if (cmd->output) TRY(check_records(cmd->output));
    TRY(take_val(cmd));
    TRY(check_images(cmd, train));
    if (k > 0) TRY(check_images(cmd, true));
    struct trained trained;
    if (k > 0) TRY(trained_load(cmd, DATA_TRAIN | DATA_VAL | TRAINED_BACKBONE, &trained));
    else TRY(trained_open(cmd, train ? DATA_TRAIN : DATA_VAL, &trained));
    enum status status = k > 0 ? evaluate_neighbours(cmd, k, &trained) : evaluate_split(cmd, &trained);
    trained_close(&trained);
    return status;
}

static const struct cmd_option options[] = {
    {"weights", "RUN|FILE", "run folder, checkpoint or weights (safetensors, PyTorch)"},
    {"val", "PATH", "validation data instead of data.val"},
    {"split", "train|val", "images to evaluate (default: val)"},
    {"flip", NULL, "average the logits of each image and its mirror image"},
    {"json", NULL, "print the results as JSON"},
    {"logits", "FILE.npy", "write the logits, in data set order"},
    {"results", "FILE.csv", "write the result of every image: truth, prediction, probability"},
    {"knn", "K", "classify by the K nearest training images instead"},
    {0},
};

const struct command cmd_eval = {
    .name = "eval",
    .usage = "--weights RUN|FILE [-c FILE] [--val PATH] [--split train|val] [--flip] [--json] "
             "[--logits FILE.npy] [--results FILE.csv] [--knn K] [-o DIR]",
    .help = "Evaluates weights on the validation images.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT,
    .options = options,
    .run = eval_run,
};
