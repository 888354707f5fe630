/* image_arguments.h: the images that a command line names: files, folders, lists of files, standard input. */
#pragma once

#include "cmd/cmd.h"
#include "data/dataset/image_list.h"

struct image_arguments {
    struct listed_image *images;  /* in order */
    int64_t count;
    size_t *below;                /* [count] where in each name the path below its folder begins, or that of
                                   * its file */
    uint8_t *input;               /* the image on standard input; NULL: none is named */
    int64_t unusable;             /* images with a problem, as image_arguments_note counts them */
    enum status worst;            /* of theirs: FAILED rather than BAD_DATA */
    char *first;                  /* the first of them, and its problem */
};

/* FILE, FOLDER (all images in it and its subfolders), - (an image on standard input), @LIST (a file of paths,
 * one a line, of files and folders; @- is on standard input). A folder without images and an unreadable
 * standard input are images with a problem; BAD_DATA if a list cannot be read, USAGE if standard input is
 * named twice. image_arguments_free frees them in any case. */
enum status image_arguments_read(char *const *arguments, int count, struct image_arguments *images);
void image_arguments_free(struct image_arguments *images);

/* Counts an image that cannot be used. The report fails if there is one, with the first's problem; `one` and
 * `more` end the message for a single image, and for several. */
void image_arguments_note(struct image_arguments *images, int64_t image, enum status status,
                          const char *problem);
enum status image_arguments_report(const struct image_arguments *images, const char *one, const char *more);

/* Sets train.batch for them, of --batch images at most, and undoes what divides it. */
enum status image_arguments_set_batch(const struct image_arguments *images, struct cmd *cmd);
