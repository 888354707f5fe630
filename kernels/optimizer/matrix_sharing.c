#include "kernels/optimizer/matrix_sharing.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/optimizer/optimizer_muon.h"
#include "kernels/optimizer/optimizer_walk.h"

static int64_t columns_of(const struct optimizer_param *param)
{
    return param->count / param->rows;
}

static bool is_before(const struct optimizer_param *a, const struct optimizer_param *b)
{
    return a->count > b->count || (a->count == b->count && a->rows > b->rows);
}

static bool is_alike(const struct optimizer_param *a, const struct optimizer_param *b)
{
    return a->count == b->count && a->rows == b->rows;
}

/* Keeps the order of falling size, so that matrices which are orthogonalised at a time take as long. */
static void insert(struct matrix_sharing *sharing, const struct optimizer_param *params, int param)
{
    int at = sharing->count++;
    for (; at > 0 && is_before(&params[param], &params[sharing->order[at - 1]]); at--)
        sharing->order[at] = sharing->order[at - 1];
    sharing->order[at] = param;
}

static int64_t result_bytes(const struct optimizer_param *param, bool on_gpu, int count)
{
    int64_t rows = param->rows, columns = columns_of(param);
    return on_gpu ? count * orthogonalize_stride(rows * columns) * (int64_t)dtype_bytes(BF16)
                  : count * orthogonal_layout(rows, columns).count * (int64_t)sizeof(float);
}

static int64_t scratch_bytes(const struct optimizer_param *param, bool on_gpu, int count)
{
    int64_t rows = param->rows, columns = columns_of(param);
    return on_gpu ? (int64_t)orthogonalize_rooms(rows, columns, count).end
                  : orthogonalize_scratch(rows, columns) * (int64_t)sizeof(float);
}

/* The matrices of order[first..last), which have one size, in batches: at most a rank's share of them. */
static void divide(struct matrix_sharing *sharing, const struct optimizer_param *param, bool on_gpu,
                   int first, int last)
{
    int share = (last - first + sharing->ranks.count - 1) / sharing->ranks.count;
    int most = on_gpu ? orthogonalize_batch(param->rows, columns_of(param), param->alike) : 1;
    if (most > share) most = share;
    for (; first < last; first += most) {
        int count = last - first < most ? last - first : most;
        sharing->batches[sharing->batch_count++] =
            (struct matrix_batch){first, count, result_bytes(param, on_gpu, count)};
    }
    int64_t scratch = scratch_bytes(param, on_gpu, most);
    if (scratch > sharing->gathered) sharing->gathered = scratch;
}

struct matrix_sharing *matrix_sharing_open(const struct matrix_ranks *ranks, bool on_gpu,
                                           const struct optimizer_param *params, int count)
{
    struct matrix_sharing *sharing = memory_new(1, sizeof *sharing);
    *sharing = (struct matrix_sharing){
        .ranks = *ranks,
        .order = memory_new((size_t)count, sizeof *sharing->order),
        .batches = memory_new((size_t)count, sizeof *sharing->batches),
        .made = memory_new((size_t)ranks->count, sizeof *sharing->made),
    };
    for (int i = 0; i < count; i++)
        if (params[i].rows > 0) insert(sharing, params, i);
    for (int first = 0, last; first < sharing->count; first = last) {
        const struct optimizer_param *param = &params[sharing->order[first]];
        for (last = first; last < sharing->count && is_alike(param, &params[sharing->order[last]]);) last++;
        divide(sharing, param, on_gpu, first, last);
    }
    int64_t most = 0;
    for (int i = 0; i < sharing->batch_count; i++)
        if (sharing->batches[i].bytes > most) most = sharing->batches[i].bytes;
    sharing->bytes = sharing->gathered + (ranks->count > 1 ? ranks->count * most : 0);
    return sharing;
}

void matrix_sharing_close(struct matrix_sharing *sharing)
{
    if (!sharing) return;
    free(sharing->order);
    free(sharing->batches);
    free(sharing->made);
    free(sharing);
}

int matrix_sharing_rounds(const struct matrix_sharing *sharing)
{
    return (sharing->batch_count + sharing->ranks.count - 1) / sharing->ranks.count;
}

struct matrix_round matrix_sharing_round(const struct matrix_sharing *sharing, int round)
{
    int ranks = sharing->ranks.count, first = round * ranks, left = sharing->batch_count - first;
    struct matrix_round made = {.batches = sharing->batches + first, .count = left < ranks ? left : ranks};
    for (int i = 0; i < made.count; i++)
        if (made.batches[i].bytes > made.room) made.room = made.batches[i].bytes;
    return made;
}

/* ---- On the CPU ---- */

struct sharing_call {
    const struct matrix_sharing *sharing;
    const struct matrix_update *update;
    struct matrix_round round;
};

static const struct optimizer_param *param_of(const struct sharing_call *call, int i)
{
    return &call->update->params[call->sharing->order[call->round.batches[i].first]];
}

static char *gathered_of(const struct sharing_call *call)
{
    return (char *)param_of(call, 0)->scratch + call->sharing->gathered;
}

static struct optimizer_numbers numbers_of(const struct sharing_call *call, int i)
{
    struct optimizer_numbers own = *call->update->numbers;
    own.lr *= param_of(call, i)->lr_scale;
    own.decay = optimizer_decay(call->update->settings, param_of(call, i));
    return own;
}

/* The others' momentum is advanced here, too. */
static void begin(const struct sharing_call *call, int i)
{
    const struct matrix_sharing *sharing = call->sharing;
    const struct optimizer_numbers n = numbers_of(call, i);
    bool own = i == sharing->ranks.rank;
    float *place = (float *)(gathered_of(call) + i * call->round.room);
    struct orthogonal *made = &sharing->made[i];
    *made = muon_matrix_begin(call->update->settings, param_of(call, i), &n, own);
    if (sharing->ranks.count == 1) return;
    if (own) memcpy(place, made->x, (size_t)made->count * sizeof *place);
    made->x = place;
}

static enum status exchange(const struct sharing_call *call)
{
    const struct matrix_ranks *ranks = &call->sharing->ranks;
    char *all = gathered_of(call);
    if (ranks->count == 1) return OK;
    return ranks->all_gather(ranks->context, all + ranks->rank * call->round.room, all,
                             (size_t)call->round.room, NULL);
}

static void end(const struct sharing_call *call, int i)
{
    const struct matrix_update *update = call->update;
    const struct optimizer_numbers n = numbers_of(call, i);
    muon_matrix_end(update->settings, param_of(call, i), &n, &call->sharing->made[i]);
    update->then(update->context, param_of(call, i));
}

enum status matrix_sharing_update(const struct matrix_sharing *sharing, const struct matrix_update *update)
{
    for (int r = 0; r < matrix_sharing_rounds(sharing); r++) {
        const struct sharing_call call = {sharing, update, matrix_sharing_round(sharing, r)};
        for (int i = 0; i < call.round.count; i++) begin(&call, i);
        TRY(exchange(&call));
        for (int i = 0; i < call.round.count; i++) end(&call, i);
    }
    return OK;
}
