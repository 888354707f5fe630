/* weights_names.h: names and shapes that other libraries give to the parameters of a network: the rules of
 * conf/models/LIBRARY.names, amptrain-model(5). */
#pragma once

#include <stdbool.h>

#include "base/shape.h"
#include "base/status.h"
#include "format/weights_file.h"

/* Libraries that have such a file, NULL-terminated. */
extern const char *const weights_libraries[];

struct weights_rule {
    char *pattern, *name;       /* of ours; of theirs */
    struct shape shape;         /* rank 0: the same; a dimension 0 is ours, -1 takes what is left */
};

/* Input with which the library's published weights of a network were trained: ImageNet's images and our
 * norms, unless its file says otherwise, as "@mean = 0.5 0.5 0.5". */
struct weights_usual {
    double mean[3], std[3];
    int crop, resize;           /* of an evaluation: the side of the crop, and the short side before it */
    const char *interpolation;  /* before it: "bilinear" or "bicubic" */
    double norm_eps;            /* of its norms (graph/norm_eps.h); 0: as ours */
};

struct weights_names {
    char *file;                 /* for messages; NULL: there is none */
    struct weights_rule *rules; /* applied one after another */
    int count;
    bool known;                 /* the library has this network */
    struct weights_usual usual;
    struct weights_rule *second;    /* second names of tensors, by their names there or other second names */
    int second_count;
    char *encoder;              /* encoders.names: the network of which the encoder is a part, and by rules
                                 * has the names; NULL: none */
};

/* The rules of a library for the network `arch`; none, of a network that is not known, if its file is not
 * installed. USAGE, with file and line, if they are wrong. */
enum status weights_names_open(const char *library, const char *arch, struct weights_names *names);
/* Opens the names of `library`, or if NULL of the first library that has the network. */
enum status weights_names_open_any(const char *library, const char *arch, struct weights_names *names);
/* Opens our own names of the parameters and, from the first library that has the network, further names. */
enum status weights_names_open_second(const char *arch, struct weights_names *names);
void weights_names_close(struct weights_names *names);       /* accepts a zeroed struct */

/* The library's name of a parameter of ours, or the expression for it (weights_file_make), for the caller to
 * free; `shape` becomes its shape there. */
char *weights_names_apply(const struct weights_names *names, const char *ours, struct shape *shape);

/* Further names under which the library stores a tensor that it calls `name`, for the caller to free; returns
 * how many. */
int weights_names_second(const struct weights_names *names, const char *name,
                         char *second[WEIGHTS_SOURCES_MAX]);

/* A tensor of the library that is a part of ours, or contains it. */
struct weights_part {
    char *name;                 /* for the caller to free */
    struct shape shape;
    int64_t first;              /* of our tensor's numbers */
    int64_t zeros;              /* in front of them */
    int64_t row;                /* of so many numbers, behind which are as many zeros; 0: all are one */
};

/* The tensors of the library by which an expression's tensor can be made: the inverse of weights_file_make.
 * 0: its rows cannot be divided so. Without rules every name is its own. */
int weights_names_divide(const struct weights_names *names, const char *expression, struct shape shape,
                         struct weights_part parts[WEIGHTS_SOURCES_MAX]);
