#include "config.h"

#include "format/onnx.h"

#include <stdlib.h>

#include "format/protobuf.h"

#define IR_VERSION 8     /* of opset 17; files of newer opsets may have it, too */
#define OPSET 17
#define LENGTH_BYTES 5   /* of the graph's length: a varint with as many as any needs */

/* Numbers of the members, from onnx.proto. */
enum { MODEL_IR = 1, MODEL_PRODUCER = 2, MODEL_VERSION = 3, MODEL_GRAPH = 7, MODEL_OPSET = 8,
       MODEL_METADATA = 14 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_TENSOR = 5 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_FLOAT = 2, ATTRIBUTE_INT = 3, ATTRIBUTE_STRING = 4, ATTRIBUTE_INTS = 8,
       ATTRIBUTE_TYPE = 20 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TENSOR_ELEMENT = 1, TENSOR_SHAPE = 2, SHAPE_DIM = 1,
       DIM_VALUE = 1, DIM_NAME = 2 };
enum { OPSET_VERSION = 2, PAIR_KEY = 1, PAIR_VALUE = 2 };

static const int element_types[DTYPE_COUNT] = {
    [F32] = 1, [F16] = 10, [BF16] = 16, [U8] = 2, [I32] = 6, [I64] = 7, [F64] = 11,
};

/* The file's error indicator remembers what could not be written. */
static void write_message(struct onnx *onnx, struct protobuf *message)
{
    if (message->length > 0) fwrite(message->bytes, 1, message->length, onnx->file.stream);
    protobuf_free(message);
}

static void write_member(struct onnx *onnx, int member, struct protobuf *inner)
{
    struct protobuf outer = {0};
    protobuf_nest(&outer, member, inner);
    write_message(onnx, &outer);
}

enum status onnx_open(const char *path, const char *name, struct onnx *onnx)
{
    struct protobuf start = {0};
    *onnx = (struct onnx){.opset = OPSET};
    TRY(atomic_file_begin(&directory_working, path, &onnx->file));
    protobuf_int(&start, MODEL_IR, IR_VERSION);
    protobuf_text(&start, MODEL_PRODUCER, "amptrain");
    protobuf_text(&start, MODEL_VERSION, PACKAGE_VERSION);
    protobuf_begin(&start, MODEL_GRAPH, UINT32_MAX);     /* placeholder of LENGTH_BYTES; onnx_end sets it */
    onnx->graph = (long)start.length - LENGTH_BYTES;
    protobuf_text(&start, GRAPH_NAME, name);
    write_message(onnx, &start);
    return OK;
}

static void add_attribute(struct protobuf *node, const struct onnx_attribute *from)
{
    struct protobuf attribute = {0};
    protobuf_text(&attribute, ATTRIBUTE_NAME, from->name);
    switch (from->type) {
    case ONNX_FLOAT: protobuf_float(&attribute, ATTRIBUTE_FLOAT, (float)from->real); break;
    case ONNX_INT: protobuf_int(&attribute, ATTRIBUTE_INT, from->ints[0]); break;
    case ONNX_STRING: protobuf_text(&attribute, ATTRIBUTE_STRING, from->text); break;
    case ONNX_INT_LIST:
        for (int i = 0; i < from->count; i++) protobuf_int(&attribute, ATTRIBUTE_INTS, from->ints[i]);
        break;
    }
    protobuf_int(&attribute, ATTRIBUTE_TYPE, from->type);
    protobuf_nest(node, NODE_ATTRIBUTE, &attribute);
}

void onnx_node(struct onnx *onnx, const struct onnx_node *from)
{
    struct protobuf node = {0};
    for (int i = 0; i < from->input_count; i++) protobuf_text(&node, NODE_INPUT, from->inputs[i]);
    protobuf_text(&node, NODE_OUTPUT, from->name);
    protobuf_text(&node, NODE_NAME, from->name);
    protobuf_text(&node, NODE_OP, from->op);
    for (const struct onnx_attribute *attribute = from->attributes; attribute->name; attribute++)
        add_attribute(&node, attribute);
    if (from->opset > onnx->opset) onnx->opset = from->opset;
    write_member(onnx, GRAPH_NODE, &node);
}

/* `bytes`: of an element. */
static void write_tensor(struct onnx *onnx, const char *name, int type, size_t bytes, struct onnx_dims dims,
                         const void *data)
{
    struct protobuf tensor = {0}, outer = {0};
    for (int i = 0; i < dims.rank; i++) {
        protobuf_int(&tensor, TENSOR_DIMS, dims.dim[i]);
        bytes *= (size_t)dims.dim[i];
    }
    protobuf_int(&tensor, TENSOR_TYPE, type);
    protobuf_text(&tensor, TENSOR_NAME, name);
    protobuf_begin(&tensor, TENSOR_RAW, bytes);
    protobuf_begin(&outer, GRAPH_TENSOR, tensor.length + bytes);
    write_message(onnx, &outer);
    write_message(onnx, &tensor);
    if (bytes > 0) fwrite(data, 1, bytes, onnx->file.stream);
}

void onnx_tensor(struct onnx *onnx, const char *name, enum dtype dtype, struct onnx_dims dims,
                 const void *data)
{
    write_tensor(onnx, name, element_types[dtype], dtype_bytes(dtype), dims, data);
}

void onnx_integers(struct onnx *onnx, const char *name, enum onnx_integer type, struct onnx_dims dims,
                   const void *data)
{
    write_tensor(onnx, name, type, type == ONNX_INT8 ? 1 : sizeof(int32_t), dims, data);
}

void onnx_value(struct onnx *onnx, enum onnx_value kind, const char *name, enum dtype dtype,
                struct onnx_dims dims)
{
    static const char *const free[] = {"batch", "height", "width", "output_height", "output_width"};
    struct protobuf shape = {0}, tensor = {0}, type = {0}, value = {0};
    for (int i = 0; i < dims.rank; i++) {
        struct protobuf dim = {0};
        if (dims.dim[i] > 0) protobuf_int(&dim, DIM_VALUE, dims.dim[i]);
        else protobuf_text(&dim, DIM_NAME, free[-dims.dim[i]]);
        protobuf_nest(&shape, SHAPE_DIM, &dim);
    }
    protobuf_int(&tensor, TENSOR_ELEMENT, element_types[dtype]);
    protobuf_nest(&tensor, TENSOR_SHAPE, &shape);
    protobuf_nest(&type, TYPE_TENSOR, &tensor);
    protobuf_text(&value, VALUE_NAME, name);
    protobuf_nest(&value, VALUE_TYPE, &type);
    write_member(onnx, kind, &value);
}

/* The graph's length, of which a varint's every byte but the last says that there is another. */
void onnx_end(struct onnx *onnx)
{
    uint8_t length[LENGTH_BYTES];
    struct protobuf opset = {0};
    long end = ftell(onnx->file.stream), bytes = end - onnx->graph - LENGTH_BYTES;
    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (uint8_t)((bytes >> (7 * i) & 127) | (i + 1 < LENGTH_BYTES ? 128 : 0));
    fseek(onnx->file.stream, onnx->graph, SEEK_SET);
    fwrite(length, 1, sizeof length, onnx->file.stream);
    fseek(onnx->file.stream, end, SEEK_SET);
    protobuf_int(&opset, OPSET_VERSION, onnx->opset);
    write_member(onnx, MODEL_OPSET, &opset);
}

void onnx_metadata(struct onnx *onnx, const char *key, const char *value)
{
    struct protobuf pair = {0};
    protobuf_text(&pair, PAIR_KEY, key);
    protobuf_text(&pair, PAIR_VALUE, value);
    write_member(onnx, MODEL_METADATA, &pair);
}

enum status onnx_close(struct onnx *onnx, bool keep)
{
    enum status status = OK;
    if (keep && ftell(onnx->file.stream) > INT32_MAX)
        status = fail(FAILED, "%s: the network is larger than the 2 GiB that ONNX can hold", onnx->file.name);
    enum status ended = atomic_file_end(&onnx->file, keep && status == OK);
    return status == OK ? ended : status;
}
