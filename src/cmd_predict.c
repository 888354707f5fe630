#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "trained.h"
#include "train/evaluate.h"

#define NAME_ROOM 8192   /* of what is shown */

/* State reused for each image. */
struct predictor {
    struct trained trained;
    struct augment augment;      /* as evaluation, but fitting images of every size */
    struct image image;
    struct scratch scratch;
    void *pixels;                /* a batch of one image */
    int32_t *labels;
    bool json;
    int printed;
    enum status worst;           /* of what is wrong with single images */
};

static enum status predictor_open(struct cmd *cmd, struct predictor *predictor)
{
    /* One image at a time: the batch that training took would be wasted. */
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

static void print_prediction(struct predictor *predictor, const char *path, int best, double probability)
{
    const struct data *data = &predictor->trained.session.data;
    if (!predictor->json) {
        char shown[NAME_ROOM], class[NAME_ROOM];
        printf("%s: %s %.4f\n", text_visible(path, shown, sizeof shown),
               text_visible(data->class_names[best], class, sizeof class), probability);
        return;
    }
    struct text out = {0};
    text_add(&out, "{\"image\":");
    text_json_bytes(&out, path);
    text_add(&out, ",\"class\":");
    text_json_bytes(&out, data->class_names[best]);
    text_add(&out, ",\"index\":%d,\"probability\":", best);
    text_json_number(&out, probability);
    printf("%s%s}", predictor->printed++ ? ",\n " : "", out.data);
    text_free(&out);
}

/* Notes what has been reported of an image; the others go on. */
static void note(struct predictor *predictor, enum status status)
{
    if (predictor->worst == OK) predictor->worst = status;
}

static void tell(struct predictor *predictor, const char *path, const float *logits)
{
    int classes = predictor->trained.session.data.classes, best = evaluate_best(logits, classes);
    double probability = evaluate_confidence(logits, classes, best);
    if (isfinite(probability))
        print_prediction(predictor, path, best, probability);
    else
        note(predictor, fail(FAILED, "%s: the network's output is not finite", path));
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
    bool good = image_load(path, options, NULL, &predictor->image, &reason) &&
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

static enum status predict_all(struct cmd *cmd, struct predictor *predictor)
{
    enum status status = OK;
    if (predictor->json) printf("[");
    for (int i = 0; i < cmd->argument_count && status == OK; i++)
        status = predict(predictor, cmd->arguments[i]);
    if (predictor->json) printf("]\n");
    return status == OK ? predictor->worst : status;
}

static enum status run(struct cmd *cmd)
{
    if (cmd->argument_count == 0) return fail(USAGE, "predict: no image given");
    struct predictor predictor = {0};
    enum status status = predictor_open(cmd, &predictor);
    if (status == OK) status = predict_all(cmd, &predictor);
    predictor_close(&predictor);
    return status;
}

static const struct cmd_option options[] = {
    {"weights", "RUN|FILE", "run folder, checkpoint or weights file (safetensors)"},
    {"json", NULL, "print the predictions as JSON"},
    {0},
};

const struct command cmd_predict = {
    .name = "predict",
    .usage = "--weights RUN|FILE [-c FILE] [--json] IMAGE...",
    .help = "Classifies PNG and JPEG images.",
    .takes = TAKES_CONFIG | TAKES_ARGUMENTS,
    .options = options,
    .run = run,
};
