#include "graph_text.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"

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
        op_settings_print(node->op, node->settings, out);
        text_add(out, "\n");
    }
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

static bool has_layer(const char *layers, const struct line *wanted)
{
    for (struct line line = next_line(&layers); line.name; line = next_line(&layers))
        if (words_equal(line.name, line.name_length, wanted->name, wanted->name_length)) return true;
    return false;
}

#define SHOWN 60   /* bytes of a name or of what a layer is */
#define SHOWN_OF(text, length) (length) < SHOWN ? (length) : SHOWN, (text)

static bool graph_text_tell(const char *then_layers, const char *now_layers, const struct line *then,
                            const struct line *now, struct reason *difference)
{
    if (then->name && now->name && words_equal(then->name, then->name_length, now->name, now->name_length))
        return because(difference, "layer '%.*s' was '%.*s', but is '%.*s' now",
                       SHOWN_OF(then->name, then->name_length), SHOWN_OF(then->layer, then->layer_length),
                       SHOWN_OF(now->layer, now->layer_length));
    if (then->name && !has_layer(now_layers, then))
        return because(difference, "layer '%.*s' is missing", SHOWN_OF(then->name, then->name_length));
    if (now->name && !has_layer(then_layers, now))
        return because(difference, "layer '%.*s' is new", SHOWN_OF(now->name, now->name_length));
    const struct line *line = now->name ? now : then;
    return because(difference, "layer '%.*s' is in a different position",
                   SHOWN_OF(line->name, line->name_length));
}

static const char *layers_of(const char *text)
{
    static const char header[] = "[layers]\n";
    const char *at = strstr(text, header);
    return at ? at + strlen(header) : text + strlen(text);
}

bool graph_text_same(const char *then, const char *now, struct reason *difference)
{
    const char *then_layers = layers_of(then), *now_layers = layers_of(now);
    const char *then_at = then_layers, *now_at = now_layers;
    for (;;) {
        struct line a = next_line(&then_at), b = next_line(&now_at);
        if (!a.name && !b.name) return true;
        bool equal = a.name && b.name && words_equal(a.name, a.name_length, b.name, b.name_length) &&
                     words_equal(a.layer, a.layer_length, b.layer, b.layer_length);
        if (!equal) return graph_text_tell(then_layers, now_layers, &a, &b, difference);
    }
}
