#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "cmd.h"
#include "conf/options.h"
#include "session/checkpoint.h"
#include "base/atomic_file.h"
#include "export_onnx.h"
#include "session/weights.h"

/* The weights of a file, chosen for another. */
struct export {
    struct safetensors from;
    enum dtype dtype;                    /* of what is not a counter */
    struct safetensors_item *items;
    int *entries;                        /* by item, in `from` */
    int count;
    bool averages;
};

static void choose(struct export *export)
{
    const struct safetensors *from = &export->from;
    export->items = memory_new((size_t)from->count, sizeof *export->items);
    export->entries = memory_new((size_t)from->count, sizeof *export->entries);
    for (int i = 0; i < from->count; i++) {
        if (!weights_plain(&from->entries[i])) continue;
        int entry = weights_find(from, from->entries[i].name);
        enum dtype dtype = from->entries[i].dtype;
        bool number = dtype == F32 || dtype == F16 || dtype == BF16 || dtype == F64;
        export->averages = export->averages || entry != i;
        export->items[export->count] = (struct safetensors_item){
            .name = from->entries[i].name,
            .dtype = number ? export->dtype : dtype,
            .shape = from->entries[i].shape,
        };
        export->entries[export->count++] = entry;
    }
}

static enum status read_item(void *context, int item, void *data)
{
    const struct export *export = context;
    int entry = export->entries[item];
    enum dtype to = export->items[item].dtype;
    struct reason reason;
    bool good;
    if (to == F32) {
        good = weights_read(&export->from, entry, data, &reason);
    } else if (to == export->from.entries[entry].dtype) {
        good = safetensors_read(&export->from, entry, data, &reason);
    } else {
        int64_t count = shape_count(export->items[item].shape);
        float *values = memory_try((size_t)count, sizeof *values);
        if (!values) return fail(FAILED, "%s: not enough host memory to read it", export->from.path);
        good = weights_read(&export->from, entry, values, &reason);
        if (good) dtype_convert(to, data, F32, values, (size_t)count);
        free(values);
    }
    return good ? OK : fail(BAD_CHECKPOINT, "%s: %s", export->from.path, reason.text);
}

/* How images are brought to the network, as a configuration that others are laid over: NULL where the file does
 * not say. */
static enum status preprocessing_of(const struct safetensors *from, char **config)
{
    static const char *const keys[][2] = {
        {"data", "orientation"}, {"augment", "val_resize"}, {"augment", "val_crop"}, {"augment", "mean"},
        {"augment", "std"},
    };
    struct settings then;
    struct text plain = {0}, escaped = {0};
    *config = NULL;
    if (!safetensors_value(from, "config")) return OK;
    TRY(checkpoint_settings(from, &then));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (i == 0 || strcmp(keys[i][0], keys[i - 1][0]) != 0) text_add(&plain, "[%s]\n", keys[i][0]);
        text_add(&plain, "%s = ", keys[i][1]);
        field_print(&option_find(keys[i][0], keys[i][1])->field, &then, &plain);
        text_add(&plain, "\n");
    }
    text_escape(&escaped, plain.data);
    text_free(&plain);
    settings_free(&then);
    *config = escaped.data;
    return OK;
}

#define PAIRS_MAX 6

/* Metadata that eval and predict need. Readers of PyTorch's want the format. */
static int describe(const struct safetensors *from, char *config, struct safetensors_pair pairs[PAIRS_MAX])
{
    static char *const kept[] = {"arch", "classes", "input", "graph"};
    int count = 0;
    pairs[count++] = (struct safetensors_pair){"format", "pt"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char *value = (char *)safetensors_value(from, kept[i]);
        if (value) pairs[count++] = (struct safetensors_pair){kept[i], value};
    }
    if (config) pairs[count++] = (struct safetensors_pair){"config", config};
    return count;
}

static enum status write_file(struct export *export, const char *path)
{
    struct safetensors_pair pairs[PAIRS_MAX];
    char *config;
    TRY(preprocessing_of(&export->from, &config));
    struct safetensors_content content = {export->items, export->count, pairs,
                                          describe(&export->from, config, pairs), read_item, export};
    char *temporary = text_format("%s.tmp", path);
    enum status status = safetensors_write(temporary, &content);
    if (status == OK) status = atomic_file_rename(&directory_working, temporary, path);
    if (status != OK) unlink(temporary);
    free(temporary);
    free(config);
    return status;
}

static enum status dtype_of(const struct cmd *cmd, enum dtype *dtype)
{
    static const enum dtype possible[] = {F32, F16, BF16};
    const char *name = cmd_value(cmd, "dtype") ? cmd_value(cmd, "dtype") : "fp32";
    for (size_t i = 0; i < sizeof possible / sizeof *possible; i++) {
        if (strcmp(dtype_table[possible[i]].name, name) != 0) continue;
        *dtype = possible[i];
        return OK;
    }
    return fail(USAGE, "export: --dtype must be fp32, fp16 or bf16, not '%s'", name);
}

static bool ends_in(const char *path, const char *ending)
{
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, ending) == 0;
}

static enum status check_output(const struct cmd *cmd)
{
    if (!cmd->output) return fail(USAGE, "export: no output file; use -o FILE.safetensors or FILE.onnx");
    bool onnx = ends_in(cmd->output, ".onnx");
    if (!onnx && !ends_in(cmd->output, ".safetensors"))
        return fail(USAGE, "export: %s: the name must end in .safetensors or .onnx", cmd->output);
    if (!onnx && (cmd_value(cmd, "softmax") || cmd_value(cmd, "keep-batchnorm")))
        return fail(USAGE, "export: --softmax and --keep-batchnorm are for ONNX files");
    return cmd_check_output(cmd, cmd->output);
}

static enum status write_safetensors(struct cmd *cmd, enum dtype dtype)
{
    struct export export = {.dtype = dtype};
    struct reason reason;
    if (!safetensors_open(cmd->weights, &export.from, &reason))
        return fail(BAD_CHECKPOINT, "%s: %s", cmd->weights, reason.text);
    choose(&export);
    if (export.averages) log_info("%s: using the averaged weights (ema)", cmd->weights);
    enum status status = write_file(&export, cmd->output);
    if (status == OK)
        log_info("%s: %d tensors in %s", cmd->output, export.count, dtype_table[export.dtype].name);
    free(export.items);
    free(export.entries);
    safetensors_close(&export.from);
    return status;
}

static enum status run(struct cmd *cmd)
{
    const char *weights;
    enum dtype dtype = F32;
    TRY(cmd_weights(cmd, &weights));
    TRY(check_output(cmd));
    TRY(dtype_of(cmd, &dtype));
    return ends_in(cmd->output, ".onnx") ? export_onnx(cmd, dtype) : write_safetensors(cmd, dtype);
}

static const struct cmd_option options[] = {
    {"weights", "RUN|FILE", "run folder, checkpoint or weights file (safetensors)"},
    {"dtype", "TYPE", "fp32 (default), fp16 or bf16 (safetensors only)"},
    {"softmax", NULL, "ONNX: end with softmax, for probabilities instead of logits"},
    {"keep-batchnorm", NULL, "ONNX: do not fold batch norm into the convolution before it"},
    {0},
};

const struct command cmd_export = {
    .name = "export",
    .usage = "--weights RUN|FILE [-c FILE] [OPTION]... -o OUT.safetensors|OUT.onnx",
    .help = "Exports weights under torchvision's names, or the network as ONNX.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT,
    .options = options,
    .run = run,
};
