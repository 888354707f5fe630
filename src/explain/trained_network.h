/* trained_network.h: opens a network with its weights, described by their file: for the library, and for
 * commands that use a trained network. */
#pragma once

#include "checkpoint/weights.h"
#include "session/step.h"

struct trained {
    struct session session;
    struct store store;
    struct step step;            /* an evaluation */
    struct weights_options loaded;       /* how the weights were */
};

struct trained_source {
    const char *path;            /* the weights file (weights_path) */
    const char *config;          /* the configuration's path; NULL: none */
    struct comm *comm;           /* with other ranks; NULL: there are none */
    struct settings *settings;   /* trained_network_settings; they must outlive what is opened */
};

/* Reads the settings stored in the weights file at `path`, overridden by file and overrides of `given`; with
 * a configuration file, only the preprocessing is taken from the weights file. */
enum status trained_network_settings(const char *path, const struct settings_sources *given,
                                     struct settings *settings);

/* Opens a session with the network of the weights file and the training images of the settings. */
enum status trained_network_session(const struct trained_source *source, struct session *session);

/* A bit for `data`: the weights may lack the classifier, whose outputs are not used. */
#define TRAINED_BACKBONE 0x100u
/* ... and one: nothing but the outputs is wanted. Batch norms become part of convolutions, as session.graphs
 * has them (folded), and the store has that network's parameters. */
#define TRAINED_FOLDED 0x200u

/* Loads the weights into the network that they describe; contradictions of the configuration are reported.
 * With `data` the images of the configuration are opened (bits of enum data_wanted); without, sizes and
 * classes come from the checkpoint. `load` leaves out preprocessing on the device and the step. */
enum status trained_network_open(const struct trained_source *source, unsigned data, struct trained *trained);
enum status trained_network_load(const struct trained_source *source, unsigned data, struct trained *trained);
/* Opens a store with the weights of the file for all layers, also of a network that was folded. */
enum status trained_network_whole(const struct trained *trained, const char *path, struct store *store);
void trained_close(struct trained *trained);         /* accepts a zeroed struct */
