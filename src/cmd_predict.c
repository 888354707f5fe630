#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/log.h"
#include "base/members.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/listing.h"
#include "trained.h"
#include "train/evaluate.h"

#define NAME_ROOM 8192   /* digits shown */

/* State reused for each image. */
struct predictor {
    struct trained trained;
    struct augment augment;      /* like evaluation, but for images of any size */
    struct image image;
    struct scratch scratch;
    void *pixels;                /* a batch of one image */
    int32_t *labels;
    bool json;
    int top;                     /* number of classes printed for each image */
    int printed;
    enum status worst;           /* status of errors with single images */
};

static enum status predictor_open(struct cmd *cmd, struct predictor *predictor)
{
    long top;
    TRY(cmd_number(cmd, "top", 1, 1, &top));
    /* One image at a time, since training's batch size would waste memory. */
    settings_derive(&cmd->settings, "train", "batch", "1");
    settings_derive(&cmd->settings, "train", "accumulate", "1");
    TRY(trained_open(cmd, DATA_NONE, &predictor->trained));
    const struct data *data = &predictor->trained.session.data;
    predictor->augment = data->augment;
    if (predictor->augment.val_crop == 0) predictor->augment.val_crop = data->val.h;
    size_t elements = (size_t)data->val.h * (size_t)data->val.w * (size_t)data->channels;
    predictor->pixels = memory_new(elements, sizeof(float));
    predictor->labels = memory_new(1, sizeof *predictor->labels);
    predictor->json = cmd_value(cmd, "json") != NULL;
    predictor->top = top < data->classes ? (int)top : data->classes;
    return OK;
}

static void predictor_close(struct predictor *predictor)
{
    free(predictor->pixels);
    free(predictor->labels);
    image_free(&predictor->image);
    scratch_free(&predictor->scratch);
    trained_close(&predictor->trained);
}

/* The classes of the largest logits, largest first. */
static void rank(const float *logits, int classes, int count, int *best)
{
    bool *taken = memory_new((size_t)classes, sizeof *taken);
    for (int place = 0; place < count; place++) {
        best[place] = -1;
        for (int i = 0; i < classes; i++)
            if (!taken[i] && (best[place] < 0 || logits[i] > logits[best[place]])) best[place] = i;
        taken[best[place]] = true;
    }
    free(taken);
}

static double probability(const float *logits, int classes, int best, int class)
{
    return exp((double)logits[class] - logits[best]) * evaluate_confidence(logits, classes, best);
}

static void add_class(const struct predictor *predictor, const float *logits, const int *best, int place,
                      struct text *out)
{
    const struct data *data = &predictor->trained.session.data;
    member_bytes(out, "class", data->class_names[best[place]]);
    member_integer(out, "index", best[place]);
    member_number(out, "probability", probability(logits, data->classes, best[0], best[place]));
}

static void print_json(struct predictor *predictor, const char *path, const float *logits, const int *best)
{
    struct text out = {0};
    text_add(&out, "{");
    member_bytes(&out, "image", path);
    add_class(predictor, logits, best, 0, &out);
    for (int i = 0; predictor->top > 1 && i < predictor->top; i++) {
        text_add(&out, i ? ",{" : ",\"top\":[{");
        add_class(predictor, logits, best, i, &out);
        text_add(&out, i + 1 < predictor->top ? "}" : "}]");
    }
    printf("%s%s}", predictor->printed++ ? ",\n " : "", out.data);
    text_free(&out);
}

static void print_prediction(struct predictor *predictor, const char *path, const float *logits)
{
    const struct data *data = &predictor->trained.session.data;
    int *best = memory_new((size_t)predictor->top, sizeof *best);
    char shown[NAME_ROOM];
    rank(logits, data->classes, predictor->top, best);
    if (predictor->json) {
        print_json(predictor, path, logits, best);
    } else {
        printf("%s:", text_visible(path, shown, sizeof shown));
        for (int i = 0; i < predictor->top; i++)
            printf("%s %s %.4f", i ? "," : "", text_visible(data->class_names[best[i]], shown, sizeof shown),
                   probability(logits, data->classes, best[0], best[i]));
        printf("\n");
    }
    free(best);
}

/* Records an error that was reported for an image, and continues with others. */
static void note(struct predictor *predictor, enum status status)
{
    if (predictor->worst == OK) predictor->worst = status;
}

static void tell(struct predictor *predictor, const char *path, const float *logits)
{
    int classes = predictor->trained.session.data.classes, best = evaluate_best(logits, classes);
    if (isfinite(evaluate_confidence(logits, classes, best)))
        print_prediction(predictor, path, logits);
    else
        note(predictor, fail(FAILED, "%s: the network's output is not finite", path));
}

/* All of standard input. */
static bool load_input(struct image_options options, struct image *image, struct reason *reason)
{
    size_t room = 1 << 16, length = 0, got;
    uint8_t *data = memory_new(room, 1);
    while (length < IMAGE_FILE_BYTES_MAX && (got = fread(data + length, 1, room - length, stdin)) > 0)
        if ((length += got) == room) data = memory_resize(data, room *= 2, 1);
    bool good = ferror(stdin) ? because(reason, "%s", strerror(errno))
                              : image_decode(data, length, options, NULL, image, reason);
    free(data);
    return good;
}

static enum status predict(struct predictor *predictor, const char *path)
{
    const struct session *session = &predictor->trained.session;
    struct reason reason;
    const struct augmenting how = {.augment = &predictor->augment, .scratch = &predictor->scratch};
    const struct data *data = &session->data;
    const struct augment_output out = {data->val.h, data->val.w, session->hyper.precision->storage,
                                       predictor->pixels};
    const struct image_options options = {
        data->channels, session->settings->data.orientation == ORIENTATION_IGNORE};
    bool good = (strcmp(path, "-") == 0 ? load_input(options, &predictor->image, &reason)
                                        : image_load(path, options, NULL, &predictor->image, &reason)) &&
                augment_image(&how, &predictor->image, &out, &reason);
    if (!good) {
        bool named = strncmp(reason.text, path, strlen(path)) == 0;
        note(predictor, fail(BAD_DATA, "%s%s%s", named ? "" : path, named ? "" : ": ", reason.text));
        return OK;
    }
    const struct exec_batch batch = {.images = predictor->pixels, .labels = predictor->labels};
    TRY(exec_run(predictor->trained.step.exec, &batch, 0, 0));
    tell(predictor, path, exec_logits(predictor->trained.step.exec));
    return OK;
}

/* All images in a folder and its subfolders. */
static enum status predict_folder(struct predictor *predictor, const char *folder)
{
    struct listing listing;
    struct reason reason;
    if (!listing_images(folder, &listing, &reason)) return fail(BAD_DATA, "%s", reason.text);
    enum status status = OK;
    if (listing.foreign > 0) listing_warn(folder, &listing);
    for (size_t i = 0; i < listing.count && status == OK; i++) {
        char *path = text_format("%s/%s", folder, listing.names + listing.files[i].name + strlen("./"));
        status = predict(predictor, path);
        free(path);
    }
    if (listing.count == 0)
        note(predictor, fail(BAD_DATA, "%s: contains no PNG, JPEG or WebP images", folder));
    listing_free(&listing);
    return status;
}


static enum status predict_all(struct cmd *cmd, struct predictor *predictor)
{
    enum status status = OK;
    if (predictor->json) printf("[");
    for (int i = 0; i < cmd->argument_count && status == OK; i++)
        status = directory_is(cmd->arguments[i]) ? predict_folder(predictor, cmd->arguments[i])
                                                 : predict(predictor, cmd->arguments[i]);
    if (predictor->json) printf("]\n");
    return status == OK ? predictor->worst : status;
}

static enum status predict_run(struct cmd *cmd)
{
    if (cmd->argument_count == 0) return fail(USAGE, "predict: no image given");
    struct predictor predictor = {0};
    enum status status = predictor_open(cmd, &predictor);
    if (status == OK) status = predict_all(cmd, &predictor);
    predictor_close(&predictor);
    return status;
}

static const struct cmd_option options[] = {
    {"weights", "RUN|FILE", "run folder, checkpoint or weights (safetensors, PyTorch)"},
    {"top", "K", "print the K most probable classes (default: 1)"},
    {"json", NULL, "print the predictions as JSON"},
    {0},
};

const struct command cmd_predict = {
    .name = "predict",
    .usage = "--weights RUN|FILE [-c FILE] [--top K] [--json] IMAGE|FOLDER|-...",
    .help = "Classifies images.",
    .takes = TAKES_CONFIG | TAKES_ARGUMENTS,
    .options = options,
    .run = predict_run,
};
