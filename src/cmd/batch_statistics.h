/* batch_statistics.h: recomputes the running statistics of batch norms, which are not those of averaged
 * weights, as PyTorch's torch.optim.swa_utils.update_bn does. */
#pragma once

#include "cmd/cmd.h"
#include "cmd/export_safetensors.h"

/* The mean, over the batches of an epoch of training images, of each batch's mean and variance under the mean
 * of the weights of `count` files. The run of the first file says which images these are, and the network,
 * unless the command's configuration does. The caller frees the result. */
enum status batch_statistics_make(struct cmd *cmd, char *const *paths, int count,
                                  struct export_values *statistics);
void batch_statistics_free(struct export_values *statistics);     /* accepts a zeroed struct */
