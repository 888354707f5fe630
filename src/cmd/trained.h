/* trained.h: opens a trained network for eval, predict and export. */
#pragma once

#include "cmd/cmd.h"
#include "session/step.h"

struct trained {
    struct session session;
    struct store store;
    struct step step;            /* an evaluation */
};

/* Loads the command's settings: those stored in the weights file, overridden by the configuration; with a
 * configuration, only the preprocessing is taken from the file. */
enum status trained_settings(struct cmd *cmd);

/* Takes the settings of the weights file at `path`. */
enum status trained_settings_of(struct cmd *cmd, const char *path);

/* Opens a session with the network of the weights file at `path` and the training images of the command's
 * settings. */
enum status trained_session(struct cmd *cmd, const char *path, struct session *session);

/* Loads the weights of --weights into the network that they describe; contradictions of the configuration are
 * reported. With `data` the images of the configuration are opened (bits of enum data_wanted); without, sizes
 * and classes come from the checkpoint. */
enum status trained_open(struct cmd *cmd, unsigned data, struct trained *trained);

/* A bit for `data`: the weights may lack the classifier, whose outputs are not used. */
#define TRAINED_BACKBONE 0x100u

/* Opens without device work, which is preprocessing and the step. */
enum status trained_load(struct cmd *cmd, unsigned data, struct trained *trained);
void trained_close(struct trained *trained);

/* --check without a configuration: checks that everything can be opened. */
enum status trained_check(struct cmd *cmd);
