#include "checkpoint/weights_identify.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_names.h"
#include "graph/graph_text.h"
#include "graph/model.h"
#include "graph/norm_eps.h"

/* A network that was compared with the file. */
struct candidate {
    char *arch;
    struct weights_match match;
    int tensors;                 /* of the network */
    double norm_eps;
    bool positions;              /* it has position embeddings */
    struct image_size own;       /* of images in its model file */
};

struct search {
    struct weights_file *file;
    const char *path;
    struct candidate best;       /* that fits, or else is nearest; without arch: none yet */
    struct text others;          /* that fit, too */
    int preference;              /* of the best one */
    double norm_eps;             /* of the network that the file describes; 0: it describes none */
    const struct model_card *card;
};

static void candidate_free(struct candidate *candidate)
{
    free(candidate->arch);
    weights_match_free(&candidate->match);
    *candidate = (struct candidate){0};
}

enum status weights_norm_eps(const struct weights_file *file, double *eps)
{
    const char *text = safetensors_value(&file->described, "graph");
    struct model_options options = {.outputs = OUTPUTS_ANY, .dropout = -1};
    struct reason unsaid;
    struct graph graph;
    *eps = 0;
    if (!text) return OK;
    checkpoint_input(&file->described, &options.size_h, &options.size_w, &options.channels, &unsaid);
    if (model_load_text(&options, file->path, text, &graph) != OK) return BAD_CHECKPOINT;
    *eps = norm_eps_of(&graph);
    graph_free(&graph);
    return OK;
}

/* Networks with the same tensors may differ in what has none. */
static bool is_own_graph(const struct search *search, const struct graph *graph)
{
    const char *then = safetensors_value(&search->file->described, "graph");
    struct text now = {0};
    struct reason difference;
    if (!then) return true;
    graph_text(graph, &now);
    bool same = graph_text_same(then, now.data, GRAPH_SAME_WEIGHTS, &difference);
    text_free(&now);
    return same;
}

/* Evidence for a network among several that fit: its own name, in the file or its card, or as a part of
 * the file's name, of which the longest counts. */
static int preference_of(const struct search *search, const char *arch)
{
    const char *own = safetensors_value(&search->file->described, "arch");
    const char *slash = strrchr(search->path, '/'), *name = slash ? slash + 1 : search->path;
    if (own && strcmp(own, arch) == 0) return 1000;
    if (search->card->architecture && strcmp(search->card->architecture, arch) == 0) return 1000;
    return strstr(name, arch) ? (int)strlen(arch) : 0;
}

static void add_other(struct search *search, const char *arch)
{
    text_add(&search->others, "%s%s", search->others.length ? ", " : "", arch);
}

/* Keeps the better one of a candidate and the best so far. */
static void compare(struct search *search, struct candidate *candidate)
{
    struct candidate *best = &search->best;
    int preference = preference_of(search, candidate->arch);
    bool fits = candidate->match.problems == 0, fitted = best->arch && best->match.problems == 0;
    bool better = !best->arch || (fits && !fitted) || (fits && fitted && preference > search->preference) ||
                  (!fits && !fitted && candidate->match.problems < best->match.problems);
    if (fits && fitted) add_other(search, better ? best->arch : candidate->arch);
    if (better) {
        struct candidate previous = *best;
        *best = *candidate;
        *candidate = previous;
        search->preference = preference;
    }
    candidate_free(candidate);
}

static enum status try_network(struct search *search, const char *const *folders, const char *arch)
{
    const struct model_options options = {.arch = arch, .folders = folders, .outputs = OUTPUTS_ANY,
                                          .dropout = -1};
    struct candidate candidate = {0};
    struct graph graph;
    TRY(model_load(&options, &graph));
    enum status status = OK;
    candidate.norm_eps = norm_eps_of(&graph);
    if (norm_eps_differs(candidate.norm_eps, search->norm_eps))
        status = norm_eps_set(search->norm_eps, &graph);
    if (status == OK && is_own_graph(search, &graph)) {
        status = weights_match(search->file, &graph, &candidate.match);
        candidate.arch = text_copy(arch);
        candidate.tensors = graph.param_count;
        candidate.positions = graph_has(&graph, "position");
        candidate.own = (struct image_size){(int)graph.nodes[0].shape.h, (int)graph.nodes[0].shape.w};
        if (status == OK) compare(search, &candidate);
        else candidate_free(&candidate);
    }
    graph_free(&graph);
    return status;
}

static enum status try_all(struct search *search)
{
    struct search_paths paths = search_paths_find();
    const char *const *folders = (const char *const *)paths.models;
    int count;
    char **names = model_names(folders, &count);
    enum status status = OK;
    for (int i = 0; i < count && status == OK; i++) status = try_network(search, folders, names[i]);
    text_list_free(names, (size_t)count);
    search_paths_free(&paths);
    return status;
}

#define NONE "that is none of those that `amptrain models` lists"

static enum status refuse(const struct search *search)
{
    const struct candidate *best = &search->best;
    const char *own = safetensors_value(&search->file->described, "arch");
    if (safetensors_value(&search->file->described, "graph") && own)
        return fail(BAD_CHECKPOINT, "%s: belongs to '%s', " NONE, search->path, own);
    if (!best->arch || best->match.problems * 2 > best->tensors)
        return fail(BAD_CHECKPOINT, "%s: belongs to a network " NONE, search->path);
    return fail(BAD_CHECKPOINT, "%s: belongs to a network " NONE "; the nearest is %s, but: %s", search->path,
                best->arch, best->match.first);
}

/* ---- Its images ---- */

static void take_own_names(const struct weights_file *file, struct model_card *card)
{
    char **names;
    int count;
    checkpoint_class_names(&file->described, &names, &count);
    if (count == 0) return;
    text_list_free(card->class_names, (size_t)card->classes);
    card->class_names = names;
    card->classes = count;
    free(card->class_names_by);
    card->class_names_by = text_copy(file->path);
}

/* The number of a channel: its own, or the one of all. */
static double channel_of(const struct field_reals *list, int channel, double none)
{
    if (list->count == 0) return none;
    return list->value[channel < list->count ? channel : 0];
}

/* How a run of ours preprocessed its images. */
static enum status take_own_settings(const struct weights_file *file, struct model_card *card)
{
    struct settings then;
    struct reason unsaid;
    int channels;
    if (!safetensors_value(&file->described, "config")) return OK;
    TRY(checkpoint_settings(&file->described, &then));
    for (int k = 0; k < MODEL_CARD_CHANNELS; k++) {
        card->mean[k] = channel_of(&then.augment.mean, k, 0);
        card->std[k] = channel_of(&then.augment.std, k, 1);
    }
    card->normalised = true;
    free(card->normalised_by);
    card->normalised_by = NULL;
    if (!checkpoint_input(&file->described, &card->crop.h, &card->crop.w, &channels, &unsaid))
        card->crop = image_size_square(0);
    card->resize = then.augment.val_resize;
    card->interpolation =
        then.augment.interpolation == INTERPOLATION_BICUBIC ? "bicubic" : "bilinear";
    settings_free(&then);
    return OK;
}

/* Takes the input that a library's networks of this name usually get; one that no library has, such as
 * CIFAR's, gets images of its own size. */
static enum status take_usual(const struct search *search, struct model_card *card)
{
    const struct candidate *best = &search->best;
    struct weights_names names;
    TRY(weights_names_open_any(best->match.library, best->arch, &names));
    const struct weights_usual *usual = &names.usual;
    if (!card->normalised) {
        memcpy(card->mean, usual->mean, sizeof card->mean);
        memcpy(card->std, usual->std, sizeof card->std);
        card->normalised = true;
    }
    if (card->crop.h == 0) {
        card->crop = names.known ? image_size_square(usual->crop) : best->own;
        card->resize = names.known ? image_size_square(usual->resize) : best->own;
    }
    if (!card->interpolation) card->interpolation = usual->interpolation;
    if (search->norm_eps > 0) card->norm_eps = search->norm_eps;
    else if (card->norm_eps == 0 && best->match.library) card->norm_eps = usual->norm_eps;
    weights_names_close(&names);
    return OK;
}

static enum status describe(struct search *search, struct weights_identity *identity)
{
    const struct candidate *best = &search->best;
    take_own_names(search->file, &identity->card);
    TRY(take_own_settings(search->file, &identity->card));
    model_card_limit_classes(&identity->card, best->match.classes, true);
    TRY(take_usual(search, &identity->card));
    identity->arch = text_copy(best->arch);
    identity->library = best->match.library;
    identity->classes = best->match.classes;
    identity->channels = best->match.channels;
    identity->positions = best->positions;
    if (norm_eps_differs(best->norm_eps, identity->card.norm_eps))
        identity->norm_eps = identity->card.norm_eps;
    weights_say_prefix(search->file, best->match.prefix);
    char classes[48] = "no classifier";
    if (identity->classes > 0) snprintf(classes, sizeof classes, "%d classes", identity->classes);
    log_info("%s: is of the network %s, %s%s%s", search->path, identity->arch, classes,
             identity->library ? ", with the names of " : "",
             identity->library ? weights_library_title(identity->library) : "");
    if (search->others.length > 0)
        log_info("%s: could also be of %s", search->path, search->others.data);
    return OK;
}

static enum status identify(struct search *search, struct weights_identity *identity)
{
    TRY(weights_norm_eps(search->file, &search->norm_eps));
    TRY(try_all(search));
    if (!search->best.arch || search->best.match.problems > 0) return refuse(search);
    return describe(search, identity);
}

enum status weights_identify(const char *path, struct weights_identity *identity)
{
    struct weights_file file;
    *identity = (struct weights_identity){0};
    TRY(weights_open(path, &file));
    model_card_read(path, true, &identity->card);
    struct search search = {.file = &file, .path = path, .card = &identity->card};
    enum status status = identify(&search, identity);
    candidate_free(&search.best);
    text_free(&search.others);
    weights_file_close(&file);
    if (status != OK) weights_identity_free(identity);
    return status;
}

void weights_identity_free(struct weights_identity *identity)
{
    free(identity->arch);
    model_card_free(&identity->card);
    *identity = (struct weights_identity){0};
}
