/* data_parts.h: the state while data are opened; for data*.c. */
#pragma once

#include "input/data.h"

struct data_opening {
    struct settings *settings;
    const char *file;                 /* as in struct data_options */
    unsigned wanted;
    const struct data_hint *hint;
    const struct format *format;
    int size, channels;               /* of the model file's input; 0: not given */
    struct data *data;
};

/* Any open data set, for properties that all have in common; NULL: none is open. */
const struct dataset *data_any(const struct data *data);

/* Moves the images that are held out from training to validation, and keeps data.limit of the others. */
enum status data_split(const struct data_opening *o);

/* The size of images of either split, and the settings that follow from it. */
void data_set_sizes(const struct data_opening *o);

/* Sets `deep`, by some of the images and by data.range. */
void data_set_depth(const struct data_opening *o);

/* The class weights in the loss, from data.class_weights. */
enum status data_weigh_classes(const struct data_opening *o);

/* The task, the scale of its numbers, and its thresholds; refused if other settings do not fit it. */
enum status data_set_task(const struct data_opening *o);

/* Preprocessing of the images; refused if it does not fit them. */
enum status data_set_augment(const struct data_opening *o);
