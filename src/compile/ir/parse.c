/* parse.c: reads a program's text line by line: the network's nodes, the program as a whole, its values, and
 * its instructions, each of which is linked again from its operands. */
#include "compile/ir/parse.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/ir/program_words.h"

#define WORD 40                  /* bytes of the longest word */
#define NUMBER_MAX 1000000000    /* of micro-batches, stages, kernel plans ... */
#define STREAMS_MAX 1000
#define BYTES_MAX 0x1p58         /* of all values, so that sums in planning cannot overflow */

/* A value by name and ordinal. */
struct named {
    const char *name;
    int ordinal, value;
};

/* The rest of a value's line, which may name values of later lines. */
struct pending {
    char *rest;
    int line;
};

struct parser {
    const char *file;
    char *next;                  /* the next line */
    char *at;                    /* what is left of this one */
    int line;
    struct program program;
    struct graph graph;
    struct named *names;         /* by value; sorted when all are known */
    struct pending *pending;
    double bytes;                /* of all values so far */
    char **settings;             /* the texts of the program's internals */
    int settings_count;
    struct reason reason;
};

/* Words, numbers and names of a line. */

static void skip_space(struct parser *p)
{
    while (*p->at == ' ') p->at++;
}

static bool at_end(struct parser *p)
{
    skip_space(p);
    return *p->at == '\0';
}

static bool take(struct parser *p, char mark)
{
    skip_space(p);
    if (*p->at != mark) return false;
    p->at++;
    return true;
}

static bool expect(struct parser *p, char mark)
{
    return take(p, mark) || because(&p->reason, "expected '%c' at '%.40s'", mark, p->at);
}

static size_t word_length(struct parser *p)
{
    skip_space(p);
    size_t length = 0;
    while (isalnum((unsigned char)p->at[length]) || p->at[length] == '_' || p->at[length] == '-') length++;
    return length;
}

/* True if the next word is this one, which is taken then. */
static bool take_word(struct parser *p, const char *word)
{
    size_t length = word_length(p);
    if (length != strlen(word) || strncmp(p->at, word, length) != 0) return false;
    p->at += length;
    return true;
}

static bool expect_word(struct parser *p, const char *word)
{
    return take_word(p, word) || because(&p->reason, "expected '%s' at '%.40s'", word, p->at);
}

static bool read_word(struct parser *p, char word[WORD])
{
    size_t length = word_length(p);
    if (length == 0 || length >= WORD) return because(&p->reason, "expected a word at '%.40s'", p->at);
    memcpy(word, p->at, length);
    word[length] = '\0';
    p->at += length;
    return true;
}

/* One of a list that ends with NULL. */
static bool read_choice(struct parser *p, const char *const *words, const char *what, int *choice)
{
    char word[WORD];
    if (!read_word(p, word)) return false;
    for (*choice = 0; words[*choice]; ++*choice)
        if (strcmp(words[*choice], word) == 0) return true;
    const char *near = text_nearest(word, words, *choice);
    return because(&p->reason, "no such %s: %s%s%s%s", what, word, near ? "; did you mean " : "",
                   near ? near : "", near ? "?" : "");
}

static bool read_number(struct parser *p, int64_t least, int64_t most, int64_t *number)
{
    char *end;
    skip_space(p);
    errno = 0;
    long long value = strtoll(p->at, &end, 10);
    if (end == p->at || isspace((unsigned char)*p->at))
        return because(&p->reason, "expected a number at '%.40s'", p->at);
    if (errno || value < least || value > most)
        return because(&p->reason, "%.*s is not from %" PRId64 " to %" PRId64, (int)(end - p->at), p->at,
                       least, most);
    p->at = end;
    *number = value;
    return true;
}

static bool read_int(struct parser *p, int least, int most, int *number)
{
    int64_t value;
    if (!read_number(p, least, most, &value)) return false;
    *number = (int)value;
    return true;
}

static bool at_name(struct parser *p)
{
    skip_space(p);
    return *p->at == '"';
}

/* A name in quotes, which is unescaped where it stands. */
static bool read_name(struct parser *p, const char **name)
{
    *name = p->at;
    if (!at_name(p)) return because(&p->reason, "expected a quoted name at '%.40s'", p->at);
    char *to = ++p->at;
    *name = to;
    for (; *p->at && *p->at != '"'; p->at++) {
        if (*p->at == '\\' && p->at[1]) *to++ = *++p->at == 'n' ? '\n' : *p->at;
        else *to++ = *p->at;
    }
    if (!*p->at) return because(&p->reason, "a name has no closing quote");
    p->at++;
    *to = '\0';
    return true;
}

static bool read_node(struct parser *p, int *node)
{
    const char *name;
    if (!read_name(p, &name)) return false;
    *node = graph_find(&p->graph, name);
    return *node >= 0 || because(&p->reason, "there is no node \"%.100s\"", name);
}

static bool read_param(struct parser *p, int *param)
{
    const char *name;
    if (!read_name(p, &name)) return false;
    *param = graph_find_param(&p->graph, name);
    return *param >= 0 || because(&p->reason, "there is no parameter \"%.100s\"", name);
}

/* "[4x8x8x3]". */
static bool read_shape(struct parser *p, struct shape *shape)
{
    *shape = (struct shape){.dim = {1, 1, 1, 1}};
    if (!expect(p, '[')) return false;
    if (take(p, ']')) {
        *shape = (struct shape){0};
        return true;
    }
    do {
        if (shape->rank == 4) return because(&p->reason, "a shape has more than four dimensions");
        if (!read_number(p, 1, INT64_C(1) << 46, &shape->dim[shape->rank++])) return false;
    } while (take(p, 'x'));
    return expect(p, ']');
}

/* True if the line says the options of a pass (pass_text.h), or which pass has run (plan --dump=PASS). */
static bool is_head(struct parser *p)
{
    return p->line == 1 && (take_word(p, "options") || take_word(p, "pass"));
}

/* The next line that is not empty, nor a comment, nor what only the first may be; false: there is none. */
static bool next_line(struct parser *p)
{
    while (*p->next) {
        p->at = p->next;
        size_t length = strcspn(p->at, "\n");
        p->next = p->at + length + (p->at[length] == '\n');
        p->at[length] = '\0';
        p->line++;
        if (!at_end(p) && *p->at != '#' && !is_head(p)) return true;
    }
    p->at = p->next;
    return false;
}

static bool end_line(struct parser *p)
{
    return at_end(p) || because(&p->reason, "unexpected '%.40s'", p->at);
}

/* The network. */

static bool read_network(struct parser *p, const char **output)
{
    const char *arch;
    if (!expect_word(p, "network") || !read_name(p, &arch) || !expect_word(p, "-") || !expect(p, '>') ||
        !read_name(p, output) || !end_line(p)) return false;
    p->graph.arch = text_copy(arch);
    return true;
}

static bool read_inputs(struct parser *p, struct node_spec *spec, int inputs[OP_MAX_INPUTS])
{
    spec->inputs = inputs;
    if (!expect(p, '(')) return false;
    do {
        if (spec->input_count == OP_MAX_INPUTS) return because(&p->reason, "too many inputs");
        if (!read_node(p, &inputs[spec->input_count++])) return false;
    } while (take(p, ','));
    return expect(p, ')');
}

static bool read_op(struct parser *p, const struct op **op)
{
    char word[WORD];
    if (!read_word(p, word)) return false;
    *op = op_find(word);
    return *op || because(&p->reason, "no such op: %s", word);
}

/* The stage of node `node`, if the network is divided. */
static bool read_stage(struct parser *p, int node)
{
    int stage = -1;
    if (take_word(p, "stage") && !read_int(p, 0, NUMBER_MAX, &stage)) return false;
    if ((stage < 0) != !p->program.node_stages && node > 0)
        return because(&p->reason, "either all nodes have a stage or none");
    if (stage < 0) return true;
    p->program.node_stages = memory_resize(p->program.node_stages, (size_t)node + 1, sizeof(int));
    p->program.node_stages[node] = stage;
    return true;
}

static bool read_input(struct parser *p, const char *name)
{
    struct shape shape;
    if (!read_shape(p, &shape) || !read_stage(p, 0) || !end_line(p)) return false;
    if (shape.rank != 4) return because(&p->reason, "an image has four dimensions");
    char *arch = p->graph.arch;
    graph_begin(&p->graph, arch, shape);
    free(arch);
    free(p->graph.nodes[0].name);
    p->graph.nodes[0].name = text_copy(name);
    return true;
}

static bool read_layer(struct parser *p, const char *name)
{
    int inputs[OP_MAX_INPUTS];
    struct node_spec spec = {.name = name};
    char *where = text_format("%s:%d", p->file, p->line);
    bool right = read_op(p, &spec.op) && read_inputs(p, &spec, inputs) && read_stage(p, p->graph.count);
    spec.where = where;
    if (right) right = (spec.settings = op_settings_new(spec.op, p->at, &p->reason)) != NULL;
    if (right) right = graph_add(&p->graph, &spec, &p->reason);
    free(where);
    return right;
}

static bool read_node_line(struct parser *p)
{
    const char *name;
    if (!read_name(p, &name)) return false;
    if (p->graph.count == 0) return read_input(p, name);
    if (graph_find(&p->graph, name) >= 0)
        return because(&p->reason, "there is already a node \"%.100s\"", name);
    return read_layer(p, name);
}

static bool read_frozen(struct parser *p)
{
    int param;
    if (!read_param(p, &param) || !end_line(p)) return false;
    p->graph.params[param].frozen = true;
    return true;
}

static bool read_output(struct parser *p)
{
    struct graph_output output = {.weight = 0};
    const char *name;
    char *end;
    if (!read_name(p, &name) || !read_node(p, &output.node) || !expect_word(p, "weight")) return false;
    output.weight = strtod(p->at, &end);
    if (end == p->at) return because(&p->reason, "expected a weight: %.100s", p->at);
    p->at = end;
    output.name = text_copy(name);
    *array_push(p->graph.outputs, p->graph.output_count) = output;
    return end_line(p);
}

/* Up to the line on the program as a whole, which becomes the current one. */
static bool read_graph(struct parser *p)
{
    const char *output;
    if (!next_line(p) || !read_network(p, &output)) return because(&p->reason, "no network: %.100s", p->at);
    while (next_line(p)) {
        if (take_word(p, "program")) {
            p->graph.output = graph_find(&p->graph, output);
            return p->graph.output > 0 || because(&p->reason, "there is no node \"%.100s\"", output);
        }
        bool read = take_word(p, "frozen")   ? read_frozen(p)
                    : take_word(p, "output") ? read_output(p)
                                             : read_node_line(p);
        if (!read) return false;
    }
    return because(&p->reason, "there is no program");
}

/* The program as a whole. */

static bool read_type(struct parser *p, enum dtype *dtype)
{
    const char *words[DTYPE_COUNT + 1] = {NULL};
    int choice;
    for (int d = 0; d < DTYPE_COUNT; d++) words[d] = dtype_table[d].name;
    if (!read_choice(p, words, "type", &choice)) return false;
    *dtype = (enum dtype)choice;
    return true;
}

static bool read_micro_batches(struct parser *p)
{
    struct program *program = &p->program;
    if (!read_int(p, 1, NUMBER_MAX, &program->micro_batches)) return false;
    program->all_micro_batches = program->micro_batches;
    if (!take_word(p, "from")) return true;
    return read_int(p, 0, NUMBER_MAX, &program->first_micro_batch) && expect_word(p, "of") &&
           read_int(p, program->first_micro_batch + program->micro_batches, INT32_MAX,
                    &program->all_micro_batches);
}

static bool read_schedule(struct parser *p)
{
    int choice;
    if (!read_choice(p, schedule_words, "schedule", &choice)) return false;
    p->program.schedule = (enum pipeline_schedule)choice;
    return true;
}

static bool read_header_part(struct parser *p)
{
    struct program *program = &p->program;
    char word[WORD];
    if (!read_word(p, word)) return false;
    if (strcmp(word, "batch") == 0) return read_int(p, 1, NUMBER_MAX, &program->batch);
    if (strcmp(word, "micro-batches") == 0) return read_micro_batches(p);
    if (strcmp(word, "stage") == 0)
        return read_int(p, 0, NUMBER_MAX, &program->stage) && expect_word(p, "of") &&
               read_int(p, program->stage + 1, NUMBER_MAX, &program->stages);
    if (strcmp(word, "schedule") == 0) return read_schedule(p);
    if (strcmp(word, "storage") == 0) return read_type(p, &program->storage);
    if (strcmp(word, "wire") == 0) return read_type(p, &program->wire);
    if (strcmp(word, "streams") == 0) return read_int(p, 1, STREAMS_MAX, &program->streams);
    if (strcmp(word, "plans") == 0) return read_int(p, 0, NUMBER_MAX, &program->kernel_plan_count);
    if (strcmp(word, "backward") == 0) return read_int(p, 0, NUMBER_MAX, &program->first_backward);
    program->sync_bn = strcmp(word, "sync_bn") == 0;
    return program->sync_bn || because(&p->reason, "a program has no '%s'", word);
}

static bool check_stages(struct parser *p)
{
    const struct program *program = &p->program;
    if ((program->stages > 1) != (program->node_stages != NULL))
        return because(&p->reason, "nodes have a stage if the program is one of several, and only then");
    for (int n = 0; program->node_stages && n < p->graph.count; n++)
        if (program->node_stages[n] >= program->stages)
            return because(&p->reason, "\"%.100s\" is not in a stage", p->graph.nodes[n].name);
    return true;
}

static bool read_header(struct parser *p)
{
    struct program *program = &p->program;
    program->stages = program->streams = program->micro_batches = program->all_micro_batches = 1;
    program->machine = machine_gpu(NULL, false);
    for (const struct program_word *word = program_value_words; word->name; word++)
        *(int *)((char *)program + word->offset) = -1;
    program->gradients = memory_new((size_t)p->graph.param_count, sizeof *program->gradients);
    for (int g = 0; g < p->graph.param_count; g++) program->gradients[g] = -1;
    program->training = take_word(p, "training");
    if (!program->training && !expect_word(p, "evaluation")) return false;
    while (take(p, ','))
        if (!read_header_part(p)) return false;
    if (!end_line(p) || !check_stages(p)) return false;
    if (program->batch % program->micro_batches != 0 ||
        program->all_micro_batches % program->micro_batches != 0 || program->batch == 0)
        return because(&p->reason, "%d micro-batches do not divide %d images, or %d micro-batches",
                       program->micro_batches, program->batch, program->all_micro_batches);
    return true;
}

/* Values. */

static bool read_ordinal(struct parser *p, int *ordinal)
{
    *ordinal = 1;
    return !take(p, '#') || read_int(p, 2, NUMBER_MAX, ordinal);
}

static bool note_value(struct parser *p)
{
    struct named named;
    if (!read_name(p, &named.name) || !read_ordinal(p, &named.ordinal) || !expect(p, ':')) return false;
    int count = p->program.value_count;
    *array_push(p->pending, count) = (struct pending){p->at, p->line};
    count = p->program.value_count;
    named.value = count;
    *array_push(p->names, count) = named;
    const struct value value = {.node = -1, .index = -1};
    *array_push(p->program.values, p->program.value_count) = value;
    p->program.values[p->program.value_count - 1].name = text_copy(named.name);
    return true;
}

static int named_compare(const void *a, const void *b)
{
    const struct named *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order ? order : left->ordinal - right->ordinal;
}

static bool sort_names(struct parser *p)
{
    int count = p->program.value_count;
    if (count > 0) qsort(p->names, (size_t)count, sizeof *p->names, named_compare);
    for (int k = 1; k < count; k++)
        if (named_compare(&p->names[k - 1], &p->names[k]) == 0)
            return because(&p->reason, "there are two values \"%.100s\"#%d", p->names[k].name,
                           p->names[k].ordinal);
    return true;
}

static bool read_value(struct parser *p, int *value)
{
    struct named wanted;
    if (!read_name(p, &wanted.name) || !read_ordinal(p, &wanted.ordinal)) return false;
    const struct named *found = p->program.value_count == 0 ? NULL
        : bsearch(&wanted, p->names, (size_t)p->program.value_count, sizeof wanted, named_compare);
    if (!found)
        return because(&p->reason, "there is no value \"%.100s\"#%d", wanted.name, wanted.ordinal);
    *value = found->value;
    return true;
}

static bool read_offset(struct parser *p, struct value *value)
{
    return expect_word(p, "at") && read_number(p, 0, INT64_C(1) << 58, &value->offset);
}

static bool read_home(struct parser *p, enum value_home home, struct value *value)
{
    value->home = home;
    switch (home) {
    case HOME_ARENA:
    case HOME_FLAGS: return true;
    case HOME_PARAM:
        value->low = take_word(p, "low");
        return read_param(p, &value->index);
    case HOME_PART:
        return read_value(p, &value->whole) && read_offset(p, value);
    case HOME_MAIL:
        return read_int(p, 0, p->program.stages - 1, &value->index) && read_offset(p, value);
    case HOME_IMAGES:
    case HOME_TARGETS:
    case HOME_RESULT:
    case HOME_HOST: return read_offset(p, value);
    }
    return false;
}

static bool read_meaning(struct parser *p, int id)
{
    char word[WORD];
    if (!read_word(p, word)) return false;
    for (const struct program_word *at = program_value_words; at->name; at++) {
        if (strcmp(at->name, word) != 0) continue;
        *(int *)((char *)&p->program + at->offset) = id;
        return true;
    }
    return because(&p->reason, "a program has no value '%s'", word);
}

static bool read_updates(struct parser *p, int id)
{
    int param;
    if (!read_param(p, &param)) return false;
    p->program.gradients[param] = id;
    return true;
}

/* Plans take them if they are those of the first values, without a gap. */
static bool read_placed(struct parser *p, int id)
{
    struct program *program = &p->program;
    if (program->offset_count != id) return because(&p->reason, "a value before it has no place");
    return read_number(p, -1, INT64_C(1) << 58, array_push(program->offsets, program->offset_count));
}

static bool read_value_part(struct parser *p, int id)
{
    struct value *value = &p->program.values[id];
    if (take_word(p, "of")) return read_node(p, &value->node);
    if (take_word(p, "is")) return read_meaning(p, id);
    if (take_word(p, "updates")) return read_updates(p, id);
    if (take_word(p, "placed")) return read_placed(p, id);
    if (take_word(p, "divided")) return value->divided = true;
    int home;
    return read_choice(p, home_words, "home", &home) && read_home(p, (enum value_home)home, value);
}

static bool read_value_line(struct parser *p, int id)
{
    struct value *value = &p->program.values[id];
    int kind;
    if (!read_type(p, &value->dtype) || !read_shape(p, &value->shape) ||
        !read_choice(p, value_kind_words, "kind", &kind)) return false;
    value->kind = (enum value_kind)kind;
    double bytes = (double)dtype_bytes(value->dtype);
    for (int d = 0; d < value->shape.rank; d++) bytes *= (double)value->shape.dim[d];
    p->bytes += bytes;
    if (p->bytes > BYTES_MAX) return because(&p->reason, "the values exceed 2^58 bytes");
    value_set_bytes(value);
    while (take(p, ','))
        if (!read_value_part(p, id)) return false;
    return end_line(p);
}

static bool check_parts(struct parser *p)
{
    const struct program *program = &p->program;
    for (int v = 0; v < program->value_count; v++) {
        const struct value *part = &program->values[v];
        if (part->home == HOME_PART && program->values[part->whole].home != HOME_ARENA)
            return because(&p->reason, "\"%.100s\" is part of a value that is not in the arena", part->name);
    }
    return true;
}

/* Bytes of a block up to the end of its values, each of which ends at a multiple of 256. */
static int64_t block_bytes(const struct program *program, enum value_home home)
{
    int64_t bytes = 0;
    for (int v = 0; v < program->value_count; v++) {
        const struct value *value = &program->values[v];
        int64_t end = value->offset + (int64_t)align_up((size_t)value->bytes, 256);
        if (value->home == home && end > bytes) bytes = end;
    }
    return bytes;
}

static int64_t bytes_of(const struct program *program, int value)
{
    return value < 0 ? 0 : program->values[value].bytes;
}

/* Up to the end of the last of them. */
static int64_t targets_bytes(const struct program *program)
{
    int64_t bytes = 0;
    for (int v = 0; v < program->value_count; v++) {
        const struct value *value = &program->values[v];
        if (value->home == HOME_TARGETS && value->offset + value->bytes > bytes)
            bytes = value->offset + value->bytes;
    }
    return bytes;
}

/* The lines of values, when all names are known; the current line stays the one behind them. */
static bool read_values(struct parser *p)
{
    struct program *program = &p->program;
    char *at = p->at;
    int line = p->line;
    if (!sort_names(p)) return false;
    for (int v = 0; v < program->value_count; v++) {
        p->at = p->pending[v].rest;
        p->line = p->pending[v].line;
        if (!read_value_line(p, v)) return false;
    }
    p->at = at;
    p->line = line;
    program->images_bytes = bytes_of(program, program->images);
    program->targets_bytes = targets_bytes(program);
    program->results_bytes = block_bytes(program, HOME_RESULT);
    program->host_bytes = block_bytes(program, HOME_HOST);
    return check_parts(p);
}

/* Instructions. */

/* "{key=value}", or else those of the node, if it is of the same op, or the op's defaults. */
static bool read_settings(struct parser *p, struct instruction *at)
{
    char *text = p->at;
    if (!take(p, '{')) return true;
    text = p->at;
    p->at += strcspn(p->at, "}");
    if (!*p->at) return because(&p->reason, "settings have no closing brace");
    *p->at++ = '\0';
    struct program *program = &p->program;
    for (int k = 0; k < program->internal_count && !at->settings; k++)
        if (program->internals[k].op == at->op && strcmp(p->settings[k], text) == 0)
            at->settings = program->internals[k].settings;
    if (at->settings) return true;
    if (!at->op) return because(&p->reason, "only ops have settings");
    void *settings = op_settings_new(at->op, text, &p->reason);
    if (!settings) return false;
    *array_push(p->settings, p->settings_count) = text;
    *array_push(program->internals, program->internal_count) = (struct internal){at->op, settings};
    at->settings = settings;
    return true;
}

static bool check_settings(struct parser *p, struct instruction *at)
{
    if (at->settings || !at->op) return true;
    const struct node *node = at->node >= 0 ? &p->graph.nodes[at->node] : NULL;
    if (node && node->op == at->op) at->settings = node->settings;
    return at->settings || at->op->settings_size == 0 ||
           because(&p->reason, "%s needs settings, in braces", at->op->name);
}

#define INDEX_MAX 0x7fffff       /* what the index of an operand can be */

/* The operands of an instruction as the text has them. */
struct operands {
    struct operand *list;
    int count;
};

/* An operand that is read and written is listed in both places. */
static bool operand_note(struct parser *p, struct operands *operands, const struct operand *operand)
{
    for (int k = 0; k < operands->count; k++) {
        struct operand *at = &operands->list[k];
        if (at->role != operand->role || at->index != operand->index) continue;
        at->access |= operand->access;
        return at->value == operand->value ||
               because(&p->reason, "it has two values for %s[%d]", operand_words[at->role], (int)at->index);
    }
    *array_push(operands->list, operands->count) = *operand;
    return true;
}

static bool read_operand(struct parser *p, struct operand *operand)
{
    int role, index = 0;
    if (!read_choice(p, operand_words, "operand", &role)) return false;
    if (take(p, '[') && (!read_int(p, 0, INDEX_MAX, &index) || !expect(p, ']'))) return false;
    if (index > 0 && !operand_is_list((enum operand_role)role))
        return because(&p->reason, "there is only one %s", operand_words[role]);
    operand->role = (unsigned)role & 0x3f;
    operand->index = (unsigned)index & INDEX_MAX;
    return read_value(p, &operand->value);
}

static bool read_operands(struct parser *p, enum access access, struct operands *operands)
{
    struct operand operand = {.access = access};
    if (!expect(p, '(')) return false;
    if (take(p, ')')) return true;
    do {
        if (!read_operand(p, &operand) || !operand_note(p, operands, &operand)) return false;
    } while (take(p, ','));
    return expect(p, ')');
}

static bool read_epilogue(struct parser *p, struct instruction *at)
{
    int kind, role = OPERAND_ROLES;
    if (!read_choice(p, epilogue_words, "epilogue", &kind)) return false;
    if (at->epilogue_count == CALL_MAX_EPILOGUES)
        return because(&p->reason, "it has more than %d epilogues", CALL_MAX_EPILOGUES);
    for (int r = 0; r < OPERAND_ROLES && role == OPERAND_ROLES; r++)
        if (take_word(p, operand_words[r])) role = r;
    skip_space(p);
    char *end = (char *)p->at;
    double argument = isdigit((unsigned char)*p->at) ? strtod(p->at, &end) : 0;
    p->at = end;
    at->epilogues[at->epilogue_count++] = (struct epilogue){(uint8_t)kind, (uint8_t)role, argument};
    return true;
}

static bool read_epilogues(struct parser *p, struct instruction *at)
{
    if (!take_word(p, "then")) return true;
    do {
        if (!read_epilogue(p, at)) return false;
    } while (take(p, ','));
    return true;
}

static bool read_all_operands(struct parser *p, struct instruction *at, struct operands *operands)
{
    return read_operands(p, ACCESS_READ, operands) && expect_word(p, "-") && expect(p, '>') &&
           read_operands(p, ACCESS_WRITE, operands) && read_epilogues(p, at) &&
           (!take_word(p, "shapes") || read_operands(p, ACCESS_SHAPE, operands));
}

/* How many operands of a role an instruction may have: gradients as many as there is what they are of, where
 * the phase writes any. */
static int most_operands(const struct instruction *at, enum operand_role role)
{
    bool back = instruction_is_backward(at);
    bool optimizes = at->kind == INSTRUCTION_UPDATE || at->kind == INSTRUCTION_MEASURE;
    if (!operand_is_list(role)) return 1;
    if (role == OPERAND_X) return OP_MAX_INPUTS;
    if (role == OPERAND_SAVED) return OP_MAX_SAVED;
    if (role == OPERAND_D_X)
        return back && at->phase != PHASE_BACKWARD_PARAMS ? operand_count(at, OPERAND_X) : 0;
    if (optimizes) return role == OPERAND_PARAM && at->kind != INSTRUCTION_UPDATE ? 0 : INDEX_MAX + 1;
    if (role == OPERAND_PARAM) return OP_MAX_PARAMS;
    return back && at->phase != PHASE_BACKWARD_DATA ? operand_count(at, OPERAND_PARAM) : 0;
}

static bool check_count(struct parser *p, const struct instruction *at, enum operand_role role)
{
    int count = operand_count(at, role);
    if (count > most_operands(at, role))
        return because(&p->reason, "it has no %s[%d]", operand_words[role], count - 1);
    for (int k = 0; k < count && (role == OPERAND_X || (role == OPERAND_PARAM && at->op)); k++)
        if (operand(at, role, k) < 0) return because(&p->reason, "it has no %s[%d]", operand_words[role], k);
    return true;
}

/* All inputs and parameters of an op are known; some of what it saves may not be used. */
static bool set_operands(struct parser *p, struct instruction *at, const struct operands *operands)
{
    int others = 0;
    for (int k = 0; k < operands->count; k++) {
        const struct operand *o = &operands->list[k];
        operand_set(at, (enum operand_role)o->role, (int)o->index, o->value);
        enum operand_kind kind = operand_rows[o->role].kind;
        others += kind == OPERAND_KIND_TENSOR || kind == OPERAND_KIND_SUMS;
    }
    if (others > CALL_MAX_OPERANDS)
        return because(&p->reason, "it has more than %d operands that not all calls have", CALL_MAX_OPERANDS);
    for (enum operand_role role = OPERAND_X; role < OPERAND_ROLES; role++)
        if (!check_count(p, at, role)) return false;
    for (int k = 0; k < at->epilogue_count; k++) {
        enum operand_role role = (enum operand_role)at->epilogues[k].operand;
        if (role < OPERAND_ROLES && operand(at, role, 0) < 0)
            return because(&p->reason, "'%s %s' has no operand", epilogue_words[at->epilogues[k].kind],
                           operand_words[role]);
    }
    return true;
}

static bool read_waits(struct parser *p, struct instruction *at)
{
    do {
        int before;
        if (!read_int(p, 0, p->program.count - 1, &before)) return false;
        *array_push(at->waits, at->wait_count) = before;
    } while (take(p, ','));
    return true;
}

static bool read_weight(struct parser *p, struct instruction *at)
{
    char *end;
    skip_space(p);
    at->loss_weight = strtof(p->at, &end);
    if (end == p->at) return because(&p->reason, "expected a number at '%.40s'", p->at);
    p->at = end;
    return true;
}

static bool read_flag(struct parser *p, struct instruction *at)
{
    const struct program *program = &p->program;
    char word[WORD];
    if (!read_word(p, word)) return false;
    if (strcmp(word, "plan") == 0) return read_int(p, -1, program->kernel_plan_count - 1, &at->kernel_plan);
    if (strcmp(word, "micro-batch") == 0)
        return read_int(p, 0, program->micro_batches - 1, &at->micro_batch);
    if (strcmp(word, "stage") == 0) return read_int(p, 0, program->stages - 1, &at->peer);
    if (strcmp(word, "ranks") == 0) return read_int(p, 1, NUMBER_MAX, &at->ranks);
    if (strcmp(word, "weight") == 0) return read_weight(p, at);
    if (strcmp(word, "stream") == 0) return read_int(p, 0, program->streams - 1, &at->stream);
    if (strcmp(word, "waits") == 0) return read_waits(p, at);
    if (strcmp(word, "behind") == 0) return read_int(p, 0, program->count - 1, &at->behind);
    if (strcmp(word, "among_stages") == 0) return at->among_stages = true;
    return because(&p->reason, "an instruction has no '%s'", word);
}

static bool read_kind(struct parser *p, struct instruction *at)
{
    int number, kind, phase;
    if (!read_int(p, 0, NUMBER_MAX, &number)) return false;
    if (number != p->program.count) return because(&p->reason, "its number is %d", p->program.count);
    if (!read_choice(p, instruction_kind_words, "kind", &kind) ||
        !read_choice(p, phase_words, "phase", &phase)) return false;
    at->kind = (enum instruction_kind)kind;
    at->phase = (enum phase)phase;
    if (kind != INSTRUCTION_OP) return expect_word(p, "-");
    return read_op(p, &at->op);
}

static bool read_instruction_name(struct parser *p, struct instruction *at)
{
    const char *name;
    if (at_name(p) && !read_node(p, &at->node)) return false;
    at->kernel_plan = at->node;
    if (take_word(p, "called")) {
        if (!read_name(p, &name)) return false;
        at->name = text_copy(name);
    } else {
        at->name = instruction_name(&p->program, at->node, at->phase);
    }
    return at->name || because(&p->reason, "it has neither node nor name");
}

/* Checks that linking and planning rely on. */
static bool check_op(struct parser *p, const struct instruction *at)
{
    int mean = at->op->moments.mean, variance = at->op->moments.variance;
    if (operand_x(at, 0) < 0 || operand_y(at) < 0) return because(&p->reason, "an op has x and y");
    FOR_OPERANDS(o, at)
        if (o->role == OPERAND_PARAM && p->program.values[o->value].home != HOME_PARAM)
            return because(&p->reason, "params[%d] is not in the store", (int)o->index);
    if (at->phase != PHASE_UPDATE) return true;
    bool moments = operand(at, OPERAND_SAVED, mean) >= 0 && operand(at, OPERAND_SAVED, variance) >= 0;
    return moments || because(&p->reason, "it has no moments");
}

static bool check_kind(struct parser *p, const struct instruction *at)
{
    bool x = false, y = false;
    switch (at->kind) {
    case INSTRUCTION_OP: return check_op(p, at);
    case INSTRUCTION_UPDATE: break;
    case INSTRUCTION_MEASURE:
    case INSTRUCTION_RECEIVE: y = true; break;
    case INSTRUCTION_SEND: x = true; break;
    case INSTRUCTION_COPY_TO_HOST:
    case INSTRUCTION_COPY_FROM_HOST:
    case INSTRUCTION_ALL_TO_ALL:
    case INSTRUCTION_ALL_GATHER:
    case INSTRUCTION_ALL_REDUCE: x = y = true; break;
    }
    if ((!x || operand_x(at, 0) >= 0) && (!y || operand_y(at) >= 0)) return true;
    return because(&p->reason, "it needs%s%s", x ? " x" : "", y ? " y" : "");
}

/* True if linking gives the operands the accesses that the text says they have. */
static bool check_accesses(struct parser *p, const struct instruction *at, const struct operands *operands)
{
    static const char *const accesses[] = {"only a shape", "read", "written", "read and written"};
    for (int k = 0; k < operands->count; k++) {
        const struct operand *said = &operands->list[k];
        FOR_OPERANDS(o, at) {
            unsigned access = o->access & (ACCESS_READ | ACCESS_WRITE);
            if (o->role == said->role && o->index == said->index && access != said->access)
                return because(&p->reason, "%s[%d] is %s, not %s", operand_words[said->role],
                               (int)said->index, accesses[access], accesses[said->access]);
        }
    }
    return true;
}

static bool read_instruction(struct parser *p, struct instruction *at, struct operands *operands)
{
    if (!read_kind(p, at) || !read_settings(p, at) || !read_instruction_name(p, at) ||
        !check_settings(p, at) || !read_all_operands(p, at, operands)) return false;
    while (!at_end(p))
        if (!read_flag(p, at)) return false;
    if (at->kernel_plan >= p->program.kernel_plan_count)
        return because(&p->reason, "there are only %d plans", p->program.kernel_plan_count);
    if (!set_operands(p, at, operands) || !check_kind(p, at)) return false;
    instruction_link(&p->program, at);
    return check_accesses(p, at, operands);
}

static bool read_instruction_line(struct parser *p)
{
    struct instruction at = instruction_new(PHASE_FORWARD, NULL, NULL, NULL);
    struct operands operands = {0};
    bool right = read_instruction(p, &at, &operands);
    free(operands.list);
    if (right) *array_push(p->program.instructions, p->program.count) = at;
    else instruction_free(&at);
    return right;
}

static bool read_program(struct parser *p)
{
    if (!read_graph(p) || !read_header(p)) return false;
    p->program.graph = &p->graph;
    bool more = next_line(p);
    for (; more && at_name(p); more = next_line(p))
        if (!note_value(p)) return false;
    if (!read_values(p)) return false;
    for (; more; more = next_line(p))
        if (!read_instruction_line(p)) return false;
    return p->program.first_backward <= p->program.count ||
           because(&p->reason, "the program has no instruction %d", p->program.first_backward);
}

enum status program_parse(const char *file, const char *text, struct program *program)
{
    char *copy = text_copy(text);
    struct parser p = {.file = file, .next = copy};
    enum status status = OK;
    if (!read_program(&p)) status = fail(USAGE, "%s:%d: %s", file, p.line, p.reason.text);
    p.program.fused = memory_new(1, sizeof *p.program.fused);
    *p.program.fused = p.graph;
    p.program.graph = p.program.fused;
    if (status == OK) *program = p.program;
    else program_free(&p.program);
    free(p.names);
    free(p.pending);
    free(p.settings);
    free(copy);
    return status;
}
