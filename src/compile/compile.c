#include "compile/compile.h"

#include "compile/fit_memory.h"

enum status compile(const struct graph *graph, const struct compile_options *options,
                    struct program *program)
{
    struct program made;
    TRY(passes_lower(graph, options, &made));
    enum status status = fit_memory(options, &made);
    if (status != OK) program_free(&made);
    else *program = made;
    return status;
}

enum status compile_plan(const struct graph *graph, const struct compile_options *options,
                         struct compiled *compiled)
{
    struct compiled made = {0};
    enum status status = compile(graph, options, &made.program);
    if (status == OK)
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
