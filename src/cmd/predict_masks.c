#include "cmd/predict_masks.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/file.h"
#include "base/members.h"
#include "base/memory.h"
#include "base/signals.h"
#include "data/image/mask_palette.h"
#include "explain/tiling.h"
#include "format/npy.h"
#include "session/step_fit.h"

#define NAME_ROOM 8192   /* bytes shown of a name */

/* The result of an image. */
struct mask_record {
    char *mask;                  /* the file that was written */
    char *problem;               /* or why there is none */
    enum status status;
    int h, w;
    int64_t *pixels;             /* [classes] */
};

struct mask_predictor {
    const struct cmd *cmd;
    struct image_arguments *images;
    const struct data *data;
    struct mask_palette palette;
    pthread_mutex_t lock;
    enum status status;          /* of writing */
    struct mask_record *records; /* [images->count] */
};

enum status predict_masks_settings(struct cmd *cmd)
{
    const char *tile = cmd_value(cmd, "tile"), *overlap = cmd_value(cmd, "overlap");
    if (tile) TRY(settings_take(&cmd->settings, "augment", "val_tile", tile, "predict: --tile"));
    if (overlap) TRY(settings_take(&cmd->settings, "augment", "val_overlap", overlap, "predict: --overlap"));
    return OK;
}

/* Names. */

/* FOLDER/NAME and an ending: images below a folder keep their path there, others have their file's name. */
static char *output_of(const struct mask_predictor *predictor, int64_t image, const char *ending)
{
    const struct listed_image *listed = &predictor->images->images[image];
    const char *name = listed->bytes ? "stdin" : listed->name + predictor->images->below[image];
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash : name, '.');
    int length = dot && dot > (slash ? slash + 1 : name) ? (int)(dot - name) : (int)strlen(name);
    return text_format("%s/%.*s%s", predictor->cmd->output, length, name, ending);
}

struct named {
    char *path;
    int64_t image;
};

static const char *const endings[] = {".png", ".overlay.png", ".npy"};
static const char *const switches[] = {NULL, "overlay", "probabilities"};     /* of these */
#define ENDINGS 3

static bool writes(const struct mask_predictor *predictor, int ending)
{
    return !switches[ending] || cmd_value(predictor->cmd, switches[ending]);
}

static enum status check_names(const struct mask_predictor *predictor)
{
    const struct listed_image *images = predictor->images->images;
    struct named *names = NULL;
    int64_t count = 0;
    enum status status = OK;
    for (int64_t i = 0; i < predictor->images->count; i++)
        for (int k = 0; k < ENDINGS; k++)
            if (writes(predictor, k) && (!images[i].problem || k == 0))
                *array_push(names, count) = (struct named){output_of(predictor, i, endings[k]), i};
    qsort(names, (size_t)count, sizeof *names, text_compare);
    for (int64_t i = 0; i < count && status == OK; i++) {
        if (i > 0 && strcmp(names[i - 1].path, names[i].path) == 0)
            status = fail(USAGE, "predict: %s and %s would both be written to %s",
                          images[names[i - 1].image].name, images[names[i].image].name, names[i].path);
        else if (!images[names[i].image].bytes && file_same(names[i].path, images[names[i].image].name))
            status = fail(USAGE, "predict: the mask of %s would replace it: -o must be another folder",
                          images[names[i].image].name);
    }
    for (int64_t i = 0; i < count; i++) free(names[i].path);
    free(names);
    return status;
}

/* Writing. */

static enum status make_folder_of(const char *path)
{
    struct reason reason;
    char *folder = text_copy(path);
    *strrchr(folder, '/') = '\0';
    bool good = directory_make(folder, 0777, &reason);
    enum status status = good ? OK : fail(FAILED, "%s: %s", folder, reason.text);
    free(folder);
    return status;
}

static enum status write_png(const char *path, uint8_t *bytes, size_t count, bool good,
                             const struct reason *reason)
{
    if (!good) return fail(FAILED, "%s: %s", path, reason->text);
    enum status status = atomic_file_write(&directory_working, path, bytes, count);
    free(bytes);
    return status;
}

static enum status write_mask(const struct mask_predictor *predictor, const struct image *mask,
                              const char *path)
{
    struct reason reason;
    uint8_t *bytes;
    size_t count;
    bool good = mask_encode(mask, &predictor->palette, &bytes, &count, &reason);
    return write_png(path, bytes, count, good, &reason);
}

/* Draws the mask over the image as it was tiled, in its own size. */
static enum status write_overlay(const struct mask_predictor *predictor, const struct whole_image *image,
                                 const struct image *mask, const char *path)
{
    const struct image *tiled = &image->image;
    const struct resizing back = {{0, 0, tiled->h, tiled->w}, mask->h, mask->w, {0, 0, mask->h, mask->w},
                                  RESIZE_BILINEAR};
    struct image own = {0}, drawn = {0}, shown = {0};
    struct reason reason;
    uint8_t *bytes = NULL;
    size_t count = 0;
    bool good = resize_image(tiled, &back, &own, &reason) &&
                (!own.deep || image_reduce(&own, &predictor->data->augment.range, &shown, &reason)) &&
                mask_overlay(own.deep ? &shown : &own, mask, &predictor->palette, &drawn, &reason) &&
                image_encode_png(&drawn, &bytes, &count, &reason);
    image_free(&own);
    image_free(&shown);
    image_free(&drawn);
    return write_png(path, bytes, count, good, &reason);
}

static enum status write_probabilities(const struct mask_predictor *predictor,
                                       const struct whole_image *image, const char *path)
{
    struct npy_file npy = {0};
    int64_t classes = predictor->data->classes;
    enum status status = npy_begin(path, (int64_t[]){image->h, image->w, classes}, 3, &npy);
    if (status == OK)
        status = npy_add(&npy, image->probabilities,
                         (size_t)image->h * (size_t)image->w * (size_t)classes);
    return npy_end(&npy, status);
}

static enum status write_all(struct mask_predictor *predictor, const struct whole_image *image)
{
    struct mask_record *record = &predictor->records[image->place];
    const struct image mask = {.h = image->h, .w = image->w, .c = 1, .pixels = image->classes};
    enum status status = make_folder_of(record->mask);
    for (int k = 0; k < ENDINGS && status == OK; k++) {
        if (!writes(predictor, k)) continue;
        char *path = output_of(predictor, image->place, endings[k]);
        status = k == 0   ? write_mask(predictor, &mask, path)
                 : k == 1 ? write_overlay(predictor, image, &mask, path)
                          : write_probabilities(predictor, image, path);
        free(path);
    }
    return status;
}

static void take_image(void *context, const struct whole_image *image)
{
    struct mask_predictor *predictor = context;
    struct mask_record *record = &predictor->records[image->place];
    const char *name = predictor->images->images[image->place].name;
    record->status = image->problem ? BAD_DATA : isfinite(image->loss) ? OK : FAILED;
    if (record->status == FAILED) record->problem = text_copy("the network's output is not finite");
    if (image->problem) record->problem = text_copy(whole_image_why(image, name));
    if (record->problem) return;
    record->h = image->h;
    record->w = image->w;
    record->pixels = memory_new((size_t)predictor->data->classes, sizeof *record->pixels);
    record->mask = output_of(predictor, image->place, endings[0]);
    for (size_t i = 0; i < (size_t)image->h * (size_t)image->w; i++) record->pixels[image->classes[i]]++;
    enum status status = write_all(predictor, image);
    pthread_mutex_lock(&predictor->lock);
    if (predictor->status == OK) predictor->status = status;
    pthread_mutex_unlock(&predictor->lock);
}

/* Records. */

static void add_json(const struct mask_predictor *predictor, int64_t image, struct text *out)
{
    const struct mask_record *record = &predictor->records[image];
    text_add(out, image ? ",\n {" : "{");
    member_bytes(out, "file", predictor->images->images[image].name);
    if (record->problem) {
        member_bytes(out, "error", record->problem);
    } else {
        member_bytes(out, "mask", record->mask);
        member_integer(out, "height", record->h);
        member_integer(out, "width", record->w);
        member_key(out, "pixels");
        text_add(out, "{");
        for (int i = 0; i < predictor->data->classes; i++)
            member_integer(out, predictor->data->class_names[i], record->pixels[i]);
        text_add(out, "}");
    }
    text_add(out, "}");
}

static void add_text(const struct mask_predictor *predictor, int64_t image, struct text *out)
{
    const struct mask_record *record = &predictor->records[image];
    char shown[NAME_ROOM];
    text_add(out, "%s: ", text_visible(predictor->images->images[image].name, shown, sizeof shown));
    if (record->problem) {
        text_add(out, "error: %s\n", text_visible(record->problem, shown, sizeof shown));
        return;
    }
    text_add(out, "%s, %dx%d", text_visible(record->mask, shown, sizeof shown), record->w, record->h);
    for (int i = 0; i < predictor->data->classes; i++)
        if (record->pixels[i] > 0)
            text_add(out, ", %s %.2f %%", text_visible(predictor->data->class_names[i], shown, sizeof shown),
                     100.0 * (double)record->pixels[i] / ((double)record->h * record->w));
    text_add(out, "\n");
}

static void print_records(const struct mask_predictor *predictor)
{
    bool json = cmd_value(predictor->cmd, "json");
    if (json) printf("[");
    for (int64_t i = 0; i < predictor->images->count; i++) {
        struct text out = {0};
        (json ? add_json : add_text)(predictor, i, &out);
        printf("%s", out.data);
        text_free(&out);
    }
    if (json) printf("]\n");
}

static enum status report_problems(const struct mask_predictor *predictor)
{
    for (int64_t i = 0; i < predictor->images->count; i++)
        if (predictor->records[i].problem)
            image_arguments_note(predictor->images, i, predictor->records[i].status,
                                 predictor->records[i].problem);
    return image_arguments_report(predictor->images, "", "have no mask");
}

/* Once a result cannot be written, others are not computed. */
static int is_stopped(void *context)
{
    struct mask_predictor *predictor = context;
    pthread_mutex_lock(&predictor->lock);
    bool failed = predictor->status != OK;
    pthread_mutex_unlock(&predictor->lock);
    return failed ? 1 : signals_stop();
}

static enum status predict_images(struct mask_predictor *predictor, const struct trained *trained)
{
    const struct tiling_options tiles = {.session = &trained->session, .step = &trained->step,
                                         .mirrored = cmd_value(predictor->cmd, "flip")};
    const struct tiling_list list = {predictor->images->images, predictor->images->count, is_stopped,
                                     take_image, predictor};
    enum status status = tiling_run_list(&tiles, &list, NULL);
    return predictor->status != OK ? predictor->status : status;
}

static enum status open_step(const struct cmd *cmd, struct trained *trained)
{
    struct session *session = &trained->session;
    long batch;
    TRY(cmd_number(cmd, "batch", 1, 0, &batch));
    session->tile_batch = (int)batch;
    session->keeps_probabilities = cmd_value(cmd, "probabilities");
    TRY(step_fit_tiles(session, false));
    return step_open(session, STEP_EVALUATION, &trained->store, &trained->step);
}

enum status predict_masks(struct cmd *cmd, struct image_arguments *images, struct trained *trained)
{
    static const char *const others[] = {"top", "csv"};
    struct mask_predictor predictor = {.cmd = cmd, .images = images, .data = &trained->session.data};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (cmd_value(cmd, others[i]))
            return fail(USAGE, "predict: --%s has no meaning for a network that labels pixels", others[i]);
    if (!cmd->output)
        return fail(USAGE, "predict: a network that labels pixels writes masks: -o FOLDER names where");
    TRY(check_names(&predictor));
    TRY(open_step(cmd, trained));
    mask_palette_of(predictor.data->masks, &predictor.palette);
    predictor.records = memory_new((size_t)images->count, sizeof *predictor.records);
    pthread_mutex_init(&predictor.lock, NULL);
    enum status status = predict_images(&predictor, trained);
    if (status == OK) print_records(&predictor);
    if (status == OK) status = report_problems(&predictor);
    for (int64_t i = 0; i < images->count; i++) {
        free(predictor.records[i].mask);
        free(predictor.records[i].problem);
        free(predictor.records[i].pixels);
    }
    pthread_mutex_destroy(&predictor.lock);
    free(predictor.records);
    return status;
}
