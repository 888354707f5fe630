#include "cmd/init_tuning.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search_paths.h"
#include "checkpoint/weights.h"
#include "cmd/init_lines.h"
#include "graph/model.h"

/* ---- The network ---- */

static enum status open_graph(const char *arch, struct graph *graph)
{
    struct search_paths paths = search_paths_find();
    const struct model_options options = {.arch = arch, .folders = (const char *const *)paths.models,
                                          .outputs = OUTPUTS_ANY, .dropout = -1};
    enum status status = model_load(&options, graph);
    search_paths_free(&paths);
    return status;
}

static int depth_of(const struct graph *graph)
{
    int *behind = memory_new((size_t)graph->count, sizeof *behind), most = 1;
    graph_layers_behind(graph, false, behind);
    for (int i = 0; i < graph->param_count; i++)
        if (behind[graph->params[i].node] > most) most = behind[graph->params[i].node];
    free(behind);
    return most;
}

/* True if a pattern matches a parameter of the classifier. */
static bool hits_classifier(const struct graph *graph, const char *pattern)
{
    for (int i = 0; i < graph->param_count; i++) {
        const struct parameter *parameter = &graph->params[i];
        bool head = graph_is_classifier(graph, parameter->node);
        if (head && fnmatch(pattern, parameter->name, 0) == 0) return true;
    }
    return false;
}

static bool is_matched(const char *patterns, const char *name)
{
    char *words = text_copy(patterns), *rest = NULL;
    bool found = false;
    for (char *word = words ? strtok_r(words, ", ", &rest) : NULL; word; word = strtok_r(NULL, ", ", &rest))
        found = found || fnmatch(word, name, 0) == 0;
    free(words);
    return found;
}

/* The shortest beginning of a name, up to a dot, that is none of the classifier's: "layer1.0.conv1.weight"
 * becomes "layer*", as there may be a layer2. */
static char *pattern_of(const struct graph *graph, const char *name)
{
    size_t length = strcspn(name, ".");
    size_t letters = length;
    while (letters > 1 && name[letters - 1] >= '0' && name[letters - 1] <= '9') letters--;
    char *pattern = text_format("%.*s*", (int)letters, name);
    while (hits_classifier(graph, pattern)) {
        free(pattern);
        pattern = text_format("%.*s%s", (int)length, name, name[length] ? ".*" : "");
        if (!name[length]) break;
        length += 1 + strcspn(name + length + 1, ".");
    }
    return pattern;
}

static char *all_but_classifier(const struct graph *graph)
{
    struct text patterns = {0};
    for (int i = 0; i < graph->param_count; i++) {
        const struct parameter *parameter = &graph->params[i];
        if (graph_is_classifier(graph, parameter->node)) continue;
        if (is_matched(patterns.data, parameter->name)) continue;
        char *pattern = pattern_of(graph, parameter->name);
        text_add(&patterns, "%s%s", patterns.length ? ", " : "", pattern);
        free(pattern);
    }
    return patterns.data;
}

/* ---- The numbers ---- */

static double clamp(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

#define LR_MOST 0.01
#define LR_STEPS 2           /* the sum of the rates that few steps get */

/* Adam moves a weight by its rate in a step, at most: few steps need a higher one to get anywhere, which
 * networks with batch norm bear (bench/NOTES.md). */
static double choose_lr(const struct init_findings *found, const struct init_tuning *tuning)
{
    double usual = 0.001 * sqrt(tuning->batch / 32.0);
    double steps = tuning->epochs * fmax(1, floor((double)found->images / tuning->batch));
    return tuning->batch_norm ? clamp(LR_STEPS / steps, usual, LR_MOST) : usual;
}

/* Few images are seen more often, in smaller batches; and then the first layers, which are general, may
 * change less: 1 %, 3 %, 10 % of the classifier's rate. */
static void choose_numbers(const struct init_findings *found, struct init_tuning *tuning)
{
    double images = (double)found->images;
    tuning->batch = images < 500 ? 16 : images < 10000 ? 32 : images < 50000 ? 64 : 128;
    while (tuning->batch > 1 && tuning->batch > images * 3 / 4) tuning->batch /= 2;
    tuning->epochs = (int)nearbyint(clamp(950 / sqrt(images), 5, 50));
    tuning->freeze_epochs = (int)clamp(tuning->epochs / 8, 1, 5);
    tuning->lr = choose_lr(found, tuning);
    double first = images < 1000 ? 0.01 : images < 10000 ? 0.03 : 0.1;
    tuning->layer_decay = floor(1000 * pow(first, 1.0 / tuning->depth)) / 1000;
}

#define TOKENS_SIDE 224      /* a multiple of the sides of all networks' patches: 14, 16, 32 */

static struct image_size scaled(struct image_size size, int to, int from)
{
    return (struct image_size){size.h * to / from, size.w * to / from};
}

/* Images are enlarged to twice their size at most. Those of networks with position embeddings, which are
 * resized, by half. Long images keep their shape, unless the weights' images had one of their own. */
static void choose_size(const struct init_findings *found, struct init_tuning *tuning)
{
    const struct model_card *card = &tuning->weights.card;
    int most = (2 * found->side + 31) / 32 * 32;
    tuning->crop = card->crop.h > 0 ? card->crop : image_size_square(224);
    bool covers = card->resize.h >= tuning->crop.h && card->resize.w >= tuning->crop.w;
    tuning->resize = covers ? card->resize : tuning->crop;
    if (tuning->crop.h != tuning->crop.w) return;
    int side = tuning->crop.h;
    if (tuning->weights.positions && side > TOKENS_SIDE && found->side * 3 / 2 < side)
        tuning->crop = tuning->resize = image_size_square(TOKENS_SIDE);
    if (tuning->weights.positions) return;
    if (most < side) {
        tuning->resize = scaled(tuning->resize, most, side);
        tuning->crop = image_size_square(most);
        side = most;
    }
    struct image_size shaped = init_findings_crop(found, side, 32);
    if (shaped.h == shaped.w) return;
    tuning->resize = scaled(shaped, tuning->resize.h, side);
    tuning->crop = shaped;
}

enum status init_tuning_make(const char *weights, const struct init_findings *found,
                             struct init_tuning *tuning)
{
    struct graph graph;
    *tuning = (struct init_tuning){0};
    TRY(weights_path(weights, &tuning->path));
    TRY(weights_identify(tuning->path, &tuning->weights));
    TRY(open_graph(tuning->weights.arch, &graph));
    tuning->depth = depth_of(&graph);
    tuning->others = all_but_classifier(&graph);
    tuning->batch_norm = graph_has(&graph, "batchnorm");
    graph_free(&graph);
    choose_numbers(found, tuning);
    choose_size(found, tuning);
    return OK;
}

void init_tuning_free(struct init_tuning *tuning)
{
    weights_identity_free(&tuning->weights);
    free(tuning->path);
    free(tuning->others);
    *tuning = (struct init_tuning){0};
}

/* ---- The sections ---- */

static void add_augment(const struct init_tuning *tuning, const struct init_findings *found,
                        struct text *out)
{
    const struct model_card *card = &tuning->weights.card;
    bool own = tuning->weights.channels != found->channels && found->channels == 1;
    double mean = (card->mean[0] + card->mean[1] + card->mean[2]) / 3;
    double std = (card->std[0] + card->std[1] + card->std[2]) / 3;
    text_add(out, "\n[augment]\n");
    bool square = tuning->crop.h == tuning->crop.w, same = image_size_equal(tuning->crop, card->crop);
    const char *size = same                    ? "the weights' size, cropped at random ..."
                       : !square               ? "the images' shape, cropped at random ..."
                       : tuning->weights.positions
                                               ? "positions are resized to it; cropped at random ..."
                                               : "twice the images' size, cropped at random ...";
    init_add_size(out, "crop", size, tuning->crop);
    init_add(out, "scale", "... of 35 to 100 % of the image's area", "0.35 1");
    init_add_size(out, "val_resize", square ? "in validation the short side becomes this"
                                            : "in validation images cover this", tuning->resize);
    if (strcmp(card->interpolation, "bicubic") == 0)
        init_add(out, "interpolation", "... as the weights' images were resized", "bicubic");
    init_add_size(out, "val_crop", "... and the centre is used", tuning->crop);
    bool number = found->target == TARGET_NUMBER;
    if (!number) init_add(out, "flip", "half are mirrored; 0 if that changes the class", "0.5");
    bool others = found->samples.own_channels;
    if (!number && !others && !found->samples.deep)
        init_add(out, "auto_augment", "one random change of geometry or colour", "trivial");
    if (!number) init_add(out, "label_smoothing", "less overconfidence", "0.1");
    const char *by = card->normalised_by, *slash = by ? strrchr(by, '/') : NULL;
    char *says = others ? text_copy("mean of each channel, from 0 to 1")
                 : by   ? text_format("as %s says: mean of each channel", slash ? slash + 1 : by)
                    : text_copy("as the weights want it: mean of each channel");
    init_add_numbers(out, "mean", others ? found->mean : own ? &mean : card->mean, found->channels, says);
    free(says);
    init_add_numbers(out, "std", others ? found->std : own ? &std : card->std, found->channels,
                     "... and standard deviations");
}

static void add_network(const struct init_tuning *tuning, const struct init_findings *found,
                        const char *file, struct text *out)
{
    char rate[64];
    text_add(out, "\n[model]\n");
    init_add(out, "arch", "the network that the weights fit", "%s", tuning->weights.arch);
    const struct weights_identity *weights = &tuning->weights;
    init_add_path(out, "weights", tuning->path, file,
                  weights->classes == 0                ? "which have no classifier"
                  : weights->classes != found->classes ? "but not the classifier"
                  : weights->card.class_names          ? "and the classifier, by the names of its classes"
                                                       : "and the classifier, of as many classes");
    if (tuning->weights.norm_eps > 0)
        init_add(out, "norm_eps", "as the weights want it: of all norms", "%g", tuning->weights.norm_eps);
    if (tuning->batch_norm) init_add_momentum(out, found, tuning->batch);
    text_add(out, "\n[train]\n");
    init_add(out, "epochs",
             found->images < 3000 ? "few images are seen more often" : "pretrained weights need few epochs",
             "%d", tuning->epochs);
    init_add(out, "batch", "images per step", "%d", tuning->batch);
    init_add(out, "freeze", "all but the classifier ...", "%s", tuning->others);
    init_add(out, "freeze_epochs", "... wait until that has learned something", "%d", tuning->freeze_epochs);
    text_add(out, "\n[optimizer]\n");
    init_add(out, "name", "Adam with weight decay", "adamw");
    init_add(out, "lr", tuning->lr > 0.002 ? "the peak, for the classifier; high for few steps"
                                           : "the peak, for the classifier", "%.3g", tuning->lr);
    snprintf(rate, sizeof rate, "... times this a layer: %.0f %% of it at the first",
             100 * pow(tuning->layer_decay, tuning->depth));
    init_add(out, "layer_decay", rate, "%.3f", tuning->layer_decay);
    init_add(out, "weight_decay", "against overfitting", "0.05");
    text_add(out, "\n[schedule]\n");
    init_add(out, "name", "the rate falls along half a cosine to zero", "cosine");
    init_add(out, "warmup", "... after an epoch in which it rises", "1");
}

void init_tuning_add(const struct init_tuning *tuning, const struct init_findings *found, const char *file,
                     struct text *out)
{
    add_augment(tuning, found, out);
    add_network(tuning, found, file, out);
    text_add(out, "\n[checkpoint]\n");
    bool labels = found->target == TARGET_LABELS, number = found->target == TARGET_NUMBER;
    init_add(out, "best", number ? "keep the epoch with the smallest error"
                                 : "keep the epoch with the highest accuracy",
             number ? "val_mae" : labels ? "val_map" : "val_top1");
}
