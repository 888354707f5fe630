/* model_card.h: what stands beside a weights file about it: config.json and preprocessor_config.json, as timm
 * and Hugging Face transformers write them. */
#pragma once

#include <stdbool.h>

#include "base/shape.h"

#define MODEL_CARD_CHANNELS 3

struct model_card {
    char *path;                  /* of config.json; NULL: there is none, or it is of something else */
    char *architecture;          /* timm's name of the network; NULL: unknown */
    double mean[MODEL_CARD_CHANNELS], std[MODEL_CARD_CHANNELS];
    bool normalised;             /* mean and std are known */
    char *normalised_by;         /* the file that says them; NULL: none does */
    struct image_size crop, resize;   /* of images in an evaluation: of the crop; what they are resized to
                                       * before it; h is 0: unknown */
    const char *interpolation;   /* before that: "bilinear" or "bicubic"; NULL: unknown */
    double norm_eps;             /* of all layer norms; 0: unknown */
    char **class_names;          /* [classes]; NULL: unknown */
    int classes;
    char *class_names_by;        /* the file and the field, for messages */
};

/* Reads the card of a weights file. One that is damaged is not used, nor is a field that is wrong or means
 * what is not done here, and that is reported, if `says`; missing ones are no error. */
void model_card_read(const char *weights, bool says, struct model_card *card);
/* Drops class names that are not one for each of the weights' outputs; 0: they have none. */
void model_card_limit_classes(struct model_card *card, int64_t outputs, bool says);
void model_card_free(struct model_card *card);       /* accepts a zeroed struct */
