#include "model.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/field.h"
#include "base/memory.h"
#include "base/text.h"
#include "conf/ini.h"
#include "expression.h"
#include "names.h"

#define NODES_MAX 100000
#define DEPTH_MAX 32        /* blocks within blocks */
#define NAME_MAX_BYTES 200  /* of a full name */
#define PARAMS_MAX 64       /* of a block */
#define SUFFIX ".ini"
#define BLOCK "block:"

/* [input]. */
struct input_settings {
    int64_t channels, size, classes;
};

#define AT(member) offsetof(struct input_settings, member)
static const struct field input_fields[] = {
    {.name = "channels", .type = FIELD_INT, .offset = AT(channels), .initial = "3", .min = 1, .max = 65536,
     .help = "Channels of an image, where the data does not say."},
    {.name = "size", .type = FIELD_INT, .offset = AT(size), .initial = "224", .min = 1, .max = 65536,
     .help = "Height and width of an image, where neither data nor augment.crop says."},
    {.name = "classes", .type = FIELD_INT, .offset = AT(classes), .initial = "1000", .min = 1, .max = 1000000,
     .help = "$classes, where neither data nor model.classes says."},
    {0},
};

/* A section of the file: entries first .. last - 1. */
struct section {
    const char *name;
    int line, first, last;
};

/* The file while it becomes a graph. */
struct model {
    const struct model_options *options;
    struct ini ini;
    struct section *sections;
    int section_count;
    struct names blocks;         /* block name -> section */
    struct input_settings input;
    struct graph graph;
};

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
    const int *inputs;           /* what `in` stands for */
    int input_count;
};

/* What a layer line says. */
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
    enum status status = fail(USAGE, "%s:%d: %s%s: %s%s%s", scope->model->ini.file, scope->line, scope->prefix,
                              scope->layer, sentence, uses.data ? uses.data : "", uses.data ? ")" : "");
    text_free(&uses);
    return status;
}

/* "; did you mean 'x'?", or nothing; in a buffer of the caller's. */
#define HINT_SIZE 128
static const char *hint(const char *word, const struct names *names, char text[HINT_SIZE])
{
    const char *near = text_nearest(word, (const char *const *)names->name, names->count);
    text[0] = '\0';
    if (near) snprintf(text, HINT_SIZE, "; did you mean '%s'?", near);
    return text;
}

/* A layer's name: parts of letters, digits, '_' and '-' with single dots between them. */
static bool name_is_good(const char *name)
{
    for (const char *c = name; *c; c++) {
        if (*c == '.' && (c == name || c[1] == '.' || !c[1])) return false;
        if (!isalnum((unsigned char)*c) && !strchr("_-.", *c)) return false;
    }
    return *name;
}

static bool is_input_name(const char *name)
{
    return strncmp(name, "in", 2) == 0 && strspn(name + 2, "0123456789") == strlen(name + 2);
}

/* ---- Words of a line ---- */

/* Appends what an input word stands for; `in` in a block is all of its inputs. */
static enum status resolve_input(const struct scope *scope, const char *word, int *inputs, int *count)
{
    const int *nodes = scope->inputs;
    int node_count = scope->input_count, at = names_find(&scope->layers, word);
    char text[HINT_SIZE];
    if (at >= 0) {
        nodes = &scope->layers.value[at];
        node_count = 1;
    } else if (strcmp(word, "in") != 0 || !scope->user) {
        return fault(scope, "there is no layer '%s' above it%s", word, hint(word, &scope->layers, text));
    }
    if (*count + node_count > OP_MAX_INPUTS) return fault(scope, "has more than %d inputs", OP_MAX_INPUTS);
    memcpy(inputs + *count, nodes, (size_t)node_count * sizeof *inputs);
    *count += node_count;
    return OK;
}

static enum status resolve_inputs(const struct scope *scope, const struct words *words, int *inputs, int *count)
{
    *count = 0;
    for (int i = 1; i < words->count; i++)
        if (!strchr(words->word[i], '=')) TRY(resolve_input(scope, words->word[i], inputs, count));
    if (*count == 0) return fault(scope, "has no input");
    return OK;
}

/* key=value words with the parameters in them replaced. */
static enum status bind_settings(const struct scope *scope, const struct words *words, struct bindings *settings)
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

/* model.dropout stands above what the file says. */
static void settings_text(const struct model_options *options, const struct op *op,
                          const struct bindings *settings, struct text *text)
{
    bool overridden = options->dropout >= 0 && strcmp(op->name, "dropout") == 0;
    text_add(text, "%s", "");
    for (int i = 0; i < settings->count; i++) {
        const struct binding *setting = &settings->entries[i];
        if (overridden && strcmp(setting->name, "rate") == 0) continue;
        text_add(text, " %s=%s", setting->name, setting->text);
    }
    if (overridden) text_add(text, " rate=%.17g", options->dropout);
}

static enum status add_node(const struct scope *scope, const struct op *op, const struct bindings *settings,
                            const int *inputs, int input_count)
{
    struct graph *graph = &scope->model->graph;
    struct reason reason;
    struct text text = {0};
    if (graph->count >= NODES_MAX) return fault(scope, "the network has more than %d layers", NODES_MAX);
    settings_text(scope->model->options, op, settings, &text);
    void *parsed = op_settings_new(op, text.data, &reason);
    text_free(&text);
    if (!parsed) return fault(scope, "%s", reason.text);
    char *name = text_format("%s%s", scope->prefix, scope->layer);
    char *where = text_format("%s:%d", scope->model->ini.file, scope->line);
    bool good = graph_add(graph, name, op, parsed, inputs, input_count, where, &reason);
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

/* What the line gives must be what the block asks for. */
static enum status check_params(const struct scope *scope, const struct section *block,
                                const struct bindings *given)
{
    const char *name = block->name + strlen(BLOCK);
    struct names all = {0}, fixed = {0};
    char text[HINT_SIZE];
    enum status status = OK;
    block_params(scope->model, block, &all, &fixed);
    for (int i = 0; status == OK && i < given->count; i++)
        if (names_find(&all, given->entries[i].name) < 0)
            status = fault(scope, "block %s has no parameter '%s'%s", name, given->entries[i].name,
                           hint(given->entries[i].name, &all, text));
    for (int i = 0; status == OK && i < all.count; i++)
        if (names_find(&fixed, all.name[i]) < 0 && !bindings_find(given, all.name[i], strlen(all.name[i])))
            status = fault(scope, "block %s needs %s=", name, all.name[i]);
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
        if (user->section == block) return fault(scope, "block %s uses itself", block->name + strlen(BLOCK));
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
    TRY(check_params(scope, block, given));
    struct scope inner = {
        .model = scope->model,
        .section = block,
        .user = scope,
        .prefix = text_format("%s%s.", scope->prefix, scope->layer),
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
    enum status status = fault(scope, "'%s' is neither an op nor a block%s", type, hint(type, &types, text));
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

/* One layer, whose name is scope->layer. `previous`: the node that is read in the first input's
 * place, or -1. */
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
    return fault(scope, "there is a layer of this name already");
}

static enum status check_name(const struct scope *scope)
{
    if (!name_is_good(scope->layer))
        return fault(scope, "a layer's name has letters, digits, '_', '-' and single dots between them");
    if (is_input_name(scope->layer) || strcmp(scope->layer, "input") == 0)
        return fault(scope, "'%s' is the name of an input", scope->layer);
    if (strlen(scope->prefix) + strlen(scope->layer) > NAME_MAX_BYTES)
        return fault(scope, "its name is longer than %d bytes", NAME_MAX_BYTES);
    return OK;
}

static enum status read_layer(struct scope *scope, const char *value, int previous)
{
    struct reason reason;
    TRY(check_name(scope));
    struct words words = words_split(value);
    enum status status;
    char *type = words.count ? expression_text(words.word[0], &scope->bindings, &reason) : NULL;
    if (type) status = add_layer(scope, &words, type, previous);
    else status = fault(scope, "%s", words.count ? reason.text : "says nothing; expected: NAME = OP INPUT...");
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
    if (first > last) return fault(scope, "the range runs backwards");
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

/* "$stride = 1": a default, which what is given stands above. */
static enum status read_default(struct scope *scope, const struct ini_entry *entry)
{
    const char *name = entry->key + 1;
    struct reason reason;
    size_t length = 0;
    scope->line = entry->line;
    scope->layer = entry->key;
    if (expression_next(entry->key, &length) != name || name[length])
        return fault(scope, "a parameter's name has letters, digits and '_', and begins with no digit");
    if (strcmp(name, "classes") == 0) return fault(scope, "[input] classes= gives its default");
    if (bindings_find(&scope->bindings, name, length)) return OK;
    if (!*entry->value || strpbrk(entry->value, " \t=")) return fault(scope, "a parameter is one word");
    char *text = expression_text(entry->value, &scope->bindings, &reason);
    if (!text) return fault(scope, "%s", reason.text);
    bindings_add(&scope->bindings, name, text);
    free(text);
    return OK;
}

static enum status read_lines(struct scope *scope)
{
    const struct section *section = scope->section;
    const struct ini_entry *entries = scope->model->ini.entries;
    int nodes = scope->model->graph.count;
    for (int i = section->first; i < section->last; i++)
        if (entries[i].key[0] == '$') TRY(read_default(scope, &entries[i]));
    for (int i = section->first; i < section->last; i++)
        if (entries[i].key[0] != '$') TRY(read_line(scope, &entries[i]));
    if (scope->model->graph.count > nodes) return OK;
    return fail(USAGE, "%s:%d: [%s] has no layers", scope->model->ini.file, section->line, section->name);
}

/* ---- The file ---- */

static enum status refuse_section(const struct model *model, const struct section *section)
{
    static const char *const known[] = {"input", "layers", "block:NAME"};
    const char *near = text_nearest(section->name, known, 3);
    return fail(USAGE, "%s:%d: unknown section [%s]; %s%s%s", model->ini.file, section->line, section->name,
                near ? "did you mean [" : "there are [input], [block:NAME] and [layers", near ? near : "",
                near ? "]?" : "]");
}

static enum status add_section(struct model *model, const struct section *section, struct names *seen)
{
    bool block = strncmp(section->name, BLOCK, strlen(BLOCK)) == 0;
    const char *name = section->name + strlen(BLOCK);
    if (!block && strcmp(section->name, "input") != 0 && strcmp(section->name, "layers") != 0)
        return refuse_section(model, section);
    if (!names_add(seen, section->name, model->section_count))
        return fail(USAGE, "%s:%d: there is a section [%s] already", model->ini.file, section->line, section->name);
    if (block && !name_is_good(name))
        return fail(USAGE, "%s:%d: [%s]: a block's name has letters, digits, '_' and '-'", model->ini.file,
                    section->line, section->name);
    if (block && op_find(name))
        return fail(USAGE, "%s:%d: [%s]: '%s' is the name of an op", model->ini.file, section->line, section->name,
                    name);
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
    enum status status = fail(USAGE, "%s:%d: [input] has no key '%s'%s", model->ini.file, entry->line, entry->key,
                              hint(entry->key, &keys, text));
    names_free(&keys);
    return status;
}

/* [input] into `input`; what it does not name keeps its value. */
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

/* The graph of the input alone, as the options and [input] say. */
static enum status begin(struct model *model, const char *arch)
{
    const struct model_options *options = model->options;
    struct input_settings *input = &model->input;
    field_defaults(input_fields, input);
    TRY(read_input(model, input));
    if (options->classes > 0) input->classes = options->classes;
    if (options->channels > 0) input->channels = options->channels;
    int64_t h = options->size_h > 0 ? options->size_h : input->size;
    int64_t w = options->size_w > 0 ? options->size_w : input->size;
    graph_begin(&model->graph, arch, shape_nhwc(1, h, w, input->channels));
    return OK;
}

static enum status read_layers(struct model *model)
{
    const struct section *section = find_section(model, "layers");
    if (!section) return fail(USAGE, "%s: there is no section [layers]", model->ini.file);
    struct scope scope = {.model = model, .section = section, .prefix = text_copy("")};
    bind_classes(&scope);
    names_add(&scope.layers, "input", 0);
    enum status status = read_lines(&scope);
    scope_close(&scope);
    return status;
}

static enum status check_names(const struct graph *graph)
{
    struct names names = {0};
    enum status status = OK;
    for (int i = 0; status == OK && i < graph->count; i++)
        if (!names_add(&names, graph->nodes[i].name, i))
            status = fail(USAGE, "%s: %s: there is a layer of this name already, from %s", graph->nodes[i].where,
                          graph->nodes[i].name, graph->nodes[names_find(&names, graph->nodes[i].name)].where);
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
    for (int i = graph->count - 1; i >= 0; i--)
        if (!read[i]) unread = i;
    free(read);
    if (unread < 0) return OK;
    const struct node *node = &graph->nodes[unread];
    return fail(USAGE, "%s: %s: no layer reads it, and it is not the last", node->where, node->name);
}

static enum status check_output(const struct model *model)
{
    const struct node *node = &model->graph.nodes[model->graph.output];
    char text[SHAPE_TEXT];
    if (node->shape.h != 1 || node->shape.w != 1)
        return fail(USAGE, "%s: %s: the last layer must give one number a class, not %s", node->where, node->name,
                    shape_text(node->shape, text));
    if (node->shape.c == model->input.classes) return OK;
    return fail(USAGE, "%s: %s: the last layer gives %" PRId64 " classes, and $classes is %" PRId64, node->where,
                node->name, node->shape.c, model->input.classes);
}

static enum status make_graph(struct model *model, const char *arch)
{
    TRY(find_sections(model));
    TRY(begin(model, arch));
    TRY(read_layers(model));
    TRY(check_names(&model->graph));
    TRY(check_readers(&model->graph));
    return check_output(model);
}

static void model_close(struct model *model)
{
    ini_free(&model->ini);
    free(model->sections);
    names_free(&model->blocks);
}

/* ---- Files by name ---- */

static bool has_suffix(const char *name)
{
    size_t length = strlen(name), suffix = strlen(SUFFIX);
    return length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **model_names(const char *const *folders, int *count)
{
    struct names found = {0};
    for (int i = 0; folders && folders[i]; i++) {
        DIR *folder = opendir(folders[i]);
        if (!folder) continue;
        for (struct dirent *entry; (entry = readdir(folder));) {
            if (entry->d_name[0] == '.' || !has_suffix(entry->d_name)) continue;
            char *name = text_copy(entry->d_name);
            name[strlen(name) - strlen(SUFFIX)] = '\0';
            names_add(&found, name, 0);
            free(name);
        }
        closedir(folder);
    }
    char **names = memory_new((size_t)found.count + 1, sizeof *names);
    for (int i = 0; i < found.count; i++) names[i] = text_copy(found.name[i]);
    qsort(names, (size_t)found.count, sizeof *names, compare_names);
    *count = found.count;
    names_free(&found);
    return names;
}

static enum status unknown_arch(const struct model_options *options)
{
    int count;
    char **names = model_names(options->folders, &count);
    const char *near = text_nearest(options->arch, (const char *const *)names, count);
    enum status status = near ? fail(USAGE, "there is no model '%s'; did you mean '%s'?", options->arch, near)
                              : fail(USAGE, "there is no model '%s'; `amptrain models` lists them", options->arch);
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);
    return status;
}

/* The file's path, which the caller frees. A name of an architecture leads to no other folder. */
static enum status find_file(const struct model_options *options, char **path)
{
    if (options->file) {
        *path = text_copy(options->file);
        return OK;
    }
    if (!options->arch) return fail(USAGE, "no model is named: model.arch or model.file");
    bool plain = name_is_good(options->arch);
    for (int i = 0; plain && options->folders && options->folders[i]; i++) {
        char *candidate = text_format("%s/%s" SUFFIX, options->folders[i], options->arch);
        if (access(candidate, F_OK) == 0) {
            *path = candidate;
            return OK;
        }
        free(candidate);
    }
    return unknown_arch(options);
}

/* "resnet50" of "/usr/share/amptrain/models/resnet50.ini". */
static char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = text_copy(slash ? slash + 1 : path);
    if (has_suffix(name)) name[strlen(name) - strlen(SUFFIX)] = '\0';
    return name;
}

static enum status open_file(const struct model_options *options, struct ini *ini)
{
    char *path = NULL;
    TRY(find_file(options, &path));
    enum status status = ini_read(path, ini);
    free(path);
    return status;
}

/* Takes the file's text over. */
static enum status load(const struct model_options *options, struct ini ini, struct graph *graph)
{
    struct model model = {.options = options, .ini = ini};
    char *arch = base_name(ini.file);
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
    return load(options, ini, graph);
}

enum status model_load_text(const struct model_options *options, const char *name, const char *text,
                            struct graph *graph)
{
    struct ini ini;
    TRY(ini_read_text(name, text, &ini));
    return load(options, ini, graph);
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
