/* trained.h: opens a trained network for eval, predict and export. */
#pragma once

#include "cmd.h"
#include "session/step.h"

struct trained {
    struct session session;
    struct store store;
    struct step step;            /* an evaluation */
};

/* Loads the command's settings: what the file of weights says of how it was trained, and over that the
 * configuration, if there is one: then the file says only how images are brought to the network. */
enum status trained_settings(struct cmd *cmd);

/* Loads the weights that --weights names, into the network that they say they are of; where the configuration
 * contradicts them, that is said. With `data` the images of the configuration are opened
 * (bits of enum data_wanted); without, a checkpoint tells sizes and classes. */
enum status trained_open(struct cmd *cmd, unsigned data, struct trained *trained);

/* The same without what computes: preprocessing on the device, and the step. */
enum status trained_load(struct cmd *cmd, unsigned data, struct trained *trained);
void trained_close(struct trained *trained);

/* --check without a configuration: that all of it can be opened. */
enum status trained_check(struct cmd *cmd);
