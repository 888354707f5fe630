#include "kernels/loss/losses.h"

const struct loss_row loss_table[LOSSES] = {
    [LOSS_CE] = {"ce", "softmax_cross_entropy", ""},
    [LOSS_BCE] = {"bce", "pointwise_loss", "kind=bce"},
    [LOSS_MSE] = {"mse", "pointwise_loss", "kind=mse"},
    [LOSS_L1] = {"l1", "pointwise_loss", "kind=l1"},
    [LOSS_HUBER] = {"huber", "pointwise_loss", "kind=huber"},
    [LOSS_DICE] = {"dice", "pixel_loss", "kind=dice"},
    [LOSS_DICE_CE] = {"dice_ce", "pixel_loss", "kind=dice_ce"},
    [LOSS_FOCAL] = {"focal", "pixel_loss", "kind=focal"},
    [LOSS_TVERSKY] = {"tversky", "pixel_loss", "kind=tversky"},
};
