/* Along each axis, an output pixel is a weighted sum of the source's pixels: a matrix that the graph computes
 * from the image's size, in the whole numbers of data/augment/resample.h. Its rows beyond the resized image
 * are zeros, so that it crops and pads as well. The operator Resize with antialias=1 resizes alike, but has
 * other weights in the last bits, and few runtimes have it. */
#include "graph/onnx_geometry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { TO_FLOAT = 1, TO_INT64 = 7, TO_DOUBLE = 11 };     /* Cast's types */

/* A node: names that begin with '@' are an axis's own. `attribute` is the one that it has, if any. */
struct part {
    const char *op, *name, *inputs[3];
    const char *attribute;
    int64_t value;
};

#define PART(op_, name_, ...) {.op = #op_, .name = name_, .inputs = {__VA_ARGS__}}
#define CAST(name_, from, type) \
    {.op = "Cast", .name = name_, .inputs = {from}, .attribute = "to", .value = type}
#define KEEPS(op_, name_, ...) \
    {.op = #op_, .name = name_, .inputs = {__VA_ARGS__}, .attribute = "keepdims", .value = 1}

#define NAME_SIZE 32

/* Layers' names have no colons, and parts of theirs no spaces. */
static const char *name_in(const char *axis, const char *name, char text[NAME_SIZE])
{
    if (strcmp(name, "input") == 0) return name;
    bool own = name[0] == '@';
    snprintf(text, NAME_SIZE, "image: %s%s%s", own ? axis : "", own ? " " : "", own ? name + 1 : name);
    return text;
}

static void write_parts(struct onnx *onnx, const char *axis, const struct part *parts)
{
    for (const struct part *part = parts; part->op; part++) {
        char name[NAME_SIZE], inputs[3][NAME_SIZE];
        struct onnx_node node = {.op = part->op, .name = name_in(axis, part->name, name)};
        for (int i = 0; i < 3 && part->inputs[i]; i++)
            node.inputs[node.input_count++] = name_in(axis, part->inputs[i], inputs[i]);
        if (part->attribute)
            node.attributes[0] = (struct onnx_attribute){.name = part->attribute, .type = ONNX_INT,
                                                         .ints = {part->value}};
        onnx_node(onnx, &node);
    }
}

static void write_integers(struct onnx *onnx, const char *name, struct onnx_dims dims, const int64_t *values)
{
    char text[NAME_SIZE];
    onnx_tensor(onnx, name_in("", name, text), I64, dims, values);
}

static void write_integer(struct onnx *onnx, const char *name, int64_t value)
{
    write_integers(onnx, name, (struct onnx_dims){0}, &value);
}

static void write_real(struct onnx *onnx, const char *name, double value)
{
    char text[NAME_SIZE];
    onnx_tensor(onnx, name_in("", name, text), F64, (struct onnx_dims){0}, &value);
}

/* Height and width. */
static void write_pair(struct onnx *onnx, const char *name, int64_t h, int64_t w)
{
    write_integers(onnx, name, (struct onnx_dims){1, {2}}, (const int64_t[]){h, w});
}

/* image_size_covering: each side is as wanted, or larger, where the other one is as wanted. */
static const struct part covering[] = {
    PART(Gather, "turned", "size", "swap"),
    PART(Mul, "across", "size", "other sides"),
    PART(Div, "covering", "across", "turned"),
    PART(Max, "target", "covering", "sides"),
    {0},
};

/* The image becomes as large as fits into the window; in doubles, as augment_cut computes it. */
static const struct part letterbox[] = {
    CAST("real size", "size", TO_DOUBLE),
    CAST("real window", "window", TO_DOUBLE),
    PART(Div, "scales", "real window", "real size"),
    KEEPS(ReduceMin, "scale", "scales"),
    PART(Mul, "scaled", "real size", "scale"),
    PART(Add, "scaled up", "scaled", "half"),
    PART(Floor, "whole", "scaled up"),
    CAST("rounded", "whole", TO_INT64),
    PART(Min, "within", "rounded", "window"),
    PART(Max, "target", "within", "1"),
    {0},
};

static const struct part stretched[] = {PART(Identity, "target", "window"), {0}};
static const struct part unchanged[] = {PART(Identity, "target", "size"), {0}};

static void write_target(struct onnx *onnx, const struct augment *augment, struct image_size window)
{
    struct image_size to = augment->val_resize;
    bool crop = augment->fit == IMAGE_FIT_CROP, stretch = augment->fit == IMAGE_FIT_STRETCH;
    write_pair(onnx, "window", window.h, window.w);
    if (crop && to.h > 0) {
        write_pair(onnx, "swap", 1, 0);
        write_pair(onnx, "other sides", to.w, to.h);
        write_pair(onnx, "sides", to.h, to.w);
    }
    write_parts(onnx, "", !crop ? stretch ? stretched : letterbox : to.h > 0 ? covering : unchanged);
}

/* The window's first pixel: half of what is cut off, rounded to even, or of what is added, rounded down. */
static const struct part centre[] = {
    PART(Sub, "spare", "target", "window"),
    CAST("real spare", "spare", TO_FLOAT),
    PART(Mul, "real centre", "real spare", "0.5"),
    PART(Round, "even centre", "real centre"),
    CAST("even", "even centre", TO_INT64),
    PART(Div, "down", "spare", "2"),
    PART(Max, "first", "even", "down"),
    {0},
};

/* The window's pixels in the resized image, [window, 1]. */
static const struct part places[] = {
    PART(Gather, "@size", "size", "@axis"),
    PART(Gather, "@target", "target", "@axis"),
    PART(Gather, "@first", "first", "@axis"),
    PART(Add, "@place", "@steps", "@first"),
    PART(GreaterOrEqual, "@behind", "@place", "0"),
    PART(Less, "@before", "@place", "@target"),
    PART(And, "@inside", "@behind", "@before"),
    {0},
};

/* resample_share for each of them and each pixel of the source, [size], divided by the sum. */
static const struct part triangles[] = {
    PART(Mul, "@twice", "@place", "2"),
    PART(Add, "@odd", "@twice", "1"),
    PART(Mul, "@middle", "@odd", "@size"),
    PART(Mul, "@end", "@size", "2"),
    PART(Range, "@pixels", "1", "@end", "2"),
    PART(Mul, "@at", "@pixels", "@target"),
    PART(Sub, "@offset", "@at", "@middle"),
    PART(Abs, "@distance", "@offset"),
    PART(Max, "@larger", "@size", "@target"),
    PART(Mul, "@reach", "@larger", "2"),
    PART(Sub, "@near", "@reach", "@distance"),
    PART(Max, "@share", "@near", "0"),
    PART(Where, "@shown", "@inside", "@share", "0"),
    KEEPS(ReduceSum, "@sum", "@shown", "last"),
    PART(Max, "@divisor", "@sum", "1"),
    CAST("@shares", "@shown", TO_FLOAT),
    CAST("@total", "@divisor", TO_FLOAT),
    PART(Div, "@weights", "@shares", "@total"),
    {0},
};

/* data/augment/resize_bicubic.c's weights, in doubles, by the same operations in the same order. Multiples of
 * 2^-22, and thus the sums of their products with bytes, are exact in any order. */
static const struct part cubics[] = {
    CAST("@real size", "@size", TO_DOUBLE),
    CAST("@real target", "@target", TO_DOUBLE),
    PART(Div, "@scale", "@real size", "@real target"),
    PART(Max, "@wide", "@scale", "one"),
    PART(Reciprocal, "@narrow", "@wide"),
    CAST("@real place", "@place", TO_DOUBLE),
    PART(Add, "@middle", "@real place", "half"),
    PART(Mul, "@centre", "@middle", "@scale"),
    PART(Range, "@pixels", "0", "@size", "1"),
    CAST("@real pixels", "@pixels", TO_DOUBLE),
    PART(Sub, "@behind centre", "@real pixels", "@centre"),
    PART(Add, "@offset", "@behind centre", "half"),
    PART(Mul, "@narrowed", "@offset", "@narrow"),
    PART(Abs, "@x", "@narrowed"),
    PART(Mul, "@1.5 x", "1.5", "@x"),
    PART(Sub, "@1.5 x - 2.5", "@1.5 x", "2.5"),
    PART(Mul, "@near x", "@1.5 x - 2.5", "@x"),
    PART(Mul, "@near x x", "@near x", "@x"),
    PART(Add, "@near", "@near x x", "one"),
    PART(Sub, "@x - 5", "@x", "5"),
    PART(Mul, "@far x", "@x - 5", "@x"),
    PART(Add, "@far x + 8", "@far x", "8"),
    PART(Mul, "@far x x", "@far x + 8", "@x"),
    PART(Sub, "@far x x - 4", "@far x x", "4"),
    PART(Mul, "@far", "@far x x - 4", "-0.5"),
    PART(Less, "@is near", "@x", "one"),
    PART(Less, "@is far", "@x", "two"),
    PART(Where, "@or zero", "@is far", "@far", "zero"),
    PART(Where, "@share", "@is near", "@near", "@or zero"),
    KEEPS(ReduceSum, "@sum", "@share", "last"),
    PART(Div, "@fraction", "@share", "@sum"),
    PART(Mul, "@whole", "@fraction", "2^22"),
    PART(Sign, "@sign", "@whole"),
    PART(Mul, "@away", "@sign", "half"),
    PART(Add, "@beyond", "@whole", "@away"),
    CAST("@cut", "@beyond", TO_INT64),
    CAST("@rounded", "@cut", TO_DOUBLE),
    PART(Div, "@exact", "@rounded", "2^22"),
    PART(Where, "@weights", "@inside", "@exact", "zero"),
    {0},
};

static void write_weights(struct onnx *onnx, const char *axis, int64_t number, int64_t count,
                          const struct part *filter)
{
    char text[NAME_SIZE];
    int64_t *steps = memory_new((size_t)count, sizeof *steps);
    for (int64_t i = 0; i < count; i++) steps[i] = i;
    onnx_tensor(onnx, name_in(axis, "@steps", text), I64, (struct onnx_dims){2, {count, 1}}, steps);
    onnx_tensor(onnx, name_in(axis, "@axis", text), I64, (struct onnx_dims){0}, &number);
    write_parts(onnx, axis, places);
    write_parts(onnx, axis, filter);
    free(steps);
}

/* First down the columns, then along rows, then rounded, as resize_image does. */
static const struct part product[] = {
    PART(MatMul, "lowered", "rows weights", "planes"),
    PART(Transpose, "columns turned", "columns weights"),
    PART(MatMul, "narrowed", "lowered", "columns turned"),
    PART(Add, "raised", "narrowed", "0.5"),
    PART(Floor, "bytes", "raised"),
    {0},
};

/* First along rows, then down the columns, bytes after either, as bicubic_bytes does. */
static const struct part bicubic_product[] = {
    CAST("real planes", "planes", TO_DOUBLE),
    PART(Transpose, "columns turned", "columns weights"),
    PART(MatMul, "narrowed", "real planes", "columns turned"),
    PART(Add, "raised", "narrowed", "half"),
    PART(Floor, "whole rows", "raised"),
    PART(Clip, "narrow bytes", "whole rows", "zero", "255"),
    PART(MatMul, "lowered", "rows weights", "narrow bytes"),
    PART(Add, "raised again", "lowered", "half"),
    PART(Floor, "whole columns", "raised again"),
    PART(Clip, "real bytes", "whole columns", "zero", "255"),
    CAST("bytes", "real bytes", TO_FLOAT),
    {0},
};

/* Constants of bicubic weights and products. */
static void write_reals(struct onnx *onnx)
{
    static const struct {
        const char *name;
        double value;
    } reals[] = {{"zero", 0}, {"one", 1}, {"two", 2}, {"1.5", 1.5}, {"2.5", 2.5}, {"4", 4},
                 {"5", 5}, {"8", 8}, {"-0.5", -0.5}, {"2^22", 1 << 22}, {"255", 255}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) write_real(onnx, reals[i].name, reals[i].value);
}

const char *onnx_geometry(struct onnx *onnx, const struct augment *augment, struct image_size window,
                          const char *planes)
{
    struct onnx_node size = {.op = "Shape", .name = "image: size", .input_count = 1, .inputs = {"input"},
                             .attributes = {{.name = "start", .type = ONNX_INT, .ints = {1}},
                                            {.name = "end", .type = ONNX_INT, .ints = {3}}}};
    const struct onnx_node same = {.op = "Identity", .name = "image: planes", .input_count = 1,
                                   .inputs = {planes}};
    const float half = 0.5f;
    bool bicubic = augment->interpolation == RESIZE_BICUBIC;
    const struct part *filter = bicubic ? cubics : triangles;
    for (int i = 0; i < 3; i++) write_integer(onnx, (const char *[]){"0", "1", "2"}[i], i);
    write_integers(onnx, "last", (struct onnx_dims){1, {1}}, &(int64_t){1});
    onnx_tensor(onnx, "image: 0.5", F32, (struct onnx_dims){0}, &half);
    if (bicubic || augment->fit == IMAGE_FIT_LETTERBOX) write_real(onnx, "half", 0.5);
    if (bicubic) write_reals(onnx);
    onnx_node(onnx, &size);
    onnx_node(onnx, &same);
    write_target(onnx, augment, window);
    write_parts(onnx, "", centre);
    write_weights(onnx, "rows", 0, window.h, filter);
    write_weights(onnx, "columns", 1, window.w, filter);
    write_parts(onnx, "", bicubic ? bicubic_product : product);
    return "image: bytes";
}
