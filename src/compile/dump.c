#include "compile/dump.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static const char *const phase_names[PHASE_COUNT] = {
    [PHASE_FORWARD] = "forward", [PHASE_BACKWARD] = "backward",
    [PHASE_BACKWARD_DATA] = "backward_data", [PHASE_BACKWARD_PARAMS] = "backward_params",
    [PHASE_UPDATE] = "update", [PHASE_RECOMPUTE] = "recompute",
};

static const char *const kind_names[] = {
    [INSTRUCTION_OP] = "op", [INSTRUCTION_UPDATE] = "update", [INSTRUCTION_MEASURE] = "measure",
    [INSTRUCTION_COPY_TO_HOST] = "copy_to_host", [INSTRUCTION_COPY_FROM_HOST] = "copy_from_host",
    [INSTRUCTION_SEND] = "send", [INSTRUCTION_RECEIVE] = "receive",
    [INSTRUCTION_ALL_TO_ALL] = "all_to_all", [INSTRUCTION_ALL_GATHER] = "all_gather",
    [INSTRUCTION_ALL_REDUCE] = "all_reduce",
};

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

/* ordinals[value]: 1 where an instruction reads or writes it, 0 otherwise. */
static void find_used(const struct program *program, int *ordinals)
{
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        for (int k = 0; k < at->read_count; k++) ordinals[at->reads[k]] = 1;
        for (int k = 0; k < at->write_count; k++) ordinals[at->writes[k]] = 1;
    }
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
    struct text *text;
};

static void add_value(const struct dump *dump, int id)
{
    const struct value *value = &dump->program->values[id];
    char shape[SHAPE_TEXT];
    text_add(dump->text, "\"%s\"", value->name);
    if (dump->ordinals[id] > 1) text_add(dump->text, "#%d", dump->ordinals[id]);
    text_add(dump->text, ":%s[%s]", dtype_table[value->dtype].name, shape_text(value->shape, shape));
    if (value->home == HOME_PART)
        text_add(dump->text, " in \"%s\" at %" PRId64, dump->program->values[value->whole].name,
                 value->offset);
}

static void add_values(const struct dump *dump, const int *ids, int count)
{
    text_add(dump->text, "(");
    for (int k = 0; k < count; k++) {
        if (k > 0) text_add(dump->text, ", ");
        add_value(dump, ids[k]);
    }
    text_add(dump->text, ")");
}

static void add_instruction(const struct dump *dump, int i)
{
    const struct instruction *at = &dump->program->instructions[i];
    text_add(dump->text, "%d %s %s %s ", i, kind_names[at->kind], phase_names[at->phase],
             at->op ? at->op->name : "-");
    add_values(dump, at->reads, at->read_count);
    text_add(dump->text, " -> ");
    add_values(dump, at->writes, at->write_count);
    if (dump->program->micro_batches > 1) text_add(dump->text, " micro-batch %d", at->micro_batch);
    if (instruction_is_message(at)) text_add(dump->text, " stage %d", at->peer);
    text_add(dump->text, " stream %d", at->stream);
    for (int k = 0; k < at->wait_count; k++) text_add(dump->text, "%s%d", k ? "," : " waits ", at->waits[k]);
    text_add(dump->text, "\n");
}

void program_dump(const struct program *program, struct text *text)
{
    int *ordinals = ordinals_make(program);
    const struct dump dump = {program, ordinals, text};
    text_add(text, "program %s, batch %d, micro-batches %d", program->training ? "training" : "evaluation",
             program->batch, program->micro_batches);
    if (program->all_micro_batches > program->micro_batches)
        text_add(text, " from %d of %d", program->first_micro_batch, program->all_micro_batches);
    if (program->stages > 1) text_add(text, ", stage %d of %d", program->stage, program->stages);
    text_add(text, ", storage %s, streams %d\n", dtype_table[program->storage].name,
             program->streams > 1 ? program->streams : 1);
    for (int i = 0; i < program->count; i++) add_instruction(&dump, i);
    free(ordinals);
}
