#include "kernels/optimizer/orthogonalize.cuh"

extern "C" {
#include "base/memory.h"
}
#include "kernels/linear/matmul.cuh"

/* The library counts columns first, so that a matrix that lies row by row is Z, its transpose. The iterations
 * work on Z if the matrix has more rows than columns, otherwise on the transpose of Z. */
struct orthogonalizer {
    int64_t rows, columns;
    bool tall;
    struct matmul *gram, *square, *step;
};

/* The results' bits are the first algorithm's that fits, so that runs repeat bit for bit. */
static struct matmul_problem product_of(int64_t m, int64_t n, int64_t k, int batch)
{
    struct matmul_problem p = {};
    p.factor = p.result = BF16;
    p.m = m;
    p.n = n;
    p.k = k;
    p.batch = batch;
    p.unit = ORTHOGONALIZE_UNIT;
    p.deterministic = true;
    return p;
}

enum status orthogonalizer_open(struct device *device, int64_t rows, int64_t columns, int most,
                                struct orthogonalizer **made)
{
    struct orthogonalizer *o = (struct orthogonalizer *)memory_new(1, sizeof *o);
    bool tall = rows > columns;
    int64_t m = tall ? columns : rows, n = tall ? rows : columns;
    *o = {rows, columns, tall, NULL, NULL, NULL};
    struct matmul_problem gram = product_of(m, m, n, most), square = product_of(m, m, m, most);
    struct matmul_problem step = tall ? product_of(m, n, m, most) : product_of(n, m, m, most);
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

enum status orthogonalizer_run(const struct orthogonalizer *o, const struct orthogonalizer_call *at)
{
    const struct orthogonalize_rooms rooms = orthogonalize_rooms(o->rows, o->columns, at->batch);
    struct call call = {};
    call.device = at->device;
    call.stream = at->stream;
    struct matmul_operands p = {};
    p.scratch = at->scratch + rooms.products;
    p.batch = at->batch;
    char *x = at->scratch + rooms.x, *y = at->scratch + rooms.y;
    char *a = at->scratch + rooms.a, *b = at->scratch + rooms.b;
    for (int step = 0; step < ORTHOGONALIZE_STEPS; step++) {
        p.a = p.b = x, p.c = NULL, p.d = a, p.alpha = 1;
        TRY(matmul_run(o->gram, &call, &p));
        p.a = p.b = p.c = a, p.d = b, p.alpha = ORTHOGONALIZE_C, p.beta = ORTHOGONALIZE_B;
        TRY(matmul_run(o->square, &call, &p));
        p.a = o->tall ? b : x, p.b = o->tall ? x : b, p.c = x;
        p.d = step < ORTHOGONALIZE_STEPS - 1 ? y : at->to, p.alpha = 1, p.beta = ORTHOGONALIZE_A;
        TRY(matmul_run(o->step, &call, &p));
        char *other = x;
        x = y;
        y = other;
    }
    return OK;
}
