#include <string.h>

#include "checkpoint/weights_names.h"
#include "cmd/cmd.h"
#include "cmd/export_onnx.h"
#include "cmd/export_safetensors.h"
#include "format/onnx.h"

#define INT8_IMAGES 256        /* by default, to calibrate with */

static bool is_int8(const struct cmd *cmd)
{
    return cmd_value(cmd, "dtype") && strcmp(cmd_value(cmd, "dtype"), "int8") == 0;
}

/* Without int8, 0. */
static enum status calibration_of(const struct cmd *cmd, int *images)
{
    long count = 0;
    bool onnx = text_ends_in(cmd->output, ".onnx"), whole = !cmd_value(cmd, "keep-batchnorm");
    if (is_int8(cmd) && (!onnx || !whole))
        return fail(USAGE, "export: --dtype int8 %s", onnx ? "folds batch norm; leave out --keep-batchnorm"
                                                          : "is for ONNX files");
    if (!is_int8(cmd) && cmd_value(cmd, "calibrate"))
        return fail(USAGE, "export: --calibrate is for --dtype int8");
    if (is_int8(cmd)) TRY(cmd_number(cmd, "calibrate", 1, INT8_IMAGES, &count));
    *images = count > INT32_MAX ? INT32_MAX : (int)count;
    return OK;
}

static enum status dtype_of(const struct cmd *cmd, enum dtype *dtype)
{
    static const enum dtype possible[] = {F32, F16, BF16};
    const char *name = cmd_value(cmd, "dtype") ? cmd_value(cmd, "dtype") : "fp32";
    if (is_int8(cmd)) return OK;
    for (size_t i = 0; i < sizeof possible / sizeof *possible; i++) {
        if (strcmp(dtype_table[possible[i]].name, name) != 0) continue;
        *dtype = possible[i];
        return OK;
    }
    return fail(USAGE, "export: --dtype must be fp32, fp16, bf16 or int8, not '%s'", name);
}

static enum status check_output(const struct cmd *cmd)
{
    if (!cmd->output) return fail(USAGE, "export: no output file; use -o FILE.safetensors or FILE.onnx");
    bool onnx = text_ends_in(cmd->output, ".onnx");
    if (!onnx && !text_ends_in(cmd->output, ".safetensors"))
        return fail(USAGE, "export: %s: the name must end in .safetensors or .onnx", cmd->output);
    if (cmd_value(cmd, "softmax") && cmd_value(cmd, "argmax"))
        return fail(USAGE, "export: --softmax and --argmax exclude each other");
    bool only_onnx = cmd_value(cmd, "softmax") || cmd_value(cmd, "argmax") ||
                     cmd_value(cmd, "keep-batchnorm") || cmd_value(cmd, "preprocess");
    if (!onnx && only_onnx)
        return fail(USAGE, "export: --softmax, --argmax, --preprocess and --keep-batchnorm are for ONNX "
                    "files");
    return cmd_check_output(cmd, cmd->output, onnx ? ONNX_SIGNATURE : EXPORT_SAFETENSORS_SIGNATURE);
}

/* The library whose names are written; NULL: none is named. */
static enum status library_of(const struct cmd *cmd, const char **library)
{
    *library = cmd_value(cmd, "names");
    if (*library && text_ends_in(cmd->output, ".onnx"))
        return fail(USAGE, "export: --names is for safetensors files");
    for (int i = 0; *library && weights_libraries[i]; i++)
        if (strcmp(weights_libraries[i], *library) == 0) return OK;
    return *library ? fail(USAGE, "export: --names must be torchvision, timm, hf, smp or nnunet, not '%s'",
                           *library) : OK;
}

static enum status export_run(struct cmd *cmd)
{
    const char *weights, *library;
    enum dtype dtype = F32;
    int calibration = 0;
    TRY(cmd_weights(cmd, &weights));
    TRY(check_output(cmd));
    TRY(dtype_of(cmd, &dtype));
    TRY(library_of(cmd, &library));
    TRY(calibration_of(cmd, &calibration));
    if (text_ends_in(cmd->output, ".onnx")) return export_onnx(cmd, dtype, calibration);
    return export_safetensors(&weights, 1, dtype, library, cmd->output, NULL);
}

static const struct cmd_option options[] = {
    {"weights", "RUN|FILE", "run folder, checkpoint or weights (safetensors, PyTorch)"},
    {"dtype", "TYPE", "fp32 (default), fp16, bf16 (safetensors only) or int8 (ONNX only)"},
    {"calibrate", "N", "int8: training images that tell the ranges (default: 256)"},
    {"names", "LIBRARY", "names and shapes of torchvision, timm, hf (Hugging Face transformers), smp "
                         "(segmentation_models_pytorch) or nnunet"},
    {"softmax", NULL, "ONNX: probabilities instead of logits"},
    {"argmax", NULL, "ONNX, of pixels: the most probable class, uint8, instead of logits"},
    {"preprocess", NULL, "ONNX: the input is bytes of images of any size"},
    {"keep-batchnorm", NULL, "ONNX: do not fold batch norm into convolutions"},
    {0},
};

const struct command cmd_export = {
    .name = "export",
    .usage = "--weights RUN|FILE [-c FILE] [OPTION]... -o OUT.safetensors|OUT.onnx",
    .help = "Exports weights under a library's names, or the network as ONNX.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT,
    .options = options,
    .run = export_run,
};
