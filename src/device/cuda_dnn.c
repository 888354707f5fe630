#include "device/cuda_dnn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define OPERATIONS 24
#define KNOBS 48                /* settings of one engine */
#define ALIGNMENT 16            /* bytes that every tensor's address is a multiple of */

typedef cudnnBackendDescriptor_t descriptor;

struct dnn_graph {
    int tensor_count, operation_count, helper_count;
    struct dnn_tensor described[DNN_TENSORS];
    descriptor tensor[DNN_TENSORS];
    descriptor operation[OPERATIONS];
    descriptor helper[OPERATIONS];      /* geometry of convolutions, kinds of pointwise operations */
    descriptor graph;
    bool refused;                       /* by the library, somewhere on the way */
};

struct dnn_plan {
    int tensor_count;
    bool on_chip[DNN_TENSORS];
    size_t workspace;
    descriptor engine, config, plan;
};

/* A descriptor under construction, with the first failure of it. */
struct draft {
    descriptor descriptor;
    cudnnStatus_t status;
};

static struct draft draft_begin(cudnnBackendDescriptorType_t type)
{
    struct draft draft = {.descriptor = NULL};
    draft.status = cudnn()->cudnnBackendCreateDescriptor(type, &draft.descriptor);
    return draft;
}

static void draft_set(struct draft *draft, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      int64_t count, const void *values)
{
    if (draft->status != CUDNN_STATUS_SUCCESS) return;
    draft->status = cudnn()->cudnnBackendSetAttribute(draft->descriptor, name, type, count, values);
}

static void draft_set_number(struct draft *draft, cudnnBackendAttributeName_t name, int64_t value)
{
    draft_set(draft, name, CUDNN_TYPE_INT64, 1, &value);
}

static void draft_set_float(struct draft *draft, cudnnBackendAttributeName_t name, float value)
{
    draft_set(draft, name, CUDNN_TYPE_FLOAT, 1, &value);
}

static void draft_set_dtype(struct draft *draft, cudnnBackendAttributeName_t name, cudnnDataType_t value)
{
    draft_set(draft, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

static void draft_set_part(struct draft *draft, cudnnBackendAttributeName_t name, descriptor part)
{
    draft_set(draft, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static void descriptor_free(descriptor descriptor)
{
    if (descriptor) cudnn()->cudnnBackendDestroyDescriptor(descriptor);
}

/* The finished descriptor; NULL if anything about it failed. */
static descriptor draft_end(struct draft *draft)
{
    if (draft->status == CUDNN_STATUS_SUCCESS)
        draft->status = cudnn()->cudnnBackendFinalize(draft->descriptor);
    if (draft->status == CUDNN_STATUS_SUCCESS) return draft->descriptor;
    descriptor_free(draft->descriptor);
    return NULL;
}

static bool attribute_get(descriptor from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t most, int64_t *count, void *values)
{
    return cudnn()->cudnnBackendGetAttribute(from, name, type, most, count, values) == CUDNN_STATUS_SUCCESS;
}

static cudnnDataType_t data_type(enum dtype dtype)
{
    switch (dtype) {
    case F32: return CUDNN_DATA_FLOAT;
    case F16: return CUDNN_DATA_HALF;
    case BF16: return CUDNN_DATA_BFLOAT16;
    case F64: return CUDNN_DATA_DOUBLE;
    case U8: return CUDNN_DATA_UINT8;
    case I32: return CUDNN_DATA_INT32;
    case I64: return CUDNN_DATA_INT64;
    case DTYPE_COUNT: break;
    }
    return CUDNN_DATA_FLOAT;
}

struct dnn_graph *dnn_graph_new(void)
{
    return memory_new(1, sizeof(struct dnn_graph));
}

void dnn_graph_free(struct dnn_graph *graph)
{
    if (!graph) return;
    descriptor_free(graph->graph);
    for (int i = 0; i < graph->operation_count; i++) descriptor_free(graph->operation[i]);
    for (int i = 0; i < graph->helper_count; i++) descriptor_free(graph->helper[i]);
    for (int i = 0; i < graph->tensor_count; i++) descriptor_free(graph->tensor[i]);
    free(graph);
}

int dnn_graph_tensor(struct dnn_graph *graph, struct dnn_tensor tensor)
{
    const int64_t *dim = tensor.dim, c = dim[1], h = dim[2], w = dim[3];
    const int64_t planar[4] = {c * h * w, h * w, w, 1}, channels_last[4] = {h * w * c, 1, w * c, c};
    const int64_t *stride = tensor.stride[3] ? tensor.stride : tensor.planar ? planar : channels_last;
    int number = graph->tensor_count++;
    struct draft draft = draft_begin(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    draft_set_dtype(&draft, CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(tensor.dtype));
    draft_set(&draft, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    draft_set(&draft, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    draft_set_number(&draft, CUDNN_ATTR_TENSOR_UNIQUE_ID, number + 1);
    draft_set_number(&draft, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, ALIGNMENT);
    draft_set(&draft, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &tensor.on_chip);
    if (tensor.by_value)
        draft_set(&draft, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &tensor.by_value);
    graph->described[number] = tensor;
    graph->tensor[number] = draft_end(&draft);
    if (!graph->tensor[number]) graph->refused = true;
    return number;
}

static void graph_operation(struct dnn_graph *graph, struct draft *draft)
{
    descriptor made = draft_end(draft);
    if (made) graph->operation[graph->operation_count++] = made;
    else graph->refused = true;
}

static descriptor graph_helper(struct dnn_graph *graph, struct draft *draft)
{
    descriptor made = draft_end(draft);
    if (made) graph->helper[graph->helper_count++] = made;
    else graph->refused = true;
    return made;
}

static descriptor graph_geometry(struct dnn_graph *graph, const struct dnn_convolution *convolution)
{
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    struct draft draft = draft_begin(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    draft_set_number(&draft, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
    draft_set_dtype(&draft, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    draft_set(&draft, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    draft_set(&draft, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, convolution->pad);
    draft_set(&draft, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, convolution->pad);
    draft_set(&draft, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, convolution->stride);
    draft_set(&draft, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, convolution->dilation);
    return graph_helper(graph, &draft);
}

void dnn_graph_forward(struct dnn_graph *graph, const struct dnn_convolution *convolution, int x, int weight,
                       int y)
{
    descriptor geometry = graph_geometry(graph, convolution);
    struct draft draft = draft_begin(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, geometry);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, graph->tensor[x]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, graph->tensor[weight]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, graph->tensor[y]);
    draft_set_float(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1);
    draft_set_float(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0);
    graph_operation(graph, &draft);
}

void dnn_graph_backward_data(struct dnn_graph *graph, const struct dnn_convolution *convolution, int d_y,
                             int weight, int d_x)
{
    descriptor geometry = graph_geometry(graph, convolution);
    struct draft draft = draft_begin(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, geometry);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, graph->tensor[d_y]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, graph->tensor[weight]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, graph->tensor[d_x]);
    draft_set_float(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1);
    draft_set_float(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0);
    graph_operation(graph, &draft);
}

void dnn_graph_backward_weight(struct dnn_graph *graph, const struct dnn_convolution *convolution, int x,
                               int d_y, int d_weight)
{
    descriptor geometry = graph_geometry(graph, convolution);
    struct draft draft = draft_begin(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, geometry);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, graph->tensor[x]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, graph->tensor[d_y]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, graph->tensor[d_weight]);
    draft_set_float(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1);
    draft_set_float(&draft, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0);
    graph_operation(graph, &draft);
}

static struct draft pointwise_begin(cudnnPointwiseMode_t mode)
{
    struct draft kind = draft_begin(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    draft_set(&kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    draft_set_dtype(&kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    return kind;
}

/* An operation of this kind, which has yet to be given its tensors. */
static struct draft pointwise_operation(struct dnn_graph *graph, struct draft *kind)
{
    descriptor pointwise = graph_helper(graph, kind);
    struct draft draft = draft_begin(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    return draft;
}

void dnn_graph_binary(struct dnn_graph *graph, enum dnn_binary op, int a, int b, int y)
{
    static const cudnnPointwiseMode_t modes[] = {CUDNN_POINTWISE_SUB, CUDNN_POINTWISE_MUL,
                                                 CUDNN_POINTWISE_DIV, CUDNN_POINTWISE_ADD};
    struct draft kind = pointwise_begin(modes[op]);
    struct draft draft = pointwise_operation(graph, &kind);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, graph->tensor[a]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, graph->tensor[b]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, graph->tensor[y]);
    graph_operation(graph, &draft);
}

void dnn_graph_unary(struct dnn_graph *graph, enum dnn_unary op, int x, int y)
{
    static const cudnnPointwiseMode_t modes[] = {CUDNN_POINTWISE_EXP, CUDNN_POINTWISE_LOG,
                                                 CUDNN_POINTWISE_IDENTITY};
    struct draft kind = pointwise_begin(modes[op]);
    struct draft draft = pointwise_operation(graph, &kind);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, graph->tensor[x]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, graph->tensor[y]);
    graph_operation(graph, &draft);
}

void dnn_graph_reduce(struct dnn_graph *graph, enum dnn_reduction op, int x, int y)
{
    cudnnReduceTensorOp_t mode = op == DNN_MAXIMUM ? CUDNN_REDUCE_TENSOR_MAX : CUDNN_REDUCE_TENSOR_ADD;
    struct draft kind = draft_begin(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    draft_set(&kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    draft_set_dtype(&kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    descriptor reduction = graph_helper(graph, &kind);
    struct draft draft = draft_begin(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, graph->tensor[x]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, graph->tensor[y]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
    graph_operation(graph, &draft);
}

void dnn_graph_matmul(struct dnn_graph *graph, int a, int b, int c)
{
    struct draft kind = draft_begin(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    draft_set_dtype(&kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    descriptor matmul = graph_helper(graph, &kind);
    struct draft draft = draft_begin(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_MATMUL_ADESC, graph->tensor[a]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_MATMUL_BDESC, graph->tensor[b]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_MATMUL_CDESC, graph->tensor[c]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_MATMUL_DESC, matmul);
    graph_operation(graph, &draft);
}

void dnn_graph_reshape(struct dnn_graph *graph, int x, int y)
{
    struct draft draft = draft_begin(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, graph->tensor[x]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, graph->tensor[y]);
    graph_operation(graph, &draft);
}

void dnn_graph_relu(struct dnn_graph *graph, int x, int y)
{
    cudnnNanPropagation_t passes = CUDNN_PROPAGATE_NAN;
    struct draft kind = pointwise_begin(CUDNN_POINTWISE_RELU_FWD);
    draft_set(&kind, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &passes);
    struct draft draft = pointwise_operation(graph, &kind);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, graph->tensor[x]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, graph->tensor[y]);
    graph_operation(graph, &draft);
}

void dnn_graph_statistics(struct dnn_graph *graph, int x, int sum, int squares)
{
    cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    struct draft draft = draft_begin(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    draft_set(&draft, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    draft_set_dtype(&draft, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, graph->tensor[x]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, graph->tensor[sum]);
    draft_set_part(&draft, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, graph->tensor[squares]);
    graph_operation(graph, &draft);
}

bool dnn_graph_finish(struct dnn_graph *graph, cudnnHandle_t handle)
{
    if (graph->refused) return false;
    struct draft draft = draft_begin(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    draft_set(&draft, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    draft_set(&draft, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->operation_count,
              graph->operation);
    graph->graph = draft_end(&draft);
    return graph->graph != NULL;
}

/* Reads an attribute that is one descriptor into a new descriptor of that type. */
static descriptor part_of(descriptor whole, cudnnBackendAttributeName_t name,
                          cudnnBackendDescriptorType_t type)
{
    descriptor part = NULL;
    int64_t count = 0;
    if (cudnn()->cudnnBackendCreateDescriptor(type, &part) != CUDNN_STATUS_SUCCESS) return NULL;
    if (attribute_get(whole, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &part) &&
        count == 1)
        return part;
    descriptor_free(part);
    return NULL;
}

static bool graph_is_fp32(const struct dnn_graph *graph)
{
    return graph->described[0].dtype == F32;
}

static bool engine_keeps(const struct dnn_graph *graph, descriptor engine, const struct dnn_rules *rules)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (!attribute_get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                       CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes))
        return false;
    bool exact = graph_is_fp32(graph) && !rules->tensor_cores;
    for (int64_t i = 0; i < count; i++) switch (notes[i]) {
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
            if (exact) return false;
            break;
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
            if (rules->deterministic) return false;
            break;
        /* Sums in half precision, and transforms that cancel more digits than a reader of "fp32" expects. */
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_FFT:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return false;
        case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
        case CUDNN_NUMERICAL_NOTE_TYPE_COUNT: break;
        }
    return true;
}

static bool engine_is_ready(descriptor engine)
{
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (!attribute_get(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                       CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, notes))
        return true;
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) return false;
    return true;
}

static bool knob_print(descriptor knob, char text[DNN_ENGINE_TEXT], int *length)
{
    cudnnBackendKnobType_t type;
    int64_t value, count;
    if (!attribute_get(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &count, &type) ||
        !attribute_get(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &count, &value))
        return false;
    *length +=
        snprintf(text + *length, (size_t)(DNN_ENGINE_TEXT - *length), " %d=%" PRId64, (int)type, value);
    return *length < DNN_ENGINE_TEXT;
}

static bool knobs_print(descriptor config, char text[DNN_ENGINE_TEXT], int length)
{
    descriptor knobs[KNOBS] = {NULL};
    int64_t count = 0;
    bool good = true;
    for (int i = 0; good && i < KNOBS; i++)
        good = cudnn()->cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]) ==
               CUDNN_STATUS_SUCCESS;
    good = good &&
           attribute_get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS,
                         &count, knobs);
    for (int64_t i = 0; good && i < count && i < KNOBS; i++) good = knob_print(knobs[i], text, &length);
    for (int i = 0; i < KNOBS; i++) descriptor_free(knobs[i]);
    return good && count <= KNOBS;
}

/* False for an engine that breaks the rules or cannot be named. */
static bool config_print(const struct dnn_graph *graph, descriptor config, const struct dnn_rules *rules,
                         char text[DNN_ENGINE_TEXT])
{
    descriptor engine = part_of(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine) return false;
    int64_t index = 0, count = 0;
    bool good = attribute_get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &index) &&
                engine_keeps(graph, engine, rules) &&
                (rules->compiled == DNN_COMPILED_TOO || engine_is_ready(engine));
    if (good) good = knobs_print(config, text, snprintf(text, DNN_ENGINE_TEXT, "%" PRId64, index));
    descriptor_free(engine);
    return good;
}

static bool is_known(char engines[][DNN_ENGINE_TEXT], int count, const char *text)
{
    for (int i = 0; i < count; i++)
        if (strcmp(engines[i], text) == 0) return true;
    return false;
}

#define ADVICE 64               /* configurations asked for at once */

static int engines_by(const struct dnn_graph *graph, cudnnBackendHeurMode_t mode,
                      const struct dnn_rules *rules, int count, int most, char engines[][DNN_ENGINE_TEXT])
{
    descriptor configs[ADVICE] = {NULL};
    int64_t got = 0;
    struct draft draft = draft_begin(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    draft_set_part(&draft, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph->graph);
    draft_set(&draft, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    descriptor advice = draft_end(&draft);
    if (!advice) return count;
    for (int i = 0; i < ADVICE; i++)
        if (cudnn()->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]) !=
            CUDNN_STATUS_SUCCESS)
            configs[i] = NULL;
    if (!attribute_get(advice, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ADVICE,
                       &got, configs))
        got = 0;
    for (int64_t i = 0; i < got && i < ADVICE && count < most; i++)
        if (config_print(graph, configs[i], rules, engines[count]) &&
            !is_known(engines, count, engines[count]))
            count++;
    for (int i = 0; i < ADVICE; i++) descriptor_free(configs[i]);
    descriptor_free(advice);
    return count;
}

static int engines_all(const struct dnn_graph *graph, const struct dnn_rules *rules, int most,
                       char engines[][DNN_ENGINE_TEXT])
{
    /* The second opinion comes last, and the fallbacks only where there is room. */
    int count = engines_by(graph, CUDNN_HEUR_MODE_A, rules, 0, most - most / 4, engines);
    count = engines_by(graph, CUDNN_HEUR_MODE_B, rules, count, most, engines);
    return engines_by(graph, CUDNN_HEUR_MODE_FALLBACK, rules, count, most, engines);
}

int dnn_graph_engines(struct dnn_graph *graph, const struct dnn_rules *rules, int most,
                      char engines[][DNN_ENGINE_TEXT])
{
    struct dnn_rules any = *rules;
    any.compiled = DNN_COMPILED_TOO;
    int count = engines_all(graph, rules, most, engines);
    bool enough = count > 0 || rules->compiled == DNN_COMPILED_NEVER;
    return enough ? count : engines_all(graph, &any, most, engines);
}

/* Reads " 2=5 12=0"; how many, or -1 for anything else. */
static int knobs_parse(const char *text, descriptor knobs[KNOBS])
{
    int count = 0;
    while (*text) {
        int type, used = 0;
        int64_t value;
        if (count == KNOBS || sscanf(text, " %d=%" SCNd64 "%n", &type, &value, &used) < 2 || used == 0)
            return -1;
        cudnnBackendKnobType_t kind = (cudnnBackendKnobType_t)type;
        struct draft draft = draft_begin(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        draft_set(&draft, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &kind);
        draft_set_number(&draft, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value);
        knobs[count] = draft_end(&draft);
        if (!knobs[count]) return -1;
        count++;
        text += used;
    }
    return count;
}

static descriptor engine_make(const struct dnn_graph *graph, const char **text)
{
    char *end;
    int64_t index = strtoll(*text, &end, 10);
    if (end == *text) return NULL;
    *text = end;
    struct draft draft = draft_begin(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    draft_set_part(&draft, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph->graph);
    draft_set_number(&draft, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index);
    return draft_end(&draft);
}

static descriptor config_make(descriptor engine, const char *text)
{
    descriptor knobs[KNOBS] = {NULL}, config = NULL;
    int count = knobs_parse(text, knobs);
    if (count >= 0) {
        struct draft draft = draft_begin(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        draft_set_part(&draft, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
        if (count > 0)
            draft_set(&draft, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, knobs);
        config = draft_end(&draft);
    }
    for (int i = 0; i < KNOBS; i++) descriptor_free(knobs[i]);
    return config;
}

static descriptor plan_descriptor(cudnnHandle_t handle, descriptor config)
{
    struct draft draft = draft_begin(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    draft_set(&draft, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    draft_set_part(&draft, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    return draft_end(&draft);
}

struct dnn_plan *dnn_plan_make(struct dnn_graph *graph, cudnnHandle_t handle, const char *engine)
{
    struct dnn_plan *plan = memory_new(1, sizeof *plan);
    plan->tensor_count = graph->tensor_count;
    for (int i = 0; i < graph->tensor_count; i++) plan->on_chip[i] = graph->described[i].on_chip;
    plan->engine = engine_make(graph, &engine);
    if (plan->engine) plan->config = config_make(plan->engine, engine);
    if (plan->config) plan->plan = plan_descriptor(handle, plan->config);
    int64_t bytes = 0, count = 0;
    if (plan->plan && attribute_get(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                    &count, &bytes)) {
        plan->workspace = (size_t)bytes;
        return plan;
    }
    dnn_plan_free(plan);
    return NULL;
}

void dnn_plan_free(struct dnn_plan *plan)
{
    if (!plan) return;
    descriptor_free(plan->plan);
    descriptor_free(plan->config);
    descriptor_free(plan->engine);
    free(plan);
}

size_t dnn_plan_workspace(const struct dnn_plan *plan)
{
    return plan->workspace;
}

cudnnStatus_t dnn_plan_run(const struct dnn_plan *plan, cudnnHandle_t handle, void *const data[DNN_TENSORS],
                           void *workspace)
{
    int64_t names[DNN_TENSORS];
    void *places[DNN_TENSORS];
    int count = 0;
    for (int i = 0; i < plan->tensor_count; i++) {
        if (plan->on_chip[i]) continue;
        names[count] = i + 1;
        places[count++] = data[i];
    }
    struct draft draft = draft_begin(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    draft_set(&draft, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, names);
    draft_set(&draft, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, places);
    draft_set(&draft, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    descriptor pack = draft_end(&draft);
    if (!pack) return draft.status;
    cudnnStatus_t status = cudnn()->cudnnBackendExecute(handle, plan->plan, pack);
    descriptor_free(pack);
    return status;
}
