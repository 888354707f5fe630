#include "checkpoint/network_identity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "conf/options.h"
#include "graph/names.h"
#include "checkpoint/checkpoint.h"

#define SHOWN 60   /* bytes of a class name */
#define SCALE_ROUNDING 1e-6      /* of the deviation */

static void set_normalisation(const struct settings *settings, struct network_identity *identity)
{
    identity->normalised = true;
    identity->mean = settings->augment.mean;
    identity->std = settings->augment.std;
    identity->range = settings->data.range;
    identity->bands = settings->data.bands;
    identity->task = (int)settings->data.task;
    identity->value_scale = settings->data.value_scale;
}

void network_identity_make(const struct graph *graph, const struct settings *settings,
                           char *const *class_names, int classes, struct network_identity *identity)
{
    struct text text = {0};
    if (graph) graph_text(graph, &text);
    *identity = (struct network_identity){
        .graph = text.data,
        .class_names = text_list(class_names, classes, classes),
        .classes = classes,
        .channels = graph ? (int)graph->nodes[0].shape.c : 0,
    };
    set_normalisation(settings, identity);
}

static enum status read_normalisation(const struct safetensors *file, struct network_identity *identity)
{
    struct settings settings;
    if (!safetensors_value(file, "config")) return OK;
    TRY(checkpoint_settings(file, &settings));
    set_normalisation(&settings, identity);
    settings_free(&settings);
    return OK;
}

enum status network_identity_read(const struct safetensors *file, struct network_identity *identity)
{
    const char *graph = safetensors_value(file, "graph");
    struct network_identity read = {0};
    struct reason reason;
    int h, w;
    if (!checkpoint_input(file, &h, &w, &read.channels, &reason))
        return fail(BAD_CHECKPOINT, "%s: %s", file->path, reason.text);
    TRY(read_normalisation(file, &read));
    if (graph) read.graph = text_copy(graph);
    checkpoint_class_names(file, &read.class_names, &read.classes);
    *identity = read;
    return OK;
}

void network_identity_free(struct network_identity *identity)
{
    free(identity->graph);
    text_list_free(identity->class_names, (size_t)identity->classes);
    *identity = (struct network_identity){0};
}

/* Separates the differences. */
static void next(struct text *differences)
{
    if (differences->length > 0) text_add(differences, "; ");
}

static bool same_graph(const struct network_identity *one, const struct network_identity *other,
                       enum graph_same how, struct text *differences)
{
    struct reason reason;
    if (!one->graph || !other->graph || graph_text_same(one->graph, other->graph, how, &reason)) return true;
    next(differences);
    text_add(differences, "%s", reason.text);
    return false;
}

static bool has_names(const struct network_identity *one, const struct network_identity *other)
{
    struct names index = {0};
    bool has = true;
    for (int i = 0; i < one->classes; i++) names_add(&index, one->class_names[i], i);
    for (int i = 0; has && i < other->classes; i++) has = names_find(&index, other->class_names[i]) >= 0;
    names_free(&index);
    return has;
}

static bool same_classes(const struct network_identity *one, const struct network_identity *other,
                         struct text *differences)
{
    int i = 0, classes = one->classes;
    if (classes == 0 || other->classes == 0) return true;
    if (classes != other->classes) {
        next(differences);
        text_add(differences, "there are %d classes, not %d", other->classes, classes);
        return false;
    }
    while (i < classes && strcmp(one->class_names[i], other->class_names[i]) == 0) i++;
    if (i == classes) return true;
    next(differences);
    if (has_names(one, other)) text_add(differences, "the classes are in another order: ");
    text_add(differences, "class %d is '%.*s', not '%.*s'", i, SHOWN, other->class_names[i], SHOWN,
             one->class_names[i]);
    return false;
}

static bool same_channels(const struct network_identity *one, const struct network_identity *other,
                          struct text *differences)
{
    if (one->channels == 0 || other->channels == 0 || one->channels == other->channels) return true;
    next(differences);
    text_add(differences, "images have %d channel%s, not %d", other->channels,
             other->channels == 1 ? "" : "s", one->channels);
    return false;
}

static void add_reals(struct text *out, const struct field_reals *reals, double otherwise)
{
    if (reals->count == 0) text_add(out, "%g", otherwise);
    for (int i = 0; i < reals->count; i++) text_add(out, "%s%.9g", i ? "," : "", reals->value[i]);
}

/* The number of a channel; a single one is that of all. */
static double real_of(const struct field_reals *reals, int channel, double otherwise)
{
    return reals->count == 0 ? otherwise : reals->value[channel < reals->count ? channel : 0];
}

/* LO,HI, or which channels; empty: auto, or all of them. */
static bool same_list(const char *key, const struct field_reals *one, const struct field_reals *other,
                      struct text *differences)
{
    size_t bytes = (size_t)one->count * sizeof *one->value;
    if (one->count == other->count && memcmp(one->value, other->value, bytes) == 0) return true;
    const struct field *field = &option_find("data", key)->field;
    next(differences);
    text_add(differences, "data.%s is ", key);
    if (other->count == 0) text_add(differences, "%s", field->word ? field->word : "not set");
    else add_reals(differences, other, 0);
    text_add(differences, ", not ");
    if (one->count == 0) text_add(differences, "%s", field->word ? field->word : "set");
    else add_reals(differences, one, 0);
    return false;
}

static bool same_reals(const char *key, const struct field_reals *one, const struct field_reals *other,
                       double otherwise, struct text *differences)
{
    int count = one->count > other->count ? one->count : other->count, i = 0;
    while (i < count && real_of(one, i, otherwise) == real_of(other, i, otherwise)) i++;
    if (i == count) return true;
    next(differences);
    text_add(differences, "%s is ", key);
    add_reals(differences, other, otherwise);
    text_add(differences, ", not ");
    add_reals(differences, one, otherwise);
    return false;
}

bool network_identity_same_scale(const struct field_reals *one, const struct field_reals *other)
{
    double std = real_of(one, 1, 1), most = SCALE_ROUNDING * std;
    return fabs(real_of(one, 0, 0) - real_of(other, 0, 0)) <= most &&
           fabs(std - real_of(other, 1, 1)) <= most;
}

/* Outputs are labels at their thresholds, or numbers that are scaled. */
static bool same_outputs(const struct network_identity *one, const struct network_identity *other,
                         struct text *differences)
{
    const char *const *tasks = option_find("data", "task")->field.choices;
    const struct field_reals *before = &one->value_scale, *after = &other->value_scale;
    double scales[2][2] = {{real_of(before, 0, 0), real_of(before, 1, 1)},
                           {real_of(after, 0, 0), real_of(after, 1, 1)}};
    if (one->task == TASK_AUTO || other->task == TASK_AUTO) return true;
    bool same = one->task == other->task, numbers = same && one->task == TASK_REGRESS;
    bool scaled = numbers && !network_identity_same_scale(before, after);
    if (same && !scaled) return true;
    next(differences);
    if (scaled)
        text_add(differences, "data.value_scale is %.9g,%.9g, not %.9g,%.9g", scales[1][0], scales[1][1],
                 scales[0][0], scales[0][1]);
    else
        text_add(differences, "data.task is %s, not %s", tasks[other->task], tasks[one->task]);
    return false;
}

bool network_identity_same(const struct network_identity *one, const struct network_identity *other,
                           enum graph_same how, struct text *differences)
{
    bool same = same_graph(one, other, how, differences);
    same = same_classes(one, other, differences) && same;
    same = same_channels(one, other, differences) && same;
    if (!one->normalised || !other->normalised) return same;
    same = same_reals("augment.mean", &one->mean, &other->mean, 0, differences) && same;
    same = same_reals("augment.std", &one->std, &other->std, 1, differences) && same;
    same = same_list("range", &one->range, &other->range, differences) && same;
    same = same_list("bands", &one->bands, &other->bands, differences) && same;
    return same_outputs(one, other, differences) && same;
}
