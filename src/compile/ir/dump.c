#include "compile/ir/dump.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/ir/program_words.h"

/* A value's name and id. */
struct named {
    const char *name;
    int value;
};

static int named_compare(const void *a, const void *b)
{
    const struct named *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order ? order : left->value - right->value;
}

static int program_value(const struct program *program, const struct program_word *word)
{
    return *(const int *)((const char *)program + word->offset);
}

static void use(const struct program *program, int *ordinals, int value)
{
    if (value < 0) return;
    ordinals[value] = ordinals[value_placed(program, value)] = 1;
}

/* ordinals[value]: 1 where an instruction or the program names it, 0 otherwise. */
static void find_used(const struct program *program, int *ordinals)
{
    for (int i = 0; i < program->count; i++)
        FOR_OPERANDS(o, &program->instructions[i]) use(program, ordinals, o->value);
    for (const struct program_word *word = program_value_words; word->name; word++)
        use(program, ordinals, program_value(program, word));
    for (int p = 0; p < program->graph->param_count; p++) use(program, ordinals, program->gradients[p]);
}

/* ordinals[value]: the number of used values up to this one with its name. Micro-batches, sums of gradients
 * and recomputation create values with equal names. */
static int *ordinals_make(const struct program *program)
{
    size_t values = (size_t)program->value_count, count = 0;
    struct named *sorted = memory_new(values, sizeof *sorted);
    int *ordinals = memory_new(values, sizeof *ordinals);
    find_used(program, ordinals);
    for (int v = 0; v < program->value_count; v++)
        if (ordinals[v]) sorted[count++] = (struct named){program->values[v].name, v};
    qsort(sorted, count, sizeof *sorted, named_compare);
    for (size_t k = 1; k < count; k++)
        if (strcmp(sorted[k].name, sorted[k - 1].name) == 0)
            ordinals[sorted[k].value] = ordinals[sorted[k - 1].value] + 1;
    free(sorted);
    return ordinals;
}

/* The state of writing a program. */
struct dump {
    const struct program *program;
    const int *ordinals;
    int *updated;            /* by value: the parameter whose gradient the update reads there; -1 */
    struct text *text;
};

static void add_name(struct text *text, const char *name)
{
    text_add(text, "\"");
    for (; *name; name++) {
        if (*name == '\n') text_add(text, "\\n");
        else text_add(text, *name == '"' || *name == '\\' ? "\\%c" : "%c", *name);
    }
    text_add(text, "\"");
}

static void add_node(const struct dump *dump, int node)
{
    if (node >= 0) add_name(dump->text, dump->program->graph->nodes[node].name);
}

static void add_value(const struct dump *dump, int id)
{
    add_name(dump->text, dump->program->values[id].name);
    if (dump->ordinals[id] > 1) text_add(dump->text, "#%d", dump->ordinals[id]);
}

static void dump_node(const struct dump *dump, int n)
{
    const struct program *program = dump->program;
    const struct node *node = &program->graph->nodes[n];
    char shape[SHAPE_TEXT];
    add_name(dump->text, node->name);
    if (!node->op) text_add(dump->text, " [%s]", shape_text(node->shape, shape));
    else text_add(dump->text, " %s", node->op->name);
    for (int i = 0; i < node->input_count; i++) {
        text_add(dump->text, i > 0 ? ", " : " (");
        add_node(dump, node->inputs[i]);
    }
    if (node->op) text_add(dump->text, ")");
    if (program->node_stages) text_add(dump->text, " stage %d", program->node_stages[n]);
    if (node->settings) op_settings_print(node->op, node->settings, dump->text);
    text_add(dump->text, "\n");
}

static void dump_network(const struct dump *dump)
{
    const struct graph *graph = dump->program->graph;
    text_add(dump->text, "network ");
    add_name(dump->text, graph->arch);
    text_add(dump->text, " -> ");
    add_node(dump, graph->output);
    text_add(dump->text, "\n");
    for (int n = 0; n < graph->count; n++) dump_node(dump, n);
    for (int i = 0; i < graph->output_count; i++) {
        text_add(dump->text, "output ");
        add_name(dump->text, graph->outputs[i].name);
        text_add(dump->text, " ");
        add_node(dump, graph->outputs[i].node);
        text_add(dump->text, " weight %.17g\n", graph->outputs[i].weight);
    }
    for (int p = 0; p < graph->param_count; p++) {
        if (!graph->params[p].frozen) continue;
        text_add(dump->text, "frozen ");
        add_name(dump->text, graph->params[p].name);
        text_add(dump->text, "\n");
    }
}

static void dump_header(const struct program *program, struct text *text)
{
    text_add(text, "program %s, batch %d, micro-batches %d", program->training ? "training" : "evaluation",
             program->batch, program->micro_batches);
    if (program->all_micro_batches > program->micro_batches)
        text_add(text, " from %d of %d", program->first_micro_batch, program->all_micro_batches);
    if (program->stages > 1)
        text_add(text, ", stage %d of %d, schedule %s", program->stage, program->stages,
                 schedule_words[program->schedule]);
    text_add(text, ", storage %s", dtype_table[program->storage].name);
    if (program->wire != F32) text_add(text, ", wire %s", dtype_table[program->wire].name);
    if (program->sync_bn) text_add(text, ", sync_bn");
    text_add(text, ", streams %d, plans %d, backward %d\n", program->streams > 1 ? program->streams : 1,
             program->kernel_plan_count, program->first_backward);
}

/* Where a value lies; nothing for the arena. */
static void add_home(const struct dump *dump, const struct value *value)
{
    struct text *text = dump->text;
    if (value->home == HOME_ARENA) return;
    text_add(text, ", %s", home_words[value->home]);
    if (value->home == HOME_PARAM) {
        text_add(text, value->low ? " low " : " ");
        add_name(text, dump->program->graph->params[value->index].name);
        return;
    }
    if (value->home == HOME_PART) {
        text_add(text, " ");
        add_value(dump, value->whole);
    }
    if (value->home == HOME_MAIL) text_add(text, " %d", value->index);
    if (value->home != HOME_FLAGS) text_add(text, " at %" PRId64, value->offset);
}

/* Offsets that fitting has found, by which a plan is made, are its places. */
static void dump_value(const struct dump *dump, int id)
{
    const struct program *program = dump->program;
    const struct value *value = &program->values[id];
    struct text *text = dump->text;
    char shape[SHAPE_TEXT];
    add_value(dump, id);
    text_add(text, ":%s[%s] %s", dtype_table[value->dtype].name, shape_text(value->shape, shape),
             value_kind_words[value->kind]);
    add_home(dump, value);
    if (value->node >= 0) {
        text_add(text, ", of ");
        add_node(dump, value->node);
    }
    if (value->divided) text_add(text, ", divided");
    for (const struct program_word *word = program_value_words; word->name; word++)
        if (program_value(program, word) == id) text_add(text, ", is %s", word->name);
    if (dump->updated[id] >= 0) {
        text_add(text, ", updates ");
        add_name(text, program->graph->params[dump->updated[id]].name);
    }
    if (program->offsets && id < program->offset_count)
        text_add(text, ", placed %" PRId64, program->offsets[id]);
    text_add(text, "\n");
}

/* The operands that are read, or written, or of which only the shape matters. */
static void add_operands(const struct dump *dump, const struct instruction *at, unsigned access)
{
    int added = 0;
    text_add(dump->text, "(");
    FOR_OPERANDS(o, at) {
        if (access ? !(o->access & access) : o->access != ACCESS_SHAPE) continue;
        text_add(dump->text, "%s%s", added++ ? ", " : "", operand_words[o->role]);
        if (o->index > 0) text_add(dump->text, "[%d]", (int)o->index);
        text_add(dump->text, " ");
        add_value(dump, o->value);
    }
    text_add(dump->text, ")");
}

static void add_epilogues(const struct dump *dump, const struct instruction *at)
{
    for (int k = 0; k < at->epilogue_count; k++) {
        const struct epilogue *epilogue = &at->epilogues[k];
        text_add(dump->text, "%s%s", k > 0 ? ", " : " then ", epilogue_words[epilogue->kind]);
        if (epilogue->operand != OPERAND_ROLES) text_add(dump->text, " %s", operand_words[epilogue->operand]);
        if (epilogue->argument != 0) text_add(dump->text, " %.17g", epilogue->argument);
    }
}

static bool has_shapes(const struct instruction *at)
{
    FOR_OPERANDS(o, at)
        if (o->access == ACCESS_SHAPE) return true;
    return false;
}

/* Settings that are not the node's own. */
static void add_settings(const struct dump *dump, const struct instruction *at)
{
    const void *of_node = at->node >= 0 ? dump->program->graph->nodes[at->node].settings : NULL;
    struct text settings = {0};
    if (!at->settings || at->settings == of_node) return;
    op_settings_print(at->op, at->settings, &settings);
    text_add(dump->text, "{%s} ", settings.data ? settings.data + 1 : "");
    text_free(&settings);
}

/* True if it is called as instruction_name says. */
static bool has_usual_name(const struct dump *dump, const struct instruction *at)
{
    char *name = instruction_name(dump->program, at->node, at->phase);
    bool usual = name && strcmp(name, at->name) == 0;
    free(name);
    return usual;
}

static void add_flags(const struct dump *dump, const struct instruction *at)
{
    struct text *text = dump->text;
    if (at->kernel_plan != at->node) text_add(text, " plan %d", at->kernel_plan);
    if (dump->program->micro_batches > 1) text_add(text, " micro-batch %d", at->micro_batch);
    if (instruction_is_message(at)) text_add(text, " stage %d", at->peer);
    if (at->among_stages) text_add(text, " among_stages");
    if (at->ranks > 0) text_add(text, " ranks %d", at->ranks);
    if (at->loss_weight != 1) text_add(text, " weight %.9g", (double)at->loss_weight);
    text_add(text, " stream %d", at->stream);
    for (int k = 0; k < at->wait_count; k++) text_add(text, "%s%d", k ? "," : " waits ", at->waits[k]);
    if (at->behind >= 0) text_add(text, " behind %d", at->behind);
}

static void dump_instruction(const struct dump *dump, int i)
{
    const struct instruction *at = &dump->program->instructions[i];
    text_add(dump->text, "%d %s %s %s ", i, instruction_kind_words[at->kind], phase_words[at->phase],
             at->op ? at->op->name : "-");
    add_settings(dump, at);
    if (at->node >= 0) {
        add_node(dump, at->node);
        text_add(dump->text, " ");
    }
    if (!has_usual_name(dump, at)) {
        text_add(dump->text, "called ");
        add_name(dump->text, at->name);
        text_add(dump->text, " ");
    }
    add_operands(dump, at, ACCESS_READ);
    text_add(dump->text, " -> ");
    add_operands(dump, at, ACCESS_WRITE);
    add_epilogues(dump, at);
    if (has_shapes(at)) {
        text_add(dump->text, " shapes ");
        add_operands(dump, at, ACCESS_SHAPE);
    }
    add_flags(dump, at);
    text_add(dump->text, "\n");
}

static int *updated_make(const struct program *program)
{
    int *updated = memory_new((size_t)program->value_count, sizeof *updated);
    for (int v = 0; v < program->value_count; v++) updated[v] = -1;
    for (int p = 0; p < program->graph->param_count; p++)
        if (program->gradients[p] >= 0) updated[program->gradients[p]] = p;
    return updated;
}

void program_dump(const struct program *program, struct text *text)
{
    int *ordinals = ordinals_make(program), *updated = updated_make(program);
    const struct dump dump = {program, ordinals, updated, text};
    dump_network(&dump);
    dump_header(program, text);
    for (int v = 0; v < program->value_count; v++)
        if (ordinals[v]) dump_value(&dump, v);
    for (int i = 0; i < program->count; i++) dump_instruction(&dump, i);
    free(ordinals);
    free(updated);
}
