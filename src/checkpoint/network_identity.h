/* network_identity.h: whose network weights are: all that must be the same for the same values to mean the
 * same. */
#pragma once

#include "conf/settings.h"
#include "format/safetensors.h"
#include "graph/graph_text.h"

/* Members that are not known are equal to anything. */
struct network_identity {
    char *graph;                     /* graph_text; NULL: not known */
    char **class_names;              /* in the order of the logits */
    int classes;                     /* 0: not known */
    int channels;                    /* of images; 0: not known */
    bool normalised;                 /* augment.mean and augment.std are known, and so are */
    struct field_reals mean, std;    /* none: 0, and 1 */
    struct field_reals range, bands; /* data.range, none: auto; data.bands */
    int task;                        /* data.task; auto: not known */
    struct field_reals value_scale;  /* of numbers, mean and deviation; none: 0 and 1 */
};

/* Describes the network that is trained, for the caller to free. `graph` must not be fused; NULL: not
 * known. */
void network_identity_make(const struct graph *graph, const struct settings *settings,
                           char *const *class_names, int classes, struct network_identity *identity);

/* Reads the identity in a checkpoint or exported file, for the caller to free. BAD_CHECKPOINT if its metadata
 * are damaged. */
enum status network_identity_read(const struct safetensors *file, struct network_identity *identity);

void network_identity_free(struct network_identity *identity);

/* True if both scales of numbers are the same, but for older versions' rounding of numbers to floats. */
bool network_identity_same_scale(const struct field_reals *one, const struct field_reals *other);

/* True if `other` is the same as `one`. If not, the first difference of each kind is added to `differences`:
 * "layer 'relu1' is 'relu6 conv1', not 'relu conv1'; augment.mean is 0.5, not 0", first `other`'s, then
 * `one`'s. */
bool network_identity_same(const struct network_identity *one, const struct network_identity *other,
                           enum graph_same how, struct text *differences);
