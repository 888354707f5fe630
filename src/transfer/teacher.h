/* teacher.h: a trained network whose outputs are learnt from (train.teacher). It has no gradients, dropout is
 * left out of it, and its batch norms become parts of its convolutions. */
#pragma once

#include "exec/store.h"
#include "input/data.h"

struct teacher {
    char *path;                /* of its weights; NULL: there is none */
    char *checksum;            /* of them all; NULL: the file has none */
    struct graph whole;        /* as it was trained */
    struct graph graph;        /* as it runs */
    int *sources;              /* [graph.count] the node of `whole` that each stands for */
    struct store store;        /* of `graph`; no memory: not opened */
    char *distill;             /* settings of the op distill */
};

struct teacher_options {
    struct settings *settings;
    const char *file;          /* the configuration's path; NULL: none */
    const struct data *data;
    const struct graph *student;
};

/* Opens the network that train.teacher names, if there is one, and makes `joined`: the student's graph with
 * the teacher's behind it (graph_with_teacher). Notes its absolute path in the settings. USAGE if its
 * classes, images or normalisation differ, BAD_CHECKPOINT if it cannot be read. */
enum status teacher_open(const struct teacher_options *options, struct teacher *teacher,
                         struct graph *joined);

/* Its weights on the device, once; `low` is the type of the run's precision. */
enum status teacher_load(struct teacher *teacher, struct device *device, enum dtype low);

/* Device memory for them. */
int64_t teacher_bytes(const struct teacher *teacher, enum dtype low);
void teacher_close(struct teacher *teacher);       /* accepts a zeroed struct */
