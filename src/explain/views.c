#include "explain/views.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/kernel_plans.h"

struct views views_open(int images, int classes)
{
    return (struct views){
        .classes = classes,
        .logits = memory_new((size_t)images * (size_t)classes, sizeof(float)),
        .losses = memory_new((size_t)images, sizeof(float)),
        .ranks = memory_new((size_t)images, sizeof(int32_t)),
    };
}

void views_close(struct views *views)
{
    free(views->logits);
    free(views->losses);
    free(views->ranks);
}

void views_add(struct views *views, const float *logits, int images, float weight, bool first)
{
    for (int64_t i = 0; i < (int64_t)images * views->classes; i++)
        views->logits[i] = (first ? 0 : views->logits[i]) + weight * logits[i];
}

static void views_compute(const struct op *op, const void *settings, struct tensor x[2], struct tensor y)
{
    kernel_plans_code(DEVICE_CPU)(op)->forward(
        &(struct call){.settings = settings, .x_count = 2, .x = x, .y = y});
}

/* Labels below 0 mark places without an image. */
void views_end(struct views *views, enum loss loss, const int32_t *labels, const float *targets,
               int images)
{
    const struct shape each = shape_nhwc(images, 1, 1, 1);
    struct tensor x[] = {
        {.data = views->logits, .dtype = F32, .shape = shape_nhwc(images, 1, 1, views->classes)},
        {.data = (int32_t *)labels, .dtype = I32, .shape = each},
    };
    if (targets) x[1] = (struct tensor){
        .data = (float *)targets, .dtype = F32, .shape = shape_nhwc(images, 1, 1, views->classes + 1)};
    const struct op *op = op_find(loss_table[loss].op);
    struct reason reason;
    void *settings = op_settings_new(op, loss_table[loss].settings, &reason);
    views_compute(op, settings, x, (struct tensor){.data = views->losses, .dtype = F32, .shape = each});
    views_compute(op_find("topk"), NULL, x,
                  (struct tensor){.data = views->ranks, .dtype = I32, .shape = each});
    op_settings_free(op, settings);
    for (int i = 0; i < images; i++)
        if (labels[i] < 0) views->losses[i] = 0;
}
