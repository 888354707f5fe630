#include "compile/pass_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "base/memory.h"
#include "compile/ir/dump.h"
#include "compile/ir/parse.h"
#include "compile/passes.h"
#include "compile/memory/plan.h"
#include "compile/ir/program_words.h"
#include "compile/rewrite/rule.h"

/* Arguments of passes besides the program: "options fold=1 streams=2". */
struct pass_options {
    int device, schedule, division, loss;
    bool tf32, soft_targets, logits, on_cpu, in_mail, offload, hidden;
    double label_smoothing;
    int64_t update_workspace, fold, stages, stage, bucket, all_reduce, fuse_limit, offload_limit;
    int64_t offload_least, streams, stream_limit;
    struct field_reals recompute, recompute_each;
    bool pixels;               /* the loss is of masks, with the settings that it has by default */
};

static const char *const device_words[] = {[DEVICE_CPU] = "cpu", [DEVICE_CUDA] = "cuda", NULL};
static const char *const loss_words[] = {"ce", "bce", "mse", "l1", "huber",
                                         "dice", "dice_ce", "focal", "tversky", NULL};
static const char *const division_words[] = {[BY_MICRO_BATCH] = "micro_batch", [BY_LAYER] = "layer", NULL};

#define AT(member) .offset = offsetof(struct pass_options, member)
#define COUNT(member, from) .type = FIELD_INT, AT(member), .min = (from), .max = 1e15
static const struct field fields[] = {
    {.name = "device", .type = FIELD_CHOICE, AT(device), .initial = "cpu", .choices = device_words},
    {.name = "tf32", .type = FIELD_BOOL, AT(tf32), .initial = "no"},
    {.name = "loss", .type = FIELD_CHOICE, AT(loss), .initial = "ce", .choices = loss_words},
    {.name = "pixels", .type = FIELD_BOOL, AT(pixels), .initial = "no"},
    {.name = "label_smoothing", .type = FIELD_REAL, AT(label_smoothing), .initial = "0", .max = 1},
    {.name = "soft_targets", .type = FIELD_BOOL, AT(soft_targets), .initial = "no"},
    {.name = "logits", .type = FIELD_BOOL, AT(logits), .initial = "no"},
    {.name = "update_workspace", COUNT(update_workspace, 0), .initial = "0"},
    {.name = "fold", COUNT(fold, 0), .initial = "0"},
    {.name = "stages", COUNT(stages, 1), .initial = "1"},
    {.name = "stage", COUNT(stage, 0), .initial = "0"},
    {.name = "schedule", .type = FIELD_CHOICE, AT(schedule), .initial = "1f1b", .choices = schedule_words},
    {.name = "on_cpu", .type = FIELD_BOOL, AT(on_cpu), .initial = "no"},
    {.name = "in_mail", .type = FIELD_BOOL, AT(in_mail), .initial = "no"},
    {.name = "bucket", COUNT(bucket, 0), .initial = "0"},
    {.name = "all_reduce", COUNT(all_reduce, 0), .initial = "0"},
    {.name = "recompute", .type = FIELD_REALS, AT(recompute), .initial = ""},
    {.name = "recompute_each", .type = FIELD_REALS, AT(recompute_each), .initial = ""},
    {.name = "fuse_limit", COUNT(fuse_limit, 0), .initial = "1000000000000000"},
    {.name = "offload", .type = FIELD_BOOL, AT(offload), .initial = "no"},
    {.name = "hidden", .type = FIELD_BOOL, AT(hidden), .initial = "no"},
    {.name = "offload_limit", COUNT(offload_limit, 0), .initial = "0"},
    {.name = "offload_least", COUNT(offload_least, 0), .initial = "0"},
    {.name = "streams", .type = FIELD_INT, AT(streams), .initial = "1", .min = 1, .max = 100},
    {.name = "division", .type = FIELD_CHOICE, AT(division), .initial = "micro_batch",
     .choices = division_words},
    {.name = "stream_limit", COUNT(stream_limit, 0), .initial = "0"},
    {0},
};

static bool parse_option(struct pass_options *options, char *word, struct reason *reason)
{
    char *value = strchr(word, '=');
    struct reason why;
    if (value) *value++ = '\0';
    const struct field *field = field_find(fields, word);
    if (!field || !value) return because(reason, "no such option: %.100s", word);
    return field_parse(field, options, value, &why) || because(reason, "%s %s", word, why.text);
}

/* The options, if the text begins with some. */
static enum status parse_options(const char *file, const char *text, struct pass_options *options)
{
    static const char word[] = "options ";
    struct reason reason;
    bool right = true;
    field_defaults(fields, options);
    if (strncmp(text, word, strlen(word)) != 0) return OK;
    char *line = text_copy(text + strlen(word)), *rest = NULL;
    line[strcspn(line, "\n")] = '\0';
    for (char *at = strtok_r(line, " ", &rest); right && at; at = strtok_r(NULL, " ", &rest))
        right = parse_option(options, at, &reason);
    free(line);
    return right ? OK : fail(USAGE, "%s:1: %s", file, reason.text);
}

static const char *pixel_loss_of(const struct pass_options *options)
{
    const char *settings = options->loss == LOSS_CE ? "kind=ce" : loss_table[options->loss].settings;
    return options->pixels ? settings : NULL;
}

static struct compile_options compile_options_of(const struct pass_options *options,
                                                 const struct program *program, code_lookup *code_of)
{
    return (struct compile_options){
        .lower = {.batch = program->batch, .micro_batches = program->micro_batches,
                  .first_micro_batch = program->first_micro_batch,
                  .all_micro_batches = program->all_micro_batches, .training = program->training,
                  .sync_bn = program->sync_bn, .storage = program->storage, .wire = program->wire,
                  .loss = (enum loss)options->loss, .label_smoothing = options->label_smoothing,
                  .pixel_loss = pixel_loss_of(options),
                  .fold_least = options->fold, .soft_targets = options->soft_targets,
                  .logits = options->logits, .update_workspace = options->update_workspace},
        .kernel_plans = {.code_of = code_of, .tf32 = options->tf32},
        .cut = {.stages = program->stages > 1 ? program->stages : (int)options->stages,
                .stage = (int)options->stage, .schedule = (enum pipeline_schedule)options->schedule,
                .on_cpu = options->on_cpu, .in_mail = options->in_mail},
        .buckets = {.bytes = options->bucket, .all_reduce_bytes = options->all_reduce},
        .stream_division = (enum stream_division)options->division,
        .streams = (int)options->streams + (program->host_bytes > 0),
    };
}

static bool modes_set(const struct field_reals *numbers, enum recompute_mode mode, int count,
                      enum recompute_mode *modes)
{
    for (int k = 0; k < numbers->count; k++) {
        if (!(numbers->value[k] >= 0 && numbers->value[k] < count)) return false;
        modes[(int)numbers->value[k]] = mode;
    }
    return true;
}

static enum status memory_choice_of(const char *file, const struct pass_options *options,
                                    const struct program *program, struct memory_choice *choice)
{
    *choice = (struct memory_choice){
        .fuse_limit = options->fuse_limit, .offloads = options->offload || program->host_bytes > 0,
        .offload = {.limit = options->offload_limit, .hidden = options->hidden,
                    .least = options->offload_least},
        .streams = (int)options->streams, .stream_limit = options->stream_limit,
        .modes = memory_new((size_t)program->count, sizeof *choice->modes),
    };
    if (modes_set(&options->recompute, RECOMPUTE_ONCE, program->count, choice->modes) &&
        modes_set(&options->recompute_each, RECOMPUTE_EACH, program->count, choice->modes)) return OK;
    free(choice->modes);
    return fail(USAGE, "%s:1: an instruction to be recomputed is not in the program", file);
}

static enum status verify(const char *file, const char *when, const struct program *program)
{
    struct plan plan = {0};
    if (program->count == 0) return OK;
    enum status status = plan_fit(program, 0, 0, &plan);
    plan_free(&plan);
    return status == OK ? OK : fail(USAGE, "%s: the program %s is invalid", file, when);
}

static enum status run(const char *file, const char *name, const struct pass_input *input,
                       struct program *program)
{
    int count, i = 0;
    const struct pass *passes = passes_table(&count);
    const struct rule *rule = rules_find(name);
    const char *pass = rule ? rule->pass : name;
    while (i < count && strcmp(passes[i].name, pass) != 0) i++;
    if (i == count) return fail(USAGE, "no such pass: %s", name);
    if (passes[i].condition && !passes[i].condition(input))
        return fail(USAGE, "%s: the pass %s does not run with these options", file, name);
    struct reason reason;
    if (!pass_is_next(i, input, program, &reason))
        return fail(USAGE, "%s: the program %s", file, reason.text);
    return pass_run(&passes[i], name, input, program);
}

static enum status run_with(const char *file, const char *pass, const struct pass_options *options,
                            code_lookup *code_of, struct program *program)
{
    struct memory_choice choice;
    struct compile_options compile_options = compile_options_of(options, program, code_of);
    TRY(verify(file, "before the pass", program));
    TRY(memory_choice_of(file, options, program, &choice));
    const struct pass_input input = {.graph = program->graph, .options = &compile_options,
                                     .choice = &choice};
    enum status status = run(file, pass, &input, program);
    free(choice.modes);
    return status == OK ? verify(file, "after the pass", program) : status;
}

enum status pass_text(const char *file, const char *text, const char *pass, code_lookup *code_of,
                      struct text *out)
{
    struct pass_options options = {0};
    struct program program;
    TRY(parse_options(file, text, &options));
    if (options.stage >= options.stages) return fail(USAGE, "%s:1: there is no such stage", file);
    TRY(program_parse(file, text, &program));
    if (!code_of) code_of = kernel_plans_code((enum device_kind)options.device);
    enum status status = run_with(file, pass, &options, code_of, &program);
    if (status == OK) program_dump(&program, out);
    program_free(&program);
    return status;
}
