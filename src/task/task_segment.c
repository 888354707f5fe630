/* task_segment.c: a class for every pixel. */
#include "task/task.h"

static const struct task_metric metrics[] = {
    {"miou", "mean IoU", true, false}, {"dice", "Dice", true, false},
    {"pixel_accuracy", "pixel accuracy", true, false}, {0},
};
static const enum loss losses[] = {LOSS_CE, LOSS_DICE, LOSS_DICE_CE, LOSS_FOCAL, LOSS_TVERSKY, LOSSES};

const struct data_task task_segment = {
    .name = "segment",
    .losses = losses,
    .metrics = metrics,
};
