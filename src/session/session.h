/* session.h: what a command works on: data, graphs and hyperparameters, and the device that they are used
 * on. */
#pragma once

#include "comm/comm.h"
#include "exec/device_allocators.h"
#include "input/caching.h"
#include "input/decoding.h"
#include "session/graphs.h"
#include "task/hyperparameters.h"
#include "transfer/features.h"
#include "transfer/teacher.h"

struct session {
    struct settings *settings;
    const char *file;                 /* the configuration's path; NULL: none */
    struct data data;
    struct graphs graphs;
    struct teacher teacher;
    struct features features;         /* of a linear probe; zeroed: it is none */
    struct hyperparameters hyper;
    struct comm *comm;                /* with the other ranks, not owned; NULL: there are none */
    struct comm *replicas, *stages;   /* ranks with this one's stage, and of its pipeline; NULL: none */
    int stage;                        /* of the pipeline: this rank's, or the one that is planned */
    struct device *device;            /* NULL until session_open_device */
    char *gpu;                        /* that an earlier run had, for plans until then; NULL: unknown */
    struct cache *cache;              /* of the device's memory; NULL: it has none */
    struct pinned *pinned;            /* of host memory for copies */
    struct decoding *decoding;        /* decoding by the device; NULL: workers decode all images */
    struct gpu_preprocessing *gpu_preprocessing;   /* preprocessing on the device; NULL: loaders do it */
    int64_t left;                     /* the device was found to have only this much for the run; 0:
                                       * unknown */
    int tile_batch;                   /* tiles in a batch of an evaluation (tiles.h); 0: not chosen yet */
    bool keeps_probabilities;         /* of these, for all classes */
    bool fitted;                      /* train.batch was auto, and resolved for memory.limit */
};

void session_close(struct session *session);        /* accepts a zeroed or half-built struct */

/* Finds this rank's groups in the comm. Ranks of one pipeline follow each other. */
void session_join(struct session *session);
/* The pipeline, or without stages the rank, among those that share the images of a step; and whether this
 * rank has their losses. */
int session_replica(const struct session *session);
bool session_has_losses(const struct session *session);

enum status session_open_device(struct session *session);      /* no effect if it is open */

/* The kind that steps are made for, and its streams: the open device's, or the one that run.device names, if
 * this build has code for it. */
enum device_kind session_device_kind(const struct session *session);
int session_streams(const struct session *session);
/* run.conv_algorithm; NULL: auto. */
const char *session_conv_algorithm(const struct session *session);
bool session_requests_cuda(const struct session *session); /* run.device names a GPU: "cuda", "cuda:1" */

/* The limit of device memory for the run: memory.limit, or less if the device has less; 0: none. */
int64_t session_limit(const struct session *session);

/* Energy that this rank's device has taken since some moment; NAN: unknown. Of the ranks of a host that
 * compute on its processors, the first one counts it for all. */
double session_joules(const struct session *session);

/* The number of batches that loaders prefetch. */
int session_prefetch(const struct session *session);

/* The options of those modules, as the session's settings and device have them. */
struct caching_options session_caching_options(const struct session *session);
struct decoding_options session_decoding_options(const struct session *session);

/* Device memory of preprocessing, known before allocation: a batch's bytes, cached images, decoding
 * buffers. */
int64_t session_preprocessing_bytes(const struct session *session);
