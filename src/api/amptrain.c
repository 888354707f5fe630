/* amptrain.c: the library's functions: arguments are checked on the caller's thread, everything else is done
 * by the network's servant. */
#include "api/amptrain.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "api/network.h"
#include "api/servant.h"
#include "base/memory.h"
#include "base/text.h"
#include "task/task.h"

#define BATCH 32

struct amptrain {
    struct servant *servant;
    struct network network;
};

const char *amptrain_version(void) { return PACKAGE_VERSION; }

/* ---- Errors ---- */

_Static_assert(sizeof ((struct amptrain_error *)NULL)->text == SERVANT_TEXT, "a whole answer is an error");

static int refuse(struct amptrain_error *error, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(struct amptrain_error *error, enum status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (error) {
        error->status = status;
        vsnprintf(error->text, sizeof error->text, format, arguments);
    }
    va_end(arguments);
    return status;
}

/* Has a job done for a call. */
static int do_for(struct servant *servant, enum status (*work)(void *context), void *context,
                  struct amptrain_error *error)
{
    struct servant_answer answer;
    servant_do(servant, work, context, &answer);
    if (answer.status == OK) return refuse(error, OK, "%s", "");
    return refuse(error, answer.status, "%s", answer.text);
}

/* Copies a struct of the caller's, which may be of an earlier version, or a later one. */
static bool take_struct(void *to, size_t size, const void *from)
{
    size_t given = from ? *(const size_t *)from : 0;
    memset(to, 0, size);
    if (from) memcpy(to, from, given < size ? given : size);
    return !from || given >= sizeof(size_t);
}

/* ---- Opening ---- */

struct opening {
    struct network *network;
    struct network_options options;
};

static enum status open_job(void *context)
{
    const struct opening *opening = context;
    return network_open(&opening->options, opening->network);
}

static enum status close_job(void *context)
{
    network_close(context);
    return OK;
}

static int open_network(struct amptrain *made, const struct network_options *options,
                        struct amptrain_error *error)
{
    struct opening opening = {&made->network, *options};
    struct amptrain_error first, second;
    int status = do_for(made->servant, open_job, &opening, &first);
    /* Weights without a classifier still have features. */
    if (status == BAD_CHECKPOINT) {
        do_for(made->servant, close_job, &made->network, NULL);
        opening.options.headless = true;
        if (do_for(made->servant, open_job, &opening, &second) == OK) status = OK;
    }
    return status == OK ? refuse(error, OK, "%s", "") : refuse(error, status, "%s", first.text);
}

#define OWN_SETTINGS 4

/* The caller's settings and those that follow from other members. */
static int open_with_settings(struct amptrain *made, const char *weights,
                              const struct amptrain_options *options, struct amptrain_error *error)
{
    int count = options->setting_count + OWN_SETTINGS;
    char own[OWN_SETTINGS][64];
    const char **settings = memory_try((size_t)count, sizeof *settings);
    if (!settings) return refuse(error, FAILED, "out of host memory");
    snprintf(own[0], sizeof own[0], "run.device=%.40s", options->device ? options->device : "auto");
    snprintf(own[1], sizeof own[1], options->memory_limit ? "memory.limit=%llu" : "memory.limit=auto",
             (unsigned long long)options->memory_limit);
    snprintf(own[2], sizeof own[2], options->threads ? "run.threads=%d" : "run.threads=auto",
             options->threads);
    snprintf(own[3], sizeof own[3], options->workers ? "loader.workers=%d" : "loader.workers=auto",
             options->workers);
    for (int i = 0; i < OWN_SETTINGS; i++) settings[i] = own[i];
    for (int i = 0; i < options->setting_count; i++) settings[OWN_SETTINGS + i] = options->settings[i];
    const struct network_options asked = {.weights = weights, .settings = settings, .setting_count = count,
                                          .batch = options->batch ? options->batch : BATCH};
    int status = open_network(made, &asked, error);
    free(settings);
    return status;
}

static void log_for_caller(void *context, enum log_level level, const char *line)
{
    const struct amptrain_options *options = context;
    if (level == LOG_WARNING || level == LOG_INFO) options->log(options->log_context, (int32_t)level, line);
}

struct amptrain_made {
    struct amptrain amptrain;
    struct amptrain_options options;
};

int amptrain_open_with(const char *weights, const struct amptrain_options *given, struct amptrain **opened,
                       struct amptrain_error *error)
{
    struct amptrain_made *made = memory_try(1, sizeof *made);
    if (!made) return refuse(error, FAILED, "out of host memory");
    struct amptrain_options *options = &made->options;
    int status = OK;
    if (!weights) status = refuse(error, USAGE, "no weights are given");
    else if (!take_struct(options, sizeof *options, given))
        status = refuse(error, USAGE, "amptrain_options.size is not set");
    else if (options->batch < 0 || options->threads < 0 || options->workers < 0 || options->setting_count < 0)
        status = refuse(error, USAGE, "a number of amptrain_options is negative");
    const struct log_sink sink = {options->log ? log_for_caller : NULL, options};
    if (status == OK) {
        made->amptrain.servant = servant_start(&sink, options->data_folder, options->cache_folder);
        if (!made->amptrain.servant) status = refuse(error, FAILED, "cannot start a thread");
    }
    if (status == OK) status = open_with_settings(&made->amptrain, weights, options, error);
    if (status == OK) *opened = &made->amptrain;
    else amptrain_close(&made->amptrain);
    return status;
}

int amptrain_open(const char *weights, const char *device, uint64_t memory_limit, struct amptrain **opened,
                  struct amptrain_error *error)
{
    const struct amptrain_options options = {
        .size = sizeof options, .device = device, .memory_limit = memory_limit,
    };
    return amptrain_open_with(weights, &options, opened, error);
}

/* Leaves a network that ran out of memory as it is. */
void amptrain_close(struct amptrain *amptrain)
{
    if (!amptrain) return;
    if (amptrain->servant && servant_is_sound(amptrain->servant))
        do_for(amptrain->servant, close_job, &amptrain->network, NULL);
    servant_end(amptrain->servant);
    free(amptrain);
}

/* ---- What is known of it ---- */

static enum amptrain_task task_of_network(const struct network *network)
{
    if (network->headless) return AMPTRAIN_FEATURES;
    switch (network->trained.session.data.target) {
    case TARGET_LABELS: return AMPTRAIN_LABELS;
    case TARGET_NUMBER: return AMPTRAIN_VALUE;
    case TARGET_MASK: return AMPTRAIN_SEGMENT;
    case TARGET_ANY:
    case TARGET_CLASS: break;
    }
    return AMPTRAIN_CLASSIFY;
}

int amptrain_info(const struct amptrain *amptrain, struct amptrain_info *info)
{
    const struct network *network = &amptrain->network;
    const struct session *session = &network->trained.session;
    struct amptrain_info known = {
        .size = info->size, .task = task_of_network(network),
        .classes = network->headless ? 0 : session->data.classes, .height = session->data.val.h,
        .width = session->data.val.w, .channels = session->data.channels, .batch = network->batch,
        .arch = session->graphs.evaluation.arch, .device = session->device->backend->name,
    };
    if (info->size < sizeof info->size) return USAGE;
    memcpy(info, &known, info->size < sizeof known ? info->size : sizeof known);
    return OK;
}

static bool has_class(const struct network *network, int32_t index)
{
    return !network->headless && index >= 0 && index < network->trained.session.data.classes;
}

const char *amptrain_class_name(const struct amptrain *amptrain, int32_t index)
{
    const struct network *network = &amptrain->network;
    return has_class(network, index) ? network->trained.session.data.class_names[index] : NULL;
}

double amptrain_threshold(const struct amptrain *amptrain, int32_t index)
{
    const struct network *network = &amptrain->network;
    const struct data *data = &network->trained.session.data;
    if (!has_class(network, index) || data->target != TARGET_LABELS) return NAN;
    return data->thresholds ? data->thresholds[index] : 0.5;
}

/* ---- Images ---- */

/* The images of a call, converted. */
struct listed {
    struct listed_image *images;
    struct listed_pixels *pixels;
    size_t count;
};

static void listed_free(struct listed *listed)
{
    for (size_t i = 0; listed->images && i < listed->count; i++) free((char *)listed->images[i].name);
    free(listed->images);
    free(listed->pixels);
}

static struct listed_pixels pixels_of(const struct amptrain_image *image)
{
    ptrdiff_t channel = image->channel_stride ? image->channel_stride : 1;
    ptrdiff_t pixel = image->pixel_stride ? image->pixel_stride : image->channels;
    ptrdiff_t row = image->row_stride ? image->row_stride : pixel * image->width;
    return (struct listed_pixels){image->pixels, image->height, image->width, image->channels, row, pixel,
                                  channel};
}

static int check_image(const struct amptrain_image *image, size_t i, struct amptrain_error *error)
{
    int given = (image->file != NULL) + (image->bytes != NULL) + (image->pixels != NULL);
    if (given != 1)
        return refuse(error, USAGE, "image %zu has %s of file, bytes and pixels, not one", i,
                      given ? "several" : "none");
    if (image->pixels && (image->height < 1 || image->width < 1 || image->channels < 1))
        return refuse(error, USAGE, "image %zu: pixels of %d x %d x %d", i, image->height, image->width,
                      image->channels);
    return OK;
}

static int list_images(const struct amptrain_image *images, size_t count, struct listed *listed,
                       struct amptrain_error *error)
{
    size_t stride = count > 0 ? images[0].size : 0;
    *listed = (struct listed){memory_try(count, sizeof *listed->images),
                              memory_try(count, sizeof *listed->pixels), 0};
    if (!listed->images || !listed->pixels) return refuse(error, FAILED, "out of host memory");
    for (size_t i = 0; i < count; i++) {
        struct amptrain_image image;
        const void *at = (const char *)images + i * stride;
        if (!take_struct(&image, sizeof image, at) || image.size != stride)
            return refuse(error, USAGE, "image %zu: amptrain_image.size is not set", i);
        TRY(check_image(&image, i, error));
        char name[32];
        snprintf(name, sizeof name, "image %zu", i);
        char *copy = strdup(image.file ? image.file : name);
        if (!copy) return refuse(error, FAILED, "out of host memory");
        listed->pixels[i] = pixels_of(&image);
        listed->images[i] = (struct listed_image){
            .name = copy, .bytes = image.bytes, .count = image.byte_count,
            .pixels = image.pixels ? &listed->pixels[i] : NULL,
        };
        listed->count = i + 1;
    }
    return OK;
}

/* ---- Results ---- */

struct running {
    struct amptrain *amptrain;
    struct listed listed;
    struct amptrain_error *problems;
    int node;                            /* -1: the outputs */
    int64_t width;                       /* results of an image */
    /* Writes those of image `i`; `outputs` NULL: there are none. */
    void (*write)(const struct running *running, int64_t i, const float *outputs);
    struct amptrain_class *classes;
    float *values;
    const char *layer;                   /* amptrain_embed's */
};

static void write_classes(const struct running *running, int64_t image, const float *outputs)
{
    struct amptrain_class *to = running->classes + image * running->width;
    int classes = running->amptrain->network.trained.session.data.classes, count = (int)running->width;
    struct class_probability *top = memory_new((size_t)count, sizeof *top);
    for (int i = 0; !outputs && i < count; i++) top[i] = (struct class_probability){-1, NAN};
    if (outputs) classifier_top(outputs, classes, count, top);
    for (int i = 0; i < count; i++)
        to[i] = (struct amptrain_class){top[i].class, (float)top[i].probability};
    free(top);
}

static void write_values(const struct running *running, int64_t image, const float *outputs)
{
    float *to = running->values + image * running->width;
    const struct data *data = &running->amptrain->network.trained.session.data;
    for (int64_t i = 0; i < running->width; i++) to[i] = outputs ? outputs[i] : NAN;
    if (!outputs || running->node >= 0) return;
    task_of(data)->activate(data, to);
    if (data->target == TARGET_NUMBER) to[0] = (float)task_value(data, to[0]);
}

static enum status take_image(void *context, int64_t image, const struct classified *what)
{
    const struct running *running = context;
    running->write(running, image, what->logits);
    if (running->problems) refuse(&running->problems[image], what->status, "%s",
                                  what->problem ? what->problem : "");
    else if (what->status != OK)
        return fail(what->status, "%s: %s", running->listed.images[image].name, what->problem);
    return OK;
}

static enum status run_job(void *context)
{
    struct running *running = context;
    struct network *network = &running->amptrain->network;
    if (running->node >= 0) TRY(network_layer(network, running->layer, &running->node, &running->width));
    return network_run(network, running->node, running->listed.images, (int64_t)running->listed.count,
                       take_image, running);
}

static int run(struct running *running, const struct amptrain_image *images, size_t count,
               struct amptrain_error *error)
{
    int status = list_images(images, count, &running->listed, error);
    if (status == OK && count == 0) status = refuse(error, OK, "%s", "");
    else if (status == OK) status = do_for(running->amptrain->servant, run_job, running, error);
    listed_free(&running->listed);
    return status;
}

static int check_task(const struct amptrain *amptrain, enum amptrain_task task, struct amptrain_error *error)
{
    static const char *const gives[] = {
        [AMPTRAIN_CLASSIFY] = "classes (amptrain_classify)", [AMPTRAIN_LABELS] = "labels (amptrain_labels)",
        [AMPTRAIN_VALUE] = "a value (amptrain_values)", [AMPTRAIN_SEGMENT] = "masks (amptrain_segment)",
        [AMPTRAIN_FEATURES] = "features (amptrain_embed): its weights have no last layer",
    };
    enum amptrain_task own = task_of_network(&amptrain->network);
    return own == task ? OK : refuse(error, USAGE, "this network gives %s", gives[own]);
}

int amptrain_classify(struct amptrain *amptrain, const struct amptrain_image *images, size_t count,
                      int32_t top, struct amptrain_class *classes, struct amptrain_error *problems,
                      struct amptrain_error *error)
{
    struct running running = {.amptrain = amptrain, .problems = problems, .node = -1, .width = top,
                              .write = write_classes, .classes = classes};
    TRY(check_task(amptrain, AMPTRAIN_CLASSIFY, error));
    int known = amptrain->network.trained.session.data.classes;
    if (top < 1 || top > known) return refuse(error, USAGE, "top is %d, of %d classes", top, known);
    return run(&running, images, count, error);
}

int amptrain_labels(struct amptrain *amptrain, const struct amptrain_image *images, size_t count,
                    float *probabilities, struct amptrain_error *problems, struct amptrain_error *error)
{
    struct running running = {.amptrain = amptrain, .problems = problems, .node = -1,
                              .width = amptrain->network.trained.session.data.classes,
                              .write = write_values, .values = probabilities};
    TRY(check_task(amptrain, AMPTRAIN_LABELS, error));
    return run(&running, images, count, error);
}

int amptrain_values(struct amptrain *amptrain, const struct amptrain_image *images, size_t count,
                    float *values, struct amptrain_error *problems, struct amptrain_error *error)
{
    struct running running = {.amptrain = amptrain, .problems = problems, .node = -1, .width = 1,
                              .write = write_values, .values = values};
    TRY(check_task(amptrain, AMPTRAIN_VALUE, error));
    return run(&running, images, count, error);
}

struct asking {
    const struct network *network;
    const char *layer;
    int node;
    int64_t features;
};

static enum status layer_job(void *context)
{
    struct asking *asking = context;
    return network_layer(asking->network, asking->layer, &asking->node, &asking->features);
}

int amptrain_features(struct amptrain *amptrain, const char *layer, int64_t *features,
                      struct amptrain_error *error)
{
    struct asking asking = {.network = &amptrain->network, .layer = layer};
    TRY(do_for(amptrain->servant, layer_job, &asking, error));
    *features = asking.features;
    return OK;
}

int amptrain_embed(struct amptrain *amptrain, const struct amptrain_image *images, size_t count,
                   const char *layer, float *values, struct amptrain_error *problems,
                   struct amptrain_error *error)
{
    struct running running = {.amptrain = amptrain, .problems = problems, .node = 0, .layer = layer,
                              .write = write_values, .values = values};
    return run(&running, images, count, error);
}

/* ---- Masks ---- */

struct labelling {
    struct amptrain *amptrain;
    struct listed listed;
    int32_t flags;
    struct amptrain_mask *masks;         /* [listed.count], `stride` bytes apart */
    size_t stride;
    struct amptrain_error *problems;     /* [listed.count] */
};

static struct amptrain_mask *mask_at(const struct labelling *labelling, size_t i)
{
    return (struct amptrain_mask *)((char *)labelling->masks + i * labelling->stride);
}

void amptrain_mask_free(struct amptrain_mask *mask)
{
    free(mask->classes);
    free(mask->probabilities);
    mask->classes = NULL;
    mask->probabilities = NULL;
    mask->height = mask->width = 0;
}

static void *copy_bytes(const void *from, size_t bytes)
{
    void *copy = malloc(bytes);
    return copy ? memcpy(copy, from, bytes) : NULL;
}

static void take_mask(void *context, const struct whole_image *image)
{
    const struct labelling *labelling = context;
    struct amptrain_mask *mask = mask_at(labelling, (size_t)image->place);
    struct amptrain_error *problem = &labelling->problems[image->place];
    const char *name = labelling->listed.images[image->place].name;
    size_t pixels = (size_t)image->h * (size_t)image->w;
    size_t bytes = pixels * (size_t)labelling->amptrain->network.trained.session.data.classes * sizeof(float);
    bool wanted = labelling->flags & AMPTRAIN_PROBABILITIES;
    if (image->problem) {
        refuse(problem, BAD_DATA, "%s", whole_image_why(image, name));
    } else if (!isfinite(image->loss)) {
        refuse(problem, FAILED, "the network's output is not finite");
    } else {
        mask->height = image->h;
        mask->width = image->w;
        mask->classes = copy_bytes(image->classes, pixels);
        if (wanted) mask->probabilities = copy_bytes(image->probabilities, bytes);
        if (!mask->classes || (wanted && !mask->probabilities)) refuse(problem, FAILED, "out of host memory");
    }
}

static enum status label_job(void *context)
{
    struct labelling *labelling = context;
    const struct network_pixels pixels = {
        .images = labelling->listed.images, .count = (int64_t)labelling->listed.count,
        .probabilities = labelling->flags & AMPTRAIN_PROBABILITIES,
        .mirrored = labelling->flags & AMPTRAIN_FLIP,
        .take = take_mask, .context = labelling,
    };
    return network_label_pixels(&labelling->amptrain->network, &pixels);
}

/* Without problems of the caller's, the first one is the call's. */
static int label_all(struct labelling *labelling, bool own, struct amptrain_error *error)
{
    if (labelling->listed.count == 0) return refuse(error, OK, "%s", "");
    TRY(do_for(labelling->amptrain->servant, label_job, labelling, error));
    for (size_t i = 0; i < labelling->listed.count; i++) {
        const struct amptrain_error *problem = &labelling->problems[i];
        if (problem->status == OK) continue;
        amptrain_mask_free(mask_at(labelling, i));
        if (own)
            return refuse(error, (enum status)problem->status, "%s: %s", labelling->listed.images[i].name,
                          problem->text);
    }
    return OK;
}

int amptrain_segment(struct amptrain *amptrain, const struct amptrain_image *images, size_t count,
                     int32_t flags, struct amptrain_mask *masks, struct amptrain_error *problems,
                     struct amptrain_error *error)
{
    struct labelling labelling = {.amptrain = amptrain, .flags = flags, .masks = masks, .problems = problems,
                                  .stride = count > 0 ? masks->size : 0};
    bool own = !problems;
    TRY(check_task(amptrain, AMPTRAIN_SEGMENT, error));
    if (count > 0 && labelling.stride < sizeof *masks)
        return refuse(error, USAGE, "amptrain_mask.size is not set");
    if (own) labelling.problems = memory_try(count, sizeof *labelling.problems);
    for (size_t i = 0; i < count; i++) {
        struct amptrain_mask *mask = mask_at(&labelling, i);
        *mask = (struct amptrain_mask){.size = labelling.stride};
        if (problems) problems[i] = (struct amptrain_error){0};
    }
    int status = labelling.problems ? list_images(images, count, &labelling.listed, error)
                                    : refuse(error, FAILED, "out of host memory");
    if (status == OK) status = label_all(&labelling, own, error);
    for (size_t i = 0; i < count && status != OK; i++) amptrain_mask_free(mask_at(&labelling, i));
    listed_free(&labelling.listed);
    if (own) free(labelling.problems);
    return status;
}
