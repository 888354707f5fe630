/* mistakes.h: mistakes.json: the most confident mistakes of an evaluation, with small pictures. */
#pragma once

#include "evaluate/evaluate.h"

#define MISTAKES_FILE "mistakes.json"

/* The most confident mistakes of an evaluation, and where in them the predicted classes were seen. */
struct mistakes {
    const struct evaluation *evaluation;
    const struct images *images;     /* that were evaluated */
    const struct data *data;         /* of the session */
    int h, w;                        /* of a map; 0: there are none */
    float *maps;                     /* [evaluation->mistake_count][h][w]: Grad-CAM, from 0 to 1; NAN: none */
    struct mask_strip *strips;       /* [count] of masks; NULL: there are none */
    int count;
};

/* Makes the maps, or strips, with the weights that were evaluated by `step`, whose memory is used again.
 * There are none with several ranks, of networks without a layer to look at, where they would take long, and
 * without the memory for them, which is said in detail. */
enum status mistakes_explain(const struct session *session, struct store *store, const struct step *step,
                             struct mistakes *mistakes);
void mistakes_free(struct mistakes *mistakes);       /* accepts a zeroed struct */

/* Writes an array of objects: image (its path; null: it has no file), index in the data set, label, predicted
 * (class names), confidence, and, where it can be read and shown, width, height and picture (a JPEG as
 * base64), and explanation (a picture of the same kind). Of masks there are a loss, and the mean IoU of the
 * image and a strip as its picture, if they were made. Where targets are no classes, label and predicted
 * are in words, and there is a loss instead of a confidence. */
enum status mistakes_write(const struct mistakes *mistakes, const struct directory *folder);
