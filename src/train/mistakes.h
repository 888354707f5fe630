/* mistakes.h: mistakes.json: the most confident mistakes of an evaluation, with small pictures. */
#pragma once

#include "train/evaluate.h"

#define MISTAKES_FILE "mistakes.json"

/* Writes an array of objects: image (its path; null: it has no file), index in the data set, label, predicted
 * (class names), confidence, and width, height and picture (a JPEG as base64) where it can be read and shown.
 * `images` are those evaluated, of classes with these names. */
enum status mistakes_write(const struct evaluation *evaluation, const struct images *images,
                           char *const *class_names, const struct directory *folder);
