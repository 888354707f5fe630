#include "cmd/export_onnx.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "cmd/trained.h"
#include "explain/ranges.h"
#include "graph/graph_onnx.h"

static enum status read_param(void *context, int param, float *values)
{
    return store_read(context, param, STORE_MASTER, values);
}

static void write_list(struct onnx *onnx, const char *key, const double *values, int count)
{
    struct text list = {0};
    text_json_numbers(&list, values, count);
    onnx_metadata(onnx, key, list.data);
    text_free(&list);
}

/* A side, or height and width. */
static void write_size(struct onnx *onnx, const char *key, struct image_size size)
{
    char *text = size.h == size.w ? text_format("%d", size.h) : text_format("[%d, %d]", size.h, size.w);
    onnx_metadata(onnx, key, text);
    free(text);
}

/* JSON, by the names of the options. */
static void write_metadata(struct onnx *onnx, const struct session *session, bool preprocesses)
{
    const struct data *data = &session->data;
    struct text classes = {0};
    text_json_names(&classes, data->class_names, data->classes);
    onnx_metadata(onnx, "classes", classes.data);
    text_free(&classes);
    bool upright = session->settings->data.orientation == ORIENTATION_EXIF;
    onnx_metadata(onnx, "orientation", upright ? "exif" : "ignore");
    char *fit = option_value(option_find("augment", "fit"), session->settings);
    if (data->augment.fit != IMAGE_FIT_CROP) onnx_metadata(onnx, "fit", fit);
    free(fit);
    if (data->augment.interpolation == RESIZE_BICUBIC) onnx_metadata(onnx, "interpolation", "bicubic");
    if (data->thresholds) write_list(onnx, "thresholds", data->thresholds, data->classes);
    if (data->thresholds && session->settings->augment.val_flip) onnx_metadata(onnx, "val_flip", "true");
    if (preprocesses) onnx_metadata(onnx, "preprocess", "true");
    write_size(onnx, "val_resize", data->augment.val_resize);
    bool tiled = data->target == TARGET_MASK;
    write_size(onnx, tiled ? "val_tile" : "val_crop", (struct image_size){data->val.h, data->val.w});
    if (tiled) write_list(onnx, "val_overlap", &session->settings->augment.val_overlap, 1);
    const struct settings *settings = session->settings;
    const double range[] = {data->augment.range.low, data->augment.range.high};
    if (data->augment.range.set) write_list(onnx, "range", range, 2);
    if (data->bands.count > 0) write_list(onnx, "bands", settings->data.bands.value, data->bands.count);
    write_list(onnx, "mean", data->augment.mean, data->channels);
    write_list(onnx, "std", data->augment.std, data->channels);
}

static enum status write_file(const struct trained *trained, const struct graph_onnx_options *options,
                              const char *path)
{
    const struct graph *graph = &trained->session.graphs.evaluation;
    struct onnx onnx;
    TRY(onnx_open(path, graph->arch, &onnx));
    enum status status = graph_onnx(graph, options, &onnx);
    onnx_end(&onnx);
    write_metadata(&onnx, &trained->session, options->preprocess != NULL);
    enum status closed = onnx_close(&onnx, status == OK);
    return status == OK ? closed : status;
}

/* Settings whose mean and std are those of x / 255, whatever the range. */
static struct augment augment_of_bytes(const struct augment *augment)
{
    struct augment bytes = *augment;
    const struct image_range *range = &augment->range;
    double width = range->high - range->low;
    for (int k = 0; range->set && k < augment->channels; k++) {
        bytes.mean[k] = (range->low + augment->mean[k] * width) / 255;
        bytes.std[k] = augment->std[k] * width / 255;
    }
    return bytes;
}

/* *ranges: for the caller to free; NULL without calibration. */
static enum status find_ranges(struct trained *trained, int calibration, struct graph_onnx_range **ranges)
{
    const struct data *data = &trained->session.data;
    *ranges = NULL;
    if (calibration == 0) return OK;
    if (data->target == TARGET_MASK)
        return fail(USAGE, "export: --dtype int8 is not for networks that label pixels");
    *ranges = memory_new((size_t)trained->session.graphs.evaluation.count, sizeof **ranges);
    return ranges_find(trained, calibration, *ranges);
}

enum status export_onnx(struct cmd *cmd, enum dtype dtype, int calibration)
{
    struct trained trained;
    if (dtype == BF16) return fail(USAGE, "export: --dtype: an ONNX file is fp32 or fp16");
    /* Nothing is computed, so masters are enough. */
    settings_derive(&cmd->settings, "run", "device", "cpu");
    settings_derive(&cmd->settings, "amp", "precision", "fp32");
    TRY(trained_load(cmd, calibration > 0 ? DATA_TRAIN : DATA_NONE, &trained));
    const struct data *data = &trained.session.data;
    bool pixels = data->target == TARGET_MASK, classes = data->target == TARGET_CLASS || pixels;
    const char *fixed = graph_onnx_fixed(&trained.session.graphs.evaluation);
    if (!pixels && cmd_value(cmd, "argmax")) {
        trained_close(&trained);
        return fail(USAGE, "export: --argmax is for networks that label pixels");
    }
    if (cmd_value(cmd, "preprocess") && data->deep) {
        trained_close(&trained);
        return fail(USAGE, "export: --preprocess takes bytes, but data.range reaches beyond 0 to 255");
    }
    const struct augment bytes = augment_of_bytes(&data->augment);
    if (!classes && cmd_value(cmd, "softmax")) {
        enum target_kind target = data->target;
        trained_close(&trained);
        return fail(USAGE, "export: --softmax is for classes, not for data.task = %s, whose output is "
                    "complete", target == TARGET_LABELS ? "multilabel" : "regress");
    }
    struct graph_onnx_range *ranges;
    enum status status = find_ranges(&trained, calibration, &ranges);
    const struct graph_onnx_options options = {
        .dtype = dtype,
        .softmax = cmd_value(cmd, "softmax") != NULL,
        .pixels = pixels,
        .argmax = cmd_value(cmd, "argmax") != NULL,
        .sigmoid = data->target == TARGET_LABELS,
        .scales = data->target == TARGET_NUMBER,
        .scale = data->value_std,
        .offset = data->value_mean,
        .preprocess = cmd_value(cmd, "preprocess") ? &bytes : NULL,
        .ranges = ranges,
        .keep_batchnorm = cmd_value(cmd, "keep-batchnorm") != NULL,
        .read = read_param,
        .context = &trained.store,
    };
    if (status == OK) status = write_file(&trained, &options, cmd->output);
    free(ranges);
    const struct images *images = &trained.session.data.val;
    char input[64], size[32] = "HxW";
    int channels = data->channels;
    if (pixels ? fixed != NULL : !options.preprocess)
        snprintf(size, sizeof size, "%dx%d", images->h, images->w);
    if (pixels && fixed && status == OK)
        log_info("%s: images have a fixed size, because layer %s works for one only", cmd->output, fixed);
    if (options.preprocess) snprintf(input, sizeof input, "Nx%sx%d bytes", size, channels);
    else snprintf(input, sizeof input, "Nx%dx%s", channels, size);
    if (status == OK)
        log_info("%s: input %s, %s of %d %s, weights in %s", cmd->output, input,
                 options.scales                       ? "values"
                 : options.argmax                     ? "the most probable"
                 : options.softmax || options.sigmoid ? "probabilities"
                                                      : "logits", trained.session.graphs.evaluation.classes,
                 classes ? "classes" : options.sigmoid ? "labels" : "number",
                 calibration > 0 ? "int8" : dtype_table[dtype].name);
    trained_close(&trained);
    return status;
}
