/* distill: the loss of every image by its label and by a teacher's logits z, the third input:
 *
 *     y = (1 - alpha) * softmax_cross_entropy(x, t) + alpha * d(v)
 *
 * v is x or, of a network with a head of its own for the teacher, that head's logits, a fourth input (the
 * distillation token of Touvron et al. 2021).
 *
 * soft (Hinton, Vinyals, Dean 2015), with T the temperature and p(v) = softmax(v / T):
 *     d(v) = T^2 * sum over c of p(z)[c] * (log p(z)[c] - log p(v)[c])
 * hard (Touvron et al. 2021), with c the class of the largest z, the first of equals:
 *     d(v) = softmax_cross_entropy(v, c)
 *
 * Labels are smoothed, the teacher's classes are not. Backward is that of the mean over the n images of the
 * call, times loss_weight and the loss scale, as softmax_cross_entropy's:
 *     d_x[c] = (1 - alpha) * (softmax(x)[c] * sum(t) - t[c]) * loss_weight * loss_scale / n
 *     d_v[c] = alpha * e[c] * loss_weight * loss_scale / n, added to d_x where v is x
 *     soft: e[c] = T * (p(v)[c] - p(z)[c]);  hard: e[c] = softmax(v)[c] - (1 for that class, else 0) */
#include "kernels/loss/distill.h"

#include <math.h>
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/loss/loss_targets.h"

/* Inputs behind the logits. */
enum { TARGETS = 1, GUIDE, HEAD };

static bool distill_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                          struct reason *reason)
{
    char student[SHAPE_TEXT], other[SHAPE_TEXT];
    if (!targets_shape(x, false, y, reason)) return false;
    for (int i = 2; i < x_count; i++)
        if (!shape_equal(x[0], x[i]))
            return because(reason, "the %s logits have shape %s, the network's %s",
                           i == 2 ? "teacher's" : "second head's", shape_text(x[i], other),
                           shape_text(x[0], student));
    return true;
}

static int distill_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                         struct op_saved out[OP_MAX_SAVED])
{
    if (!training) return 0;
    out[0] = (struct op_saved){"sums", F32, shape_nhwc(x[0].shape.n, 1, 1, DISTILL_SAVED)};
    return 1;
}

static unsigned distill_reads(const void *settings, enum phase phase) { return READS_X | READS_SAVED; }

static bool distill_no_gradient(int input) { return input == TARGETS || input == GUIDE; }

/* One image. */
struct image {
    const struct call *call;
    const struct distill *s;
    int64_t number, classes;
    int taught;                /* the input that learns from the teacher */
};

static double logit(const struct image *i, int input, int64_t c)
{
    return tensor_get(&i->call->x[input], i->number * i->classes + c);
}

static double target(const struct image *i, int64_t c)
{
    return target_of(i->call, i->number, c, i->s->label_smoothing);
}

/* log(sum(exp(logits / temperature))). */
static double log_sum(const struct image *i, int input, double temperature)
{
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < i->classes; c++) max = fmax(max, logit(i, input, c) / temperature);
    for (int64_t c = 0; c < i->classes; c++) sum += exp(logit(i, input, c) / temperature - max);
    return max + log(sum);
}

static int64_t teacher_class(const struct image *i)
{
    int64_t best = 0;
    for (int64_t c = 1; c < i->classes; c++)
        if (logit(i, GUIDE, c) > logit(i, GUIDE, best)) best = c;
    return best;
}

static double label_loss(const struct image *i, double sum)
{
    double loss = 0;
    for (int64_t c = 0; c < i->classes; c++) {
        double t = target(i, c);
        if (t != 0) loss += t * (sum - logit(i, 0, c));
    }
    return loss;
}

static double teacher_loss(const struct image *i, const double sums[DISTILL_SAVED])
{
    double t = i->s->temperature, loss = 0;
    if (i->s->kind == DISTILL_HARD)
        return sums[DISTILL_WARM_SUM] - logit(i, i->taught, (int64_t)sums[DISTILL_TEACHER]);
    for (int64_t c = 0; c < i->classes; c++) {
        double teacher = logit(i, GUIDE, c) / t - sums[DISTILL_TEACHER];
        loss += exp(teacher) * (teacher - (logit(i, i->taught, c) / t - sums[DISTILL_WARM_SUM]));
    }
    return t * t * loss;
}

static void forward_image(const struct image *i)
{
    bool hard = i->s->kind == DISTILL_HARD;
    double t = hard ? 1 : i->s->temperature;
    double sums[DISTILL_SAVED] = {
        [DISTILL_SUM] = log_sum(i, 0, 1),
        [DISTILL_WARM_SUM] = log_sum(i, i->taught, t),
        [DISTILL_TEACHER] = hard ? (double)teacher_class(i) : log_sum(i, GUIDE, t),
    };
    tensor_set(&i->call->y, i->number, (1 - i->s->alpha) * label_loss(i, sums[DISTILL_SUM]) +
                                           i->s->alpha * teacher_loss(i, sums));
    for (int k = 0; i->call->saved_count && k < DISTILL_SAVED; k++)
        tensor_set(&i->call->saved[0], i->number * DISTILL_SAVED + k, sums[k]);
}

static double teacher_gradient(const struct image *i, const double sums[DISTILL_SAVED], int64_t c)
{
    double t = i->s->temperature, own = logit(i, i->taught, c);
    if (i->s->kind == DISTILL_HARD)
        return exp(own - sums[DISTILL_WARM_SUM]) - (c == (int64_t)sums[DISTILL_TEACHER]);
    own = exp(own / t - sums[DISTILL_WARM_SUM]);
    return t * (own - exp(logit(i, GUIDE, c) / t - sums[DISTILL_TEACHER]));
}

static void backward_image(const struct image *i)
{
    const struct call *call = i->call;
    double factor = (double)call->loss_weight * (double)*call->loss_scale / (double)call->x[0].shape.n;
    double sums[DISTILL_SAVED], all = 0, alpha = i->s->alpha;
    for (int k = 0; k < DISTILL_SAVED; k++)
        sums[k] = tensor_get(&call->saved[0], i->number * DISTILL_SAVED + k);
    for (int64_t c = 0; c < i->classes; c++) all += target(i, c);
    for (int64_t c = 0; c < i->classes; c++) {
        int64_t at = i->number * i->classes + c;
        double label = (1 - alpha) * (exp(logit(i, 0, c) - sums[DISTILL_SUM]) * all - target(i, c));
        double teacher = alpha * teacher_gradient(i, sums, c);
        if (i->taught == 0) label += teacher;
        if (call->d_x[0].data) tensor_set(&call->d_x[0], at, label * factor);
        if (i->taught > 0 && call->d_x[i->taught].data)
            tensor_set(&call->d_x[i->taught], at, teacher * factor);
    }
}

static struct image image_of(const struct call *call, int64_t number)
{
    return (struct image){call, call->settings, number, call->x[0].shape.c,
                          call->x_count > HEAD ? HEAD : 0};
}

static enum status distill_forward(const struct call *call)
{
    int64_t n = call->x[0].shape.n;
#pragma omp parallel for schedule(static) if (n * call->x[0].shape.c > BLOCK)
    for (int64_t k = 0; k < n; k++) {
        const struct image image = image_of(call, k);
        forward_image(&image);
    }
    return OK;
}

static enum status distill_backward(const struct call *call)
{
    int64_t n = call->x[0].shape.n;
#pragma omp parallel for schedule(static) if (n * call->x[0].shape.c > BLOCK)
    for (int64_t k = 0; k < n; k++) {
        const struct image image = image_of(call, k);
        backward_image(&image);
    }
    return OK;
}

static const char *const kinds[] = {[DISTILL_SOFT] = "soft", [DISTILL_HARD] = "hard", NULL};

static const struct field fields[] = {
    {.name = "label_smoothing", .type = FIELD_REAL, .offset = offsetof(struct distill, label_smoothing),
     .initial = "0", .min = 0, .max = 1, .help = "Fraction of the label spread over all classes."},
    {.name = "alpha", .type = FIELD_REAL, .offset = offsetof(struct distill, alpha), .initial = "0.5",
     .min = 0, .max = 1, .help = "Weight of the teacher's part of the loss."},
    {.name = "temperature", .type = FIELD_REAL, .offset = offsetof(struct distill, temperature),
     .initial = "1", .min = 0.001, .max = 1000, .help = "Divisor of both logits."},
    {.name = "kind", .type = FIELD_CHOICE, .offset = offsetof(struct distill, kind), .initial = "soft",
     .choices = kinds, .help = "All of the teacher's probabilities, or its best class."},
    {0},
};

static const struct op_code reference = {
    .forward = distill_forward,
    .backward = distill_backward,
};

#define SHAPE(n_, c_) {.rank = 4, .n = n_, .h = 1, .w = 1, .c = c_}
static const struct op_example examples[] = {
    {"", 3, {SHAPE(3, 10), SHAPE(3, 1), SHAPE(3, 10)}},
    {"label_smoothing=0.1 alpha=0.9 temperature=4", 3, {SHAPE(2, 24), SHAPE(2, 1), SHAPE(2, 24)}},
    {"label_smoothing=0.1 kind=hard", 3, {SHAPE(3, 5), SHAPE(3, 6), SHAPE(3, 5)}},
    {"temperature=0.5", 3, {SHAPE(7, 1100), SHAPE(7, 1), SHAPE(7, 1100)}},
    {"", 4, {SHAPE(3, 10), SHAPE(3, 1), SHAPE(3, 10), SHAPE(3, 10)}},
    {"label_smoothing=0.1 alpha=0.9 temperature=4", 4,
     {SHAPE(2, 24), SHAPE(2, 1), SHAPE(2, 24), SHAPE(2, 24)}},
    {"label_smoothing=0.1 kind=hard", 4, {SHAPE(3, 5), SHAPE(3, 6), SHAPE(3, 5), SHAPE(3, 5)}},
    {0},
};
static const struct op_example large[] = {
    {"label_smoothing=0.1 temperature=4", 3, {SHAPE(3, 21841), SHAPE(3, 1), SHAPE(3, 21841)}},
    {"kind=hard alpha=0.7", 3, {SHAPE(3, 21841), SHAPE(3, 1), SHAPE(3, 21841)}},
    {0},
};

const struct op distill_op = {
    .name = "distill",
    .help = "Softmax cross entropy of each image, by its label and by a teacher, who may have a head.",
    .settings_size = sizeof(struct distill),
    .fields = fields,
    .min_inputs = 3,
    .max_inputs = 4,
    .internal = true,
    .root = true,
    .shape = distill_shape,
    .output_dtype = targets_loss_dtype,
    .saved = distill_saved,
    .reads = distill_reads,
    .no_gradient = distill_no_gradient,
    .reference = &reference,
    .cuda = ON_CUDA(distill_cuda),
    .examples = examples,
    .large = large,
};
