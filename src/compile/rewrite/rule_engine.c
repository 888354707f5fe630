#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/rewrite/rule.h"

struct engine {
    struct program *program;
    const struct rule_options *options;
    const struct rule *rules, *end;      /* those to be applied */
    struct rule_use *uses;       /* by value, of those that there were when the sweep began */
    int use_count;
    bool *removed;               /* by instruction */
    rules_found *found;          /* NULL: rules are applied */
    void *context;
};

/* Adds the uses of an instruction or, with -1, takes them away. */
static void count_uses(struct engine *e, int i, int by)
{
    const struct instruction *at = &e->program->instructions[i];
    if (e->removed[i]) return;
    FOR_WRITES(o, at) {
        if (o->value >= e->use_count) continue;
        e->uses[o->value].writes += by;
        if (by > 0) e->uses[o->value].writer = i;
    }
    FOR_READS(o, at)
        if (o->value < e->use_count) e->uses[o->value].reads += by;
}

static bool is_end(const struct instruction *at, const struct rule_end *end)
{
    return at->op && at->phase == end->phase && (!end->op || strcmp(at->op->name, end->op) == 0);
}

static bool can_add(const struct match *m)
{
    const struct rule_addition *adds = &m->rule->adds;
    if (adds->epilogue != EPILOGUE_KINDS && epilogue_has(m->first, adds->epilogue)) return false;
    return operand(m->first, adds->first, 0) < 0 && operand(m->second, adds->second, 0) < 0;
}

/* True if the instruction that writes `value`, and i, are two that the rule is about. */
static bool match_make(const struct engine *e, const struct rule *rule, int i, int value, struct match *match)
{
    if (value < 0 || value >= e->use_count) return false;
    const struct rule_use *use = &e->uses[value];
    if (use->writes != 1 || ((rule->between & RULE_SINGLE_USE) && use->reads != 1)) return false;
    *match = (struct match){
        .program = e->program, .options = e->options, .rule = rule, .uses = e->uses, .value = value,
        .first = &e->program->instructions[use->writer], .second = &e->program->instructions[i],
        .first_number = use->writer, .second_number = i, .shaped_as = -1,
    };
    return is_end(match->first, &rule->first) && operand(match->first, rule->first.role, 0) == value &&
           match->first->micro_batch == match->second->micro_batch && can_add(match);
}

/* The state before a rule's change. */
struct before {
    struct instruction first, second;
    struct value value;
    int value_count;
};

static struct before before_take(const struct match *m)
{
    return (struct before){instruction_copy(m->first), instruction_copy(m->second),
                           m->program->values[m->value], m->program->value_count};
}

static void before_free(struct before *before)
{
    instruction_free(&before->first);
    instruction_free(&before->second);
}

static void before_restore(struct before *before, struct match *m)
{
    struct program *program = m->program;
    instruction_free(m->first);
    instruction_free(m->second);
    *m->first = before->first;
    *m->second = before->second;
    program->values[m->value] = before->value;
    while (program->value_count > before->value_count) free(program->values[--program->value_count].name);
}

static bool is_supported(const struct match *m, struct instruction *at)
{
    const struct kernel_options *kernels = m->options->kernels;
    const struct op_code *code = kernels->code_of(at->op);
    struct call_storage storage;
    instruction_link(m->program, at);
    struct call call = program_call(m->program, (int)(at - m->program->instructions), &storage);
    call.device = kernels->device;
    return code && op_code_supports(code, &call);
}

static void operand_rename(struct instruction *at, int value, int to)
{
    for (int k = 0; k < at->operand_count; k++)
        if (at->operands[k].value == value) at->operands[k].value = to;
}

/* Changes the two as the rule says, if code supports that. */
static bool match_change(struct match *m)
{
    struct before before = before_take(m);
    bool changed = m->rule->apply(m) && (m->removed == m->first || is_supported(m, m->first)) &&
                   (m->removed == m->second || is_supported(m, m->second));
    if (changed) before_free(&before);
    else before_restore(&before, m);
    return changed;
}

/* Reports a pair that the rule would fuse if code supports that, and leaves it as it is. */
static void match_report(const struct engine *e, struct match *m)
{
    struct before before = before_take(m);
    bool applies = m->rule->apply(m);
    before_restore(&before, m);
    if (applies) e->found(e->context, m->first, m->second);
}

static bool match_apply(struct engine *e, struct match *m)
{
    int first = m->first_number, second = m->second_number;
    if (e->found) return match_report(e, m), false;
    count_uses(e, first, -1);
    count_uses(e, second, -1);
    bool changed = match_change(m);
    if (changed && m->removed) e->removed[m->removed == m->first ? first : second] = true;
    for (int i = 0; changed && m->shaped_as >= 0 && i < e->program->count; i++)
        operand_rename(&e->program->instructions[i], m->value, m->shaped_as);
    count_uses(e, first, 1);
    count_uses(e, second, 1);
    return changed;
}

static bool rule_apply(struct engine *e, const struct rule *rule, int i)
{
    const struct instruction *at = &e->program->instructions[i];
    struct match match;
    if (e->removed[i] || !is_end(at, &rule->second)) return false;
    static const char *const all[] = {"sum", "add", "concat", "concat_conv"};
    bool any = false;
    for (int k = 0; k < 4; k++) any |= strcmp(at->op->name, all[k]) == 0;
    int count = any ? operand_count(at, OPERAND_X) : 1;
    for (int k = 0; k < count; k++)
        if (match_make(e, rule, i, operand(at, rule->second.role, k), &match) && match_apply(e, &match))
            return true;
    return false;
}

/* Returns true if something has changed. */
static bool sweep(struct engine *e)
{
    struct program *program = e->program;
    bool changed = false;
    e->use_count = program->value_count;
    e->uses = memory_new((size_t)e->use_count, sizeof *e->uses);
    e->removed = memory_new((size_t)program->count, sizeof *e->removed);
    for (int v = 0; v < e->use_count; v++) e->uses[v].writer = -1;
    for (int i = 0; i < program->count; i++) count_uses(e, i, 1);
    for (int i = 0; i < program->count; i++)
        for (const struct rule *rule = e->rules; rule < e->end; rule++)
            if (!e->found || rule->between & RULE_UNDIVIDED) changed |= rule_apply(e, rule, i);
    build_remove(program, e->removed);
    free(e->uses);
    free(e->removed);
    return changed;
}

/* True if it is called so, or belongs to a pass that is. */
static bool is_named(const struct rule *rule, const char *name)
{
    return strcmp(rule->name, name) == 0 || strcmp(rule->pass, name) == 0;
}

void rules_apply(struct program *program, const char *name, const struct rule_options *options)
{
    int count;
    const struct rule *rules = rules_table(&count), *end = rules + count;
    while (rules < end && !is_named(rules, name)) rules++;
    while (end > rules && !is_named(end - 1, name)) end--;
    struct engine engine = {.program = program, .options = options, .rules = rules, .end = end};
    while (sweep(&engine)) {}
}

void rules_undivided(const struct program *program, rules_found *found, void *context)
{
    int count;
    const struct rule *rules = rules_table(&count);
    struct program copy = program_copy(program);
    struct engine engine = {.program = &copy, .rules = rules, .end = rules + count, .found = found,
                            .context = context};
    sweep(&engine);
    program_free(&copy);
}
