/* losses.h: the losses of train.loss, and the ops that compute them. */
#pragma once

enum loss {
    LOSS_CE, LOSS_BCE, LOSS_MSE, LOSS_L1, LOSS_HUBER,
    LOSS_DICE, LOSS_DICE_CE, LOSS_FOCAL, LOSS_TVERSKY, LOSSES
};

extern const struct loss_row {
    const char *name;          /* as in train.loss */
    const char *op, *settings; /* "kind=bce"; of masks, ce is pixel_loss, too */
} loss_table[LOSSES];
