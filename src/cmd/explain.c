#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/members.h"
#include "base/memory.h"
#include "cmd/image_arguments.h"
#include "cmd/trained.h"
#include "data/augment/heat_map.h"
#include "explain/classifier.h"
#include "explain/gradcam.h"
#include "graph/names.h"
#include "session/preprocessing.h"
#include "session/session_loader.h"

#define NAME_ROOM 8192   /* bytes shown of a name */

struct explainer {
    struct trained trained;
    struct image_arguments images;
    struct dataset list;         /* of them, to be read again */
    struct gradcam gradcam;
    struct directory folder;
    char **pictures;             /* [images] their names in it */
    struct augment augment;
    int class;                   /* that is explained; -1: the predicted one */
    bool json;
    float *map;
};

/* ---- Pictures ---- */

static bool draw(struct explainer *explainer, int64_t index, struct image *picture, struct reason *reason)
{
    const struct session *session = &explainer->trained.session;
    const struct heat_map map = {explainer->map, explainer->gradcam.h, explainer->gradcam.w};
    struct image image = {0};
    int label;
    bool good = explainer->list.format->read(&explainer->list, index, NULL, &image, &label, reason) &&
                heat_map_draw(&explainer->augment, &image, &map, session->data.val.h, session->data.val.w,
                              picture, reason);
    image_free(&image);
    return good;
}

static enum status write_picture(struct explainer *explainer, int64_t index)
{
    struct image picture = {0};
    struct reason reason;
    uint8_t *bytes = NULL;
    size_t count;
    bool good = draw(explainer, index, &picture, &reason) &&
                image_encode_png(&picture, &bytes, &count, &reason);
    enum status status =
        good ? atomic_file_write(&explainer->folder, explainer->pictures[index], bytes, count)
             : fail(BAD_DATA, "%s: %s", explainer->images.images[index].name, reason.text);
    free(bytes);
    image_free(&picture);
    return status;
}

/* ---- Records ---- */

static void print_record(const struct explainer *explainer, int64_t index, const struct class_probability *is,
                         const char *problem)
{
    const char *image = explainer->images.images[index].name;
    char *path = directory_show(&explainer->folder, explainer->pictures[index]);
    const char *class = is ? explainer->trained.session.data.class_names[is->class] : NULL;
    bool number = explainer->trained.session.data.target == TARGET_NUMBER;
    char shown[3][NAME_ROOM];
    struct text out = {0};
    if (explainer->json) {
        text_add(&out, "%s{", index ? ",\n " : "");
        member_bytes(&out, "image", image);
        if (problem) member_bytes(&out, "error", problem);
        if (is) {
            member_bytes(&out, "class", class);
            member_integer(&out, "index", is->class);
            member_number(&out, number ? "value" : "probability", is->probability);
            member_bytes(&out, "picture", path);
        }
        text_add(&out, "}");
    } else {
        text_add(&out, "%s: ", text_visible(image, shown[0], NAME_ROOM));
        if (problem) text_add(&out, "error: %s\n", text_visible(problem, shown[1], NAME_ROOM));
        else text_add(&out, "%s %.4f, %s\n", text_visible(class, shown[1], NAME_ROOM), is->probability,
                      text_visible(path, shown[2], NAME_ROOM));
    }
    printf("%s", out.data);
    text_free(&out);
    free(path);
}

/* The output where there are several labels, or a number in its own unit. */
static double activated(const struct data *data, const float *logits, int class)
{
    size_t classes = (size_t)data->classes;
    float *values = memory_new(classes, sizeof *values);
    memcpy(values, logits, classes * sizeof *values);
    task_of(data)->activate(data, values);
    double value = data->target == TARGET_NUMBER ? task_value(data, values[0]) : (double)values[class];
    free(values);
    return value;
}

/* The class that is explained, and its probability; or the number. */
static struct class_probability explained_class(const struct explainer *explainer, const float *logits)
{
    const struct data *data = &explainer->trained.session.data;
    int classes = explainer->gradcam.classes, found = 0;
    struct class_probability *all = memory_new((size_t)classes, sizeof *all);
    classifier_top(logits, classes, explainer->class < 0 ? 1 : classes, all);
    while (explainer->class >= 0 && all[found].class != explainer->class) found++;
    struct class_probability explained = all[found];
    free(all);
    if (data->target > TARGET_CLASS) explained.probability = activated(data, logits, explained.class);
    return explained;
}

static enum status take_image(void *context, int64_t index, const struct classified *what)
{
    struct explainer *explainer = context;
    const float *logits;
    if (what->status != OK) {
        image_arguments_note(&explainer->images, index, what->status, what->problem);
        print_record(explainer, index, NULL, what->problem);
        return OK;
    }
    TRY(gradcam_logits(&explainer->gradcam, what->logits, &logits));
    const struct class_probability is = explained_class(explainer, logits);
    TRY(gradcam_map(&explainer->gradcam, what->logits, is.class, explainer->map));
    TRY(write_picture(explainer, index));
    print_record(explainer, index, &is, NULL);
    return OK;
}

/* ---- The command ---- */

/* NAME.png for the image FOLDER/NAME.jpg; NAME-2.png if there is one of that name already. */
static char *picture_name(const char *image, struct names *taken)
{
    const char *slash = strrchr(image, '/'), *base = slash ? slash + 1 : image;
    const char *dot = strrchr(base, '.');
    int length = dot && dot > base ? (int)(dot - base) : (int)strlen(base);
    if (strcmp(base, "-") == 0) base = "image", length = 5;
    char *name = text_format("%.*s.png", length, base);
    for (int number = 2; !names_add(taken, name, 0); number++) {
        free(name);
        name = text_format("%.*s-%d.png", length, base, number);
    }
    return name;
}

/* Nothing in the folder is replaced: it may be that of the images. */
static enum status open_folder(const struct cmd *cmd, struct explainer *explainer)
{
    struct names taken = {0};
    struct reason reason;
    enum status status = OK;
    if (!directory_make(cmd->output, 0777, &reason)) return fail(FAILED, "%s: %s", cmd->output, reason.text);
    TRY(directory_open(cmd->output, &explainer->folder));
    explainer->pictures = memory_new((size_t)explainer->images.count, sizeof *explainer->pictures);
    for (int64_t i = 0; i < explainer->images.count && status == OK; i++) {
        char *name = explainer->pictures[i] = picture_name(explainer->images.images[i].name, &taken);
        if (directory_has(&explainer->folder, name))
            status = fail(USAGE, "explain: %s/%s: exists; it is not overwritten", cmd->output, name);
    }
    names_free(&taken);
    return status;
}

static enum status find_class(const struct cmd *cmd, struct explainer *explainer)
{
    const struct data *data = &explainer->trained.session.data;
    const char *named = cmd_value(cmd, "class");
    explainer->class = -1;
    if (!named) return OK;
    for (int i = 0; i < data->classes; i++)
        if (strcmp(data->class_names[i], named) == 0) explainer->class = i;
    if (explainer->class >= 0) return OK;
    const char *near = text_nearest(named, (const char *const *)data->class_names, data->classes);
    return fail(USAGE, "explain: --class: there is no class '%s'%s%s%s", named,
                near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static enum status explainer_open(struct cmd *cmd, struct explainer *explainer)
{
    int node;
    explainer->json = cmd_value(cmd, "json") != NULL;
    TRY(image_arguments_read(cmd->arguments, cmd->argument_count, &explainer->images));
    if (!cmd->output) return fail(USAGE, "explain: -o FOLDER is needed");
    TRY(image_arguments_set_batch(&explainer->images, cmd));
    TRY(trained_load(cmd, DATA_NONE, &explainer->trained));
    struct session *session = &explainer->trained.session;
    if (session->data.target == TARGET_MASK)
        return fail(USAGE, "explain: the network gives every pixel a class, so that its output is such a "
                    "picture: amptrain predict --overlay draws it");
    TRY(find_class(cmd, explainer));
    const struct graph *graph = &session->graphs.evaluation;
    TRY(gradcam_find(graph, cmd_value(cmd, "layer"), &node));
    TRY(preprocessing_open(session, false));
    const struct gradcam *gradcam = &explainer->gradcam;
    bool own = cmd_value(cmd, "layer") != NULL;
    TRY(gradcam_open(session, &explainer->trained.store, node, own, &(struct exec_memory){0},
                     &explainer->gradcam));
    TRY(open_folder(cmd, explainer));
    if (gradcam->rollout.layers)
        log_info("attention rollout of %d layer%s of %s: %dx%d patches, the same for all classes",
                 gradcam->rollout.count, gradcam->rollout.count == 1 ? "" : "s", graph->arch, gradcam->h,
                 gradcam->w);
    else
        log_info("Grad-CAM: layer '%s' of %s has %dx%d pixels", graph->nodes[node].name, graph->arch,
                 gradcam->h, gradcam->w);
    explainer->map = memory_new((size_t)gradcam->h * (size_t)gradcam->w, sizeof *explainer->map);
    explainer->augment = session->data.augment;
    explainer->augment.val_crop = true;
    image_list_open(explainer->images.images, explainer->images.count, session_image_options(session),
                    &explainer->list);
    return OK;
}

static enum status explain_all(struct explainer *explainer)
{
    const struct classifier classifier = {.session = &explainer->trained.session,
                                          .step = &explainer->gradcam.output.step,
                                          .outputs = explainer->gradcam.output.count};
    if (explainer->json) printf("[");
    enum status status = classifier_run(&classifier, explainer->images.images, explainer->images.count,
                                        take_image, explainer);
    if (explainer->json) printf("]\n");
    if (status == OK && explainer->images.unusable > 0)
        status = fail(explainer->images.worst, "%" PRId64 " of %" PRId64 " images cannot be explained",
                      explainer->images.unusable, explainer->images.count);
    return status;
}

static void explainer_close(struct explainer *explainer)
{
    gradcam_close(&explainer->gradcam);
    trained_close(&explainer->trained);
    if (explainer->list.format) dataset_close(&explainer->list);
    text_list_free(explainer->pictures, (size_t)explainer->images.count);
    image_arguments_free(&explainer->images);
    directory_close(&explainer->folder);
    free(explainer->map);
}

static enum status explain_run(struct cmd *cmd)
{
    if (cmd->argument_count == 0) return fail(USAGE, "explain: no image given");
    struct explainer explainer = {0};
    enum status status = explainer_open(cmd, &explainer);
    if (status == OK) status = explain_all(&explainer);
    explainer_close(&explainer);
    return status;
}

static const struct cmd_option options[] = {
    {"weights", "RUN|FILE", "run folder, checkpoint or weights (safetensors, PyTorch)"},
    {"layer", "NAME", "the layer (default: the last one with several pixels)"},
    {"class", "NAME", "the class to explain (default: the predicted one)"},
    {"batch", "N", "images at a time, at most (default: 64)"},
    {"json", NULL, "print the records as JSON"},
    {0},
};

const struct command cmd_explain = {
    .name = "explain",
    .usage = "--weights RUN|FILE [-c FILE] [--layer NAME] [--class NAME] [--batch N] [--json] -o FOLDER "
             "IMAGE|FOLDER|-|@LIST...",
    .help = "Draws where in images a network sees a class.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT | TAKES_ARGUMENTS,
    .options = options,
    .run = explain_run,
};
