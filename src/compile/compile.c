#include "compile/compile.h"

#include "compile/memory/fit_memory.h"

/* Takes the kernel plans that fitting has prepared, if it has. */
static enum status compile_program(const struct graph *graph, const struct compile_options *options,
                                   struct compiled *made)
{
    TRY(passes_lower(graph, options, &made->program));
    return fit_memory(options, &made->program, &made->kernel_plans);
}

enum status compile(const struct graph *graph, const struct compile_options *options,
                    struct program *program)
{
    struct compiled made = {0};
    enum status status = compile_program(graph, options, &made);
    if (status == OK) {
        *program = made.program;
        made.program = (struct program){0};
    }
    compiled_free(&made);
    return status;
}

enum status compile_ranks(const struct graph *graph, const struct compile_options *options, int ranks,
                          struct program *programs)
{
    struct compile_options own = *options;
    int stages = options->cut.stages > 0 ? options->cut.stages : 1, made = 0;
    enum status status = OK;
    for (; status == OK && made < ranks; made += status == OK) {
        if (made > 0) own.cut = cut_like(&programs[0], &own.cut);
        own.cut.stage = made % stages;
        own.lower.first_micro_batch = made / stages * own.lower.micro_batches;
        status = compile(graph, &own, &programs[made]);
    }
    while (status != OK && made > 0) program_free(&programs[--made]);
    return status;
}

enum status compile_plan(const struct graph *graph, const struct compile_options *options,
                         struct compiled *compiled)
{
    struct compiled made = {0};
    enum status status = compile_program(graph, options, &made);
    if (status == OK && !made.kernel_plans.options.code_of)
        status = kernel_plans_prepare(&made.program, &options->kernel_plans, &made.kernel_plans);
    if (status == OK) status = plan_make(&made.program, true, 0, &made.plan);
    if (status != OK) compiled_free(&made);
    else *compiled = made;
    return status;
}

void compiled_free(struct compiled *compiled)
{
    plan_free(&compiled->plan);
    kernel_plans_release(&compiled->kernel_plans);
    if (compiled->program.graph) program_free(&compiled->program);
    *compiled = (struct compiled){0};
}
