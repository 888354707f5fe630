/* init_tuning.h: the recipe by which `amptrain init --weights` has pretrained weights fine-tuned. */
#pragma once

#include "base/text.h"
#include "checkpoint/weights_identify.h"
#include "cmd/init_findings.h"

struct init_tuning {
    struct weights_identity weights;
    char *path;                      /* of the weights */
    int depth;                       /* layers with weights in front of the classifier */
    bool batch_norm;                 /* it has some */
    char *others;                    /* patterns of all parameters but the classifier's */
    struct image_size crop, resize;
    int batch, epochs, freeze_epochs;
    double lr, layer_decay;
};

/* Finds the network and the numbers. USAGE or BAD_CHECKPOINT if there is none; init_tuning_free is called in
 * any case. */
enum status init_tuning_make(const char *weights, const struct init_findings *found,
                             struct init_tuning *tuning);
void init_tuning_free(struct init_tuning *tuning);

/* The sections from [augment] to [schedule], and [checkpoint]; `file` is where they will be written. */
void init_tuning_add(const struct init_tuning *tuning, const struct init_findings *found, const char *file,
                     struct text *out);
