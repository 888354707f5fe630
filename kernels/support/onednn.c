#include "kernels/support/onednn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <oneapi/dnnl/dnnl.h>

#include "base/memory.h"

/* Version 2 passes layouts as structs by address; version 3 made them handles that must be freed. */
#if DNNL_VERSION_MAJOR < 3
#define LAYOUT_REF const dnnl_memory_desc_t *
#define REF(layout) (&(layout))
#else
#define LAYOUT_REF const_dnnl_memory_desc_t
#define REF(layout) (layout)
#endif

/* True if a call of oneDNN's succeeded. Without memory for it the program ends as it does elsewhere. */
static bool done(dnnl_status_t status)
{
    if (status == dnnl_out_of_memory) memory_none("oneDNN");
    return status == dnnl_success;
}

/* One primitive and its scratch memory. */
struct stage {
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;    /* NULL before the first run */
    dnnl_memory_t scratch;
};

/* An operand in our layout and, where that differs, in the library's. */
struct operand {
    bool used, reordered;
    dnnl_memory_t ours, theirs;    /* theirs is NULL unless reordered */
    size_t offset, bytes;          /* of theirs in the workspace */
    struct stage reorder;
};

struct onednn_step {
    enum phase phase;              /* of the library's primitive */
    bool turned;                   /* which has our y as x, and our x as y */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct stage main;
    struct operand operands[ONEDNN_OPERANDS];
    size_t scratch_offset, workspace;
    struct kept_weights kept;      /* in the library's layout */
};

/* The library's name of an operand in a phase; argument 0: it is not used. */
struct part {
    int argument;
    dnnl_query_t query;
    int index;
    bool written;
};
static const struct part parts[PHASE_COUNT][ONEDNN_OPERANDS] = {
    [PHASE_FORWARD] = {
        [ONEDNN_X] = {DNNL_ARG_SRC, dnnl_query_src_md, 0, false},
        [ONEDNN_WEIGHT] = {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, false},
        [ONEDNN_BIAS] = {DNNL_ARG_BIAS, dnnl_query_weights_md, 1, false},
        [ONEDNN_Y] = {DNNL_ARG_DST, dnnl_query_dst_md, 0, true},
    },
    [PHASE_BACKWARD_DATA] = {
        [ONEDNN_X] = {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, true},
        [ONEDNN_WEIGHT] = {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, false},
        [ONEDNN_Y] = {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, false},
    },
    [PHASE_BACKWARD_PARAMS] = {
        [ONEDNN_X] = {DNNL_ARG_SRC, dnnl_query_src_md, 0, false},
        [ONEDNN_WEIGHT] = {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0, true},
        [ONEDNN_BIAS] = {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1, true},
        [ONEDNN_Y] = {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, false},
    },
};

static dnnl_data_type_t data_type(enum dtype dtype)
{
    assert(dtype == F32 || dtype == BF16);
    return dtype == F32 ? dnnl_f32 : dnnl_bf16;
}

static bool layout_make(dnnl_memory_desc_t *layout, int rank, const dnnl_dims_t dims, enum dtype dtype,
                        dnnl_format_tag_t tag)
{
#if DNNL_VERSION_MAJOR < 3
    return dnnl_memory_desc_init_by_tag(layout, rank, dims, data_type(dtype), tag) == dnnl_success;
#else
    return dnnl_memory_desc_create_with_tag(layout, rank, dims, data_type(dtype), tag) == dnnl_success;
#endif
}

static void layouts_free(dnnl_memory_desc_t *layouts, int count)
{
#if DNNL_VERSION_MAJOR >= 3
    for (int i = 0; i < count; i++) dnnl_memory_desc_destroy(layouts[i]);
#endif
}

/* The primitive of a step, whose operands may be others than the caller's. */
struct problem {
    struct shape x, weight, y;
    const struct onednn_window *window;
    bool bias;
    bool transposed;               /* its weights lie as c, k */
    enum phase phase;
    enum dtype dtype;
};

/* Our layout of every operand, or the library's choice where `any` says so. */
static bool layouts_make(const struct problem *p, const bool any[ONEDNN_OPERANDS],
                         dnnl_memory_desc_t layouts[ONEDNN_OPERANDS])
{
    const struct shape *in = &p->x, *out = &p->y;
    const int64_t *w = p->weight.dim;
    bool inner = !p->window;
    int64_t groups = inner ? 1 : in->c / w[1];
    const dnnl_dims_t x = {inner ? in->n * in->h * in->w : in->n, in->c, in->h, in->w};
    const dnnl_dims_t y = {inner ? out->n * out->h * out->w : out->n, out->c, out->h, out->w};
    const dnnl_dims_t weight = {out->c, in->c, w[2], w[3]};
    const dnnl_dims_t grouped = {groups, out->c / groups, w[1], w[2], w[3]};
    const dnnl_dims_t bias = {out->c};
    int rank = inner ? 2 : 4, weight_rank = groups == 1 ? rank : 5;
    dnnl_format_tag_t product_tag = p->transposed ? dnnl_io : dnnl_oi;
    dnnl_format_tag_t weight_tag = inner ? product_tag : groups == 1 ? dnnl_oihw : dnnl_goihw;
    dnnl_format_tag_t tag = inner ? dnnl_nc : dnnl_nhwc;
    enum dtype param = p->phase == PHASE_BACKWARD_PARAMS ? F32 : p->dtype;
    memset(layouts, 0, ONEDNN_OPERANDS * sizeof *layouts);
    return layout_make(&layouts[ONEDNN_X], rank, x, p->dtype, any[ONEDNN_X] ? dnnl_format_tag_any : tag) &&
           layout_make(&layouts[ONEDNN_WEIGHT], weight_rank, groups == 1 ? weight : grouped, param,
                       any[ONEDNN_WEIGHT] ? dnnl_format_tag_any : weight_tag) &&
           layout_make(&layouts[ONEDNN_BIAS], 1, bias, param, dnnl_x) &&
           layout_make(&layouts[ONEDNN_Y], rank, y, p->dtype, any[ONEDNN_Y] ? dnnl_format_tag_any : tag);
}

/* Scratch memory is the caller's, fp32 stays fp32, and equal calls give equal bits. */
static dnnl_primitive_attr_t attributes_make(void)
{
    dnnl_primitive_attr_t attr = NULL;
    if (!done(dnnl_primitive_attr_create(&attr))) return NULL;
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_primitive_attr_set_fpmath_mode(attr, dnnl_fpmath_mode_strict);
#if DNNL_VERSION_MAJOR > 3 || (DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR >= 5)
    dnnl_primitive_attr_set_deterministic(attr, 1);
#endif
    return attr;
}

/* The library's parameters of a convolution: its dilation counts skipped inputs. */
struct window {
    dnnl_dims_t stride, dilation, pad;
};

static struct window window_of(const struct problem *p)
{
    const struct onednn_window *w = p->window;
    if (!w) return (struct window){.stride = {0}};
    return (struct window){.stride = {w->stride[0], w->stride[1]},
                           .dilation = {w->dilation[0] - 1, w->dilation[1] - 1},
                           .pad = {w->pad[0], w->pad[1]}};
}

#if DNNL_VERSION_MAJOR < 3
static dnnl_primitive_desc_t desc_make(const struct problem *p,
                                       const dnnl_memory_desc_t layouts[ONEDNN_OPERANDS],
                                       dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
    dnnl_alg_kind_t algorithm = dnnl_convolution_direct;
    const dnnl_memory_desc_t *x = &layouts[ONEDNN_X], *w = &layouts[ONEDNN_WEIGHT];
    const dnnl_memory_desc_t *b = p->bias ? &layouts[ONEDNN_BIAS] : NULL, *y = &layouts[ONEDNN_Y];
    struct window v = window_of(p);
    dnnl_convolution_desc_t convolution;
    dnnl_inner_product_desc_t product;
    dnnl_status_t status = dnnl_unimplemented;
    if (!p->window && p->phase == PHASE_FORWARD)
        status = dnnl_inner_product_forward_desc_init(&product, dnnl_forward_training, x, w, b, y);
    else if (!p->window && p->phase == PHASE_BACKWARD_DATA)
        status = dnnl_inner_product_backward_data_desc_init(&product, x, w, y);
    else if (!p->window)
        status = dnnl_inner_product_backward_weights_desc_init(&product, x, w, b, y);
    else if (p->phase == PHASE_FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(
            &convolution, dnnl_forward_training, algorithm, x, w, b, y, v.stride, v.dilation, v.pad, v.pad);
    else if (p->phase == PHASE_BACKWARD_DATA)
        status = dnnl_dilated_convolution_backward_data_desc_init(
            &convolution, algorithm, x, w, y, v.stride, v.dilation, v.pad, v.pad);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            &convolution, algorithm, x, w, b, y, v.stride, v.dilation, v.pad, v.pad);
    if (status != dnnl_success) return NULL;
    dnnl_primitive_desc_t desc = NULL;
    const void *operation = p->window ? (const void *)&convolution : &product;
    status = dnnl_primitive_desc_create(&desc, operation, attr, engine, NULL);
    return done(status) ? desc : NULL;
}
#else
static dnnl_primitive_desc_t desc_make(const struct problem *p,
                                       const dnnl_memory_desc_t layouts[ONEDNN_OPERANDS],
                                       dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
    dnnl_alg_kind_t algorithm = dnnl_convolution_direct;
    const_dnnl_memory_desc_t x = layouts[ONEDNN_X], w = layouts[ONEDNN_WEIGHT];
    const_dnnl_memory_desc_t b = p->bias ? layouts[ONEDNN_BIAS] : NULL, y = layouts[ONEDNN_Y];
    struct window v = window_of(p);
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = dnnl_unimplemented;
    if (!p->window && p->phase == PHASE_FORWARD)
        status = dnnl_inner_product_forward_primitive_desc_create(&desc, engine, dnnl_forward_training, x, w,
                                                                  b, y, attr);
    else if (!p->window && p->phase == PHASE_BACKWARD_DATA)
        status = dnnl_inner_product_backward_data_primitive_desc_create(&desc, engine, x, w, y, NULL, attr);
    else if (!p->window)
        status = dnnl_inner_product_backward_weights_primitive_desc_create(&desc, engine, x, w, b, y, NULL,
                                                                           attr);
    else if (p->phase == PHASE_FORWARD)
        status = dnnl_convolution_forward_primitive_desc_create(
            &desc, engine, dnnl_forward_training, algorithm, x, w, b, y, v.stride, v.dilation, v.pad, v.pad,
            attr);
    else if (p->phase == PHASE_BACKWARD_DATA)
        status = dnnl_convolution_backward_data_primitive_desc_create(
            &desc, engine, algorithm, x, w, y, v.stride, v.dilation, v.pad, v.pad, NULL, attr);
    else
        status = dnnl_convolution_backward_weights_primitive_desc_create(
            &desc, engine, algorithm, x, w, b, y, v.stride, v.dilation, v.pad, v.pad, NULL, attr);
    return done(status) ? desc : NULL;
}
#endif

static const char *desc_name(const_dnnl_primitive_desc_t desc)
{
    const char *name = "";
    dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    return name;
}

static size_t stage_scratch(const struct stage *stage)
{
    return dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(stage->desc, dnnl_query_scratchpad_md, 0));
}

static bool stage_open(struct stage *stage, dnnl_engine_t engine)
{
    LAYOUT_REF layout = dnnl_primitive_desc_query_md(stage->desc, dnnl_query_scratchpad_md, 0);
    return done(dnnl_memory_create(&stage->scratch, layout, engine, DNNL_MEMORY_NONE));
}

static void stage_close(struct stage *stage)
{
    if (stage->scratch) dnnl_memory_destroy(stage->scratch);
    if (stage->primitive) dnnl_primitive_destroy(stage->primitive);
    if (stage->desc) dnnl_primitive_desc_destroy(stage->desc);
}

/* `arguments` has room for one more: the scratch memory. */
static bool stage_run(struct stage *stage, dnnl_stream_t stream, dnnl_exec_arg_t *arguments, int count,
                      void *scratch)
{
    if (!stage->primitive && !done(dnnl_primitive_create(&stage->primitive, stage->desc)))
        return false;
    dnnl_memory_set_data_handle(stage->scratch, scratch);
    arguments[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, stage->scratch};
    return done(dnnl_primitive_execute(stage->primitive, stream, count, arguments));
}

static bool operand_open(struct operand *operand, const struct part *part, LAYOUT_REF ours, LAYOUT_REF theirs,
                         dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
    operand->used = true;
    operand->reordered = !dnnl_memory_desc_equal(ours, theirs);
    if (!done(dnnl_memory_create(&operand->ours, ours, engine, DNNL_MEMORY_NONE))) return false;
    if (!operand->reordered) return true;
    if (!done(dnnl_memory_create(&operand->theirs, theirs, engine, DNNL_MEMORY_NONE))) return false;
    LAYOUT_REF from = part->written ? theirs : ours;
    LAYOUT_REF to = part->written ? ours : theirs;
    return done(dnnl_reorder_primitive_desc_create(&operand->reorder.desc, from, engine, to, engine, attr)) &&
           stage_open(&operand->reorder, engine);
}

static bool operand_reorder(struct operand *operand, bool written, const struct onednn_step *step,
                            void *scratch)
{
    dnnl_exec_arg_t arguments[3] = {
        {DNNL_ARG_FROM, written ? operand->theirs : operand->ours},
        {DNNL_ARG_TO, written ? operand->ours : operand->theirs},
    };
    return stage_run(&operand->reorder, step->stream, arguments, 2, scratch);
}

static bool is_plain_loops(const_dnnl_primitive_desc_t desc)
{
    return strstr(desc_name(desc), "ref") != NULL;
}

/* True if the order in which products are added matters: over our layout oneDNN adds all of them
 * up in one go, over its own it does so in blocks of channels, and rounding errors grow with the
 * longest run (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). Measured: a 3x3
 * convolution of 256 channels is off by 0.5e-7 on average then, not by 1.9e-7, for a few per cent
 * of its time. In bf16, and for gradients, which no ReLU amplifies, that is not worth it. */
#define LONG_SUM 256
static bool sum_is_long(const struct problem *p)
{
    const int64_t *w = p->weight.dim;
    return p->dtype == F32 && p->phase == PHASE_FORWARD && p->window && w[1] * w[2] * w[3] > LONG_SUM;
}

/* True if the weights of an inner product stay as they lie, for which the library has other code, which packs
 * them as it goes. In fp32 it takes two thirds of the time for their gradient, and less for the input's; but
 * it adds the bias in a pass of its own, which only many weights make up for. Its long sums are in blocks. */
#define MANY_WEIGHTS (1 << 18)
static bool weights_stay(const struct problem *p)
{
    if (p->window || p->dtype != F32) return false;
    bool exact = !p->bias && p->x.c > LONG_SUM;
    return exact || p->phase == PHASE_BACKWARD_PARAMS || p->transposed || p->x.c * p->y.c > MANY_WEIGHTS;
}

/* In order of preference: activations in our layout, then in the library's (for long sums vice versa); for
 * fp32, which has no alternative, the library's plain loops. NULL if it refuses all. */
static dnnl_primitive_desc_t desc_choose(const struct problem *problem, dnnl_engine_t engine,
                                         dnnl_primitive_attr_t attr)
{
    bool theirs = sum_is_long(problem), ours = weights_stay(problem);
    const struct { bool theirs, any_code; } attempts[] = {{theirs, false}, {!theirs, false}, {false, true}};
    for (int i = 0; i < (problem->dtype == F32 ? 3 : 2); i++) {
        bool any[ONEDNN_OPERANDS] = {[ONEDNN_X] = attempts[i].theirs, [ONEDNN_WEIGHT] = !ours,
                                     [ONEDNN_Y] = attempts[i].theirs};
        dnnl_memory_desc_t layouts[ONEDNN_OPERANDS];
        dnnl_primitive_desc_t desc = NULL;
        if (layouts_make(problem, any, layouts)) desc = desc_make(problem, layouts, engine, attr);
        layouts_free(layouts, ONEDNN_OPERANDS);
        if (desc && (attempts[i].any_code || !is_plain_loops(desc))) return desc;
        if (desc) dnnl_primitive_desc_destroy(desc);
    }
    return NULL;
}

/* Assigns workspace to reordered operands, then to the scratch memory, which stages share. */
static bool operands_open(struct onednn_step *step, const struct problem *problem,
                          const dnnl_memory_desc_t ours[ONEDNN_OPERANDS], dnnl_primitive_attr_t attr)
{
    size_t scratch = stage_scratch(&step->main);
    for (int i = 0; i < ONEDNN_OPERANDS; i++) {
        const struct part *part = &parts[step->phase][i];
        if (!part->argument || (i == ONEDNN_BIAS && !problem->bias)) continue;
        struct operand *operand = &step->operands[i];
        LAYOUT_REF theirs = dnnl_primitive_desc_query_md(step->main.desc, part->query, part->index);
        if (!operand_open(operand, part, REF(ours[i]), theirs, step->engine, attr)) return false;
        if (!operand->reordered) continue;
        operand->offset = step->workspace;
        operand->bytes = dnnl_memory_desc_get_size(theirs);
        step->workspace += onednn_align(operand->bytes);
        if (stage_scratch(&operand->reorder) > scratch) scratch = stage_scratch(&operand->reorder);
    }
    step->scratch_offset = step->workspace;
    step->workspace += onednn_align(scratch);
    return true;
}

static bool step_open(struct onednn_step *step, const struct problem *problem, dnnl_primitive_attr_t attr)
{
    if (!attr || !done(dnnl_engine_create(&step->engine, dnnl_cpu, 0))) return false;
    if (!done(dnnl_stream_create(&step->stream, step->engine, dnnl_stream_default_flags)))
        return false;
    step->main.desc = desc_choose(problem, step->engine, attr);
    if (!step->main.desc || !stage_open(&step->main, step->engine)) return false;
    dnnl_memory_desc_t ours[ONEDNN_OPERANDS];
    bool good = layouts_make(problem, (bool[ONEDNN_OPERANDS]){false}, ours) &&
                operands_open(step, problem, ours, attr);
    layouts_free(ours, ONEDNN_OPERANDS);
    return good;
}

/* The gradient of an inner product's input is one, too, with the transposed weights; oneDNN's code for
 * gradients takes three to six times as long. */
static void turn(struct problem *problem)
{
    struct shape x = problem->x;
    problem->x = problem->y;
    problem->y = x;
    problem->bias = false;
    problem->transposed = true;
    problem->phase = PHASE_FORWARD;
}

struct onednn_step *onednn_step_make(const struct tensor operands[ONEDNN_OPERANDS],
                                     const struct onednn_window *window, enum phase phase, enum dtype dtype)
{
    struct onednn_step *step = memory_new(1, sizeof *step);
    struct problem own = {operands[ONEDNN_X].shape, operands[ONEDNN_WEIGHT].shape, operands[ONEDNN_Y].shape,
                          window, operands[ONEDNN_BIAS].shape.rank > 0, false, phase, dtype};
    step->turned = !window && phase == PHASE_BACKWARD_DATA;
    if (step->turned) turn(&own);
    step->phase = own.phase;
    dnnl_primitive_attr_t attr = attributes_make();
    bool good = step_open(step, &own, attr);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (good) return step;
    onednn_step_free(step);
    return NULL;
}

void onednn_step_free(struct onednn_step *step)
{
    if (!step) return;
    for (int i = 0; i < ONEDNN_OPERANDS; i++) {
        struct operand *operand = &step->operands[i];
        stage_close(&operand->reorder);
        if (operand->ours) dnnl_memory_destroy(operand->ours);
        if (operand->theirs) dnnl_memory_destroy(operand->theirs);
    }
    stage_close(&step->main);
    kept_weights_free(&step->kept);
    if (step->stream) dnnl_stream_destroy(step->stream);
    if (step->engine) dnnl_engine_destroy(step->engine);
    free(step);
}

size_t onednn_step_workspace(const struct onednn_step *step)
{
    return step->workspace;
}

void onednn_step_keep_weights(struct onednn_step *step)
{
    step->kept.on = true;
}

/* Brings an operand into the library's layout, unless that is kept, or gives the result room. */
static bool operand_load(struct onednn_step *step, int number, void *data, char *workspace, void *scratch)
{
    struct operand *o = &step->operands[number];
    bool written = parts[step->phase][number].written, fresh = true;
    void *kept = NULL;
    dnnl_memory_set_data_handle(o->ours, data);
    if (!o->reordered) return true;
    if (number == ONEDNN_WEIGHT && !written)
        kept = kept_weights_of(&step->kept, data, o->bytes, &fresh);
    dnnl_memory_set_data_handle(o->theirs, kept ? kept : workspace + o->offset);
    return written || !fresh || operand_reorder(o, false, step, scratch);
}

static bool step_run(struct onednn_step *step, void *const data[ONEDNN_OPERANDS], char *workspace)
{
    dnnl_exec_arg_t arguments[ONEDNN_OPERANDS + 1];
    void *scratch = workspace ? workspace + step->scratch_offset : NULL;   /* of a step that needs none */
    int count = 0;
    for (int i = 0; i < ONEDNN_OPERANDS; i++) {
        struct operand *o = &step->operands[i];
        const struct part *part = &parts[step->phase][i];
        if (!o->used) continue;
        if (!operand_load(step, i, data[i], workspace, scratch)) return false;
        arguments[count++] = (dnnl_exec_arg_t){part->argument, o->reordered ? o->theirs : o->ours};
    }
    if (!stage_run(&step->main, step->stream, arguments, count, scratch)) return false;
    for (int i = 0; i < ONEDNN_OPERANDS; i++) {
        struct operand *o = &step->operands[i];
        bool back = o->reordered && parts[step->phase][i].written;
        if (back && !operand_reorder(o, true, step, scratch)) return false;
    }
    return done(dnnl_stream_wait(step->stream));
}

enum status onednn_step_run(struct onednn_step *step, void *const data[ONEDNN_OPERANDS], void *workspace)
{
    void *const turned[ONEDNN_OPERANDS] = {
        [ONEDNN_X] = data[ONEDNN_Y], [ONEDNN_WEIGHT] = data[ONEDNN_WEIGHT], [ONEDNN_Y] = data[ONEDNN_X],
    };
    if (step_run(step, step->turned ? turned : data, workspace)) return OK;
    return fail(FAILED, "oneDNN failed to run %s", onednn_step_name(step));
}

const char *onednn_step_name(const struct onednn_step *step)
{
    return desc_name(step->main.desc);
}

static bool isa_has(dnnl_cpu_isa_t isa)
{
    return ((int)dnnl_get_effective_cpu_isa() & (int)isa) == (int)isa;
}

bool onednn_has_bf16(void)
{
    return isa_has(dnnl_cpu_isa_avx512_core_bf16);
}

bool onednn_has_amx(void)
{
    return isa_has(dnnl_cpu_isa_avx512_core_amx);
}

const char *onednn_version(char text[ONEDNN_VERSION_TEXT])
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, ONEDNN_VERSION_TEXT, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    return text;
}
