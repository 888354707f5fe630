#include "graph_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/members.h"
#include "base/memory.h"

/* A size that is another layer's is so for images of any size. */
static void add_settings(const struct node *node, struct text *out)
{
    struct text settings = {0};
    op_settings_print(node->op, node->settings, &settings);
    char *size = node->like && settings.data ? strstr(settings.data, " size=") : NULL;
    if (!size) {
        if (settings.data) text_add(out, "%s", settings.data);
    } else {
        size_t length = 1 + strcspn(size + 1, " ");
        *size = '\0';
        text_add(out, "%s like=%s%s", settings.data, node->like, size + length);
    }
    text_free(&settings);
}

void graph_text(const struct graph *graph, struct text *out)
{
    const struct shape *input = &graph->nodes[0].shape;
    text_add(out, "[input]\nchannels = %" PRId64 "\nclasses = %d\n", input->c, graph->classes);
    /* A model file has one number for height and width. */
    if (input->h == input->w) text_add(out, "size = %" PRId64 "\n", input->h);
    text_add(out, "[layers]\n");
    for (int i = 1; i < graph->count; i++) {
        const struct node *node = &graph->nodes[i];
        text_add(out, "%s = %s", node->name, node->op->name);
        for (int j = 0; j < node->input_count; j++)
            text_add(out, " %s", graph->nodes[node->inputs[j]].name);
        add_settings(node, out);
        text_add(out, "\n");
    }
    if (graph->output_count > 0) text_add(out, "[outputs]\n");
    for (int i = 0; i < graph->output_count; i++)
        text_add(out, "%s = %s weight=%.17g\n", graph->outputs[i].name,
                 graph->nodes[graph->outputs[i].node].name, graph->outputs[i].weight);
}

void graph_text_outputs(const struct graph *graph, struct text *out)
{
    for (int i = 0; i < graph->output_count; i++) {
        const struct graph_output *output = &graph->outputs[i];
        text_add(out, "%-12s %s: %s, weight %g\n", i == 0 ? "outputs" : "", output->name,
                 graph->nodes[output->node].name, output->weight);
    }
}

void graph_text_outputs_json(const struct graph *graph, int64_t batch, struct text *out)
{
    const struct graph_output last = {graph->nodes[graph->output].name, graph->output, 1};
    const struct graph_output *outputs = graph->output_count > 0 ? graph->outputs : &last;
    for (int i = 0; i == 0 || i < graph->output_count; i++) {
        const struct node *node = &graph->nodes[outputs[i].node];
        text_add(out, i == 0 ? ",\"outputs\":[{" : ",{");
        member_string(out, "name", outputs[i].name);
        member_string(out, "layer", node->name);
        text_add(out, ",\"output\":[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]", batch, node->shape.h,
                 node->shape.w, node->shape.c);
        text_add(out, ",\"weight\":%.9g}", outputs[i].weight);
    }
    text_add(out, "]");
}

/* A line of a text: NAME = LAYER. */
struct line {
    const char *name, *layer;    /* NULL: there are no more */
    int name_length, layer_length;
};

/* The line at `at`, which then is behind it. */
static struct line next_line(const char **at)
{
    const char *end = *at ? strchr(*at, '\n') : NULL, *equals = end ? strstr(*at, " = ") : NULL;
    if (!equals || equals > end) return (struct line){0};
    struct line line = {*at, equals + 3, (int)(equals - *at), (int)(end - equals - 3)};
    *at = end + 1;
    return line;
}

static bool words_equal(const char *a, int a_length, const char *b, int b_length)
{
    return a_length == b_length && memcmp(a, b, (size_t)a_length) == 0;
}

/* True if a setting, "momentum=0.1", only has an effect in training. */
static bool is_for_training(const struct op *op, const char *setting)
{
    return op && (op->training_only || strncmp(setting, "momentum=", 9) == 0);
}

/* The part of a layer that counts for its weights. `classes`: of its network; 0: unknown. */
static void add_counting(const struct line *line, int classes, struct text *out)
{
    char *layer = text_format("%.*s", line->layer_length, line->layer), *rest = layer, *word;
    const struct op *op = NULL;
    for (int i = 0; (word = strsep(&rest, " ")); i++) {
        const char *equals = strchr(word, '=');
        if (i == 0) op = op_find(word);
        if (equals && is_for_training(op, word)) continue;
        if (equals && classes > 0 && strtol(equals + 1, NULL, 10) == classes)
            text_add(out, " %.*s=$classes", (int)(equals - word), word);
        else
            text_add(out, " %s", word);
    }
    free(layer);
}

/* A text that is compared. */
struct compared {
    const char *layers, *at;     /* the lines of layers; the next one */
    int classes;                 /* of [input]; 0: unknown */
};

static struct compared compared_open(const char *text)
{
    static const char header[] = "[layers]\n", classes[] = "\nclasses = ";
    const char *layers = strstr(text, header), *number = strstr(text, classes);
    layers = layers ? layers + strlen(header) : text + strlen(text);
    bool known = number && number < layers;
    return (struct compared){layers, layers, known ? (int)strtol(number + strlen(classes), NULL, 10) : 0};
}

static bool lines_equal(const struct line *a, const struct line *b, enum graph_same how, int a_classes,
                        int b_classes)
{
    if (!a->name || !b->name || !words_equal(a->name, a->name_length, b->name, b->name_length)) return false;
    if (words_equal(a->layer, a->layer_length, b->layer, b->layer_length)) return true;
    if (how == GRAPH_SAME_TRAINING) return false;
    struct text one = {0}, other = {0};
    add_counting(a, a_classes, &one);
    add_counting(b, b_classes, &other);
    bool equal = strcmp(one.data, other.data) == 0;
    text_free(&one);
    text_free(&other);
    return equal;
}

static bool has_layer(const char *layers, const struct line *wanted)
{
    for (struct line line = next_line(&layers); line.name; line = next_line(&layers))
        if (words_equal(line.name, line.name_length, wanted->name, wanted->name_length)) return true;
    return false;
}

#define SHOWN 60   /* bytes of a name or of what a layer is */
#define SHOWN_OF(text, length) (length) < SHOWN ? (length) : SHOWN, (text)

static bool graph_text_tell(const char *one_layers, const char *other_layers, const struct line *one,
                            const struct line *other, struct reason *difference)
{
    if (one->name && other->name &&
        words_equal(one->name, one->name_length, other->name, other->name_length))
        return because(difference, "layer '%.*s' is '%.*s', not '%.*s'",
                       SHOWN_OF(one->name, one->name_length), SHOWN_OF(other->layer, other->layer_length),
                       SHOWN_OF(one->layer, one->layer_length));
    if (one->name && !has_layer(other_layers, one))
        return because(difference, "layer '%.*s' is missing", SHOWN_OF(one->name, one->name_length));
    if (other->name && !has_layer(one_layers, other))
        return because(difference, "layer '%.*s' is new", SHOWN_OF(other->name, other->name_length));
    const struct line *line = other->name ? other : one;
    return because(difference, "layer '%.*s' is in a different position",
                   SHOWN_OF(line->name, line->name_length));
}

bool graph_text_same(const char *one, const char *other, enum graph_same how, struct reason *difference)
{
    struct compared a = compared_open(one), b = compared_open(other);
    for (;;) {
        struct line first = next_line(&a.at), second = next_line(&b.at);
        if (!first.name && !second.name && (how != GRAPH_SAME_TRAINING || strcmp(a.at, b.at) == 0))
            return true;
        if (!first.name && !second.name) return because(difference, "the outputs ([outputs]) differ");
        if (!lines_equal(&first, &second, how, a.classes, b.classes))
            return graph_text_tell(a.layers, b.layers, &first, &second, difference);
    }
}
