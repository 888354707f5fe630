/* exec_parts.h: what an exec is made of; for exec.c and diagnose.c. */
#ifndef GRAPH_EXEC_PARTS_H
#define GRAPH_EXEC_PARTS_H

#include "graph/exec.h"

/* An instruction with its code and its call, pointers and all: a run only goes through these. */
struct step {
    const struct instruction *at;
    enum status (*run)(const struct call *call);
    struct call call;
    struct op_random random;
};

/* A tensor of a call that lies in the batch, whose place changes with every run. */
struct input {
    struct tensor *tensor;
    enum home home;
    int64_t offset;
};

struct exec {
    struct exec_options options;
    struct device *device;
    struct program *program;
    struct engines engines;
    struct plan plan;
    bool planned;
    void *arena;
    int64_t arena_bytes;                 /* of its own; 0: shared */
    char *results;
    struct step *steps;
    struct tensor *tensors;              /* of all calls */
    int tensor_count;
    struct input *inputs;
    int input_count;
    struct optimizer_param *params;      /* those that the update changes */
    int param_count;
    struct exec_batch batch;             /* of the last run */
    float scale;                         /* the loss scale that the last run multiplied by */
    struct optimizer_state state;        /* after the last run */
    bool measure;
    int64_t *times;
};

/* Points the calls at this batch. */
void exec_bind(struct exec *exec, const struct exec_batch *batch);

/* One instruction that is not an update. */
enum status exec_step(struct exec *exec, int i);

/* Where a value lies; NULL for what is in a batch that is not bound. */
void *exec_address(const struct exec *exec, int value);

/* `count` elements of a value from element `first` on, as fp32. */
void exec_fetch(const struct exec *exec, int value, int64_t first, int64_t count, float *host);

#endif
