#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/image_arguments.h"
#include "cmd/trained.h"
#include "explain/classifier.h"
#include "explain/layer_output.h"
#include "format/npy.h"
#include "format/safetensors.h"
#include "session/preprocessing.h"

/* How a safetensors file of features begins: the layer's name comes first. */
#define FEATURES_SIGNATURE SAFETENSORS_SIGNATURE ",\"layer\":\"*"

struct embedder {
    struct trained trained;
    struct image_arguments images;
    struct layer_output output;
    const char *layer;           /* its name */
    const char *path;
    bool safetensors;            /* the format of the file, which is written at once */
    struct npy_file npy;         /* or this, which grows */
    float *rows;                 /* safetensors: [images][output.count] */
};

/* ---- The images ---- */

/* The row of an image that cannot be used is NaN, which no finite output equals. */
static enum status take_image(void *context, int64_t image, const struct classified *what)
{
    struct embedder *embedder = context;
    size_t count = (size_t)embedder->output.count;
    float *row = memory_new(count, sizeof *row);
    if (what->status != OK) image_arguments_note(&embedder->images, image, what->status, what->problem);
    for (size_t i = 0; i < count; i++) row[i] = what->status == OK ? what->logits[i] : NAN;
    enum status status = OK;
    if (embedder->safetensors) memcpy(embedder->rows + (size_t)image * count, row, count * sizeof *row);
    else status = npy_add(&embedder->npy, row, count);
    free(row);
    return status;
}

/* ---- The files ---- */

/* OUT.txt for OUT.npy. The caller frees it. */
static char *names_path(const char *path)
{
    const char *ending = strrchr(path, '.');
    return text_format("%.*s.txt", (int)(ending - path), path);
}

/* A name a line, in the order of the rows; control characters, such as line ends, as \xNN. */
static enum status write_names(const struct embedder *embedder)
{
    struct text lines = {0};
    for (int64_t i = 0; i < embedder->images.count; i++) {
        const char *name = embedder->images.images[i].name;
        size_t room = 4 * strlen(name) + 1;
        char *shown = memory_new(room, 1);
        text_add(&lines, "%s\n", text_visible(name, shown, room));
        free(shown);
    }
    char *path = names_path(embedder->path);
    enum status status = atomic_file_write(&directory_working, path, lines.data, lines.length);
    if (status == OK) log_info("%s: the names of the images", path);
    free(path);
    text_free(&lines);
    return status;
}

static enum status read_rows(void *context, int item, void *data)
{
    const struct embedder *embedder = context;
    size_t count = (size_t)(embedder->images.count * embedder->output.count);
    memcpy(data, embedder->rows, count * sizeof(float));
    return OK;
}

static enum status write_safetensors(const struct embedder *embedder)
{
    struct safetensors_item item = {.name = "features", .dtype = F32,
                                    .shape = {.rank = 2, .dim = {embedder->images.count,
                                                                 embedder->output.count, 1, 1}}};
    struct safetensors_pair metadata[] = {{"layer", (char *)embedder->layer}, {"format", "pt"}};
    const struct safetensors_content content = {
        .items = &item, .count = 1, .metadata = metadata, .metadata_count = 2, .read = read_rows,
        .context = (void *)embedder,
    };
    struct atomic_file file;
    enum status status = atomic_file_begin(&directory_working, embedder->path, &file);
    if (status == OK) {
        status = safetensors_write_in(&directory_working, file.temporary, &content);
        enum status ended = atomic_file_end(&file, status == OK);
        if (status == OK) status = ended;
    }
    return status;
}

/* ---- The command ---- */

/* True if there are features whose names these are. */
static bool has_features(const char *names)
{
    static const char *const endings[] = {"npy", "safetensors"};
    bool found = false;
    for (int i = 0; i < 2 && !found; i++) {
        char *path = text_format("%.*s%s", (int)(strlen(names) - strlen("txt")), names, endings[i]);
        found = access(path, F_OK) == 0;
        free(path);
    }
    return found;
}

/* Any text may be a list of names: only one beside features is replaced, and none of those to be read. */
static enum status check_names(const struct cmd *cmd, const char *path)
{
    if (access(path, F_OK) != 0) return OK;
    for (int i = 0; i < cmd->argument_count; i++)
        if (cmd->arguments[i][0] == '@' && file_same(cmd->arguments[i] + 1, path))
            return fail(USAGE, "%s: is an input of this command (%s), and would be overwritten by the names "
                        "of the images; name another -o", path, cmd->arguments[i]);
    if (has_features(path)) return OK;
    return fail(USAGE, "%s: exists, and would be overwritten by the names of the images; remove it, or name "
                "another -o", path);
}

static enum status check_output(struct cmd *cmd, struct embedder *embedder)
{
    embedder->path = cmd->output;
    if (!cmd->output) return fail(USAGE, "embed: -o FILE.npy or -o FILE.safetensors is needed");
    embedder->safetensors = text_ends_in(cmd->output, ".safetensors");
    if (!embedder->safetensors && !text_ends_in(cmd->output, ".npy"))
        return fail(USAGE, "embed: %s: the file's name must end in .npy or .safetensors", cmd->output);
    char *names = names_path(cmd->output);
    enum status status = check_names(cmd, names);
    free(names);
    TRY(status);
    return cmd_check_output(cmd, cmd->output, embedder->safetensors ? FEATURES_SIGNATURE : NPY_SIGNATURE);
}

static enum status embedder_open(struct cmd *cmd, struct embedder *embedder)
{
    int node;
    TRY(check_output(cmd, embedder));
    TRY(image_arguments_read(cmd->arguments, cmd->argument_count, &embedder->images));
    TRY(image_arguments_set_batch(&embedder->images, cmd));
    TRY(trained_load(cmd, DATA_NONE | TRAINED_BACKBONE, &embedder->trained));
    struct session *session = &embedder->trained.session;
    const struct graph *graph = &session->graphs.evaluation;
    TRY(layer_output_find(graph, cmd_value(cmd, "layer"), &node));
    TRY(preprocessing_open(session, false));
    TRY(layer_output_open(session, &embedder->trained.store, node, true, &(struct exec_memory){0},
                          &embedder->output));
    embedder->layer = graph->nodes[node].name;
    log_info("%" PRId64 " feature%s of each image: layer '%s' of %s%s", embedder->output.count,
             embedder->output.count == 1 ? "" : "s", embedder->layer, graph->arch,
             graph->nodes[node].shape.h * graph->nodes[node].shape.w > 1 ? ", the mean of its pixels" : "");
    return OK;
}

static enum status embed_all(struct embedder *embedder)
{
    const struct classifier classifier = {.session = &embedder->trained.session,
                                          .step = &embedder->output.step,
                                          .outputs = embedder->output.count};
    int64_t images = embedder->images.count, features = embedder->output.count;
    const int64_t shape[] = {images, features};
    if (embedder->safetensors) {
        embedder->rows = memory_try((size_t)images * (size_t)features, sizeof *embedder->rows);
        if (!embedder->rows)
            return fail(FAILED, "embed: not enough host memory for %" PRId64 " images", images);
    }
    enum status status = embedder->safetensors ? OK : npy_begin(embedder->path, shape, 2, &embedder->npy);
    if (status == OK)
        status = classifier_run(&classifier, embedder->images.images, images, take_image, embedder);
    status = npy_end(&embedder->npy, status);
    if (status == OK && embedder->safetensors) status = write_safetensors(embedder);
    return status == OK ? write_names(embedder) : status;
}

static enum status embed_run(struct cmd *cmd)
{
    if (cmd->argument_count == 0) return fail(USAGE, "embed: no image given");
    struct embedder embedder = {0};
    enum status status = embedder_open(cmd, &embedder);
    if (status == OK) status = embed_all(&embedder);
    if (status == OK)
        status = image_arguments_report(&embedder.images, "; its row is NaN",
                                        "cannot be used; their rows are NaN");
    layer_output_close(&embedder.output);
    trained_close(&embedder.trained);
    image_arguments_free(&embedder.images);
    free(embedder.rows);
    return status;
}

static const struct cmd_option options[] = {
    {"weights", "RUN|FILE", "run folder, checkpoint or weights (safetensors, PyTorch)"},
    {"layer", "NAME", "the layer (default: what the classifier reads)"},
    {"batch", "N", "images at a time, at most (default: 64)"},
    {0},
};

const struct command cmd_embed = {
    .name = "embed",
    .usage = "--weights RUN|FILE [-c FILE] [--layer NAME] [--batch N] -o FILE.npy|FILE.safetensors "
             "IMAGE|FOLDER|-|@LIST...",
    .help = "Writes features of images.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT | TAKES_ARGUMENTS,
    .options = options,
    .run = embed_run,
};
