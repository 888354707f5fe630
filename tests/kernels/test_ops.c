/* test_ops: every op of the build on every one of its examples, driven by the op's struct alone: the code
 * of every device there is against the reference, gradients against central differences, promises of op.h.
 *
 * AMPTRAIN_DEVICE (cpu, cuda, cuda:N) limits the run to one device, AMPTRAIN_OP (names with commas) to
 * some ops. AMPTRAIN_THOROUGH=yes runs odd sizes in every precision, and on the CPU too.
 * AMPTRAIN_CASE limits it to cases with these words in their names ("groups=in"), or after a ! to those
 * without them ("!gradient", as under sanitizers). AMPTRAIN_SHARE=I/N runs the I-th of N parts of the cases
 * (from 1): several processes can do it together. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/device.h"
#include "kernels/norm/batchnorm.h"
#include "op_variants.h"
#include "tests/support/op_case.h"
#include "tests/support/unit.h"

/* Wide enough for what a phase writes: gradients of inputs and parameters, or output and saved. */
#define OUTPUTS_MAX (OP_MAX_INPUTS + OP_MAX_PARAMS)
#define SEED 7

struct subject {
    const struct op *op;
    struct op_example example;
    enum dtype dtype;
    bool training, tf32;
    bool merged;                 /* calls carry what merge adds, as far as the code heeds it */
    enum activation activation;  /* an epilogue of calls */
    bool picks;                  /* what joins a gradient has every second pixel only */
    struct device *device;       /* NULL: the CPU */
};

/* Copies of tensors, in memory of their own. */
struct copies {
    int count;
    struct tensor tensor[OUTPUTS_MAX + OP_MAX_INPUTS];
};

static void copies_add(struct copies *copies, const struct tensor *tensor)
{
    if (!tensor->data) return;
    struct tensor *copy = &copies->tensor[copies->count++];
    *copy = *tensor;
    copy->data = memory_new(1, tensor_bytes(tensor));
    memcpy(copy->data, tensor->data, tensor_bytes(tensor));
}

static void copies_add_all(struct copies *copies, const struct tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) copies_add(copies, &tensors[i]);
}

static void copies_free(struct copies *copies)
{
    for (int i = 0; i < copies->count; i++) free(copies->tensor[i].data);
    copies->count = 0;
}

static void copies_add_operand(struct copies *copies, const struct call *call, enum operand_role role)
{
    const struct tensor *tensor = call_operand(call, role);
    if (tensor) copies_add(copies, tensor);
}

/* The tensors that the call writes, and those that it reads. An update does both to statistics, which count
 * as written. */
static struct copies outputs_of(const struct call *call)
{
    struct copies copies = {0};
    if (call->phase == PHASE_UPDATE) {
        copies_add_all(&copies, call->params, call->param_count);
        return copies;
    }
    if (call->phase == PHASE_FORWARD || call->phase == PHASE_RECOMPUTE) {
        copies_add(&copies, &call->y);
        copies_add_operand(&copies, call, OPERAND_POOLED);
        copies_add_operand(&copies, call, OPERAND_NUMBER);
        if (call->phase == PHASE_FORWARD) copies_add_all(&copies, call->saved, call->saved_count);
        return copies;
    }
    copies_add_all(&copies, call->d_x, call->x_count);
    copies_add_all(&copies, call->d_params, call->param_count);
    return copies;
}

static struct copies inputs_of(const struct call *call)
{
    struct copies copies = {0};
    copies_add_all(&copies, call->x, call->x_count);
    if (call->phase != PHASE_UPDATE) copies_add_all(&copies, call->params, call->param_count);
    copies_add_operand(&copies, call, OPERAND_X_MOMENTS);
    copies_add_operand(&copies, call, OPERAND_X_SUMS);
    if (call->phase == PHASE_FORWARD) return copies;
    copies_add_all(&copies, call->saved, call->saved_count);
    if (call->phase == PHASE_RECOMPUTE) return copies;
    copies_add(&copies, &call->y);
    copies_add(&copies, &call->d_y);
    copies_add_operand(&copies, call, OPERAND_D_Y_ADDEND);
    return copies;
}

static void poison_all(const struct tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) op_case_poison(&tensors[i]);
}

static void poison_outputs(const struct call *call)
{
    if (call->phase == PHASE_UPDATE) return;
    if (call->phase == PHASE_FORWARD || call->phase == PHASE_RECOMPUTE) {
        op_case_poison(&call->y);
        if (call_operand(call, OPERAND_POOLED)) op_case_poison(call_operand(call, OPERAND_POOLED));
        if (call_operand(call, OPERAND_NUMBER)) op_case_poison(call_operand(call, OPERAND_NUMBER));
        if (call->phase == PHASE_FORWARD) poison_all(call->saved, call->saved_count);
        return;
    }
    poison_all(call->d_x, call->x_count);
    poison_all(call->d_params, call->param_count);
}

static void assert_same_bits(const struct copies *a, const struct copies *b)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++)
        assert_memory_equal(a->tensor[i].data, b->tensor[i].data, tensor_bytes(&a->tensor[i]));
}

/* The largest distance of neighbouring numbers, relative to them; 0: the type is exact. */
static double relative_spacing(enum dtype dtype)
{
    switch (dtype) {
    case F32: return ldexp(1, -23);
    case F16: return ldexp(1, -10);
    case BF16: return ldexp(1, -7);
    case F64: return ldexp(1, -52);
    case U8:
    case I32:
    case I64:
    case DTYPE_COUNT: break;
    }
    return 0;
}

static double root_mean_square(const struct tensor *tensor)
{
    double sum = 0;
    int64_t count = shape_count(tensor->shape);
    for (int64_t i = 0; i < count; i++) sum += tensor_get(tensor, i) * tensor_get(tensor, i);
    return sqrt(sum / (double)(count ? count : 1));
}

/* How far two right results may be apart: both round to the same storage, which may differ by one
 * step (among fp16's subnormal numbers 2^-24), and fp32 sums of at most `length` terms in another
 * order differ by about the square root of that times fp32's rounding. */
static double difference_allowed(enum dtype dtype, double value, double scale, int64_t length)
{
    double step = relative_spacing(dtype);
    if (step == 0) return 0;
    double sums = scale * ldexp(8 * sqrt((double)length), -24);
    return 1.01 * (step * fabs(value) + sums + (dtype == F16 ? ldexp(1, -24) : 0));
}

/* `rounding` is the type that the numbers may have been rounded to on their way. */
static void assert_close(const struct tensor *expected, const struct tensor *found, enum dtype rounding,
                         int64_t length)
{
    double scale = root_mean_square(expected);
    assert_int_equal(expected->dtype, found->dtype);
    for (int64_t i = 0; i < shape_count(expected->shape); i++) {
        double a = tensor_get(expected, i), b = tensor_get(found, i);
        if (!isfinite(a)) fail_msg("reference: element %lld is %g", (long long)i, a);
        double allowed = difference_allowed(rounding, a, scale, length);
        if (!(fabs(a - b) <= allowed))
            fail_msg("element %lld is %.9g, not %.9g; allowed difference %.3g", (long long)i, b, a, allowed);
    }
}

/* Factors that are rounded to such a spacing: their errors add up like a random walk, as the products do. A
 * sum of few products may be far larger than most, and off by as much of itself as both of its factors. */
static void assert_close_rounded(const struct tensor *expected, const struct tensor *found, double spacing)
{
    double scale = root_mean_square(expected), sum = 0;
    int64_t count = shape_count(expected->shape);
    for (int64_t i = 0; i < count; i++) {
        double difference = fabs(tensor_get(expected, i) - tensor_get(found, i));
        if (!(difference <= spacing * (10 * scale + 2 * fabs(tensor_get(expected, i)))))
            fail_msg("element %lld is %.9g, not %.9g; their root mean square is %.3g", (long long)i,
                     tensor_get(found, i), tensor_get(expected, i), scale);
        sum += difference * difference;
    }
    double off = sqrt(sum / (double)count);
    if (!(off <= spacing * scale)) fail_msg("off by %.3g where numbers are about %.3g", off, scale);
}

static int64_t longest(const struct copies *inputs)
{
    int64_t length = 1;
    for (int i = 0; i < inputs->count; i++) {
        int64_t count = shape_count(inputs->tensor[i].shape);
        if (count > length) length = count;
    }
    return length;
}

static struct op_case *open_drawn(const struct subject *s, uint64_t seed)
{
    struct reason reason = {0};
    struct op_case *c = op_case_open(s->op, &s->example, s->dtype, s->training, seed, &reason);
    if (!c) fail_msg("%s", reason.text);
    c->activation = s->activation;
    return c;
}

static struct op_case *open_case(const struct subject *s) { return open_drawn(s, SEED); }

/* Runs the phase on poisoned outputs and holds that it changed nothing else. */
static struct copies run_clean(const struct op_code *code, void *kernel_plan, struct call *call,
                               enum status (*run)(const struct op_code *, void *, struct call *))
{
    struct copies before = inputs_of(call);
    poison_outputs(call);
    assert_int_equal(run(code, kernel_plan, call), OK);
    struct copies after = inputs_of(call);
    assert_same_bits(&before, &after);
    copies_free(&before);
    copies_free(&after);
    return outputs_of(call);
}

static bool in_place(const struct op_case *c, enum phase phase)
{
    struct shape shapes[OP_MAX_INPUTS];
    if (!c->op->in_place || phase == PHASE_UPDATE) return false;
    for (int i = 0; i < c->x_count; i++) shapes[i] = c->x[i].shape;
    return c->op->in_place(c->settings, phase, c->x_count, shapes);
}

static void check_in_place(const struct op_case *c, const struct op_code *code, void *kernel_plan,
                           enum phase phase, const struct copies *expected)
{
    struct op_case_storage storage;
    struct call call = op_case_call(c, phase, &storage);
    bool over_x = phase == PHASE_FORWARD || c->op->backward_over_x;
    struct tensor *over = over_x ? &call.x[0] : &call.d_y;
    struct tensor *under = phase == PHASE_FORWARD ? &call.y : &call.d_x[0];
    struct copies original = {0};
    copies_add(&original, over_x ? &c->x[0] : &c->d_y);
    poison_outputs(&call);
    void *place = original.tensor[0].data;
    assert_true(tensor_bytes(over) >= tensor_bytes(under));
    over->data = under->data = place;
    assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
    struct copies found = outputs_of(&call);
    assert_same_bits(expected, &found);
    copies_free(&found);
    copies_free(&original);
}

/* An input whose gradient nobody wants must not change any other. */
static void check_unwanted(const struct op_case *c, const struct op_code *code, void *kernel_plan,
                           enum phase phase, const struct copies *expected)
{
    if (phase != PHASE_BACKWARD && (phase != PHASE_BACKWARD_DATA || c->x_count < 2)) return;
    int before = 0;
    for (int skip = 0; skip < c->x_count; skip++) {
        if (!c->d_x[skip].data) continue;
        struct op_case_storage storage;
        struct call call = op_case_call(c, phase, &storage);
        call.d_x[skip] = (struct tensor){.data = NULL};
        poison_outputs(&call);
        assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
        struct copies found = outputs_of(&call), left = *expected;
        memmove(&left.tensor[before], &left.tensor[before + 1],
                (size_t)(left.count - before - 1) * sizeof left.tensor[0]);
        left.count--;
        assert_same_bits(&left, &found);
        copies_free(&found);
        before++;
    }
}

/* A step that is skipped changes no statistic. */
static void check_skipped(struct op_case *c, const struct op_code *code, void *kernel_plan)
{
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_UPDATE, &storage);
    if (!call.skipped) return;
    struct copies before = outputs_of(&call);
    c->skipped = 1;
    assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
    c->skipped = 0;
    struct copies after = outputs_of(&call);
    assert_same_bits(&before, &after);
    copies_free(&before);
    copies_free(&after);
}

static void check_recompute(struct op_case *c, const struct op_code *code, void *kernel_plan,
                            const struct copies *forward)
{
    if (!code->recompute) return;
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_RECOMPUTE, &storage);
    struct copies found = run_clean(code, kernel_plan, &call, op_case_run_captured);
    struct copies y = *forward;
    y.count = 1;
    assert_same_bits(&y, &found);
    copies_free(&found);
}

static struct copies run_phase(struct op_case *c, const struct op_code *code, void *kernel_plan,
                               enum phase phase)
{
    struct op_case_storage storage;
    struct call call = op_case_call(c, phase, &storage);
    return run_clean(code, kernel_plan, &call, op_case_run);
}

/* Forward, for what backward reads. */
static void run_forward(struct op_case *c, const struct op_code *code, void *kernel_plan)
{
    struct copies written = run_phase(c, code, kernel_plan, PHASE_FORWARD);
    copies_free(&written);
}

/* Leaves what `code` wrote in the case; returns copies of it. */
static struct copies check_phase(struct op_case *c, const struct op_code *code, void *kernel_plan,
                                 enum phase phase)
{
    struct op_case_storage storage;
    struct call call = op_case_call(c, phase, &storage);
    struct copies statistics = {0};
    if (phase == PHASE_UPDATE) copies_add_all(&statistics, c->params, c->param_count);
    if (phase == PHASE_UPDATE) check_skipped(c, code, kernel_plan);
    struct copies first = run_clean(code, kernel_plan, &call, op_case_run);
    for (int i = 0; i < statistics.count; i++)
        memcpy(c->params[i].data, statistics.tensor[i].data, tensor_bytes(&c->params[i]));
    struct copies second = run_clean(code, kernel_plan, &call, op_case_run_captured);
    assert_same_bits(&first, &second);
    if (in_place(c, phase)) {
        check_in_place(c, code, kernel_plan, phase, &first);
        copies_free(&second);
        second = run_clean(code, kernel_plan, &call, op_case_run);
    }
    check_unwanted(c, code, kernel_plan, phase, &first);
    if (phase == PHASE_FORWARD && c->training) check_recompute(c, code, kernel_plan, &first);
    copies_free(&statistics);
    copies_free(&second);
    return first;
}

/* Both codes get what the reference's forward saved. */
static void share_forward(const struct op_case *from, struct op_case *to)
{
    memcpy(to->y.data, from->y.data, tensor_bytes(&to->y));
    for (int i = 0; i < to->saved_count; i++)
        memcpy(to->saved[i].data, from->saved[i].data, tensor_bytes(&to->saved[i]));
}

/* Products of a precision may round the gradients of their weights to it before these become fp32. */
static enum dtype rounding_of(const struct subject *s, const struct call *call, int output, enum dtype stored)
{
    bool weights = s->op->precision == CLASS_LOW && call->param_count > 0 && call->d_params[0].shape.rank > 0;
    if (s->device && s->op->rounds_between && stored == F32) return s->dtype;
    if (!s->device || !weights) return stored;
    int gradients = 0;
    for (int i = 0; i < call->x_count; i++) gradients += call->d_x[i].data != NULL;
    return output < gradients ? stored : s->dtype;
}

static void assert_agree(const struct subject *s, const struct call *call, const struct copies *expected,
                         const struct copies *found)
{
    struct copies inputs = inputs_of(call);
    int64_t length = longest(&inputs);
    assert_int_equal(expected->count, found->count);
    for (int i = 0; i < expected->count; i++) {
        enum dtype rounding = rounding_of(s, call, i, expected->tensor[i].dtype);
        const struct tensor *a = &expected->tensor[i], *b = &found->tensor[i];
        bool rounded = s->op->rounds_factors && dtype_bytes(rounding) == 2;
        if (s->tf32) assert_close_rounded(a, b, relative_spacing(F16));    /* tf32 keeps 10 bits */
        else if (rounded) assert_close_rounded(a, b, relative_spacing(rounding));
        else assert_close(a, b, rounding, length);
    }
    copies_free(&inputs);
}

static const struct op_code *code_of(const struct subject *s)
{
    return s->device ? s->op->cuda : op_cpu(s->op);
}

/* True if some code supports a phase of a case, changed; NULL: as it is. */
static bool code_supports(const struct subject *s, const struct op_code *code,
                          void (*change)(struct op_case *), enum phase phase)
{
    if (!code->supports) return !change;
    struct op_case *c = open_drawn(s, 0);
    c->device = s->device;
    if (change) change(c);
    bool supported = op_case_supports(c, code, phase);
    op_case_close(c);
    return supported;
}

static bool supports(const struct subject *s, void (*change)(struct op_case *), enum phase phase)
{
    return code_supports(s, code_of(s), change, phase);
}

/* Sums of x[0] that the code reads, if it reads any. */
static void take_sums(const struct subject *s, struct op_case *c)
{
    bool gram = batchnorm_gives_gram(c->x[0].shape.c);
    if (gram && supports(s, op_case_take_gram, PHASE_FORWARD)) op_case_take_gram(c);
    else if (supports(s, op_case_take_y_sums, PHASE_FORWARD)) op_case_take_y_sums(c);
    else if (supports(s, op_case_take_sums, PHASE_FORWARD)) op_case_take_sums(c);
}

static void give_y_sums(struct op_case *c) { op_case_give_y_sums(c, false); }
static void give_gram(struct op_case *c) { op_case_give_y_sums(c, true); }
static void add_pixel(struct op_case *c) { op_case_add_flat(c, false); }
static void join_whole(struct op_case *c) { op_case_join(c, false); }
static void apply_relu(struct op_case *c) { c->relu = true; }

/* `strict`: what runs twice gives the same bits. The reference keeps its own promises on the CPU. */
static void compare_codes(const struct subject *s, bool strict)
{
    const struct op_code *reference = s->op->reference, *code = code_of(s);
    struct op_case *expected = open_case(s), *found = open_case(s);
    found->device = s->device;
    found->deterministic = strict;
    found->tf32 = s->tf32;
    if (s->merged) take_sums(s, found);
    if (s->merged && supports(s, op_case_add_gradient, PHASE_BACKWARD)) {
        assert_true(code_supports(s, reference, op_case_add_gradient, PHASE_BACKWARD));
        op_case_add_gradient(expected);
        op_case_add_gradient(found);
    }
    void *reference_plan, *kernel_plan;
    op_case_prepare(reference, &reference_plan);
    op_case_prepare(code, &kernel_plan);
    for (enum phase phase = PHASE_FORWARD; phase < PHASE_RECOMPUTE; phase++) {
        if (phase != PHASE_FORWARD && !s->training) break;
        bool here = op_case_function(code, phase) != NULL;
        assert_int_equal(op_case_function(reference, phase) != NULL, here);
        if (!here) continue;
        struct op_case_storage storage;
        struct call call = op_case_call(expected, phase, &storage);
        struct copies a = (s->device ? run_phase : check_phase)(expected, reference, reference_plan, phase);
        struct copies b = (strict ? check_phase : run_phase)(found, code, kernel_plan, phase);
        assert_agree(s, &call, &a, &b);
        copies_free(&a);
        copies_free(&b);
        share_forward(expected, found);
    }
    op_case_release(reference_plan);
    op_case_release(kernel_plan);
    op_case_close(expected);
    op_case_close(found);
}

static void test_code(void **state)
{
    compare_codes(*state, true);
}

static void test_code_undetermined(void **state)
{
    compare_codes(*state, false);
}

/* Sums, with or without those of squares, may be of y before it was rounded to its storage or after. */
static void assert_sums(const struct tensor *y, const struct tensor *sums)
{
    int64_t channels = y->shape.c, rows = shape_count(y->shape) / channels;
    struct tensor wanted = {.dtype = F32, .shape = {.rank = 2, .dim = {2, channels, 1, 1}}};
    wanted.data = memory_new(1, tensor_bytes(&wanted));
    op_case_sum(y, &wanted);
    double size = root_mean_square(y), off = (relative_spacing(y->dtype) + 0x1p-20) * sqrt((double)rows);
    for (int64_t i = 0; i < shape_count(sums->shape); i++) {
        double a = tensor_get(&wanted, i), b = tensor_get(sums, i);
        double allowed = 4 * off * (i < channels ? size : size * size) + 0x1p-20 * fabs(a);
        if (!(fabs(a - b) <= allowed))
            fail_msg("sum %lld is %.9g, not %.9g; allowed difference %.3g", (long long)i, b, a, allowed);
    }
    free(wanted.data);
}

/* Sums of products of y's channels, behind the sums, of every third channel with all. Some GPUs have no code
 * for them: they are as they were, NaN. */
static void assert_gram(const struct tensor *y, const struct tensor *sums)
{
    int64_t channels = y->shape.c, rows = shape_count(y->shape) / channels;
    if (isnan(tensor_get(sums, channels))) return;
    for (int64_t k = 0; k < channels; k += 3)
        for (int64_t c = 0; c < channels; c++) {
            double wanted = 0, found = tensor_get(sums, (1 + k) * channels + c);
            for (int64_t i = 0; i < rows; i++)
                wanted += tensor_get(y, i * channels + k) * tensor_get(y, i * channels + c);
            if (!(fabs(found - wanted) <= 0x1p-13 * fabs(wanted) + 0x1p-20 * (double)rows))
                fail_msg("channels %lld and %lld: %.9g, not %.9g", (long long)k, (long long)c, found, wanted);
        }
}

static bool can_give_y_sums(const struct subject *s)
{
    return dtype_bytes(s->dtype) == 2 && s->example.x[0].c % 8 == 0 &&
           supports(s, give_y_sums, PHASE_FORWARD);
}

/* Forward with the sums of its output beside it. */
static void test_gives_sums(void **state)
{
    const struct subject *s = *state;
    const struct op_code *code = code_of(s);
    struct op_case *expected = open_case(s), *found = open_case(s);
    found->device = s->device;
    bool moments = supports(s, op_case_give_sums, PHASE_FORWARD);
    bool gram = !moments && supports(s, give_gram, PHASE_FORWARD);
    if (moments) op_case_give_sums(found);
    else op_case_give_y_sums(found, gram);
    void *kernel_plan;
    op_case_prepare(code, &kernel_plan);
    struct op_case_storage storage[2];
    struct call wanted = op_case_call(expected, PHASE_FORWARD, &storage[0]);
    struct call call = op_case_call(found, PHASE_FORWARD, &storage[1]);
    assert_int_equal(op_case_run(s->op->reference, NULL, &wanted), OK);
    assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
    struct copies a = outputs_of(&wanted), b = outputs_of(&call);
    assert_agree(s, &wanted, &a, &b);
    struct tensor sums = moments ? found->sums : found->y_sums;
    if (gram) assert_gram(&found->y, &sums);
    if (gram) sums.shape.dim[0] = 1;
    assert_sums(&found->y, &sums);
    copies_free(&a);
    copies_free(&b);
    op_case_release(kernel_plan);
    op_case_close(expected);
    op_case_close(found);
}

/* Backward over a poisoned d_x[0]. */
static void run_over(struct op_case *c, const struct op_code *code, void *kernel_plan)
{
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_BACKWARD, &storage);
    op_case_poison(&c->d_x[0]);
    assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
}

/* Backward with the sums of the gradient it makes, which is the same to the bit. */
static void test_sums_gradient(void **state)
{
    const struct subject *s = *state;
    const struct op_code *code = code_of(s);
    struct op_case *c = open_case(s);
    run_forward(c, s->op->reference, NULL);
    c->device = s->device;
    struct copies plain = run_phase(c, code, NULL, PHASE_BACKWARD);
    op_case_sum_gradient(c);
    op_case_poison(&c->sums);
    run_over(c, code, NULL);
    assert_memory_equal(plain.tensor[0].data, c->d_x[0].data, tensor_bytes(&c->d_x[0]));
    assert_sums(&c->d_x[0], &c->sums);
    copies_free(&plain);
    op_case_close(c);
}

/* Backward with a second gradient of one pixel an image, and with copies of it: to the bit. Where the CPU's
 * code adds none, the reference. */
static void test_adds_flat(void **state)
{
    const struct subject *s = *state;
    const struct op_code *code = supports(s, add_pixel, PHASE_BACKWARD) ? code_of(s) : s->op->reference;
    struct copies found[2];
    for (int whole = 0; whole < 2; whole++) {
        struct op_case *c = open_case(s);
        run_forward(c, s->op->reference, NULL);
        c->device = s->device;
        op_case_add_flat(c, whole);
        found[whole] = run_phase(c, code, NULL, PHASE_BACKWARD);
        op_case_close(c);
    }
    assert_same_bits(&found[0], &found[1]);
    copies_free(&found[0]);
    copies_free(&found[1]);
}

static void pool_whole(struct op_case *c) { op_case_pool(c, false); }

static void run_and_drop(struct op_case *c, const struct op_code *code, enum phase phase)
{
    struct copies made = run_phase(c, code, NULL, phase);
    copies_free(&made);
}

/* A max pooling of the case's y, which has run forward and, for the case's gradient, backward. */
static struct op_case *pool_apart(const struct subject *s, const struct op_case *c, bool partial)
{
    const char *settings = partial ? "kernel=2 ceil_mode=yes" : "kernel=2";
    struct subject pools = {.op = op_find("maxpool"), .dtype = s->dtype, .training = true,
                            .device = c->device, .example = {settings, 1, {c->y.shape}}};
    struct op_case *pool = open_case(&pools);
    const struct op_code *code = c->device ? code_of(&pools) : pools.op->reference;
    pool->device = c->device;
    memcpy(pool->x[0].data, c->y.data, tensor_bytes(&c->y));
    memcpy(pool->d_y.data, c->d_y_more.data, tensor_bytes(&c->d_y_more));
    run_and_drop(pool, code, PHASE_FORWARD);
    run_and_drop(pool, code, PHASE_BACKWARD);
    return pool;
}

static void assert_pooled(const struct op_case *c, const struct op_case *pool)
{
    assert_memory_equal(c->pooled.data, pool->y.data, tensor_bytes(&pool->y));
    assert_memory_equal(c->number.data, pool->saved[0].data, tensor_bytes(&pool->saved[0]));
}

/* Windows with a NaN, too, whose statistics are those without. */
static void pool_together(const struct subject *s, const struct op_code *code, bool partial)
{
    struct op_case *c = open_case(s);
    op_case_pool(c, partial);
    c->device = code == s->op->reference ? NULL : s->device;
    struct copies first = run_phase(c, code, NULL, PHASE_FORWARD);
    struct copies again = run_phase(c, code, NULL, PHASE_RECOMPUTE);
    for (int i = 0; i < again.count; i++)
        assert_memory_equal(first.tensor[i].data, again.tensor[i].data, tensor_bytes(&again.tensor[i]));
    struct op_case *pool = pool_apart(s, c, partial);
    assert_pooled(c, pool);
    struct copies pooled = run_phase(c, code, NULL, PHASE_BACKWARD);
    struct tensor number = c->number, d_pooled = c->d_y_more;
    c->number.data = NULL;
    c->d_y_more = pool->d_x[0];
    struct copies whole = run_phase(c, code, NULL, PHASE_BACKWARD);
    assert_same_bits(&whole, &pooled);
    c->number = number;
    c->d_y_more = d_pooled;
    for (int i = 0; i < 3; i++) tensor_set(&c->x[0], i * c->y.shape.c * c->y.shape.w / 2, NAN);
    run_and_drop(c, code, PHASE_RECOMPUTE);
    op_case_close(pool);
    pool = pool_apart(s, c, partial);
    assert_pooled(c, pool);
    op_case_close(pool);
    op_case_close(c);
    copies_free(&first);
    copies_free(&again);
    copies_free(&pooled);
    copies_free(&whole);
}

/* Forward that pools y, and backward with the gradient of that: as a max pooling apart, to the bit. Where the
 * CPU's code does not, the reference. */
static void test_pools(void **state)
{
    const struct subject *s = *state;
    const struct op_code *code = supports(s, pool_whole, PHASE_FORWARD) ? code_of(s) : s->op->reference;
    for (int partial = 0; partial < 2; partial++) pool_together(s, code, partial);
}

/* Backward whose d_x has one pixel of each image: those of a whole d_x, to the bit. */
static void test_flat_gradient(void **state)
{
    const struct subject *s = *state;
    struct op_case *c = open_case(s);
    struct op_case_storage storage;
    c->device = s->device;
    struct copies whole = run_phase(c, code_of(s), NULL, PHASE_BACKWARD);
    struct call call = op_case_call(c, PHASE_BACKWARD, &storage);
    int64_t channels = c->x[0].shape.c, pixels = c->x[0].shape.h * c->x[0].shape.w;
    op_case_poison(&c->d_x[0]);
    call.d_x[0].shape.h = call.d_x[0].shape.w = 1;
    assert_int_equal(op_case_run(code_of(s), NULL, &call), OK);
    for (int64_t i = 0; i < shape_count(call.d_x[0].shape); i++)
        assert_true(tensor_get(&call.d_x[0], i) ==
                    tensor_get(&whole.tensor[0], i / channels * pixels * channels + i % channels));
    copies_free(&whole);
    op_case_close(c);
}

/* Backward with the sums that a batch norm in front needs: d_x is the same to the bit. Sums that are not
 * known are NaN. */
static void test_gives_products(void **state)
{
    const struct subject *s = *state;
    const struct op_code *code = code_of(s);
    struct op_case *c = open_case(s);
    void *kernel_plan;
    c->device = s->device;
    c->deterministic = true;
    op_case_prepare(code, &kernel_plan);
    run_forward(c, code, kernel_plan);
    struct copies plain = run_phase(c, code, kernel_plan, PHASE_BACKWARD);
    op_case_give_products(c);
    run_over(c, code, kernel_plan);
    assert_memory_equal(plain.tensor[0].data, c->d_x[0].data, tensor_bytes(&c->d_x[0]));
    struct tensor wanted = {.dtype = F32, .shape = c->x_products.shape};
    wanted.data = memory_new(1, tensor_bytes(&wanted));
    op_case_sum_products(&c->d_x[0], &c->x[0], &wanted);
    int64_t channels = c->x[0].shape.c, rows = shape_count(c->x[0].shape) / channels;
    double size = root_mean_square(&c->d_x[0]), x = root_mean_square(&c->x[0]);
    for (int64_t i = 0; i < 2 * channels; i++) {
        double a = tensor_get(&wanted, i), b = tensor_get(&c->x_products, i);
        double allowed = 0x1p-18 * (double)rows * size * (i < channels ? 1 : x);
        if (!(fabs(a - b) <= allowed) && !isnan(b))
            fail_msg("product %lld is %.9g, not %.9g; allowed difference %.3g", (long long)i, b, a, allowed);
    }
    free(wanted.data);
    copies_free(&plain);
    op_case_release(kernel_plan);
    op_case_close(c);
}

/* How much the rounding of y may change sum(dz * xhat) of channel k. */
static double product_tolerance(const struct op_case *c, int64_t k)
{
    double sum = 0, step = relative_spacing(c->y.dtype) + 0x1p-18;
    for (int64_t i = k; i < shape_count(c->y.shape); i += c->y.shape.c)
        sum += fabs(tensor_get(&c->d_y, i)) *
               (fabs(tensor_get(&c->y, i)) + fabs(tensor_get(&c->params[1], k)));
    return step * sum / fabs(tensor_get(&c->params[0], k));
}

/* Backward with sums that were made elsewhere. From channels 0 to 2 y or the sums do not tell enough: these
 * have the same bits as without. */
static void test_takes_products(void **state)
{
    const struct subject *s = *state;
    const struct op_code *code = code_of(s);
    struct op_case *c = open_case(s);
    tensor_set(&c->params[0], 1, 0);
    tensor_set(&c->params[1], 2, 40 * tensor_get(&c->params[0], 2));
    run_forward(c, s->op->reference, NULL);
    c->device = s->device;
    struct copies plain = run_phase(c, code, NULL, PHASE_BACKWARD);
    op_case_take_products(c);
    int64_t channels = c->x[0].shape.c, rows = shape_count(c->x[0].shape) / channels;
    tensor_set(&c->y_products, channels, NAN);
    struct copies found = run_phase(c, code, NULL, PHASE_BACKWARD);
    for (int64_t k = 0; k < channels; k++) {
        double allowed = k < 3 ? 0 : product_tolerance(c, k), weight = fabs(tensor_get(&c->params[0], k));
        double off = fabs(tensor_get(&found.tensor[1], k) - tensor_get(&plain.tensor[1], k));
        if (!(off <= allowed)) fail_msg("d_weight %lld is %.3g off, not %.3g", (long long)k, off, allowed);
        allowed *= weight * tensor_get(&c->saved[SAVED_INVSTD], k) / sqrt((double)rows);
        for (int64_t i = k; i < shape_count(c->x[0].shape); i += channels) {
            double a = tensor_get(&plain.tensor[0], i), b = tensor_get(&found.tensor[0], i);
            double more = k < 3 ? 0 : 2 * relative_spacing(s->dtype) * fabs(a) + 1e-6;
            if (!(fabs(a - b) <= allowed + more)) fail_msg("d_x %lld is %.9g, not %.9g", (long long)i, b, a);
        }
    }
    copies_free(&plain);
    copies_free(&found);
    op_case_close(c);
}

/* Backward with another gradient of x to add, which is the first channels of one that has more. */
static void test_adds_first_channels(void **state)
{
    const struct subject *s = *state;
    const struct op_code *code = code_of(s);
    struct op_case *c = open_case(s);
    run_forward(c, s->op->reference, NULL);
    c->device = s->device;
    struct copies plain = run_phase(c, code, NULL, PHASE_BACKWARD);
    op_case_add_first_channels(c);
    run_over(c, code, NULL);
    int64_t channels = c->x[0].shape.c, pitch = c->d_x_more.shape.c;
    double step = relative_spacing(c->d_x[0].dtype);
    for (int64_t i = 0; i < shape_count(c->x[0].shape); i++) {
        double more = tensor_get(&c->d_x_more, i / channels * pitch + i % channels);
        double own = tensor_get(&plain.tensor[0], i), got = tensor_get(&c->d_x[0], i);
        if (!(fabs(own + more - got) <= step * (fabs(own) + fabs(own + more)) + 1e-6))
            fail_msg("d_x[%lld] is %.9g, not %.9g and %.9g", (long long)i, got, own, more);
    }
    copies_free(&plain);
    op_case_close(c);
}

static bool can_spare_bias(const struct subject *s)
{
    const struct op_code *code = code_of(s);
    if (!code->supports || !code->backward_params) return false;
    struct op_case *c = open_case(s);
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_BACKWARD_PARAMS, &storage);
    if (call.param_count > 1) call.d_params[1] = (struct tensor){.data = NULL};
    bool spares = op_code_supports(code, &call);
    op_case_close(c);
    return spares;
}

/* backward_params without the bias's gradient: the weight's is the same to the bit. */
static void test_spares_bias(void **state)
{
    const struct subject *s = *state;
    const struct op_code *code = code_of(s);
    struct op_case *c = open_case(s);
    void *kernel_plan;
    c->device = s->device;
    c->deterministic = true;
    op_case_prepare(code, &kernel_plan);
    struct copies all = run_phase(c, code, kernel_plan, PHASE_BACKWARD_PARAMS);
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_BACKWARD_PARAMS, &storage);
    if (call.param_count > 1) call.d_params[1] = (struct tensor){.data = NULL};
    op_case_poison(&c->d_params[0]);
    assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
    assert_memory_equal(all.tensor[0].data, c->d_params[0].data, tensor_bytes(&c->d_params[0]));
    copies_free(&all);
    op_case_release(kernel_plan);
    op_case_close(c);
}

static void compare_together(const struct subject *s, struct op_case *expected, struct op_case *found,
                             void *kernel_plan, enum phase phase)
{
    struct op_case_storage storage[2];
    struct call wanted = op_case_call(expected, phase, &storage[0]);
    struct call call = op_case_call(found, phase, &storage[1]);
    poison_outputs(&call);
    assert_int_equal(op_case_run(s->op->reference, NULL, &wanted), OK);
    assert_int_equal(op_case_run(code_of(s), kernel_plan, &call), OK);
    struct copies a = outputs_of(&wanted), b = outputs_of(&call);
    assert_agree(s, &wanted, &a, &b);
    if (phase == PHASE_BACKWARD && found->clips) assert_sums(&found->d_x[0], &found->sums);
    if (in_place(found, phase)) check_in_place(found, code_of(s), kernel_plan, phase, &b);
    if (call.kernel_plan) print_message("%s\n", call.kernel_plan->name);
    copies_free(&a);
    copies_free(&b);
}

static void check_together(const struct subject *s, bool clips)
{
    const struct op_code *code = code_of(s);
    struct op_case *expected = open_case(s), *found = open_case(s);
    void *kernel_plan;
    found->device = s->device;
    found->together = found->deterministic = true;
    if (clips) op_case_clip(expected);
    if (clips) op_case_clip(found);
    op_case_prepare(code, &kernel_plan);
    compare_together(s, expected, found, kernel_plan, PHASE_FORWARD);
    compare_together(s, expected, found, kernel_plan, PHASE_BACKWARD);
    op_case_release(kernel_plan);
    op_case_close(expected);
    op_case_close(found);
}

/* Gradients of data and parameters by one call; where code does that, of x that is to be clipped, too. */
static void test_together(void **state)
{
    check_together(*state, false);
    if (supports(*state, op_case_clip, PHASE_BACKWARD)) check_together(*state, true);
}

/* True if the call has a plan of this variant. */
static bool is_variant(const struct call *call, const char *variant)
{
    return op_variant_is(call->kernel_plan->name, variant);
}

/* The outputs of every phase of the reference. */
struct references {
    struct op_case *c;
    struct copies written[PHASE_COUNT];
};

static struct references references_open(const struct subject *s)
{
    struct references r = {.c = open_case(s)};
    for (enum phase phase = PHASE_FORWARD; phase < PHASE_UPDATE; phase++)
        if (op_case_function(s->op->reference, phase))
            r.written[phase] = run_phase(r.c, s->op->reference, NULL, phase);
    return r;
}

static void references_close(struct references *r)
{
    for (int i = 0; i < PHASE_COUNT; i++) copies_free(&r->written[i]);
    op_case_close(r->c);
}

static struct op_case *open_variant(const struct subject *s, const char *variant, bool sums)
{
    struct op_case *c = open_case(s);
    c->device = s->device;
    c->tf32 = s->tf32;
    c->variant = variant;
    if (sums) op_case_give_sums(c);
    return c;
}

/* run_phase, without looking whether inputs stay as they are. */
static struct copies run_giving_sums(const struct op_code *code, void *kernel_plan, struct call *call)
{
    poison_outputs(call);
    assert_int_equal(op_case_run(code, kernel_plan, call), OK);
    return outputs_of(call);
}

/* The phases that the variant can do; how many. Others run what is usual, and not here. */
static int compare_variant(const struct subject *s, struct references *r, const char *variant, bool sums)
{
    const struct op_code *code = code_of(s);
    struct op_case *c = open_variant(s, variant, sums);
    void *kernel_plan;
    int compared = 0;
    op_case_prepare(code, &kernel_plan);
    share_forward(r->c, c);
    for (enum phase phase = PHASE_FORWARD; phase < PHASE_UPDATE; phase++) {
        struct op_case_storage storage;
        struct call call = op_case_call(c, phase, &storage);
        if (!op_case_function(code, phase)) continue;
        assert_int_equal(op_case_plan(code, kernel_plan, &call), OK);
        if (!is_variant(&call, variant)) continue;
        struct copies found = sums ? run_giving_sums(code, kernel_plan, &call)
                                   : run_phase(c, code, kernel_plan, phase);
        print_message("%s\n", call.kernel_plan->name);
        assert_agree(s, &call, &r->written[phase], &found);
        if (sums && phase == PHASE_FORWARD) assert_sums(&c->y, &c->sums);
        share_forward(r->c, c);
        copies_free(&found);
        compared++;
    }
    op_case_release(kernel_plan);
    op_case_close(c);
    return compared;
}

/* Every algorithm that can do the example, by itself, not only the one that would be chosen. */
static void test_variants(void **state)
{
    const struct subject *s = *state;
    const struct op_code *code = code_of(s);
    struct references r = references_open(s);
    int compared = 0;
    for (int i = 0; code->variants[i]; i++) {
        compared += compare_variant(s, &r, code->variants[i], false);
        if (!s->tf32 && supports(s, op_case_give_sums, PHASE_FORWARD))
            compared += compare_variant(s, &r, code->variants[i], true);
    }
    references_close(&r);
    assert_true(compared > 0);
}

typedef void case_change(struct op_case *c);

/* Forward of a changed case, by a variant that does it, or for NULL by the code's choice. */
static void compare_forward(const struct subject *s, case_change *change, const struct call *wanted,
                            const char *variant)
{
    const struct op_code *code = code_of(s);
    struct op_case *c = open_variant(s, variant, false);
    struct op_case_storage storage;
    void *kernel_plan = NULL;
    change(c);
    op_case_prepare(code, &kernel_plan);
    struct call call = op_case_call(c, PHASE_FORWARD, &storage);
    assert_int_equal(op_case_plan(code, kernel_plan, &call), OK);
    if (!variant || is_variant(&call, variant)) {
        poison_outputs(&call);
        assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
        if (call.kernel_plan) print_message("%s\n", call.kernel_plan->name);
        struct copies a = outputs_of(wanted), b = outputs_of(&call);
        assert_agree(s, wanted, &a, &b);
        copies_free(&a);
        copies_free(&b);
    }
    op_case_release(kernel_plan);
    op_case_close(c);
}

/* Algorithms of our own apply it, and cuDNN's layouts that do it in their own way. */
static void test_applies_relu(void **state)
{
    const struct subject *s = *state;
    const char *const *variants = code_of(s)->variants;
    struct op_case *expected = open_case(s);
    struct op_case_storage storage;
    expected->relu = true;
    struct call call = op_case_call(expected, PHASE_FORWARD, &storage);
    assert_int_equal(op_case_run(s->op->reference, NULL, &call), OK);
    for (int64_t i = 0; i < shape_count(call.y.shape); i++) assert_true(tensor_get(&call.y, i) >= 0);
    compare_forward(s, apply_relu, &call, NULL);
    for (int i = 0; variants && variants[i]; i++)
        if (strstr(variants[i], "+relu") || strstr(variants[i], "+late") || !strchr(variants[i], ' '))
            compare_forward(s, apply_relu, &call, variants[i]);
    op_case_close(expected);
}

static void test_adds_residual(void **state)
{
    const struct subject *s = *state;
    const char *const *variants = code_of(s)->variants;
    struct op_case *expected = open_case(s);
    struct op_case_storage storage;
    op_case_add_residual(expected);
    struct call call = op_case_call(expected, PHASE_FORWARD, &storage);
    assert_int_equal(op_case_run(s->op->reference, NULL, &call), OK);
    compare_forward(s, op_case_add_residual, &call, NULL);
    for (int i = 0; variants && variants[i]; i++)
        compare_forward(s, op_case_add_residual, &call, variants[i]);
    op_case_close(expected);
}

/* A relu's mask is of eights of channels in 16 bits. */
static bool can_join(const struct subject *s)
{
    return code_of(s)->backward_data && dtype_bytes(s->dtype) == 2 && s->example.x[0].c % 8 == 0 &&
           supports(s, join_whole, PHASE_BACKWARD_DATA);
}

static struct op_case *open_joining(const struct subject *s, const char *variant)
{
    struct op_case *c = open_variant(s, variant, false);
    c->deterministic = !variant;
    op_case_join(c, s->picks);
    return c;
}

/* Both may have rounded the convolution's gradient before the other was added. */
static void assert_joined(const struct op_case *expected, const struct op_case *found)
{
    const struct tensor *a = &expected->d_x[0], *b = &found->d_x[0];
    double step = relative_spacing(b->dtype), size = root_mean_square(a);
    int64_t channels = b->shape.c, count = shape_count(b->shape);
    struct tensor sums = {.dtype = F32, .shape = {.rank = 2, .dim = {2, channels, 1, 1}}};
    for (int64_t i = 0; i < count; i++) {
        double wanted = tensor_get(a, i), got = tensor_get(b, i);
        bool passes = ((const uint8_t *)found->mask.data)[i / 8] >> i % 8 & 1;
        if (passes ? !(fabs(wanted - got) <= step * (fabs(wanted) + 4 * size)) : got != 0)
            fail_msg("d_x[%lld] is %.9g, not %.9g", (long long)i, got, wanted);
    }
    sums.data = memory_new(1, tensor_bytes(&sums));
    op_case_sum(b, &sums);
    for (int64_t c = 0; c < channels; c++) {
        double wanted = tensor_get(&sums, c), got = tensor_get(&found->sums, c);
        if (!(fabs(wanted - got) <= 0x1p-20 * (double)(count / channels) * size + 1e-6))
            fail_msg("sum %lld is %.9g, not %.9g", (long long)c, got, wanted);
    }
    free(sums.data);
}

/* True if the variant can do it; NULL: the code's own choice, twice. */
static bool joins(const struct subject *s, const struct op_case *expected, const char *variant)
{
    const struct op_code *code = code_of(s);
    struct op_case *c = open_joining(s, variant);
    struct op_case_storage storage;
    void *kernel_plan;
    op_case_prepare(code, &kernel_plan);
    struct call call = op_case_call(c, PHASE_BACKWARD_DATA, &storage);
    assert_int_equal(op_case_plan(code, kernel_plan, &call), OK);
    bool takes = !variant || is_variant(&call, variant);
    if (takes && expected) {
        poison_outputs(&call);
        assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
        if (call.kernel_plan) print_message("%s\n", call.kernel_plan->name);
        assert_joined(expected, c);
    }
    if (takes && expected && !variant) {
        struct copies first = {0};
        copies_add(&first, &c->d_x[0]);
        copies_add(&first, &c->sums);
        poison_outputs(&call);
        assert_int_equal(op_case_run_captured(code, kernel_plan, &call), OK);
        assert_memory_equal(first.tensor[0].data, c->d_x[0].data, tensor_bytes(&c->d_x[0]));
        assert_memory_equal(first.tensor[1].data, c->sums.data, tensor_bytes(&c->sums));
        copies_free(&first);
    }
    op_case_release(kernel_plan);
    op_case_close(c);
    return takes;
}

/* A data gradient that another joins: by every algorithm where that is quick, else by the code's choice. */
static void test_joins(void **state)
{
    const struct subject *s = *state;
    const char *const *variants = code_of(s)->variants;
    struct subject plain = *s;
    plain.device = NULL;
    struct op_case *expected = open_joining(&plain, NULL);
    struct op_case_storage storage;
    struct call call = op_case_call(expected, PHASE_BACKWARD_DATA, &storage);
    assert_int_equal(op_case_run(s->op->reference, NULL, &call), OK);
    assert_true(joins(s, expected, NULL));
    bool quick = shape_count(s->example.x[0]) < 100000;
    for (int i = 0; quick && variants && variants[i]; i++) joins(s, expected, variants[i]);
    op_case_close(expected);
}

static bool takes_variant(const struct subject *s, const char *variant, bool sums)
{
    const struct op_code *code = code_of(s);
    struct op_case *c = open_variant(s, variant, sums);
    void *kernel_plan;
    bool takes = false;
    c->relu = !sums && supports(s, apply_relu, PHASE_FORWARD);
    op_case_prepare(code, &kernel_plan);
    for (enum phase phase = PHASE_FORWARD; phase < PHASE_UPDATE && !takes; phase++) {
        struct op_case_storage storage;
        struct call call = op_case_call(c, phase, &storage);
        if (!op_case_function(code, phase)) continue;
        assert_int_equal(op_case_plan(code, kernel_plan, &call), OK);
        takes = is_variant(&call, variant);
    }
    op_case_release(kernel_plan);
    op_case_close(c);
    return takes;
}

static bool any_takes(struct subject s, const struct op_example *examples, const char *variant)
{
    const enum dtype dtypes[] = {F16, F32, BF16};
    for (; examples && examples->settings; examples++)
        for (int i = 0; i < 3; i++) {
            s.example = *examples;
            s.dtype = dtypes[i];
            if (takes_variant(&s, variant, supports(&s, op_case_give_sums, PHASE_FORWARD))) return true;
            struct subject training = s;
            training.training = true;
            if (can_join(&training) && joins(&training, NULL, variant)) return true;
        }
    return false;
}

/* Each has an example, unless it lacks instructions. A library may have no engine for a layout (of two words)
 * on this device. */
static void test_every_variant(void **state)
{
    const struct subject *s = *state;
    const struct op_code *code = code_of(s);
    const char *const *variants = code->variants;
    bool skips = false;
    for (int i = 0; variants[i]; i++) {
        if (any_takes(*s, s->op->examples, variants[i])) continue;
        if (s->device && any_takes(*s, s->op->large, variants[i])) continue;
        const char *lacks = algorithm_lacks(code, variants[i]);
        if (!lacks && !strchr(variants[i], ' ')) fail_msg("no example takes '%s'", variants[i]);
        print_message("no example takes '%s'%s%s\n", variants[i], lacks ? ": there is no " : "",
                      lacks ? lacks : "");
        skips = true;
    }
    if (skips) skip();
}

/* Adds what the code's backward does besides. */
static void merge_backward(const struct subject *s, struct op_case *c)
{
    if (supports(s, op_case_add_gradient, PHASE_BACKWARD)) op_case_add_gradient(c);
    else if (supports(s, op_case_add_first_channels, PHASE_BACKWARD)) op_case_add_first_channels(c);
    if (supports(s, op_case_sum_gradient, PHASE_BACKWARD)) op_case_sum_gradient(c);
}

static void assert_remade(const struct op_case *c)
{
    assert_memory_equal(c->y_recomputed.data, c->y.data, tensor_bytes(&c->y));
    op_case_poison(&c->y_recomputed);
}

/* ... over x[0]. */
static void check_remade_in_place(const struct op_case *c, const struct op_code *code, void *kernel_plan,
                                  const struct copies *expected)
{
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_BACKWARD, &storage);
    struct copies x = {0};
    copies_add(&x, &c->x[0]);
    poison_outputs(&call);
    call.x[0].data = call_put(&call, OPERAND_Y_RECOMPUTED)->data = x.tensor[0].data;
    assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
    struct copies found = outputs_of(&call);
    assert_same_bits(expected, &found);
    assert_memory_equal(x.tensor[0].data, c->y.data, tensor_bytes(&c->y));
    copies_free(&found);
    copies_free(&x);
}

/* Backward that makes its output again by the way: to the bit, and so are the gradients, wanted or not. */
static void assert_recomputes(const struct subject *s, const struct op_code *code)
{
    struct op_case *c = open_case(s);
    c->device = s->device;
    c->deterministic = true;
    void *kernel_plan;
    op_case_prepare(code, &kernel_plan);
    if (s->merged && supports(s, op_case_take_sums, PHASE_FORWARD)) op_case_take_sums(c);
    if (s->merged) merge_backward(s, c);
    struct copies forward = run_phase(c, code, kernel_plan, PHASE_FORWARD);
    struct copies kept = run_phase(c, code, kernel_plan, PHASE_BACKWARD);
    op_case_recompute(c);
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_BACKWARD, &storage);
    struct copies found = run_clean(code, kernel_plan, &call, op_case_run);
    assert_same_bits(&kept, &found);
    assert_remade(c);
    assert_int_equal(op_case_run_captured(code, kernel_plan, &call), OK);
    assert_remade(c);
    if (in_place(c, PHASE_RECOMPUTE)) check_remade_in_place(c, code, kernel_plan, &kept);
    call.d_x[0] = (struct tensor){.data = NULL};
    assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
    assert_remade(c);
    copies_free(&forward);
    copies_free(&kept);
    copies_free(&found);
    op_case_release(kernel_plan);
    op_case_close(c);
}

static void test_recomputes(void **state)
{
    const struct subject *s = *state;
    assert_recomputes(s, code_of(s));
    if (!s->device && !s->merged) assert_recomputes(s, s->op->reference);
}

static void assert_masked(const struct op_case *c)
{
    const uint8_t *bytes = c->mask.data;
    for (int64_t i = 0; i < shape_count(c->y.shape); i++)
        assert_int_equal(bytes[i / 8] >> i % 8 & 1, tensor_get(&c->y, i) != 0);
}

/* Forward leaves the mask of what it writes all the same, and backward needs no more. Where the CPU's code
 * keeps none, the reference. */
static void test_masks(void **state)
{
    const struct subject *s = *state;
    const struct op_code *code = supports(s, op_case_mask, PHASE_BACKWARD) ? code_of(s) : s->op->reference;
    struct op_case *c = open_case(s);
    c->device = s->device;
    c->deterministic = true;
    void *kernel_plan;
    op_case_prepare(code, &kernel_plan);
    if (s->merged) op_case_add_gradient(c);
    struct copies forward = run_phase(c, code, kernel_plan, PHASE_FORWARD);
    struct copies backward = run_phase(c, code, kernel_plan, PHASE_BACKWARD);
    op_case_mask(c);
    op_case_poison(&c->mask);
    struct copies leaving = check_phase(c, code, kernel_plan, PHASE_FORWARD);
    assert_same_bits(&forward, &leaving);
    assert_masked(c);
    struct copies asking = check_phase(c, code, kernel_plan, PHASE_BACKWARD);
    assert_same_bits(&backward, &asking);
    copies_free(&forward);
    copies_free(&backward);
    copies_free(&leaving);
    copies_free(&asking);
    op_case_release(kernel_plan);
    op_case_close(c);
}

static void test_no_code(void **state)
{
    const struct subject *s = *state;
    fail_msg("%s has no code for %s", s->op->name, s->device->backend->name);
}

#define STEP 1e-5
#define SAMPLES 32

/* The number that backward differentiates: the sum of y * d_y; of a loss, its mean, scaled as in the call. */
static double objective(struct op_case *c)
{
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_FORWARD, &storage);
    assert_int_equal(op_case_run(c->op->reference, NULL, &call), OK);
    int64_t count = shape_count(c->y.shape);
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += tensor_get(&c->y, i) * (c->d_y.data ? tensor_get(&c->d_y, i)
                                                   : c->loss_scale * call.loss_weight / (double)count);
    return sum;
}

static void check_gradient(struct op_case *c, struct tensor *variable, const struct tensor *gradient)
{
    int64_t count = shape_count(variable->shape);
    int64_t stride = count > SAMPLES ? count / SAMPLES | 1 : 1;
    double allowed = 1e-6 * root_mean_square(gradient) + 1e-8;
    for (int64_t i = 0; i < count; i += stride) {
        double value = tensor_get(variable, i), analytic = tensor_get(gradient, i);
        tensor_set(variable, i, value + STEP);
        double above = objective(c);
        tensor_set(variable, i, value - STEP);
        double below = objective(c);
        tensor_set(variable, i, value);
        double numeric = (above - below) / (2 * STEP);
        if (!(fabs(numeric - analytic) <= allowed + 1e-6 * fabs(numeric)))
            fail_msg("element %lld: gradient %.9g, central difference %.9g", (long long)i, analytic, numeric);
    }
}

static bool passes_gradient(const struct op_case *c)
{
    struct shape shapes[OP_MAX_INPUTS];
    for (int i = 0; i < c->x_count; i++) shapes[i] = c->x[i].shape;
    return c->op->passes_gradient && c->op->passes_gradient(c->settings, c->x_count, shapes);
}

static void run_backward(struct op_case *c)
{
    const enum phase phases[] = {PHASE_FORWARD, PHASE_BACKWARD, PHASE_BACKWARD_DATA, PHASE_BACKWARD_PARAMS};
    for (int i = 0; i < 4; i++) {
        if (!op_case_function(c->op->reference, phases[i])) continue;
        struct op_case_storage storage;
        struct call call = op_case_call(c, phases[i], &storage);
        assert_int_equal(op_case_run(c->op->reference, NULL, &call), OK);
    }
    for (int i = 0; i < c->x_count && passes_gradient(c); i++)
        memcpy(c->d_x[i].data, c->d_y.data, tensor_bytes(&c->d_x[i]));
}

static bool has_gradient(const struct op_case *c)
{
    const struct op_code *code = c->op->reference;
    return code->backward || code->backward_data || passes_gradient(c);
}

static void test_gradient(void **state)
{
    const struct subject *s = *state;
    struct op_case *c = open_case(s);
    if (has_gradient(c)) {
        run_backward(c);
        for (int i = 0; i < c->x_count; i++)
            if (c->d_x[i].data) check_gradient(c, &c->x[i], &c->d_x[i]);
        for (int i = 0; i < c->param_count; i++)
            if (c->d_params[i].data) check_gradient(c, &c->params[i], &c->d_params[i]);
    } else if (!c->op->no_gradient && !c->op->internal) {
        fail_msg("%s has neither backward nor an identity gradient", c->op->name);
    }
    op_case_close(c);
}

static void test_table(void **state)
{
    for (const struct op *const *op = op_table; *op; op++) {
        assert_ptr_equal(op_find((*op)->name), *op);
        assert_non_null((*op)->help);
        assert_non_null((*op)->shape);
        assert_non_null((*op)->reference);
        assert_non_null((*op)->examples);
        assert_non_null((*op)->examples[0].settings);
        const struct op_code *code = op_cpu(*op);
        assert_false(code->backward && (code->backward_data || code->backward_params));
    }
    assert_null(op_find("no such op"));
}

static void assert_refused(const char *op, const char *settings, const char *why)
{
    struct reason reason = {0};
    assert_null(op_settings_new(op_find(op), settings, &reason));
    if (!strstr(reason.text, why)) fail_msg("'%s' does not say '%s'", reason.text, why);
}

static void test_settings(void **state)
{
    assert_refused("conv", "kernel=3", "filters=");
    assert_refused("conv", "filters=8 kernal=3", "did you mean 'kernel'");
    assert_refused("conv", "filters=8 kernel=3 kernel=5", "twice");
    assert_refused("conv", "filters=0 kernel=3", "filters");
    assert_refused("conv", "filters", "key=value");
    assert_refused("linear", "units=ten", "units");
}

static void assert_misfits(const char *name, const char *settings, int count, const struct shape *x,
                           const char *why)
{
    struct reason reason = {0};
    struct shape y;
    const struct op *op = op_find(name);
    void *values = op_settings_new(op, settings, &reason);
    assert_true(values || op->settings_size == 0);
    assert_false(op->shape(values, count, x, &y, &reason));
    if (!strstr(reason.text, why)) fail_msg("'%s' does not say '%s'", reason.text, why);
    op_settings_free(op, values);
}

static void assert_misfit(const char *name, const char *settings, struct shape x, const char *why)
{
    assert_misfits(name, settings, 1, &x, why);
}

static void test_shapes(void **state)
{
    assert_misfit("conv", "filters=8", shape_nhwc(1, 8, 8, 3), "kernel=");
    assert_misfit("conv", "filters=8 kernel=5", shape_nhwc(1, 4, 4, 3), "does not fit");
    assert_misfit("conv_transpose", "filters=8 kernel=2 output_pad=1", shape_nhwc(1, 4, 4, 3), "stride");
    assert_misfit("conv_transpose", "filters=8 kernel=1 pad=2", shape_nhwc(1, 4, 4, 3), "leaves nothing");
    assert_misfit("conv", "filters=8 kernel=3 groups=2", shape_nhwc(1, 8, 8, 3), "groups=2");
    assert_misfit("conv", "filters=9 kernel=3 groups=2", shape_nhwc(1, 8, 8, 4), "filters=9");
    assert_misfit("linear", "units=10", shape_nhwc(1, 2, 2, 4), "flatten it first");
    assert_misfit("slice", "first=2 channels=3", shape_nhwc(1, 1, 1, 4), "more than the input's 4 channels");
    assert_misfit("token_slice", "first=2 count=3", shape_nhwc(1, 2, 2, 9), "more than the input's 4 tokens");
    const struct shape x[] = {shape_nhwc(1, 1, 1, 3), shape_nhwc(1, 1, 1, 1), shape_nhwc(1, 1, 1, 3),
                              shape_nhwc(1, 1, 1, 4)};
    assert_misfits("mean", "", 2, x, "input 2 is 1x1x1x1, not 1x1x1x3");
    assert_misfits("distill", "", 3, (struct shape[]){x[0], x[1], x[3]},
                   "the teacher's logits have shape 1x1x1x4");
    assert_misfits("distill", "", 4, x, "the second head's logits have shape 1x1x1x4");
}

/* Operands that no call of a phase has. */
static const struct {
    enum phase phase;
    enum operand_role role;
} absurd[] = {
    {PHASE_FORWARD, OPERAND_D_X_SUMS},       {PHASE_FORWARD, OPERAND_D_Y_ADDEND},
    {PHASE_BACKWARD, OPERAND_X_MOMENTS},     {PHASE_BACKWARD, OPERAND_Y_MOMENTS},
    {PHASE_BACKWARD_DATA, OPERAND_X_SUMS},   {PHASE_BACKWARD_PARAMS, OPERAND_D_X_SUMS},
    {PHASE_UPDATE, OPERAND_Y_SUMS},
};

static void assert_refuses_absurd(const struct op *op, const struct op_code *code)
{
    struct reason reason = {0};
    struct op_case *c = op_case_open(op, &op->examples[0], F32, true, SEED, &reason);
    assert_non_null(c);
    for (size_t i = 0; code && i < sizeof absurd / sizeof *absurd; i++) {
        if (!op_case_function(code, absurd[i].phase)) continue;
        struct op_case_storage storage;
        struct call call = op_case_call(c, absurd[i].phase, &storage);
        *call_put(&call, absurd[i].role) = c->y;
        if (op_code_supports(code, &call))
            fail_msg("%s %s supports %s", op->name, phase_words[absurd[i].phase],
                     operand_words[absurd[i].role]);
    }
    op_case_close(c);
}

/* Code that asks for the shapes alone must not promise operands that it does not know. */
static void test_supports(void **state)
{
    for (const struct op *const *op = op_table; *op; op++) {
        const struct op_code *codes[] = {(*op)->reference, (*op)->cpu, (*op)->cuda};
        for (int i = 0; i < 3; i++) assert_refuses_absurd(*op, codes[i]);
    }
}

struct list {
    int count;
    struct CMUnitTest *tests;
    struct device *device;       /* besides the CPU */
};

/* True if the code runs the subject at all. */
static bool is_supported(const struct subject *s)
{
    const struct op_code *code = code_of(s);
    if (!code || !code->supports) return true;
    struct op_case *c = open_drawn(s, 0);
    struct op_case_storage storage;
    c->device = s->device;
    struct call call = op_case_call(c, PHASE_FORWARD, &storage);
    bool supported = code->supports(&call);
    op_case_close(c);
    return supported;
}

static void list_add(struct list *list, CMUnitTestFunction function, struct subject subject, const char *what)
{
    if (!is_supported(&subject)) return;
    struct subject *state = memory_new(1, sizeof *state);
    *state = subject;
    char shape[SHAPE_TEXT];
    enum activation then = subject.activation;
    char *name = text_format("%s %s%s%s on %s: %s%s%s", subject.op->name, subject.example.settings,
                             then ? " then " : "", then ? activation_words[then] : "",
                             shape_text(subject.example.x[0], shape), what, subject.device ? ", " : "",
                             subject.device ? subject.device->backend->name : "");
    *array_push(list->tests, list->count) =
        (struct CMUnitTest){.name = name, .test_func = function, .initial_state = state};
}

static const struct precision {
    const char *name;
    enum dtype dtype;
    bool tf32;
} precisions[] = {{"fp32", F32, false}, {"bf16", BF16, false}, {"fp16", F16, false}, {"tf32", F32, true}};

/* The number of precisions that differ for this op: the first so many of the table. */
static int precision_count(const struct op *op, const struct device *device)
{
    switch (op->precision) {
    case CLASS_FULL: return 1;
    case CLASS_FOLLOW: return 3;
    case CLASS_LOW: return device ? 4 : 3;
    }
    return 0;
}

static void list_precision(struct list *list, struct subject subject, const struct precision *precision)
{
    subject.dtype = precision->dtype;
    subject.tf32 = precision->tf32;
    subject.training = true;
    list_add(list, test_code, subject, precision->name);
}

static const char *const merged[] = {"fp32 merged", "bf16 merged", "fp16 merged"};
/* y has a window of 2x2. */
static bool can_pool(const struct subject *s)
{
    struct shape x = s->example.x[0];
    return x.rank == 4 && x.h > 1 && x.w > 1 &&
           code_supports(s, s->op->reference, pool_whole, PHASE_FORWARD);
}

static const char *const gives_sums[] = {"fp32 with sums", "bf16 with sums", "fp16 with sums"};

static const char *const with_relu[] = {"fp32 with relu", "bf16 with relu", "fp16 with relu"};
static const char *const residual[] = {"fp32 adding a residual", "bf16 adding a residual",
                                       "fp16 adding a residual"};
static const char *const gradient_sums[] = {"fp32, gradient's sums", "bf16, gradient's sums",
                                            "fp16, gradient's sums"};
static const char *const first_channels[] = {"fp32 adding channels", "bf16 adding channels",
                                            "fp16 adding channels"};
static const char *const adding_flat[] = {"fp32 adding a pixel", "bf16 adding a pixel",
                                          "fp16 adding a pixel"};
static const char *const pooling[] = {"fp32 with its pooling", "bf16 with its pooling",
                                      "fp16 with its pooling"};
static const char *const flat[] = {"fp32 flat gradient", "bf16 flat gradient", "fp16 flat gradient"};
static const char *const without_bias[] = {"fp32 without bias's gradient", "bf16 without bias's gradient",
                                           "fp16 without bias's gradient"};
static const char *const gives_products[] = {"fp32 giving products", "bf16 giving products",
                                             "fp16 giving products"};
static const char *const takes_products[] = {"fp32 taking products", "bf16 taking products",
                                             "fp16 taking products"};
static const char *const recomputes[] = {"fp32 recomputing", "bf16 recomputing", "fp16 recomputing"};
static const char *const merged_recomputes[] = {"fp32 merged, recomputing", "bf16 merged, recomputing",
                                                "fp16 merged, recomputing"};

static const char *const masked[] = {"fp32 masked", "bf16 masked", "fp16 masked"};
static const char *const merged_masked[] = {"fp32 merged, masked", "bf16 merged, masked",
                                            "fp16 merged, masked"};

static bool is_masked(const struct subject *s)
{
    struct reason reason;
    if (!s->op->masks) return false;
    void *settings = op_settings_new(s->op, s->example.settings, &reason);
    struct tensor x = {.dtype = s->dtype, .shape = s->example.x[0]};
    bool masked = settings && s->op->masks(settings, &x);
    op_settings_free(s->op, settings);
    return masked;
}

static void list_masked(struct list *list, struct subject subject)
{
    subject.training = true;
    for (int i = 0; i < precision_count(subject.op, NULL); i++) {
        subject.dtype = precisions[i].dtype;
        if (!is_masked(&subject)) continue;
        list_add(list, test_masks, subject, masked[i]);
        subject.merged = true;
        list_add(list, test_masks, subject, merged_masked[i]);
        subject.merged = false;
    }
}

static void list_merged(struct list *list, struct subject subject)
{
    subject.training = true;
    bool recomputing = subject.op->backward_recomputes && subject.example.x_count == 1;
    for (int i = 0; i < precision_count(subject.op, NULL); i++) {
        subject.dtype = precisions[i].dtype;
        subject.merged = false;
        if (recomputing) list_add(list, test_recomputes, subject, recomputes[i]);
        subject.merged = true;
        if (recomputing) list_add(list, test_recomputes, subject, merged_recomputes[i]);
        if (supports(&subject, op_case_take_sums, PHASE_FORWARD) ||
            supports(&subject, op_case_add_gradient, PHASE_BACKWARD))
            list_add(list, test_code, subject, merged[i]);
        if (supports(&subject, op_case_give_sums, PHASE_FORWARD) || can_give_y_sums(&subject))
            list_add(list, test_gives_sums, subject, gives_sums[i]);
        subject.merged = false;
        subject.training = false;          /* prepares forward alone */
        if (supports(&subject, apply_relu, PHASE_FORWARD))
            list_add(list, test_applies_relu, subject, with_relu[i]);
        if (supports(&subject, op_case_add_residual, PHASE_FORWARD))
            list_add(list, test_adds_residual, subject, residual[i]);
        subject.training = true;
        if (supports(&subject, op_case_sum_gradient, PHASE_BACKWARD))
            list_add(list, test_sums_gradient, subject, gradient_sums[i]);
        if (subject.device && supports(&subject, op_case_give_products, PHASE_BACKWARD))
            list_add(list, test_gives_products, subject, gives_products[i]);
        if (supports(&subject, op_case_take_products, PHASE_BACKWARD))
            list_add(list, test_takes_products, subject, takes_products[i]);
        if (supports(&subject, op_case_add_first_channels, PHASE_BACKWARD))
            list_add(list, test_adds_first_channels, subject, first_channels[i]);
        if (code_supports(&subject, subject.op->reference, add_pixel, PHASE_BACKWARD))
            list_add(list, test_adds_flat, subject, adding_flat[i]);
        if (can_pool(&subject))
            list_add(list, test_pools, subject, pooling[i]);
        if (subject.op->flat_gradient) list_add(list, test_flat_gradient, subject, flat[i]);
        if (can_spare_bias(&subject)) list_add(list, test_spares_bias, subject, without_bias[i]);
    }
}

static const char *const joined[] = {"fp32 joined", "bf16 joined", "fp16 joined"};
static const char *const picked[] = {"fp32 picked", "bf16 picked", "fp16 picked"};

static void list_joined(struct list *list, struct subject subject)
{
    subject.training = true;
    for (int i = 0; i < precision_count(subject.op, NULL); i++) {
        subject.dtype = precisions[i].dtype;
        if (!can_join(&subject)) continue;
        subject.picks = false;
        list_add(list, test_joins, subject, joined[i]);
        subject.picks = true;
        list_add(list, test_joins, subject, picked[i]);
    }
}

static const char *const together[] = {"fp32 together", "bf16 together", "fp16 together"};

static void list_together(struct list *list, struct subject subject)
{
    subject.training = true;
    for (int i = 0; i < precision_count(subject.op, NULL); i++) {
        subject.dtype = precisions[i].dtype;
        const struct op_code *code = code_of(&subject);
        if (code->backward && code->backward_data && supports(&subject, NULL, PHASE_BACKWARD))
            list_add(list, test_together, subject, together[i]);
    }
}

static const char *const undetermined[] = {"fp32 not deterministic", "bf16 not deterministic",
                                           "fp16 not deterministic"};

static const char *const variants[] = {"fp32 variants", "bf16 variants", "fp16 variants", "tf32 variants"};

static void list_by_variant(struct list *list, struct subject subject)
{
    if (!code_of(&subject)->variants) return;
    subject.training = true;
    for (int i = 0; i < precision_count(subject.op, subject.device); i++) {
        subject.dtype = precisions[i].dtype;
        subject.tf32 = precisions[i].tf32;
        list_add(list, test_variants, subject, variants[i]);
    }
}

/* relu, as evaluations have it, by algorithms for tensor cores. */
static void list_relu(struct list *list, struct subject subject)
{
    for (int i = 1; subject.device && i < precision_count(subject.op, NULL); i++) {
        subject.dtype = precisions[i].dtype;
        if (supports(&subject, apply_relu, PHASE_FORWARD))
            list_add(list, test_applies_relu, subject, with_relu[i]);
    }
}

/* Above the sizes from which code is another: too large for the plain loops of gradient tests. */
static void list_large(struct list *list, struct subject subject)
{
    for (int i = 0; subject.op->large && subject.op->large[i].settings; i++) {
        subject.example = subject.op->large[i];
        list_by_variant(list, subject);
        list_joined(list, subject);
        list_together(list, subject);
        if (code_of(&subject)->variants) {
            list_relu(list, subject);
            continue;
        }
        for (int k = 0; k < precision_count(subject.op, subject.device); k++)
            list_precision(list, subject, &precisions[k]);
        list_merged(list, subject);
    }
}

static void list_example(struct list *list, struct subject subject)
{
    for (int i = 0; i < precision_count(subject.op, subject.device); i++)
        list_precision(list, subject, &precisions[i]);
    list_by_variant(list, subject);
    list_merged(list, subject);
    list_masked(list, subject);
    list_joined(list, subject);
    list_together(list, subject);
    subject.dtype = F32;
    list_add(list, test_code, subject, "evaluation");
    if (subject.device) {
        subject.training = true;
        for (int i = 0; i < precision_count(subject.op, NULL); i++) {
            subject.dtype = precisions[i].dtype;
            list_add(list, test_code_undetermined, subject, undetermined[i]);
        }
        return;
    }
    subject.dtype = F64;
    subject.training = true;
    list_add(list, test_gradient, subject, "gradient");
}

/* The precisions by turns, so that each meets all channels, sizes and batches somewhere. */
static void list_variants(struct list *list, struct subject subject, int turn, bool thorough)
{
    int count = precision_count(subject.op, subject.device);
    const struct op_example *example = &subject.op->examples[turn];
    for (int number = 0; number < OP_VARIANTS; number++) {
        if (!op_variant(subject.op, example, number, &subject.example)) continue;
        for (int i = 0; i < count; i++)
            if (thorough || i == (turn + number) % count) list_precision(list, subject, &precisions[i]);
    }
}

/* The first example, and those with a shortcut, with every activation; others, and large ones, by turns. */
static void list_activations(struct list *list, struct subject subject, int turn, bool large)
{
    bool all = !large && (turn == 0 || subject.example.x_count > 1);
    for (int k = 1; subject.op->activates && activation_words[k]; k++) {
        if (!all && k != (large ? ACTIVATION_LEAKY_RELU : turn)) continue;
        subject.activation = (enum activation)k;
        if (!large) list_example(list, subject);
        for (int i = 0; large && i < precision_count(subject.op, subject.device); i++)
            list_precision(list, subject, &precisions[i]);
    }
}

static bool yes(const char *variable)
{
    const char *value = getenv(variable);
    return value && strcmp(value, "yes") == 0;
}

/* True if AMPTRAIN_OP, where it is set, has the op's name between its commas. */
static bool wanted(const struct op *op)
{
    const char *names = getenv("AMPTRAIN_OP");
    if (!names) return true;
    size_t length = strlen(op->name);
    for (const char *at = names; (at = strstr(at, op->name)); at += length)
        if ((at == names || at[-1] == ',') && (at[length] == ',' || at[length] == 0)) return true;
    return false;
}

static void list_op(struct list *list, const struct op *op, struct device *device)
{
    struct subject subject = {.op = op, .example = op->examples[0], .device = device};
    bool thorough = yes("AMPTRAIN_THOROUGH");
    if (device && !op->cuda) {
        list_add(list, test_no_code, subject, "no code");
        return;
    }
    if (code_of(&subject)->variants) list_add(list, test_every_variant, subject, "every variant");
    if (device || thorough) list_large(list, subject);
    for (int i = 0; (device || thorough) && op->large && op->large[i].settings; i++) {
        subject.example = op->large[i];
        list_activations(list, subject, i, true);
    }
    for (int i = 0; op->examples[i].settings; i++) {
        subject.example = op->examples[i];
        list_example(list, subject);
        list_activations(list, subject, i, false);
        if (device || thorough) list_variants(list, subject, i, thorough);
    }
}

static void list_forget(struct CMUnitTest *test)
{
    free((char *)test->name);
    free(test->initial_state);
}

static bool case_wanted(const char *name)
{
    const char *words = getenv("AMPTRAIN_CASE");
    if (!words) words = getenv("AMPTRAIN_SANITIZED") ? "!gradient" : "";
    return words[0] == '!' ? !strstr(name, words + 1) : strstr(name, words) != NULL;
}

/* Leaves the cases that are this process's, of those that AMPTRAIN_CASE names. */
static void list_share(struct list *list, int own)
{
    const char *share = getenv("AMPTRAIN_SHARE");
    int part = 1, parts = 1, kept = own;
    if (share && (sscanf(share, "%d/%d", &part, &parts) != 2 || part < 1 || part > parts)) exit(USAGE);
    for (int i = own, found = 0; i < list->count; i++) {
        struct CMUnitTest *test = &list->tests[i];
        if (case_wanted(test->name) && found++ % parts == part - 1) list->tests[kept++] = *test;
        else list_forget(test);
    }
    list->count = kept;
}

static void list_free(struct list *list, int own)
{
    for (int i = own; i < list->count; i++) list_forget(&list->tests[i]);
    free(list->tests);
}

static void test_no_device(void **state)
{
    skip();
}

/* The devices of every back end, or the one that AMPTRAIN_DEVICE names; NULL stands for the CPU. */
static void list_devices(struct list *list)
{
    const char *which = getenv("AMPTRAIN_DEVICE");
    for (const struct device_backend *const *backend = device_backends; *backend; backend++) {
        size_t length = strlen((*backend)->name);
        if (which && strncmp(which, (*backend)->name, length) != 0) continue;
        struct reason reason = {0};
        struct device *device = NULL;
        if ((*backend)->count(&reason) == 0) {
            *array_push(list->tests, list->count) = (struct CMUnitTest){
                .name = text_format("%s: %s", (*backend)->name, reason.text), .test_func = test_no_device};
            continue;
        }
        if ((*backend)->kind != DEVICE_CPU) {
            if (device_open(which ? which : (*backend)->name, 1, &device) != OK) exit(1);
            list->device = device;
        }
        for (const struct op *const *op = op_table; *op; op++)
            if (wanted(*op)) list_op(list, *op, device);
    }
}

int main(void)
{
    const struct CMUnitTest fixed[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_supports),
    };
    const int fixed_count = (int)(sizeof fixed / sizeof *fixed);
    struct list list = {0};
    for (int i = 0; i < fixed_count; i++) *array_push(list.tests, list.count) = fixed[i];
    list_devices(&list);
    list_share(&list, fixed_count);
    int failed = _cmocka_run_group_tests("ops", list.tests, (size_t)list.count, NULL, NULL);
    list_free(&list, fixed_count);
    device_close(list.device);
    return failed;
}
