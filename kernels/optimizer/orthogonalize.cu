#include "kernels/optimizer/orthogonalize.cuh"

extern "C" {
#include "base/memory.h"
#include "kernels/optimizer/orthogonalize.h"
#include "kernels/optimizer/update.h"
}
#include "kernels/linear/matmul.cuh"

/* The library counts columns first, so that a matrix that lies row by row is Z, its transpose. The iterations
 * work on Z if the matrix has more rows than columns, otherwise on the transpose of Z. */
struct orthogonalizer {
    struct orthogonalize_rooms rooms;
    bool tall;
    struct matmul *gram, *square, *step;
};

static size_t take(size_t *end, int64_t numbers, size_t size)
{
    size_t at = *end;
    *end += workspace_align((size_t)numbers * size);
    return at;
}

struct orthogonalize_rooms orthogonalize_rooms(int64_t rows, int64_t columns)
{
    int64_t m = rows < columns ? rows : columns, count = rows * columns;
    size_t end = 0;
    struct orthogonalize_rooms rooms = {};
    rooms.input = take(&end, count, sizeof(float));
    rooms.x = take(&end, count, sizeof(__nv_bfloat16));
    rooms.y = take(&end, count, sizeof(__nv_bfloat16));
    rooms.a = take(&end, m * m, sizeof(__nv_bfloat16));
    rooms.b = take(&end, m * m, sizeof(__nv_bfloat16));
    rooms.products = workspace_align((size_t)orthogonalize_scratch(rows, columns) * sizeof(float));
    return rooms;
}

/* Always the first algorithm that fits, so that runs repeat bit for bit. */
static struct matmul_problem product_of(int64_t m, int64_t n, int64_t k)
{
    struct matmul_problem p = {};
    p.factor = p.result = BF16;
    p.m = m;
    p.n = n;
    p.k = k;
    p.deterministic = true;
    return p;
}

enum status orthogonalizer_open(struct device *device, int64_t rows, int64_t columns,
                                struct orthogonalizer **made)
{
    struct orthogonalizer *o = (struct orthogonalizer *)memory_new(1, sizeof *o);
    bool tall = rows > columns;
    int64_t m = tall ? columns : rows, n = tall ? rows : columns;
    *o = {orthogonalize_rooms(rows, columns), tall, NULL, NULL, NULL};
    struct matmul_problem gram = product_of(m, m, n), square = product_of(m, m, m);
    struct matmul_problem step = tall ? product_of(m, n, m) : product_of(n, m, m);
    (tall ? gram.turn_b : gram.turn_a) = true;
    square.adds = step.adds = true;
    enum status status = matmul_open(&gram, device, &o->gram);
    if (status == OK) status = matmul_open(&square, device, &o->square);
    if (status == OK) status = matmul_open(&step, device, &o->step);
    if (status != OK) orthogonalizer_close(o);
    else *made = o;
    return status;
}

void orthogonalizer_close(struct orthogonalizer *o)
{
    if (!o) return;
    matmul_close(o->gram);
    matmul_close(o->square);
    matmul_close(o->step);
    free(o);
}

enum status orthogonalizer_run(const struct orthogonalizer *o, struct device *device, void *stream,
                               char *scratch, const __nv_bfloat16 **result)
{
    struct call call = {};
    call.device = device;
    call.stream = stream;
    char *x = scratch + o->rooms.x, *y = scratch + o->rooms.y;
    char *a = scratch + o->rooms.a, *b = scratch + o->rooms.b;
    for (int step = 0; step < ORTHOGONALIZE_STEPS; step++) {
        struct matmul_operands at = {};
        at.scratch = scratch + o->rooms.products;
        at.a = at.b = x, at.d = a, at.alpha = 1;
        TRY(matmul_run(o->gram, &call, &at));
        at.a = at.b = at.c = a, at.d = b, at.alpha = ORTHOGONALIZE_C, at.beta = ORTHOGONALIZE_B;
        TRY(matmul_run(o->square, &call, &at));
        at.a = o->tall ? b : x, at.b = o->tall ? x : b, at.c = x, at.d = y;
        at.alpha = 1, at.beta = ORTHOGONALIZE_A;
        TRY(matmul_run(o->step, &call, &at));
        char *other = x;
        x = y;
        y = other;
    }
    *result = (const __nv_bfloat16 *)x;
    return OK;
}
