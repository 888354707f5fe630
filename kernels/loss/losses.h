/* losses.h: the losses of train.loss, and the ops that compute them. */
#pragma once

enum loss { LOSS_CE, LOSS_BCE, LOSS_MSE, LOSS_L1, LOSS_HUBER, LOSSES };

extern const struct loss_row {
    const char *name;          /* as in train.loss */
    const char *op, *settings; /* "kind=bce" */
} loss_table[LOSSES];
