/* weights_identify.h: which of the installed networks a weights file belongs to, by the names and shapes of
 * its tensors, and which images it was trained on. */
#pragma once

#include "checkpoint/model_card.h"
#include "format/weights_file.h"

struct weights_identity {
    char *arch;                  /* its name in `amptrain models` */
    const char *library;         /* whose names the file has; NULL: ours */
    int classes;                 /* of its classifier; 0: it has none */
    int channels;                /* of its images */
    bool positions;              /* it has position embeddings, which are for images of one size */
    double norm_eps;             /* of its norms, if it is not the installed network's; 0: it is */
    struct model_card card;      /* the images and class names: its own, or what the library's networks of
                                  * that name usually have */
};

/* Reports what was found; BAD_CHECKPOINT, with the nearest network and what differs, if there is none. Of
 * several that fit, the one that the file's name or card has, or else the first. */
enum status weights_identify(const char *path, struct weights_identity *identity);
void weights_identity_free(struct weights_identity *identity);       /* accepts a zeroed struct */

/* Reads the epsilon of the norms of the network that a file of ours describes (graph/norm_eps.h), which a run
 * may have set; 0: it describes none, or they have several. BAD_CHECKPOINT if the description is wrong. */
enum status weights_norm_eps(const struct weights_file *file, double *eps);
