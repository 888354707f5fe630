#include "model_parts.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/image/image.h"
#include "graph/norm_eps.h"

#define AT(member) offsetof(struct input_settings, member)
static const struct field input_fields[] = {
    {.name = "channels", .type = FIELD_INT, .offset = AT(channels), .initial = "3", .min = 1,
     .max = IMAGE_CHANNELS_MAX,
     .help = "Channels of an image, where the data does not say."},
    {.name = "size", .type = FIELD_INT, .offset = AT(size), .initial = "224", .min = 1, .max = 65536,
     .help = "Height and width of an image, where neither data nor augment.crop says."},
    {.name = "classes", .type = FIELD_INT, .offset = AT(classes), .initial = "1000", .min = 1, .max = 1000000,
     .help = "$classes, where neither data nor model.classes says."},
    {0},
};

const char *model_hint(const char *word, const struct names *names, char text[HINT_SIZE])
{
    const char *near = text_nearest(word, (const char *const *)names->name, names->count);
    text[0] = '\0';
    if (near) snprintf(text, HINT_SIZE, "; did you mean '%s'?", near);
    return text;
}

bool model_name_is_valid(const char *name)
{
    for (const char *c = name; *c; c++) {
        if (*c == '.' && (c == name || c[1] == '.' || !c[1])) return false;
        if (!isalnum((unsigned char)*c) && !strchr("_-.", *c)) return false;
    }
    return *name;
}

static enum status refuse_section(const struct model *model, const struct section *section, const char *why)
{
    return fail(USAGE, "%s:%d: [%s]: %s", model->ini.file, section->line, section->name, why);
}

static enum status unknown_section(const struct model *model, const struct section *section)
{
    static const char *const known[] = {"input", "layers", "outputs", "block:NAME"};
    const char *near = text_nearest(section->name, known, 4);
    char why[128] = "there are only [input], [block:NAME], [layers] and [outputs]";
    if (near) snprintf(why, sizeof why, "there is no such section; did you mean [%s]?", near);
    return refuse_section(model, section, why);
}

static enum status add_section(struct model *model, const struct section *section, struct names *seen)
{
    bool block = strncmp(section->name, MODEL_BLOCK, strlen(MODEL_BLOCK)) == 0;
    const char *name = section->name + strlen(MODEL_BLOCK);
    if (!block && strcmp(section->name, "input") != 0 && strcmp(section->name, "layers") != 0 &&
        strcmp(section->name, "outputs") != 0)
        return unknown_section(model, section);
    if (!names_add(seen, section->name, model->section_count))
        return refuse_section(model, section, "is defined twice");
    if (block && !model_name_is_valid(name))
        return refuse_section(model, section, "the name of a block consists of letters, digits, '_' and '-'");
    if (block && op_find(name)) return refuse_section(model, section, "this is the name of an op");
    if (block) names_add(&model->blocks, name, model->section_count);
    *array_push(model->sections, model->section_count) = *section;
    return OK;
}

static enum status find_sections(struct model *model)
{
    struct names seen = {0};
    enum status status = OK;
    for (int i = 0; status == OK && i < model->ini.count;) {
        const struct ini_entry *header = &model->ini.entries[i++];
        struct section section = {.name = header->section, .line = header->line, .first = i};
        while (i < model->ini.count && model->ini.entries[i].key) i++;
        section.last = i;
        status = add_section(model, &section, &seen);
    }
    names_free(&seen);
    return status;
}

static const struct section *find_section(const struct model *model, const char *name)
{
    for (int i = 0; i < model->section_count; i++)
        if (strcmp(model->sections[i].name, name) == 0) return &model->sections[i];
    return NULL;
}

static enum status unknown_input_key(const struct model *model, const struct ini_entry *entry)
{
    struct names keys = {0};
    char text[HINT_SIZE];
    for (const struct field *field = input_fields; field->name; field++) names_add(&keys, field->name, 0);
    enum status status = fail(USAGE, "%s:%d: [input] has no key '%s'%s", model->ini.file, entry->line,
                              entry->key, model_hint(entry->key, &keys, text));
    names_free(&keys);
    return status;
}

/* Reads [input] into `input`; keys that are absent keep their values. */
static enum status read_input(const struct model *model, struct input_settings *input)
{
    const struct section *section = find_section(model, "input");
    struct reason reason;
    for (int i = section ? section->first : 0; section && i < section->last; i++) {
        const struct ini_entry *entry = &model->ini.entries[i];
        const struct field *field = field_find(input_fields, entry->key);
        if (!field) return unknown_input_key(model, entry);
        if (!field_parse(field, input, entry->value, &reason))
            return fail(USAGE, "%s:%d: %s %s", model->ini.file, entry->line, entry->key, reason.text);
    }
    return OK;
}

/* The graph with only the input, from the options and [input]. */
static enum status model_begin(struct model *model, const char *arch)
{
    const struct model_options *options = model->options;
    struct input_settings *input = &model->input;
    field_defaults(input_fields, input);
    TRY(read_input(model, input));
    if (options->classes > 0) input->classes = options->classes;
    if (options->channels > 0) input->channels = options->channels;
    int64_t h = options->size_h > 0 ? options->size_h : input->size;
    int64_t w = options->size_w > 0 ? options->size_w : input->size;
    if (h * w > INT32_MAX / input->channels)
        return fail(USAGE, "%s: images of %" PRId64 "x%" PRId64 "x%" PRId64 " are too large", model->ini.file,
                    h, w, input->channels);
    graph_begin(&model->graph, arch, shape_nhwc(1, h, w, input->channels));
    return OK;
}

static enum status check_names(const struct graph *graph)
{
    struct names names = {0};
    enum status status = OK;
    for (int i = 0; status == OK && i < graph->count; i++) {
        const struct node *node = &graph->nodes[i];
        if (!names_add(&names, node->name, i))
            status = fail(USAGE, "%s: %s: this name is already used by a layer, from %s", node->where,
                          node->name, graph->nodes[names_find(&names, node->name)].where);
    }
    names_free(&names);
    return status;
}

static enum status check_readers(const struct graph *graph)
{
    int unread = -1;
    bool *read = memory_new((size_t)graph->count, sizeof *read);
    for (int i = 0; i < graph->count; i++)
        for (int j = 0; j < graph->nodes[i].input_count; j++) read[graph->nodes[i].inputs[j]] = true;
    read[graph->output] = true;
    for (int i = 0; i < graph->output_count; i++) read[graph->outputs[i].node] = true;
    for (int i = graph->count - 1; i >= 0; i--)
        if (!read[i]) unread = i;
    free(read);
    if (unread < 0) return OK;
    const struct node *node = &graph->nodes[unread];
    return fail(USAGE, "%s: %s: its output is not used, and it is %s", node->where, node->name,
                graph->output_count > 0 ? "none of [outputs]" : "not the last layer");
}

/* The network's own output, or another of [outputs]. */
static enum status check_output(const struct model *model, int output, bool own)
{
    const struct node *node = &model->graph.nodes[output];
    const struct shape *input = &model->graph.nodes[0].shape;
    enum model_outputs outputs = model->options->outputs;
    const char *which = model->graph.output_count > 0 ? "an output" : "the last layer";
    char text[SHAPE_TEXT], image[SHAPE_TEXT];
    shape_text(node->shape, text);
    if (outputs == OUTPUTS_OF_IMAGES && (node->shape.h != 1 || node->shape.w != 1))
        return fail(USAGE, "%s: %s: the output of the last layer must have one number per class, not shape "
                    "%s", node->where, node->name, text);
    if (outputs == OUTPUTS_OF_PIXELS && own && (node->shape.h != input->h || node->shape.w != input->w))
        return fail(USAGE, "%s: %s: the output must have a vector for each pixel of the image %s, not shape "
                    "%s; the op upsample enlarges it", node->where, node->name, shape_text(*input, image),
                    text);
    struct shape y, x[] = {node->shape, shape_nhwc(1, input->h, input->w, 1),
                           shape_nhwc(1, 1, 1, node->shape.c)};
    struct reason reason;
    if (outputs == OUTPUTS_OF_PIXELS && !op_find("pixel_loss")->shape(NULL, 3, x, &y, &reason))
        return fail(USAGE, "%s: %s: %s", node->where, node->name, reason.text);
    if (node->shape.c == model->input.classes) return OK;
    return fail(USAGE, "%s: %s: %s has %" PRId64 " outputs, but $classes is %" PRId64, node->where,
                node->name, which, node->shape.c, model->input.classes);
}

static enum status check_outputs(const struct model *model, const struct section *section)
{
    const struct graph *graph = &model->graph;
    if (section && model->options->outputs == OUTPUTS_OF_IMAGES)
        return refuse_section(model, section, "several outputs are for a class for every pixel (data.task = "
                              "segment)");
    TRY(check_output(model, graph->output, true));
    for (int i = 1; i < graph->output_count; i++) TRY(check_output(model, graph->outputs[i].node, false));
    return OK;
}

static enum status make_graph(struct model *model, const char *arch)
{
    TRY(find_sections(model));
    TRY(model_begin(model, arch));
    const struct section *layers = find_section(model, "layers");
    if (!layers) return fail(USAGE, "%s: the section [layers] is missing", model->ini.file);
    const struct section *outputs = find_section(model, "outputs");
    TRY(model_read_layers(model, layers, outputs));
    TRY(model_set_drop_path(model->options, &model->graph));
    if (model->options->norm_eps > 0) TRY(norm_eps_set(model->options->norm_eps, &model->graph));
    TRY(check_names(&model->graph));
    TRY(check_readers(&model->graph));
    return check_outputs(model, outputs);
}

static void model_close(struct model *model)
{
    ini_free(&model->ini);
    free(model->sections);
    names_free(&model->blocks);
}

/* Texts of graphs, in checkpoints, have a layer a line, however long. */
static enum status open_text(const char *name, const char *text, struct ini *ini)
{
    char *folded = ini_fold(text);
    enum status status = ini_read_text(name, folded, ini);
    free(folded);
    return status;
}

static enum status open_file(const struct model_options *options, struct ini *ini)
{
    char *path = NULL;
    if (options->text) return open_text(options->arch ? options->arch : "model", options->text, ini);
    TRY(model_find(options, &path));
    enum status status = ini_read(path, ini);
    free(path);
    return status;
}

/* Takes ownership of the file's text. */
static enum status model_compose(const struct model_options *options, struct ini ini, struct graph *graph)
{
    struct model model = {.options = options, .ini = ini};
    char *arch = model_base_name(ini.file);
    enum status status = make_graph(&model, arch);
    free(arch);
    model_close(&model);
    if (status == OK) *graph = model.graph;
    else graph_free(&model.graph);
    return status;
}

enum status model_load(const struct model_options *options, struct graph *graph)
{
    struct ini ini;
    TRY(open_file(options, &ini));
    return model_compose(options, ini, graph);
}

enum status model_load_text(const struct model_options *options, const char *name, const char *text,
                            struct graph *graph)
{
    struct ini ini;
    TRY(open_text(name, text, &ini));
    return model_compose(options, ini, graph);
}

enum status model_input(const struct model_options *options, int *size, int *channels)
{
    struct model model = {.options = options};
    struct input_settings input = {0};
    TRY(open_file(options, &model.ini));
    enum status status = find_sections(&model);
    if (status == OK) status = read_input(&model, &input);
    model_close(&model);
    if (status != OK) return status;
    *size = (int)input.size;
    *channels = (int)input.channels;
    return OK;
}
