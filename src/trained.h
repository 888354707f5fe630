/* trained.h: a trained network made ready to be used: what eval and predict begin with. */
#ifndef TRAINED_H
#define TRAINED_H

#include "cmd.h"
#include "session/step.h"

struct trained {
    struct session session;
    struct store store;
    struct step step;            /* an evaluation */
};

/* Loads the weights that --weights names. With `data` the images of the configuration are opened
 * (bits of enum data_wanted); without, a checkpoint tells sizes and classes. */
enum status trained_open(struct cmd *cmd, unsigned data, struct trained *trained);
void trained_close(struct trained *trained);

#endif
