#include "kernels/optimizer/matrix_sharing.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/optimizer/muon_matrix.h"
#include "kernels/optimizer/optimizer_walk.h"

/* Of the orthogonalised matrix. */
static int64_t floats_of(const struct optimizer_param *param)
{
    return orthogonal_layout(param->rows, param->count / param->rows).count;
}

int64_t matrix_sharing_bytes(int64_t rows, int64_t count, int ranks, enum dtype result)
{
    if (ranks == 1 || rows == 0) return 0;
    return ranks * orthogonal_layout(rows, count / rows).count * (int64_t)dtype_bytes(result);
}

int matrix_sharing_exchanges(const struct matrix_sharing *sharing)
{
    return (sharing->count + sharing->ranks.count - 1) / sharing->ranks.count;
}

/* By falling size, so that those which are orthogonalised at a time take as long. */
static void insert(struct matrix_sharing *sharing, const struct optimizer_param *params, int param)
{
    int at = sharing->count++;
    for (; at > 0 && floats_of(&params[sharing->order[at - 1]]) < floats_of(&params[param]); at--)
        sharing->order[at] = sharing->order[at - 1];
    sharing->order[at] = param;
}

struct matrix_sharing *matrix_sharing_open(const struct matrix_ranks *ranks,
                                           const struct optimizer_param *params, int count)
{
    struct matrix_sharing *sharing = memory_new(1, sizeof *sharing);
    int64_t scratch = 0;
    *sharing = (struct matrix_sharing){
        .ranks = *ranks,
        .order = memory_new((size_t)count, sizeof *sharing->order),
        .made = memory_new((size_t)ranks->count, sizeof *sharing->made),
    };
    for (int i = 0; i < count; i++) {
        if (params[i].rows == 0) continue;
        int64_t floats = orthogonalize_scratch(params[i].rows, params[i].count / params[i].rows);
        if (floats > scratch) scratch = floats;
        insert(sharing, params, i);
    }
    if (sharing->count > 0) sharing->gathered = params[sharing->order[0]].scratch + scratch;
    return sharing;
}

void matrix_sharing_close(struct matrix_sharing *sharing)
{
    if (!sharing) return;
    free(sharing->order);
    free(sharing->made);
    free(sharing);
}

/* Those of one time. */
struct round {
    const struct matrix_sharing *sharing;
    const struct matrix_update *update;
    const int *order;
    int count;
    int64_t room;              /* floats of the largest result */
};

static const struct optimizer_param *param_of(const struct round *round, int i)
{
    return &round->update->params[round->order[i]];
}

static struct optimizer_numbers numbers_of(const struct round *round, int i)
{
    struct optimizer_numbers own = *round->update->numbers;
    own.lr *= param_of(round, i)->lr_scale;
    own.decay = optimizer_decay(round->update->settings, param_of(round, i));
    return own;
}

/* The others' momentum is advanced here, too. */
static void begin(const struct round *round, int i)
{
    const struct matrix_sharing *sharing = round->sharing;
    const struct optimizer_param *param = param_of(round, i);
    const struct optimizer_numbers n = numbers_of(round, i);
    bool own = i == sharing->ranks.rank;
    float *place = sharing->gathered + i * round->room;
    struct orthogonal *made = &sharing->made[i];
    *made = muon_matrix_begin(round->update->settings, param, &n, own);
    if (own) memcpy(place, made->x, (size_t)made->count * sizeof *place);
    made->x = place;
}

static enum status exchange(const struct round *round)
{
    const struct matrix_ranks *ranks = &round->sharing->ranks;
    float *all = round->sharing->gathered;
    return ranks->all_gather(ranks->context, all + ranks->rank * round->room, all,
                             (size_t)round->room * sizeof *all, NULL);
}

static void end(const struct round *round, int i)
{
    const struct matrix_update *update = round->update;
    const struct optimizer_numbers n = numbers_of(round, i);
    muon_matrix_end(update->settings, param_of(round, i), &n, &round->sharing->made[i]);
    update->then(update->context, param_of(round, i));
}

enum status matrix_sharing_update(const struct matrix_sharing *sharing, const struct matrix_update *update)
{
    int ranks = sharing->ranks.count;
    for (int first = 0; first < sharing->count; first += ranks) {
        int left = sharing->count - first;
        const struct round round = {
            .sharing = sharing, .update = update, .order = sharing->order + first,
            .count = left < ranks ? left : ranks, .room = floats_of(&update->params[sharing->order[first]]),
        };
        for (int i = 0; i < round.count; i++) begin(&round, i);
        TRY(exchange(&round));
        for (int i = 0; i < round.count; i++) end(&round, i);
    }
    return OK;
}
