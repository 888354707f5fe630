/* network.h: a trained network for images of any number: programs for several batches, made when they are
 * needed. All functions are called on one thread. */
#pragma once

#include "data/dataset/image_list.h"
#include "explain/classifier.h"
#include "explain/trained_network.h"
#include "input/whole_images.h"

struct engine;

struct network {
    struct settings settings;
    struct trained trained;
    bool described, opened;      /* settings, trained are there */
    bool headless;
    char *path;                  /* of the weights */
    struct store whole;          /* for layers of a network that is folded, when they are first asked for */
    int batch;                   /* the most images at a time */
    struct engine **engines;     /* [engine_count] */
    int engine_count;
};

/* Settings as after -s, which include those of the device. `batch` is lowered until its memory fits into
 * memory.limit. network_close frees it in any case. */
struct network_options {
    const char *weights;         /* RUN|FILE */
    const char *const *settings;
    int setting_count, batch;
    bool headless;               /* the weights need no classifier, whose outputs are not used then */
};
enum status network_open(const struct network_options *options, struct network *network);
void network_close(struct network *network);

/* Labels the pixels of images; `take` is called on several threads, as struct whole_images_options says. */
struct network_pixels {
    const struct listed_image *images;
    int64_t count;
    bool probabilities, mirrored;
    void (*take)(void *context, const struct whole_image *image);
    void *context;
};
enum status network_label_pixels(struct network *network, const struct network_pixels *pixels);

/* The layer's number and features; NULL: the input of the last layer with weights. */
enum status network_layer(const struct network *network, const char *layer, int *node, int64_t *features);

/* Runs the network on images, up to the node (-1: to its outputs), and calls `take` as classifier_run
 * does. */
enum status network_run(struct network *network, int node, const struct listed_image *images, int64_t count,
                        enum status (*take)(void *context, int64_t image, const struct classified *what),
                        void *context);
