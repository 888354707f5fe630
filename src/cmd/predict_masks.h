/* predict_masks.h: `amptrain predict` with a network that labels pixels: writes masks. */
#pragma once

#include "cmd/image_arguments.h"
#include "cmd/trained.h"

/* Takes --tile and --overlap, before the network is opened. */
enum status predict_masks_settings(struct cmd *cmd);

/* Takes a network that was loaded (trained_load). */
enum status predict_masks(struct cmd *cmd, struct image_arguments *images, struct trained *trained);
