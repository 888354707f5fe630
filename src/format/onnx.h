/* onnx.h: a writer of ONNX models (github.com/onnx/onnx, onnx.proto) that holds one tensor in memory at a
 * time. */
#pragma once

#include <stdbool.h>

#include "base/atomic_file.h"
#include "base/dtype.h"
#include "base/status.h"

#define ONNX_RANK 6
#define ONNX_INPUTS 64
#define ONNX_INTS 6
#define ONNX_ATTRIBUTES 6

/* How a file begins (base/signature.h): the version of the format, and the producer. */
#define ONNX_SIGNATURE "????amptrain*"

struct onnx {
    struct atomic_file file;
    long graph;              /* where in the file the graph's length is */
    int opset;               /* the minimum version for all operators written so far */
};

enum onnx_type { ONNX_FLOAT = 1, ONNX_INT = 2, ONNX_STRING = 3, ONNX_INT_LIST = 7 };

struct onnx_attribute {
    const char *name;
    enum onnx_type type;
    int count;                       /* of ONNX_INT_LIST */
    int64_t ints[ONNX_INTS];         /* ONNX_INT: [0] */
    double real;
    const char *text;
};

/* An operator with one output, which has its name. */
struct onnx_node {
    const char *op, *name;
    int opset;                       /* the minimum version for this operator; 0: 17 */
    int input_count;
    const char *inputs[ONNX_INPUTS];
    struct onnx_attribute attributes[ONNX_ATTRIBUTES + 1];   /* ended by a row without a name */
};

enum { ONNX_HEIGHT = -1, ONNX_WIDTH = -2, ONNX_OUTPUT_HEIGHT = -3, ONNX_OUTPUT_WIDTH = -4 };

struct onnx_dims {
    int rank;
    int64_t dim[ONNX_RANK];          /* of a value, 0 is any number of images, and those below any number
                                      * of pixels, the same for all values */
};

/* Opens a file, which is there when onnx_close has returned OK. Nodes, tensors and values follow in any
 * order, except that nodes come after their inputs. Write errors are reported by onnx_close. */
enum status onnx_open(const char *path, const char *name, struct onnx *onnx);
void onnx_node(struct onnx *onnx, const struct onnx_node *node);
void onnx_tensor(struct onnx *onnx, const char *name, enum dtype dtype, struct onnx_dims dims,
                 const void *data);
/* ... of signed 8 or 32 bits, which no dtype has. */
enum onnx_integer { ONNX_INT8 = 3, ONNX_INT32 = 6 };
void onnx_integers(struct onnx *onnx, const char *name, enum onnx_integer type, struct onnx_dims dims,
                   const void *data);
enum onnx_value { ONNX_INPUT = 11, ONNX_OUTPUT = 12 };
void onnx_value(struct onnx *onnx, enum onnx_value kind, const char *name, enum dtype dtype,
                struct onnx_dims dims);

/* Ends the graph; then only metadata may follow. */
void onnx_end(struct onnx *onnx);
void onnx_metadata(struct onnx *onnx, const char *key, const char *value);

/* Closes the file, and removes it unless `keep`. FAILED if something could not be written, or if the file
 * exceeds the format's limit of 2 GiB. */
enum status onnx_close(struct onnx *onnx, bool keep);
