/* libraries.h: times convolutions with the code of each library, and other layers with weights with their
 * own. */
#pragma once

#include "measure/op_time.h"
#include "measure/peaks.h"

#define LIBRARIES_MAX 4

/* The result of one library for a layer in one phase. */
struct library_time {
    double ms;               /* NAN: not supported, or not enough memory */
    char algorithm[64];
    int64_t workspace_bytes;
};

/* A convolution or linear layer, all those of the same shape together, in one phase. */
struct library_row {
    const char *name, *op, *phase;       /* the first layer's */
    int layers;
    double flops;                        /* of one */
    int64_t weight_bytes, activation_bytes;
    struct library_time of[LIBRARIES_MAX];
};

struct libraries {
    int batch;
    const char *precision;
    char *device;
    int64_t card_bytes;
    struct peaks peaks;
    const char *names[LIBRARIES_MAX];    /* the last is "chosen": the code that training uses */
    int count;
    struct library_row *rows;
    int row_count;
};

/* For the session's network, whose device is open, with that batch. Rows point into the session. */
enum status libraries_measure(const struct session *session, int batch, struct libraries *libraries);
void libraries_free(struct libraries *libraries);

/* Totals of the rows of an op that a library supports; `both`: and that the other one supports. */
struct library_sum {
    double ms, flops;
    int rows;
};
struct library_sum libraries_sum(const struct libraries *libraries, const char *op, int library, int both);

/* Prints tables to stdout; and as members of a JSON object. */
void libraries_print(const struct libraries *libraries);
void libraries_json(const struct libraries *libraries, struct text *out);
