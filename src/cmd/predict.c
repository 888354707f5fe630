#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv.h"
#include "base/log.h"
#include "base/members.h"
#include "base/memory.h"
#include "cmd/image_arguments.h"
#include "cmd/predict_masks.h"
#include "session/preprocessing.h"
#include "explain/classifier.h"

#define NAME_ROOM 8192   /* bytes shown of a name */

enum layout { LAYOUT_TEXT, LAYOUT_JSON, LAYOUT_CSV };

struct predictor {
    struct trained trained;
    struct image_arguments images;
    enum layout layout;
    int top;                     /* number of classes printed for each image; labels: 0: those predicted */
};

/* The record of one image. */
struct record {
    const char *image;
    const char *problem;         /* NULL: none */
    const struct class_probability *top;
    int count;                   /* of top; 0 with a problem */
    enum target_kind target;
    float output;                /* a number, normalised */
    const struct data *data;
    char *const *class_names;
};

static double threshold_of(const struct data *data, int label)
{
    return data->thresholds ? data->thresholds[label] : 0.5;
}

static void add_class(const struct record *record, int place, struct text *out)
{
    member_bytes(out, "class", record->class_names[record->top[place].class]);
    member_integer(out, "index", record->top[place].class);
    member_number(out, "probability", record->top[place].probability);
    if (record->target == TARGET_LABELS)
        member_number(out, "threshold", threshold_of(record->data, record->top[place].class));
}

static void add_list(const struct record *record, const char *key, struct text *out)
{
    member_key(out, key);
    text_add(out, "[");
    for (int i = 0; i < record->count; i++) {
        text_add(out, i ? ",{" : "{");
        add_class(record, i, out);
        text_add(out, "}");
    }
    text_add(out, "]");
}

static void add_value(const struct record *record, struct text *out)
{
    member_key(out, "value");
    task_value_print(record->data, record->output, out);
}

static void print_json(const struct record *record, bool follows)
{
    struct text out = {0};
    text_add(&out, "{");
    member_bytes(&out, "image", record->image);
    if (record->problem) member_bytes(&out, "error", record->problem);
    else if (record->target == TARGET_NUMBER) add_value(record, &out);
    else if (record->target == TARGET_LABELS) add_list(record, "labels", &out);
    else add_class(record, 0, &out);
    if (record->target == TARGET_CLASS && record->count > 1) add_list(record, "top", &out);
    printf("%s%s}", follows ? ",\n " : "", out.data);
    text_free(&out);
}

/* A line for each class, or for the error. */
static void print_csv(const struct record *record)
{
    struct text out = {0};
    text_add(&out, "%s", "");
    if (record->target == TARGET_NUMBER && !record->problem) {
        csv_text(&out, record->image);
        text_add(&out, ",");
        task_value_print(record->data, record->output, &out);
        text_add(&out, ",\n");
    }
    for (int i = 0; i < record->count; i++) {
        csv_text(&out, record->image);
        text_add(&out, ",%d,", i + 1);
        csv_text(&out, record->class_names[record->top[i].class]);
        text_add(&out, ",%d,%.9g,\n", record->top[i].class, record->top[i].probability);
    }
    if (record->problem) {
        csv_text(&out, record->image);
        text_add(&out, record->target == TARGET_NUMBER ? ",," : ",,,,,");
        csv_text(&out, record->problem);
        text_add(&out, "\n");
    }
    printf("%s", out.data);
    text_free(&out);
}

static void print_text(const struct record *record)
{
    struct text said = {0};
    char shown[NAME_ROOM];
    printf("%s:", text_visible(record->image, shown, sizeof shown));
    for (int i = 0; i < record->count; i++)
        printf("%s %s %.4f", i ? "," : "",
               text_visible(record->class_names[record->top[i].class], shown, sizeof shown),
               record->top[i].probability);
    if (record->target == TARGET_NUMBER && !record->problem) {
        task_of(record->data)->say(record->data, &record->output, &said);
        printf(" %s", said.data);
        text_free(&said);
    }
    if (record->target == TARGET_LABELS && !record->problem && record->count == 0) printf(" none");
    if (record->problem) printf(" error: %s", text_visible(record->problem, shown, sizeof shown));
    printf("\n");
}

static void print_record(const struct predictor *predictor, const struct record *record, bool follows)
{
    switch (predictor->layout) {
    case LAYOUT_TEXT: print_text(record); break;
    case LAYOUT_JSON: print_json(record, follows); break;
    case LAYOUT_CSV: print_csv(record); break;
    }
}

/* The labels at their thresholds, or the most probable ones, however small. */
static void choose_labels(const struct predictor *predictor, const float *logits, struct record *record,
                          struct class_probability *top)
{
    const struct data *data = &predictor->trained.session.data;
    size_t classes = (size_t)data->classes;
    float *values = memory_new(classes, sizeof *values);
    memcpy(values, logits, classes * sizeof *values);
    task_of(data)->activate(data, values);
    record->output = values[0];
    if (data->target == TARGET_LABELS) classifier_top(logits, data->classes, data->classes, top);
    for (int i = 0; data->target == TARGET_LABELS && i < data->classes; i++) {
        double probability = (double)values[top[i].class];
        bool taken = predictor->top > 0 ? i < predictor->top
                                        : probability >= threshold_of(data, top[i].class);
        if (taken) top[record->count++] = (struct class_probability){top[i].class, probability};
    }
    free(values);
}

static enum status take_image(void *context, int64_t image, const struct classified *what)
{
    struct predictor *predictor = context;
    const struct data *data = &predictor->trained.session.data;
    const char *name = predictor->images.images[image].name;
    struct class_probability *top = memory_new((size_t)data->classes, sizeof *top);
    struct record record = {.image = name, .problem = what->problem, .top = top,
                            .data = data, .class_names = data->class_names, .target = data->target};
    if (what->status == OK && data->target > TARGET_CLASS) {
        choose_labels(predictor, what->logits, &record, top);
    } else if (what->status == OK) {
        record.count = predictor->top;
        classifier_top(what->logits, data->classes, predictor->top, top);
    } else {
        image_arguments_note(&predictor->images, image, what->status, what->problem);
    }
    print_record(predictor, &record, image > 0);
    free(top);
    return OK;
}

#define THRESHOLDS_SAID 20

/* Says from which probability on labels are predicted. */
static void say_thresholds(const struct predictor *predictor)
{
    const struct data *data = &predictor->trained.session.data;
    struct text each = {0};
    if (data->target != TARGET_LABELS || predictor->top > 0) return;
    for (int i = 0; data->thresholds && i < data->classes && i < THRESHOLDS_SAID; i++)
        text_add(&each, "%s%s %.3g", i ? ", " : "", data->class_names[i], data->thresholds[i]);
    if (data->thresholds && data->classes > THRESHOLDS_SAID)
        text_add(&each, " and %d more (--json has all)", data->classes - THRESHOLDS_SAID);
    log_info("labels are predicted from these probabilities on%s: %s",
             each.data ? ", which gave the highest F1 in validation" : "", each.data ? each.data : "0.5");
    text_free(&each);
}

static enum status predict_all(struct predictor *predictor)
{
    say_thresholds(predictor);
    const struct image_arguments *images = &predictor->images;
    const struct classifier classifier = {.session = &predictor->trained.session,
                                          .step = &predictor->trained.step};
    if (predictor->layout == LAYOUT_JSON) printf("[");
    bool number = predictor->trained.session.data.target == TARGET_NUMBER;
    if (predictor->layout == LAYOUT_CSV)
        printf(number ? "image,value,error\n" : "image,rank,class,index,probability,error\n");
    enum status status = classifier_run(&classifier, images->images, images->count, take_image, predictor);
    if (predictor->layout == LAYOUT_JSON) printf("]\n");
    return status == OK ? image_arguments_report(&predictor->images, "", "cannot be classified") : status;
}

/* Options of networks that label pixels. */
static enum status refuse_options(const struct cmd *cmd)
{
    static const char *const others[] = {"tile", "overlap", "flip", "overlay", "probabilities"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (cmd_value(cmd, others[i]))
            return fail(USAGE, "predict: --%s is for networks that label pixels", others[i]);
    return cmd->output ? fail(USAGE, "predict: -o is for networks that label pixels") : OK;
}

static enum status predictor_open(struct cmd *cmd, struct predictor *predictor)
{
    struct trained *trained = &predictor->trained;
    long top;
    bool json = cmd_value(cmd, "json") != NULL, csv = cmd_value(cmd, "csv") != NULL;
    if (json && csv) return fail(USAGE, "predict: --json and --csv exclude each other");
    predictor->layout = json ? LAYOUT_JSON : csv ? LAYOUT_CSV : LAYOUT_TEXT;
    TRY(cmd_number(cmd, "top", 1, 1, &top));
    TRY(image_arguments_read(cmd->arguments, cmd->argument_count, &predictor->images));
    TRY(image_arguments_set_batch(&predictor->images, cmd));
    TRY(predict_masks_settings(cmd));
    TRY(trained_load(cmd, DATA_NONE | TRAINED_FOLDED, trained));
    const struct data *data = &trained->session.data;
    if (data->target == TARGET_MASK) return OK;
    TRY(refuse_options(cmd));
    TRY(preprocessing_open(&trained->session, false));
    TRY(step_open(&trained->session, STEP_EVALUATION, &trained->store, &trained->step));
    bool all = data->target == TARGET_LABELS && !cmd_value(cmd, "top");
    predictor->top = all ? 0 : top < data->classes ? (int)top : data->classes;
    return OK;
}

static enum status predict_run(struct cmd *cmd)
{
    if (cmd->argument_count == 0) return fail(USAGE, "predict: no image given");
    struct predictor predictor = {0};
    enum status status = predictor_open(cmd, &predictor);
    bool masks = predictor.trained.session.data.target == TARGET_MASK;
    if (status == OK)
        status = masks ? predict_masks(cmd, &predictor.images, &predictor.trained) : predict_all(&predictor);
    trained_close(&predictor.trained);
    image_arguments_free(&predictor.images);
    return status;
}

static const struct cmd_option options[] = {
    {"weights", "RUN|FILE", "run folder, checkpoint or weights (safetensors, PyTorch)"},
    {"top", "K", "print the K most probable classes (default: 1)"},
    {"batch", "N", "images at a time, at most (default: 64)"},
    {"tile", "N|HxW", "pixels: size of tiles (default: evaluations')"},
    {"overlap", "F", "pixels: share of a tile in each neighbour"},
    {"flip", NULL, "pixels: average each image with its mirror image"},
    {"overlay", NULL, "pixels: also write the mask over its image"},
    {"probabilities", NULL, "pixels: also write NAME.npy, of all classes"},
    {"json", NULL, "print the predictions as JSON"},
    {"csv", NULL, "print them as comma-separated values"},
    {0},
};

const struct command cmd_predict = {
    .name = "predict",
    .usage = "--weights RUN|FILE [-c FILE] [--top K] [--batch N] [--json|--csv] [-o FOLDER] [--tile N|HxW] "
             "[--overlap F] [--flip] [--overlay] [--probabilities] IMAGE|FOLDER|-|@LIST...",
    .help = "Classifies images, or labels their pixels.",
    .takes = TAKES_CONFIG | TAKES_ARGUMENTS | TAKES_OUTPUT,
    .options = options,
    .run = predict_run,
};
