/* model_layers.c: turns the lines of a model file into nodes; blocks are expanded line by line. */
#include "model_parts.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "base/memory.h"
#include "base/text.h"
#include "expression.h"

#define NODES_MAX 100000
#define TEXT_MAX (32 << 20)   /* bytes of lines after expansion of blocks, which limits the time */
#define DEPTH_MAX 32        /* blocks within blocks */
#define NAME_MAX_BYTES 200  /* of a full name */
#define PARAMS_MAX 64       /* of a block */
#define OUTPUTS_MAX 16
#define MISTAKES_MAX 20     /* more of them would only be noise */

/* A block in use, or [layers]: its lines are being read one by one. */
struct scope {
    struct model *model;
    const struct section *section;
    const struct scope *user;    /* the scope whose line uses this block; NULL: none */
    int line;                    /* being read, and the layer it makes */
    const char *layer;
    char *prefix;                /* of the names: "layer1.0." */
    struct bindings bindings;
    struct names layers;         /* local name -> node */
    struct names failed;         /* of [layers]: those that were refused, and those that read one of them */
    int block;                   /* number of the outermost block, or 0 */
    const int *inputs;           /* the nodes of `in` */
    int input_count;
};

/* A layer line. */
struct words {
    char *copy;
    char **word;
    int count;
};

static struct words words_split(const char *text)
{
    struct words words = {.copy = text_copy(text)};
    char *rest = NULL;
    for (char *word = strtok_r(words.copy, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
        *array_push(words.word, words.count) = word;
    return words;
}

static void words_free(struct words *words)
{
    free(words->word);
    free(words->copy);
}

/* Reports a fault in the line being read: its place, the layer's full name, the sentence, and the
 * lines by which the block came into use. */
static enum status fault(const struct scope *scope, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum status fault(const struct scope *scope, const char *format, ...)
{
    char sentence[1024];
    struct text uses = {0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    for (const struct scope *user = scope->user; user; user = user->user)
        text_add(&uses, "%s line %d", user == scope->user ? " (used at" : ", used at", user->line);
    enum status status =
        fail(USAGE, "%s:%d: %s%s: %s%s%s", scope->model->ini.file, scope->line, scope->prefix, scope->layer,
             sentence, uses.data ? uses.data : "", uses.data ? ")" : "");
    text_free(&uses);
    return status;
}

/* Counts a line of that many bytes before it is read. */
static enum status count_text(const struct scope *scope, size_t bytes)
{
    struct model *model = scope->model;
    model->text += bytes;
    if (model->text <= TEXT_MAX) return OK;
    return fault(scope, "with all blocks expanded the network exceeds %d MiB of text", TEXT_MAX >> 20);
}

static bool is_input_name(const char *name)
{
    return strncmp(name, "in", 2) == 0 && strspn(name + 2, "0123456789") == strlen(name + 2);
}

/* ---- Words of a line ---- */

/* Appends the nodes of an input word; `in` in a block is all of its inputs. */
static enum status resolve_input(const struct scope *scope, const char *word, int *inputs, int *count)
{
    const int *nodes = scope->inputs;
    int node_count = scope->input_count, at = names_find(&scope->layers, word);
    char text[HINT_SIZE];
    if (at >= 0) {
        nodes = &scope->layers.value[at];
        node_count = 1;
    } else if (strcmp(word, "in") != 0 || !scope->user) {
        return fault(scope, "there is no layer '%s' above it%s", word,
                     model_hint(word, &scope->layers, text));
    }
    if (*count + node_count > OP_MAX_INPUTS) return fault(scope, "has more than %d inputs", OP_MAX_INPUTS);
    memcpy(inputs + *count, nodes, (size_t)node_count * sizeof *inputs);
    *count += node_count;
    return OK;
}

static enum status resolve_inputs(const struct scope *scope, const struct words *words, int *inputs,
                                  int *count)
{
    *count = 0;
    for (int i = 1; i < words->count; i++)
        if (!strchr(words->word[i], '=')) TRY(resolve_input(scope, words->word[i], inputs, count));
    if (*count == 0) return fault(scope, "has no input");
    return OK;
}

/* key=value words with the parameters in them replaced. */
static enum status bind_settings(const struct scope *scope, const struct words *words,
                                 struct bindings *settings)
{
    struct reason reason;
    for (int i = 1; i < words->count; i++) {
        char *value = strchr(words->word[i], '=');
        if (!value) continue;
        *value = '\0';
        char *text = expression_text(value + 1, &scope->bindings, &reason);
        if (!text) return fault(scope, "%s: %s", words->word[i], reason.text);
        bool twice = bindings_find(settings, words->word[i], strlen(words->word[i])) != NULL;
        if (!twice) bindings_add(settings, words->word[i], text);
        free(text);
        if (twice) return fault(scope, "%s is given twice", words->word[i]);
    }
    return OK;
}

/* ---- A layer that is an op ---- */

/* The setting of an op that an option overrides, and its value; below 0: it overrides none. */
static double override_of(const struct model_options *options, const struct op *op, const char **setting)
{
    bool norm = strcmp(op->name, "batchnorm") == 0;
    *setting = norm ? "momentum" : "rate";
    if (norm) return options->bn_momentum > 0 ? options->bn_momentum : -1;
    return strcmp(op->name, "dropout") == 0 ? options->dropout : -1;
}

/* Ops that have a size= also have like=LAYER. */
static bool is_like(const struct op *op, const char *name)
{
    if (strcmp(name, "like") != 0) return false;
    for (const struct field *field = op->fields; field && field->name; field++)
        if (field->type == FIELD_IMAGE_SIZE && strcmp(field->name, "size") == 0) return true;
    return false;
}

static enum status add_size_like(const struct scope *scope, const char *layer, struct text *text,
                                 const char **like)
{
    int inputs[OP_MAX_INPUTS], count = 0;
    TRY(resolve_input(scope, layer, inputs, &count));
    if (count != 1) return fault(scope, "like=%s: expected one layer, not %d", layer, count);
    const struct shape *shape = &scope->model->graph.nodes[inputs[0]].shape;
    text_add(text, " size=%lldx%lld", (long long)shape->h, (long long)shape->w);
    *like = scope->model->graph.nodes[inputs[0]].name;
    return OK;
}

static enum status settings_text(const struct scope *scope, const struct op *op,
                                 const struct bindings *settings, struct text *text, const char **like)
{
    const char *own;
    double value = override_of(scope->model->options, op, &own);
    text_add(text, "%s", "");
    for (int i = 0; i < settings->count; i++) {
        const struct binding *setting = &settings->entries[i];
        if (value >= 0 && strcmp(setting->name, own) == 0) continue;
        if (is_like(op, setting->name)) TRY(add_size_like(scope, setting->text, text, like));
        else text_add(text, " %s=%s", setting->name, setting->text);
    }
    if (value >= 0) text_add(text, " %s=%.17g", own, value);
    return OK;
}

static enum status add_node(const struct scope *scope, const struct op *op, const struct bindings *settings,
                            const int *inputs, int input_count)
{
    struct graph *graph = &scope->model->graph;
    struct reason reason;
    struct text text = {0};
    if (graph->count >= NODES_MAX) return fault(scope, "the network has more than %d layers", NODES_MAX);
    const char *like = NULL;
    enum status status = settings_text(scope, op, settings, &text, &like);
    void *parsed = status == OK ? op_settings_new(op, text.data, &reason) : NULL;
    text_free(&text);
    TRY(status);
    if (!parsed) return fault(scope, "%s", reason.text);
    char *name = text_format("%s%s", scope->prefix, scope->layer);
    char *where = text_format("%s:%d", scope->model->ini.file, scope->line);
    struct node_spec spec = {name, op, parsed, inputs, input_count, where, scope->block};
    char *sized = text_copy(like);
    bool good = graph_add(graph, &spec, &reason);
    if (good) graph->nodes[graph->count - 1].like = sized;
    else free(sized);
    free(name);
    free(where);
    return good ? OK : fault(scope, "%s", reason.text);
}

/* ---- A layer that is a block ---- */

/* Every $name in the block's lines, once each; `fixed` takes those that the block gives a default. */
static void block_params(const struct model *model, const struct section *block, struct names *all,
                         struct names *fixed)
{
    for (int i = block->first; i < block->last; i++) {
        const struct ini_entry *entry = &model->ini.entries[i];
        if (entry->key[0] == '$') {
            names_add(all, entry->key + 1, 0);
            names_add(fixed, entry->key + 1, 0);
        }
        size_t length;
        for (const char *at = entry->value; (at = expression_next(at, &length)); at += length) {
            char *name = text_format("%.*s", (int)length, at);
            if (strcmp(name, "classes") != 0) names_add(all, name, 0);
            free(name);
        }
    }
}

/* The line must give the parameters that the block requires. */
static enum status check_params(const struct scope *scope, const struct section *block,
                                const struct bindings *given)
{
    const char *name = block->name + strlen(MODEL_BLOCK);
    struct names all = {0}, fixed = {0};
    char text[HINT_SIZE];
    enum status status = OK;
    block_params(scope->model, block, &all, &fixed);
    for (int i = 0; status == OK && i < given->count; i++)
        if (names_find(&all, given->entries[i].name) < 0)
            status = fault(scope, "block %s has no parameter '%s'%s", name, given->entries[i].name,
                           model_hint(given->entries[i].name, &all, text));
    for (int i = 0; status == OK && i < all.count; i++)
        if (names_find(&fixed, all.name[i]) < 0 && !bindings_find(given, all.name[i], strlen(all.name[i])))
            status = fault(scope, "block %s requires %s=", name, all.name[i]);
    if (status == OK && all.count > PARAMS_MAX)
        status = fault(scope, "block %s has more than %d parameters", name, PARAMS_MAX);
    names_free(&all);
    names_free(&fixed);
    return status;
}

static enum status check_recursion(const struct scope *scope, const struct section *block)
{
    int depth = 0;
    for (const struct scope *user = scope; user; user = user->user) {
        if (user->section == block)
            return fault(scope, "block %s is recursive", block->name + strlen(MODEL_BLOCK));
        if (++depth > DEPTH_MAX) return fault(scope, "blocks are nested more than %d deep", DEPTH_MAX);
    }
    return OK;
}

static enum status read_lines(struct scope *scope);

static void scope_close(struct scope *scope)
{
    free(scope->prefix);
    bindings_free(&scope->bindings);
    names_free(&scope->layers);
    names_free(&scope->failed);
}

/* `in1`, `in2`, ... are a block's inputs one by one. */
static void name_inputs(struct scope *scope)
{
    char name[16];
    for (int i = 0; i < scope->input_count; i++) {
        snprintf(name, sizeof name, "in%d", i + 1);
        names_add(&scope->layers, name, scope->inputs[i]);
    }
}

static void bind_classes(struct scope *scope)
{
    char *classes = text_format("%" PRId64, scope->model->input.classes);
    bindings_add(&scope->bindings, "classes", classes);
    free(classes);
}

/* The block's nodes; the last of them is the layer's. */
static enum status add_block(const struct scope *scope, const struct section *block,
                             const struct bindings *given, const int *inputs, int input_count)
{
    TRY(check_recursion(scope, block));
    for (int i = block->first; i < block->last; i++)
        TRY(count_text(scope, strlen(scope->model->ini.entries[i].value)));
    TRY(check_params(scope, block, given));
    struct scope inner = {
        .model = scope->model,
        .section = block,
        .user = scope,
        .prefix = text_format("%s%s.", scope->prefix, scope->layer),
        .block = scope->block ? scope->block : ++scope->model->block_count,
        .inputs = inputs,
        .input_count = input_count,
    };
    bind_classes(&inner);
    for (int i = 0; i < given->count; i++)
        bindings_add(&inner.bindings, given->entries[i].name, given->entries[i].text);
    name_inputs(&inner);
    enum status status = read_lines(&inner);
    scope_close(&inner);
    return status;
}

/* ---- Lines ---- */

static enum status unknown_type(const struct scope *scope, const char *type)
{
    struct names types = {0};
    char text[HINT_SIZE];
    for (int i = 0; i < scope->model->blocks.count; i++) names_add(&types, scope->model->blocks.name[i], 0);
    for (const struct op *const *op = op_table; *op; op++)
        if (!(*op)->internal) names_add(&types, (*op)->name, 0);
    enum status status =
        fault(scope, "'%s' is neither an op nor a block%s", type, model_hint(type, &types, text));
    names_free(&types);
    return status;
}

static enum status add_typed(const struct scope *scope, const char *type, const struct bindings *settings,
                             const int *inputs, int input_count)
{
    const struct model *model = scope->model;
    int block = names_find(&model->blocks, type);
    if (block >= 0)
        return add_block(scope, &model->sections[model->blocks.value[block]], settings, inputs, input_count);
    const struct op *op = op_find(type);
    if (!op || op->internal) return unknown_type(scope, type);
    return add_node(scope, op, settings, inputs, input_count);
}

/* One layer, whose name is scope->layer. `previous`: the node that replaces the first input, or -1. */
static enum status add_layer(struct scope *scope, struct words *words, const char *type, int previous)
{
    int inputs[OP_MAX_INPUTS], input_count;
    struct bindings settings = {0};
    TRY(resolve_inputs(scope, words, inputs, &input_count));
    if (previous >= 0) inputs[0] = previous;
    enum status status = bind_settings(scope, words, &settings);
    if (status == OK) status = add_typed(scope, type, &settings, inputs, input_count);
    bindings_free(&settings);
    TRY(status);
    if (names_add(&scope->layers, scope->layer, scope->model->graph.count - 1)) return OK;
    return fault(scope, "this name is already used by a layer");
}

static enum status check_name(const struct scope *scope)
{
    if (!model_name_is_valid(scope->layer))
        return fault(scope, "the name of a layer consists of letters, digits, '_' and '-', with single "
                     "dots between them");
    if (is_input_name(scope->layer) || strcmp(scope->layer, "input") == 0)
        return fault(scope, "'%s' is reserved for inputs", scope->layer);
    if (strlen(scope->prefix) + strlen(scope->layer) > NAME_MAX_BYTES)
        return fault(scope, "its name is longer than %d bytes", NAME_MAX_BYTES);
    return OK;
}

static enum status read_layer(struct scope *scope, const char *value, int previous)
{
    struct reason reason;
    TRY(check_name(scope));
    TRY(count_text(scope, strlen(value)));
    struct words words = words_split(value);
    enum status status;
    char *type = words.count ? expression_text(words.word[0], &scope->bindings, &reason) : NULL;
    if (type) status = add_layer(scope, &words, type, previous);
    else if (words.count) status = fault(scope, "%s", reason.text);
    else status = fault(scope, "is empty; expected: NAME = OP INPUT...");
    free(type);
    words_free(&words);
    return status;
}

/* "denselayer1..6": digits, two dots, digits, at the end of a name. Returns the length of what
 * stands before the first number, or -1 when the name is no range. */
static int parse_range(const char *key, int *first, int *last)
{
    const char *dots = strstr(key, "..");
    if (!dots || dots == key) return -1;
    size_t digits = strspn(dots + 2, "0123456789");
    const char *number = dots;
    while (number > key && isdigit((unsigned char)number[-1])) number--;
    if (number == dots || dots - number > 6 || digits == 0 || digits > 6 || dots[2 + digits]) return -1;
    *first = atoi(number);
    *last = atoi(dots + 2);
    return (int)(number - key);
}

/* A chain of layers: each one after the first reads the one before it. */
static enum status read_range(struct scope *scope, const char *key, const char *value, int length, int first,
                              int last)
{
    if (first > last) return fault(scope, "the range is empty");
    for (int i = first; i <= last; i++) {
        char *name = text_format("%.*s%d", length, key, i);
        scope->layer = name;
        enum status status = read_layer(scope, value, i == first ? -1 : scope->model->graph.count - 1);
        scope->layer = key;
        free(name);
        TRY(status);
    }
    return OK;
}

static enum status read_line(struct scope *scope, const struct ini_entry *entry)
{
    int first = 0, last = 0;
    scope->line = entry->line;
    scope->layer = entry->key;
    int length = parse_range(entry->key, &first, &last);
    if (length >= 0) return read_range(scope, entry->key, entry->value, length, first, last);
    return read_layer(scope, entry->value, -1);
}

/* "$stride = 1": a default, which a given value overrides. */
static enum status read_default(struct scope *scope, const struct ini_entry *entry)
{
    const char *name = entry->key + 1;
    struct reason reason;
    size_t length = 0;
    scope->line = entry->line;
    scope->layer = entry->key;
    if (expression_next(entry->key, &length) != name || name[length])
        return fault(scope, "the name of a parameter consists of letters, digits and '_' and does not "
                     "begin with a digit");
    if (strcmp(name, "classes") == 0) return fault(scope, "its default is set by classes= in [input]");
    if (bindings_find(&scope->bindings, name, length)) return OK;
    if (!*entry->value || strpbrk(entry->value, " \t=")) return fault(scope, "the value of a parameter is "
                                                                      "a single word");
    char *text = expression_text(entry->value, &scope->bindings, &reason);
    if (!text) return fault(scope, "%s", reason.text);
    bindings_add(&scope->bindings, name, text);
    free(text);
    return OK;
}

/* True if a line reads a layer that was refused: nothing can be said of it. */
static bool reads_failed(const struct scope *scope, const struct ini_entry *entry)
{
    struct words words = words_split(entry->value);
    bool found = false;
    for (int i = 1; i < words.count; i++) {
        const char *word = words.word[i];
        if (strncmp(word, "like=", 5) == 0) word += 5;
        found = found || names_find(&scope->failed, word) >= 0;
    }
    words_free(&words);
    return found;
}

static void note_failed(struct scope *scope, const char *key)
{
    int first = 0, last = 0, length = parse_range(key, &first, &last);
    if (length < 0) names_add(&scope->failed, key, 0);
    for (int i = first; length >= 0 && i <= last; i++) {
        char *name = text_format("%.*s%d", length, key, i);
        names_add(&scope->failed, name, 0);
        free(name);
    }
}

/* Lines of [layers] are read on after one that is wrong, so that all mistakes are reported at once; those of
 * a block are not, because it is read again at its next use. */
static enum status read_next(struct scope *scope, const struct ini_entry *entry)
{
    if (scope->failed.count > 0 && reads_failed(scope, entry)) {
        note_failed(scope, entry->key);
        return USAGE;
    }
    enum status status = read_line(scope, entry);
    if (status != OK && !scope->user) note_failed(scope, entry->key);
    return status;
}

static enum status read_lines(struct scope *scope)
{
    const struct section *section = scope->section;
    const struct ini_entry *entries = scope->model->ini.entries;
    int nodes = scope->model->graph.count;
    enum status status = OK;
    for (int i = section->first; i < section->last; i++)
        if (entries[i].key[0] == '$') TRY(read_default(scope, &entries[i]));
    for (int i = section->first; i < section->last; i++)
        if (entries[i].key[0] != '$') {
            enum status line = read_next(scope, &entries[i]);
            if (line != OK && (scope->user || scope->failed.count >= MISTAKES_MAX)) return line;
            if (line != OK) status = line;
        }
    TRY(status);
    if (scope->model->graph.count > nodes) return OK;
    return fail(USAGE, "%s:%d: [%s] has no layers", scope->model->ini.file, section->line, section->name);
}

/* ---- Outputs ---- */

/* LAYER weight=0.5 */
static enum status read_output(const struct scope *scope, struct words *words, struct graph_output *output)
{
    static const struct field weight = {.name = "weight", .type = FIELD_REAL, .max = 1e6};
    int inputs[OP_MAX_INPUTS], count = 0;
    struct reason reason;
    if (words->count == 0) return fault(scope, "is empty; expected: NAME = LAYER weight=W");
    TRY(resolve_input(scope, words->word[0], inputs, &count));
    for (int i = 1; i < words->count; i++) {
        if (strncmp(words->word[i], "weight=", 7) != 0)
            return fault(scope, "'%s': an output is one layer, and has only weight=", words->word[i]);
        if (!field_parse(&weight, &output->weight, words->word[i] + 7, &reason))
            return fault(scope, "weight: %s", reason.text);
    }
    output->node = inputs[0];
    return OK;
}

static enum status read_outputs(struct scope *scope, const struct section *section)
{
    struct graph *graph = &scope->model->graph;
    for (int i = section->first; i < section->last; i++) {
        const struct ini_entry *entry = &scope->model->ini.entries[i];
        struct graph_output output = {.weight = 1};
        scope->line = entry->line;
        scope->layer = entry->key;
        TRY(check_name(scope));
        if (graph->output_count == OUTPUTS_MAX)
            return fault(scope, "there are more than %d outputs", OUTPUTS_MAX);
        for (int k = 0; k < graph->output_count; k++)
            if (strcmp(graph->outputs[k].name, entry->key) == 0)
                return fault(scope, "this name is already used by an output");
        struct words words = words_split(entry->value);
        enum status status = read_output(scope, &words, &output);
        words_free(&words);
        TRY(status);
        output.name = text_copy(entry->key);
        *array_push(graph->outputs, graph->output_count) = output;
    }
    if (graph->output_count == 0)
        return fail(USAGE, "%s:%d: [outputs] is empty", scope->model->ini.file, section->line);
    graph->output = graph->outputs[0].node;
    graph->classes = (int)graph->nodes[graph->output].shape.c;
    return OK;
}

enum status model_read_layers(struct model *model, const struct section *layers,
                              const struct section *outputs)
{
    struct scope scope = {.model = model, .section = layers, .prefix = text_copy("")};
    bind_classes(&scope);
    names_add(&scope.layers, "input", 0);
    enum status status = read_lines(&scope);
    if (status == OK && outputs) status = read_outputs(&scope, outputs);
    scope_close(&scope);
    return status;
}
