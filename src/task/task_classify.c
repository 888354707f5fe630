/* task_classify.c: one class an image. */
#include "task/task.h"

static const struct task_metric metrics[] = {
    {"top1", "accuracy", true, false}, {"top5", "top-5 accuracy", true, false}, {0},
};
static const enum loss losses[] = {LOSS_CE, LOSS_BCE, LOSSES};

const struct data_task task_classify = {
    .name = "classify",
    .ranked = true,
    .losses = losses,
    .metrics = metrics,
};
