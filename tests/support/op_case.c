#include "op_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "op_device.h"

static bool is_floating(enum dtype dtype)
{
    switch (dtype) {
    case F32:
    case F16:
    case BF16:
    case F64: return true;
    case U8:
    case I32:
    case I64:
    case DTYPE_COUNT: break;
    }
    return false;
}

/* A case in F64 has no other floating type. */
static enum dtype storage(const struct op_case *c, enum dtype dtype)
{
    return c->dtype == F64 && is_floating(dtype) ? F64 : dtype;
}

static struct tensor tensor_new(enum dtype dtype, struct shape shape)
{
    struct tensor tensor = {.dtype = dtype, .shape = shape};
    size_t bytes = tensor_bytes(&tensor);
    if (posix_memalign(&tensor.data, 64, bytes ? bytes : 1) != 0) abort();
    op_case_poison(&tensor);
    return tensor;
}

void op_case_poison(const struct tensor *tensor)
{
    if (tensor->data) memset(tensor->data, 0xff, tensor_bytes(tensor));
}

/* Without a seed nothing is drawn. */
static struct random *drawn(const struct op_case *c, struct random *random)
{
    return c->random.seed ? random : NULL;
}

static void fill_normal(struct tensor *tensor, struct random *random, double mean, double deviation)
{
    for (int64_t i = 0; random && i < shape_count(tensor->shape); i++)
        tensor_set(tensor, i, mean + deviation * random_normal(random));
}

static bool has_gradient(const struct op *op, int input)
{
    return !op->no_gradient || !op->no_gradient(input);
}

/* True for the labels of losses and metrics; a third input is the logits of a teacher. */
static bool is_label(const struct op *op, int input)
{
    return input == 1 && !has_gradient(op, input) && op->output_dtype;
}

/* Labels of pixels, some of which are those that losses ignore, and positive weights of classes. */
static void make_pixels(struct op_case *c, const struct op_example *example, struct random *random)
{
    c->x[1] = tensor_new(U8, example->x[1]);
    c->x[2] = tensor_new(storage(c, F32), example->x[2]);
    for (int64_t k = 0; random && k < shape_count(c->x[1].shape); k++) {
        uint32_t label = random_below(random, (uint32_t)example->x[0].c + 1);
        bool ignored = label == (uint32_t)example->x[0].c && !strstr(example->settings, "ignore=none");
        tensor_set(&c->x[1], k, ignored ? 255 : label % (uint32_t)example->x[0].c);
    }
    for (int64_t k = 0; random && k < shape_count(c->x[2].shape); k++)
        tensor_set(&c->x[2], k, 0.01 + random_uniform(random));
}

static void make_inputs(struct op_case *c, const struct op_example *example, struct random *random)
{
    enum dtype real = storage(c, c->op->precision == CLASS_FULL ? F32 : c->dtype);
    c->x_count = example->x_count;
    if (c->op->labels_pixels) make_pixels(c, example, random);
    for (int i = 0; i < (c->op->labels_pixels ? 1 : c->x_count); i++) {
        bool label = is_label(c->op, i);
        bool soft = label && example->x[i].c > 1;
        uint32_t below = (uint32_t)example->x[0].c + 2 * soft;
        c->x[i] = tensor_new(soft ? F32 : label ? I32 : real, example->x[i]);
        if (!label) fill_normal(&c->x[i], random, 0, 1);
        if (has_gradient(c->op, i)) c->d_x[i] = tensor_new(real, example->x[i]);
        for (int64_t k = 0; label && random && k < shape_count(c->x[i].shape); k++)
            tensor_set(&c->x[i], k, random_below(random, below));
    }
}

static void make_outputs(struct op_case *c, struct shape shape, struct random *random)
{
    enum dtype dtype = c->x[0].dtype;
    if (c->op->output_dtype) dtype = storage(c, c->op->output_dtype(c->settings, dtype));
    c->y = tensor_new(dtype, shape);
    if (is_label(c->op, 1) || !is_floating(dtype)) return;
    c->d_y = tensor_new(dtype, shape);
    fill_normal(&c->d_y, random, 0, 1);
}

static void fill_param(const struct op_param *info, struct tensor *param, struct random *random)
{
    double fan_in = info->fan_in > 0 ? (double)info->fan_in : 1;
    switch (info->role) {
    case ROLE_WEIGHT: fill_normal(param, random, 0, 1 / sqrt(fan_in)); break;
    case ROLE_BIAS: fill_normal(param, random, 0, 0.5); break;
    case ROLE_NORM: fill_normal(param, random, 1, 0.2); break;
    case ROLE_STATISTIC:
        for (int64_t i = 0; random && i < shape_count(param->shape); i++)
            tensor_set(param, i, info->dtype == I64 ? 3 : 0.5 + random_uniform(random));
        break;
    }
}

static void make_params(struct op_case *c, const struct op_example *example, struct random *random)
{
    if (c->op->params)
        c->param_count = c->op->params(c->settings, c->x_count, example->x, c->param_info);
    for (int i = 0; i < c->param_count; i++) {
        const struct op_param *info = &c->param_info[i];
        bool low = c->op->precision == CLASS_LOW && (info->role == ROLE_WEIGHT || info->role == ROLE_BIAS);
        c->params[i] = tensor_new(storage(c, low ? c->dtype : info->dtype), info->shape);
        fill_param(info, &c->params[i], random);
        if (info->role != ROLE_STATISTIC) c->d_params[i] = tensor_new(storage(c, F32), info->shape);
    }
}

static void make_saved(struct op_case *c)
{
    struct op_saved saved[OP_MAX_SAVED];
    if (c->op->saved)
        c->saved_count = c->op->saved(c->settings, c->x_count, c->x, c->training, saved);
    for (int i = 0; i < c->saved_count; i++)
        c->saved[i] = tensor_new(storage(c, saved[i].dtype), saved[i].shape);
}

struct op_case *op_case_open(const struct op *op, const struct op_example *example, enum dtype dtype,
                             bool training, uint64_t seed, struct reason *reason)
{
    void *settings = op_settings_new(op, example->settings, reason);
    if (!settings) return NULL;
    struct shape shape;
    if (!op->shape(settings, example->x_count, example->x, &shape, reason)) {
        op_settings_free(op, settings);
        return NULL;
    }
    struct op_case *c = memory_new(1, sizeof *c);
    *c = (struct op_case){.op = op, .settings = settings, .training = training, .dtype = dtype,
                          .random = {.seed = seed, .layer = 2}, .step = 1, .loss_scale = 8};
    c->random.step = &c->step;
    struct random random = random_open(seed, PURPOSE_TEST, 0, 0);
    make_inputs(c, example, drawn(c, &random));
    make_outputs(c, shape, drawn(c, &random));
    make_params(c, example, drawn(c, &random));
    make_saved(c);
    return c;
}

void op_case_add_gradient(struct op_case *c)
{
    struct random random = random_open(c->random.seed, PURPOSE_TEST, 1, 0);
    c->d_y_more = tensor_new(c->d_y.dtype, c->d_y.shape);
    fill_normal(&c->d_y_more, drawn(c, &random), 0, 1);
}

void op_case_add_flat(struct op_case *c, bool whole)
{
    struct random random = random_open(c->random.seed, PURPOSE_TEST, 1, 0);
    struct shape y = c->d_y.shape;
    struct tensor flat = tensor_new(c->d_y.dtype, shape_nhwc(y.n, 1, 1, y.c));
    fill_normal(&flat, drawn(c, &random), 0, 1);
    c->d_y_more = whole ? tensor_new(c->d_y.dtype, y) : flat;
    if (!whole) return;
    for (int64_t i = 0; i < shape_count(y); i++)
        tensor_set(&c->d_y_more, i, tensor_get(&flat, i / (y.h * y.w * y.c) * y.c + i % y.c));
    free(flat.data);
}

void op_case_recompute(struct op_case *c)
{
    c->y_recomputed = tensor_new(c->y.dtype, c->y.shape);
}

static struct tensor sums_new(const struct tensor *of)
{
    return tensor_new(F32, (struct shape){.rank = 2, .dim = {2, of->shape.c, 1, 1}});
}

void op_case_sum(const struct tensor *of, struct tensor *sums)
{
    int64_t channels = of->shape.c, rows = shape_count(of->shape) / channels;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < rows; i++) {
            double value = tensor_get(of, i * channels + c);
            sum += value;
            squares += value * value;
        }
        tensor_set(sums, c, sum);
        tensor_set(sums, channels + c, squares);
    }
}

void op_case_sum_products(const struct tensor *gradient, const struct tensor *of, struct tensor *sums)
{
    int64_t channels = of->shape.c;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, product = 0;
        for (int64_t i = c; i < shape_count(of->shape); i += channels) {
            double x = tensor_get(of, i), d_x = tensor_get(gradient, i);
            sum += x != 0 ? d_x : 0;
            product += d_x * x;
        }
        tensor_set(sums, c, sum);
        tensor_set(sums, channels + c, product);
    }
}

void op_case_give_products(struct op_case *c)
{
    c->x_products = sums_new(&c->x[0]);
    op_case_poison(&c->x_products);
}

void op_case_take_products(struct op_case *c)
{
    c->y_products = sums_new(&c->y);
    op_case_sum_products(&c->d_y, &c->y, &c->y_products);
}

void op_case_take_sums(struct op_case *c)
{
    c->sums = sums_new(&c->x[0]);
    c->sums_role = OPERAND_X_MOMENTS;
    op_case_sum(&c->x[0], &c->sums);
}

void op_case_give_sums(struct op_case *c)
{
    c->sums = sums_new(&c->y);
    c->sums_role = OPERAND_Y_MOMENTS;
}

void op_case_give_y_sums(struct op_case *c, bool gram)
{
    int64_t channels = c->y.shape.c;
    c->y_sums = tensor_new(F32, (struct shape){.rank = 2, .dim = {gram ? 1 + channels : 1, channels, 1, 1}});
    op_case_poison(&c->y_sums);
}

static void take_rows(struct op_case *c, int64_t sum_rows)
{
    int64_t channels = c->x[0].shape.c, rows = shape_count(c->x[0].shape) / channels;
    c->sums = tensor_new(F32, (struct shape){.rank = 2, .dim = {sum_rows, channels, 1, 1}});
    c->sums_role = OPERAND_X_SUMS;
    for (int64_t k = 0; k < shape_count(c->sums.shape); k++) {
        int64_t other = k / channels - 1;
        double sum = 0;
        for (int64_t i = 0; i < rows; i++)
            sum += tensor_get(&c->x[0], i * channels + k % channels) *
                   (other < 0 ? 1 : tensor_get(&c->x[0], i * channels + other));
        tensor_set(&c->sums, k, sum);
    }
}

void op_case_take_y_sums(struct op_case *c)
{
    take_rows(c, 1);
}

void op_case_take_gram(struct op_case *c)
{
    take_rows(c, 1 + c->x[0].shape.c);
}

void op_case_mask(struct op_case *c)
{
    struct shape shape = c->y.shape;
    shape.c /= 8;
    c->mask = tensor_new(U8, shape);
}

void op_case_join(struct op_case *c, bool picked)
{
    struct random random = random_open(c->random.seed, PURPOSE_TEST, 2, 0);
    struct shape shape = c->x[0].shape, more = shape;
    if (picked) more.h = (shape.h + 1) / 2, more.w = (shape.w + 1) / 2;
    c->d_x_more = tensor_new(c->d_x[0].dtype, more);
    fill_normal(&c->d_x_more, drawn(c, &random), 0, 1);
    c->sums = tensor_new(F32, (struct shape){.rank = 2, .dim = {1, shape.c, 1, 1}});
    c->sums_role = OPERAND_D_X_SUMS;
    op_case_poison(&c->sums);
    shape.c /= 8;
    c->mask = tensor_new(U8, shape);
    for (int64_t i = 0; i < shape_count(shape); i++)
        ((uint8_t *)c->mask.data)[i] = (uint8_t)random_next(&random);
}

void op_case_sum_gradient(struct op_case *c)
{
    c->sums = tensor_new(F32, shape_vector(c->x[0].shape.c));
    c->sums_role = OPERAND_D_X_SUMS;
    c->sums_gradient = true;
}

void op_case_add_first_channels(struct op_case *c)
{
    struct random random = random_open(c->random.seed, PURPOSE_TEST, 3, 0);
    struct shape shape = c->x[0].shape;
    shape.c += 8;
    c->d_x_more = tensor_new(c->d_x[0].dtype, shape);
    fill_normal(&c->d_x_more, drawn(c, &random), 0, 1);
}

void op_case_add_residual(struct op_case *c)
{
    struct random random = random_open(c->random.seed, PURPOSE_TEST, 4, 0);
    c->y_more = tensor_new(c->y.dtype, c->y.shape);
    fill_normal(&c->y_more, drawn(c, &random), 0, 1);
}

void op_case_clip(struct op_case *c)
{
    for (int64_t i = 0; i < shape_count(c->x[0].shape); i++) {
        double x = tensor_get(&c->x[0], i);
        tensor_set(&c->x[0], i, x < 0 ? 0 : 4 * x);
    }
    c->sums = tensor_new(F32, (struct shape){.rank = 2, .dim = {1, c->x[0].shape.c, 1, 1}});
    c->sums_role = OPERAND_D_X_SUMS;
    c->clips = true;
}

void op_case_pool(struct op_case *c, bool partial)
{
    struct random random = random_open(c->random.seed, PURPOSE_TEST, 5, 0);
    struct shape shape = c->y.shape;
    shape.h = (shape.h + partial) / 2;
    shape.w = (shape.w + partial) / 2;
    c->pooled = tensor_new(c->y.dtype, shape);
    c->number = tensor_new(U8, shape);
    c->d_y_more = tensor_new(c->d_y.dtype, shape);
    fill_normal(&c->d_y_more, drawn(c, &random), 0, 1);
}

static void tensors_free(struct tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) free(tensors[i].data);
}

void op_case_close(struct op_case *c)
{
    if (!c) return;
    tensors_free(c->x, c->x_count);
    tensors_free(c->d_x, c->x_count);
    tensors_free(&c->y, 1);
    tensors_free(&c->d_y, 1);
    tensors_free(&c->y_more, 1);
    tensors_free(&c->d_y_more, 1);
    tensors_free(&c->d_x_more, 1);
    tensors_free(&c->y_recomputed, 1);
    tensors_free(&c->sums, 1);
    tensors_free(&c->y_sums, 1);
    tensors_free(&c->x_products, 1);
    tensors_free(&c->y_products, 1);
    tensors_free(&c->mask, 1);
    tensors_free(&c->pooled, 1);
    tensors_free(&c->number, 1);
    tensors_free(c->params, c->param_count);
    tensors_free(c->d_params, c->param_count);
    tensors_free(c->saved, c->saved_count);
    op_settings_free(c->op, c->settings);
    free(c);
}

enum status (*op_case_function(const struct op_code *code, enum phase phase))(const struct call *call)
{
    switch (phase) {
    case PHASE_FORWARD: return code->forward;
    case PHASE_BACKWARD: return code->backward_data ? NULL : code->backward;
    case PHASE_BACKWARD_DATA: return code->backward_data;
    case PHASE_BACKWARD_PARAMS: return code->backward_params;
    case PHASE_UPDATE: return code->update;
    case PHASE_RECOMPUTE: return code->recompute;
    case PHASE_COUNT: break;
    }
    return NULL;
}

static void copy_views(struct tensor *to, const struct tensor *from, int count, bool seen)
{
    for (int i = 0; i < count; i++) {
        to[i] = from[i];
        if (!seen) to[i].data = NULL;
    }
}

/* A gradient that the phase does not make has no shape either. */
static void copy_gradients(struct tensor *to, const struct tensor *from, int count, bool made)
{
    for (int i = 0; i < count; i++) to[i] = made ? from[i] : (struct tensor){.data = NULL};
}

/* An operand, if the case has it. */
static void put(struct call *call, enum operand_role role, const struct tensor *tensor)
{
    if (tensor->data) *call_put(call, role) = *tensor;
}

static void add_epilogue(struct call *call, enum epilogue_kind kind, enum operand_role role)
{
    if (role == OPERAND_ROLES || call_operand(call, role))
        call->epilogues[call->epilogue_count++] = (struct epilogue){(uint8_t)kind, (uint8_t)role, 0};
}

static void add_to_forward(const struct op_case *c, struct call *call)
{
    if (c->sums_role != OPERAND_D_X_SUMS) put(call, c->sums_role, &c->sums);
    put(call, OPERAND_Y_ADDEND, &c->y_more);
    put(call, OPERAND_Y_SUMS, &c->y_sums);
    put(call, OPERAND_MASK, &c->mask);
    add_epilogue(call, EPILOGUE_ADD, OPERAND_Y_ADDEND);
    add_epilogue(call, EPILOGUE_MOMENTS, OPERAND_Y_MOMENTS);
    add_epilogue(call, c->y_sums.shape.dim[0] > 1 ? EPILOGUE_GRAM : EPILOGUE_SUMS, OPERAND_Y_SUMS);
    add_epilogue(call, EPILOGUE_MASK, OPERAND_MASK);
}

static void add_pooled(const struct op_case *c, struct call *call)
{
    put(call, OPERAND_POOLED, &c->pooled);
    put(call, OPERAND_NUMBER, &c->number);
    add_epilogue(call, EPILOGUE_POOL, OPERAND_POOLED);
}

/* Another gradient of x[0]; with a mask of that, both are masked and added up. */
static void add_joined(const struct op_case *c, struct call *call)
{
    put(call, OPERAND_D_X_ADDEND, &c->d_x_more);
    put(call, OPERAND_MASK, &c->mask);
    put(call, OPERAND_D_X_SUMS, &c->sums);
    add_epilogue(call, EPILOGUE_ADD, OPERAND_D_X_ADDEND);
    add_epilogue(call, EPILOGUE_MULTIPLY, OPERAND_MASK);
    add_epilogue(call, EPILOGUE_SUMS, OPERAND_D_X_SUMS);
}

static void add_to_backward(const struct op_case *c, struct call *call)
{
    put(call, OPERAND_D_Y_ADDEND, &c->d_y_more);
    put(call, OPERAND_NUMBER, &c->number);
    put(call, OPERAND_Y_RECOMPUTED, &c->y_recomputed);
    put(call, OPERAND_X_PRODUCTS, &c->x_products);
    put(call, OPERAND_Y_PRODUCTS, &c->y_products);
    add_epilogue(call, EPILOGUE_PRODUCTS, OPERAND_X_PRODUCTS);
    if (!c->sums_gradient && !c->clips) return;
    if (c->clips) add_epilogue(call, EPILOGUE_D_RELU6, OPERAND_ROLES);
    put(call, OPERAND_D_X_SUMS, &c->sums);
    add_epilogue(call, EPILOGUE_SUMS, OPERAND_D_X_SUMS);
}

struct call op_case_call(const struct op_case *c, enum phase phase, struct op_case_storage *storage)
{
    bool forward = phase == PHASE_FORWARD || phase == PHASE_RECOMPUTE, update = phase == PHASE_UPDATE;
    bool backward = !forward && !update;
    unsigned reads = READS_NOTHING;
    if (backward && c->op->reads) reads = c->op->reads(c->settings, phase);
    copy_views(storage->x, c->x, c->x_count, forward || (reads & READS_X));
    if (reads & READS_FIRST_X) storage->x[0] = c->x[0];
    copy_views(storage->params, c->params, c->param_count, !backward || (reads & READS_PARAMS));
    copy_views(storage->saved, c->saved, c->saved_count, !backward || (reads & READS_SAVED));
    copy_gradients(storage->d_x, c->d_x, c->x_count, phase == PHASE_BACKWARD || phase == PHASE_BACKWARD_DATA);
    copy_gradients(storage->d_params, c->d_params, c->param_count,
                   phase == PHASE_BACKWARD || phase == PHASE_BACKWARD_PARAMS);
    struct call call = {
        .op = c->op, .settings = c->settings, .phase = phase, .training = c->training,
        .x_count = c->x_count, .param_count = c->param_count, .saved_count = c->saved_count,
        .x = storage->x, .d_x = storage->d_x, .params = storage->params, .d_params = storage->d_params,
        .saved = storage->saved, .random = &c->random, .loss_scale = &c->loss_scale, .loss_weight = 0.5f,
        .skipped = c->device ? &c->skipped : NULL, .tf32 = c->tf32, .deterministic = c->deterministic,
        .device = c->device, .variant = c->variant,
    };
    copy_views(&call.y, &c->y, 1, forward || ((reads & READS_Y) && !c->mask.data));
    copy_gradients(&call.d_y, &c->d_y, 1, backward);
    bool joins = c->d_x_more.data && (phase == PHASE_BACKWARD_DATA || phase == PHASE_BACKWARD);
    if (c->activation && !update) {
        double slope = c->activation == ACTIVATION_LEAKY_RELU ? 0.2 : 0;
        uint8_t kind = (uint8_t)(EPILOGUE_RELU + c->activation - ACTIVATION_RELU);
        call.epilogues[call.epilogue_count++] = (struct epilogue){kind, OPERAND_ROLES, slope};
    }
    if (c->relu && forward) add_epilogue(&call, EPILOGUE_RELU, OPERAND_ROLES);
    if (c->clips) add_epilogue(&call, EPILOGUE_X_RELU6, OPERAND_ROLES);
    if (joins) add_joined(c, &call);
    else if (phase == PHASE_FORWARD) add_to_forward(c, &call);
    else if (reads & READS_Y) put(&call, OPERAND_MASK, &c->mask);
    if (forward) add_pooled(c, &call);
    if (phase == PHASE_BACKWARD) add_to_backward(c, &call);
    return call;
}

bool op_case_supports(const struct op_case *c, const struct op_code *code, enum phase phase)
{
    struct op_case_storage storage;
    struct call call = op_case_call(c, phase, &storage);
    return op_code_supports(code, &call);
}

/* Kernel plans by what distinguishes the calls of a case. */
struct plans {
    int count;
    struct text keys[16];
    struct kernel_plan *at[16];
};

void op_case_prepare(const struct op_code *code, void **plans)
{
    *plans = code->algorithms ? memory_new(1, sizeof(struct plans)) : NULL;
}

static struct text key_of(const struct call *call)
{
    struct text key = {0};
    text_add(&key, "%d", (int)call->phase);
    for (int i = 0; i < call->x_count; i++) text_add(&key, " %d", call->d_x[i].shape.rank);
    for (int i = 0; i < call->param_count; i++) text_add(&key, " %d", call->d_params[i].shape.rank);
    for (int i = 0; i < call->operand_count; i++)
        text_add(&key, " %s %lld", operand_words[call->operands[i].role],
                 (long long)shape_count(call->operands[i].tensor.shape));
    for (int i = 0; i < call->epilogue_count; i++)
        text_add(&key, " %s", epilogue_words[call->epilogues[i].kind]);
    return key;
}

enum status op_case_plan(const struct op_code *code, void *kernel_plans, struct call *call)
{
    struct plans *plans = kernel_plans;
    if (!plans) return OK;
    struct call forward = *call;
    if (call->phase == PHASE_UPDATE) return OK;
    if (call->phase == PHASE_RECOMPUTE) forward.phase = PHASE_FORWARD;
    struct text key = key_of(&forward);
    int i = 0;
    while (i < plans->count && strcmp(plans->keys[i].data, key.data) != 0) i++;
    if (i < plans->count) {
        text_free(&key);
    } else {
        struct kernel_plan *made;
        if (plans->count == 16) abort();
        plans->keys[i] = key;
        TRY(kernel_plan_make(code, &forward, &made));
        plans->at[plans->count++] = made;
    }
    call->kernel_plan = plans->at[i];
    return OK;
}

void op_case_release(void *kernel_plans)
{
    struct plans *plans = kernel_plans;
    for (int i = 0; plans && i < plans->count; i++) {
        text_free(&plans->keys[i]);
        kernel_plan_free(plans->at[i]);
    }
    free(plans);
}

enum status op_case_call_code(const struct op_code *code, const struct call *call)
{
    return call->phase == PHASE_BACKWARD ? code->backward(call) : op_case_function(code, call->phase)(call);
}

static enum status run_here(const struct op_code *code, struct call *call)
{
    size_t bytes = op_code_workspace(code, call);
    if (bytes) {
        if (posix_memalign(&call->workspace, 64, bytes) != 0) abort();
        memset(call->workspace, 0xff, bytes);
    }
    enum status status = op_case_call_code(code, call);
    free(call->workspace);
    call->workspace = NULL;
    return status;
}

enum status op_case_run(const struct op_code *code, void *kernel_plan, struct call *call)
{
    TRY(op_case_plan(code, kernel_plan, call));
    return call->device ? op_device_run(code, call, false) : run_here(code, call);
}

enum status op_case_run_captured(const struct op_code *code, void *kernel_plan, struct call *call)
{
    TRY(op_case_plan(code, kernel_plan, call));
    return call->device ? op_device_run(code, call, true) : run_here(code, call);
}
