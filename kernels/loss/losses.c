#include "kernels/loss/losses.h"

const struct loss_row loss_table[LOSSES] = {
    [LOSS_CE] = {"ce", "softmax_cross_entropy", ""},
    [LOSS_BCE] = {"bce", "pointwise_loss", "kind=bce"},
    [LOSS_MSE] = {"mse", "pointwise_loss", "kind=mse"},
    [LOSS_L1] = {"l1", "pointwise_loss", "kind=l1"},
    [LOSS_HUBER] = {"huber", "pointwise_loss", "kind=huber"},
};
