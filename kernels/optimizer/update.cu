/* update.cu: a step's update on CUDA: one pass over the gradients for their norm, whose last block makes all
 * decisions that depend on it, and one pass (lamb: two) over the parameters. The parameters are divided into
 * chunks, listed in device memory; sums are computed by chunk and block and combined in a fixed order. */
#include "kernels/support/block.cuh"

extern "C" {
#include "base/memory.h"
#include "kernels/optimizer/formulas.h"
#include "kernels/optimizer/update.h"
}
#include "kernels/optimizer/orthogonalize.cuh"

#include <stdlib.h>
#include <string.h>

static constexpr int threads = 256;
static constexpr int chunk_elements = UPDATE_CHUNK;
static constexpr int norm_threads = 1536;      /* of a multiprocessor, in the norm's pass */

/* ---- Rules: what this file must know of an optimizer ---- */

/* An optimizer whose update is one pass: factors, and one element with its slots. */
template <class Factors, int slot_count, auto make, auto element> struct plain_rule {
    typedef Factors factors;
    static constexpr int slots = slot_count;
    static constexpr bool measures_chunks = false;      /* the norm's pass sums squares of both,
                                                         * chunk by chunk */
    static constexpr bool two_passes = false;           /* slots first, then weights */
    static constexpr bool adapts = false;               /* lr is the parameter's own */
    static constexpr bool leaves_matrices = false;      /* they have an update of their own */
    __device__ static factors factors_of(const struct optimizer_settings *s,
                                         const struct optimizer_numbers *n)
    {
        return make(s, n);
    }
    __device__ static void update(const factors *f, float gradient, float *w, float *slots)
    {
        if constexpr (slot_count == 1) element(f, gradient, w, &slots[0]);
        else element(f, gradient, w, &slots[0], &slots[1]);
    }
};

#define FORMULA(name, slots) \
    struct name##_rule : plain_rule<struct name##_factors, slots, name##_factors, name##_element> {};
#include "kernels/optimizer/rules.def"

/* Parameters that are not matrices. */
struct muon_rule : plain_rule<struct adam_factors, 2, muon_adam_factors, adam_element> {
    static constexpr bool leaves_matrices = true;
};

struct lars_rule : plain_rule<struct lars_factors, 1, lars_factors, lars_element> {
    static constexpr bool measures_chunks = true;
    static constexpr bool adapts = true;
    __device__ static float lr(const struct optimizer_settings *s, const struct optimizer_numbers *n,
                               const double sums[2])
    {
        return lars_lr(s, n, sums[1], sums[0]);
    }
};

struct lamb_rule {
    typedef struct lamb_factors factors;
    static constexpr int slots = 2;
    static constexpr bool measures_chunks = false;
    static constexpr bool two_passes = true;
    static constexpr bool adapts = true;
    static constexpr bool leaves_matrices = false;
    __device__ static factors factors_of(const struct optimizer_settings *s,
                                         const struct optimizer_numbers *n)
    {
        return lamb_factors(s, n);
    }
    __device__ static float lr(const struct optimizer_settings *s, const struct optimizer_numbers *n,
                               const double sums[2])
    {
        return lamb_lr(s, n, sums[0], sums[1]);
    }
    /* The first pass: gives r. */
    __device__ static float advance(const factors *f, float gradient, float w, float *slots)
    {
        lamb_moments(f, gradient, &slots[0], &slots[1]);
        return lamb_direction(f, w, slots[0], slots[1]);
    }
    __device__ static void update(const factors *f, float, float *w, float *slots)
    {
        lamb_element(f, w, slots[0], slots[1]);
    }
};

/* ---- What kernels read ---- */

/* At most chunk_elements elements of one parameter. All pointers are multiples of 16 bytes. */
struct chunk {
    const float *gradient;
    float *master;
    float *slots[OPTIMIZER_MAX_SLOTS];
    float *average;            /* NULL: none */
    void *low;                 /* NULL: none */
    enum dtype low_dtype;
    int count;
    int first, chunks;         /* those of the same parameter */
    int square;                /* its index among all stages' chunks */
    int64_t rows, columns;     /* of a matrix that has an update of its own; 0: it is none */
    double lr_scale;
    bool decay, adapt;
};

/* Part of a statistic, at most chunk_elements long. */
struct piece {
    void *now;
    void *average;
    int count;
    enum dtype dtype;
};

/* A chunk of a matrix, and where its first number is in the batch. */
struct matrix_part {
    int chunk;
    int64_t at;
};

/* Memory in which the blocks of a step exchange results. */
template <class Rule> struct board {
    unsigned finished;
    bool applies;
    struct update_rates rates;
    struct optimizer_numbers numbers;
    typename Rule::factors factors[2];       /* without and with weight decay */
};
static constexpr size_t board_bytes = 512;

struct update_job {
    struct optimizer_settings settings;
    struct scaler_settings scaling;
    int stop_at;
    struct optimizer_state *state;
    const struct update_rates *rates;        /* set by apply: they may lie elsewhere each time */
    const struct chunk *chunks;
    const struct piece *pieces;
    const struct matrix_part *parts;
    struct update_squares squares;
    double (*sums)[2];                       /* of each chunk */
    double *block_sums;                      /* of each block of the norm's pass */
    void *board;
    int chunk_count, piece_count, part_count, block_count;
};

template <class Rule> __device__ static struct board<Rule> *board_of(const struct update_job *job)
{
    return (struct board<Rule> *)job->board;
}

/* ---- The norm, and what follows from it ---- */

/* Over a warp; a lane has four independent sums, each of every fourth pack, so that additions overlap. */
__device__ static double squares_of(const float *values, int count, int lane)
{
    double sums[4] = {0, 0, 0, 0};
    int packs = count / 4;
#pragma unroll 8
    for (int i = lane; i < packs; i += 32) {
        pack<float> v = ((const pack<float> *)values)[i];
#pragma unroll
        for (int k = 0; k < 4; k++) sums[k] += (double)v.at[k] * (double)v.at[k];
    }
    int rest = packs * 4 + lane;
    if (rest < count) sums[0] += (double)values[rest] * (double)values[rest];
    return warp_reduce((sums[0] + sums[1]) + (sums[2] + sums[3]), [](double a, double b) { return a + b; });
}

/* The sums of `count` chunks, in every thread of the block. */
__device__ static void add_up(const double (*sums)[2], int count, double totals[2])
{
    double a = 0, b = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += threads) {
        double2 sum = __ldcg((const double2 *)sums[i]);
        a += sum.x;
        b += sum.y;
    }
    totals[0] = block_sum<threads>(a);
    totals[1] = block_sum<threads>(b);
}

template <class Rule>
__device__ static void decide(const struct update_job *job, struct board<Rule> *board, double squares)
{
    struct optimizer_state *state = job->state;
    board->applies = false;
    if (update_stopped(job->stop_at, state)) {
        state->skipped = 1;
        return;
    }
    int k = update_rate(&board->rates, state);
    struct optimizer_numbers numbers = {.lr = board->rates.lr[k], .momentum = board->rates.momentum[k]};
    if (!optimizer_decide(&job->settings, &job->scaling, squares, &numbers, state)) return;
    state->ema = (float)board->rates.ema[k];
    for (int decays = 0; decays < 2; decays++) {
        numbers.decay = decays ? job->settings.weight_decay : 0;
        board->factors[decays] = Rule::factors_of(&job->settings, &numbers);
    }
    board->numbers = numbers;
    board->applies = true;
}

/* Returns the sum of squares of a chunk in lane 0, and notes it for rules that want it chunk by chunk. */
template <class Rule> __device__ static double measure_chunk(const struct update_job *job, int c, int lane)
{
    const struct chunk *chunk = &job->chunks[c];
    double g = squares_of(chunk->gradient, chunk->count, lane);
    if (!Rule::measures_chunks) return g;
    double w = squares_of(chunk->master, chunk->count, lane);
    if (lane == 0) *(double2 *)job->sums[c] = make_double2(g, w);
    return g;
}

/* The chunks of all stages are added up in the order of the uncut network. */
__device__ static double staged_squares(const struct update_squares *squares, int64_t c)
{
    double sum = 0;
    for (int stage = 0; stage < squares->stages; stage++) sum += squares->all[stage * squares->count + c];
    return sum;
}

static __global__ void __launch_bounds__(threads)
update_measure_kernel(const struct update_job job, double *squares)
{
    constexpr int warps = threads / 32;
    int lane = threadIdx.x % 32, c = blockIdx.x * warps + threadIdx.x / 32;
    if (c >= job.chunk_count) return;
    const struct chunk *chunk = &job.chunks[c];
    double g = squares_of(chunk->gradient, chunk->count, lane);
    if (lane == 0) squares[chunk->square] = g;
}

/* One warp per chunk. The rates are in host memory, which is slow to read: one of the warps with the least
 * work reads them. */
template <class Rule> static __global__ void __launch_bounds__(threads)
update_norm_kernel(const struct update_job job)
{
    struct board<Rule> *board = board_of<Rule>(&job);
    constexpr int warps = threads / 32, rate_words = sizeof(struct update_rates) / sizeof(int64_t);
    int lane = threadIdx.x % 32;
    int64_t rate = 0;
    bool fetches = blockIdx.x == gridDim.x - 1 && threadIdx.x >= threads - 32 && lane < rate_words;
    if (fetches) rate = __ldcv((const long long *)job.rates + lane);

    double squares = 0;
    int first = blockIdx.x * warps + threadIdx.x / 32, step = gridDim.x * warps;
    bool staged = job.squares.stages > 0;
    for (int c = first; c < job.chunk_count && (!staged || Rule::measures_chunks); c += step)
        squares += measure_chunk<Rule>(&job, c, lane);
    if (staged) squares = 0;
    for (int64_t c = first; staged && c < job.squares.count; c += step)
        squares += staged_squares(&job.squares, c);
    if (fetches) ((int64_t *)&board->rates)[lane] = rate;
    squares = block_sum<threads>(lane == 0 ? squares : 0);
    if (threadIdx.x == 0) job.block_sums[blockIdx.x] = squares;
    if (!block_is_last(&board->finished)) return;

    squares = 0;
#pragma unroll 4
    for (int b = threadIdx.x; b < gridDim.x; b += threads) squares += __ldcg(&job.block_sums[b]);
    squares = block_sum<threads>(squares);
    if (threadIdx.x == 0) decide(&job, board, squares);
}

/* ---- The update ---- */

/* Masters and slots are not read again before the next step, so they should not evict from the cache what
 * is. */
__device__ static pack<float> load(const float *from, int i)
{
    float4 v = __ldcs((const float4 *)from + i);
    return {{v.x, v.y, v.z, v.w}};
}
__device__ static void store(float *to, int i, pack<float> v)
{
    __stcs((float4 *)to + i, make_float4(v.at[0], v.at[1], v.at[2], v.at[3]));
}

template <class T> __device__ static void store_low_as(T *low, int i, pack<float> v)
{
    struct alignas(4 * sizeof(T)) { T at[4]; } out;
#pragma unroll
    for (int k = 0; k < 4; k++) out.at[k] = from_float<T>(v.at[k]);
    ((decltype(out) *)low)[i] = out;
}
__device__ static void store_low(const struct chunk *chunk, int i, pack<float> w)
{
    if (chunk->low_dtype == F16) store_low_as((__half *)chunk->low, i, w);
    else if (chunk->low_dtype == BF16) store_low_as((__nv_bfloat16 *)chunk->low, i, w);
    else store_low_as((float *)chunk->low, i, w);
}
__device__ static void store_low_one(const struct chunk *chunk, int i, float w)
{
    if (chunk->low_dtype == F16) ((__half *)chunk->low)[i] = from_float<__half>(w);
    else if (chunk->low_dtype == BF16) ((__nv_bfloat16 *)chunk->low)[i] = from_float<__nv_bfloat16>(w);
    else ((float *)chunk->low)[i] = w;
}

/* How the average is updated. */
struct ema {
    float keep, take;
    bool back;                 /* the weight becomes its average */
    __device__ ema(const struct update_job *job)
        : keep(job->state->ema), take(1 - keep), back(job->settings.lookahead && keep < 1) {}
    __device__ void operator()(float *average, float *w) const
    {
        *average = keep * *average + take * *w;
        if (back) *w = *average;
    }
};

template <class Rule>
__device__ static void update_pack(const struct chunk *chunk, const typename Rule::factors *f,
                                   struct ema ema, int i)
{
    pack<float> gradient = {}, w = load(chunk->master, i), slots[Rule::slots], average = {};
    if (!Rule::two_passes) gradient = load(chunk->gradient, i);
#pragma unroll
    for (int s = 0; s < Rule::slots; s++) slots[s] = load(chunk->slots[s], i);
    if (chunk->average) average = load(chunk->average, i);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float own[Rule::slots];
#pragma unroll
        for (int s = 0; s < Rule::slots; s++) own[s] = slots[s].at[k];
        Rule::update(f, gradient.at[k], &w.at[k], own);
#pragma unroll
        for (int s = 0; s < Rule::slots; s++) slots[s].at[k] = own[s];
        if (chunk->average) ema(&average.at[k], &w.at[k]);
    }
    store(chunk->master, i, w);
    if (!Rule::two_passes)
#pragma unroll
        for (int s = 0; s < Rule::slots; s++) store(chunk->slots[s], i, slots[s]);
    if (chunk->average) store(chunk->average, i, average);
    if (chunk->low) store_low(chunk, i, w);
}

template <class Rule>
__device__ static void update_one(const struct chunk *chunk, const typename Rule::factors *f,
                                  struct ema ema, int i)
{
    float w = chunk->master[i], slots[Rule::slots];
    for (int s = 0; s < Rule::slots; s++) slots[s] = chunk->slots[s][i];
    Rule::update(f, Rule::two_passes ? 0 : chunk->gradient[i], &w, slots);
    if (chunk->average) ema(&chunk->average[i], &w);
    chunk->master[i] = w;
    if (!Rule::two_passes)
        for (int s = 0; s < Rule::slots; s++) chunk->slots[s][i] = slots[s];
    if (chunk->low) store_low_one(chunk, i, w);
}

template <class Rule> __device__ static struct optimizer_numbers chunk_numbers(const struct update_job *job,
                                                                              const struct chunk *chunk)
{
    struct optimizer_numbers numbers = board_of<Rule>(job)->numbers;
    numbers.lr *= chunk->lr_scale;
    numbers.decay = chunk->decay ? job->settings.weight_decay : 0;
    return numbers;
}

/* The factors of the chunk's parameter; every block of the parameter computes its lr by itself. */
template <class Rule> __device__ static typename Rule::factors chunk_factors(const struct update_job *job,
                                                                             const struct chunk *chunk)
{
    const struct board<Rule> *board = board_of<Rule>(job);
    typename Rule::factors f = board->factors[chunk->decay];
    if (chunk->lr_scale != 1) {
        __shared__ typename Rule::factors own;
        if (threadIdx.x == 0) {
            const struct optimizer_numbers numbers = chunk_numbers<Rule>(job, chunk);
            own = Rule::factors_of(&job->settings, &numbers);
        }
        __syncthreads();
        f = own;
    }
    if constexpr (Rule::adapts) {
        if (!chunk->adapt) return f;
        __shared__ float lr;
        double sums[2];
        add_up(job->sums + chunk->first, chunk->chunks, sums);
        if (threadIdx.x == 0) {
            const struct optimizer_numbers numbers = chunk_numbers<Rule>(job, chunk);
            lr = Rule::lr(&job->settings, &numbers, sums);
        }
        __syncthreads();
        f.lr = lr;
    }
    return f;
}

/* One block per chunk. The gradients read last are the most likely ones in the cache, and come first. */
template <class Rule> static __global__ void __launch_bounds__(threads)
update_kernel(const struct update_job job)
{
    if (!board_of<Rule>(&job)->applies) return;
    const struct chunk chunk = job.chunks[job.chunk_count - 1 - blockIdx.x];
    if (Rule::leaves_matrices && chunk.rows > 0) return;
    const typename Rule::factors f = chunk_factors<Rule>(&job, &chunk);
    struct ema ema(&job);
    int packs = chunk.count / 4;
    for (int i = threadIdx.x; i < packs; i += threads) update_pack<Rule>(&chunk, &f, ema, i);
    int rest = packs * 4 + threadIdx.x;
    if (rest < chunk.count) update_one<Rule>(&chunk, &f, ema, rest);
}

/* The first of two passes: slots, and the squares of w and of r chunk by chunk. */
template <class Rule> static __global__ void __launch_bounds__(threads)
update_advance_kernel(const struct update_job job)
{
    const struct board<Rule> *board = board_of<Rule>(&job);
    if (!board->applies) return;
    int c = job.chunk_count - 1 - blockIdx.x;
    const struct chunk chunk = job.chunks[c];
    const typename Rule::factors f = board->factors[chunk.decay];
    double w_squares = 0, r_squares = 0;
    auto advance = [&](float gradient, float w, float *slots) {
        float r = Rule::advance(&f, gradient, w, slots);
        w_squares += (double)w * (double)w;
        r_squares += (double)r * (double)r;
    };
    int packs = chunk.count / 4;
    for (int i = threadIdx.x; i < packs; i += threads) {
        pack<float> gradient = load(chunk.gradient, i), w = ((const pack<float> *)chunk.master)[i];
        pack<float> slots[Rule::slots];
#pragma unroll
        for (int s = 0; s < Rule::slots; s++) slots[s] = load(chunk.slots[s], i);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float own[Rule::slots];
#pragma unroll
            for (int s = 0; s < Rule::slots; s++) own[s] = slots[s].at[k];
            advance(gradient.at[k], w.at[k], own);
#pragma unroll
            for (int s = 0; s < Rule::slots; s++) slots[s].at[k] = own[s];
        }
#pragma unroll
        for (int s = 0; s < Rule::slots; s++) ((pack<float> *)chunk.slots[s])[i] = slots[s];
    }
    int rest = packs * 4 + threadIdx.x;
    if (rest < chunk.count) {
        float own[Rule::slots];
        for (int s = 0; s < Rule::slots; s++) own[s] = chunk.slots[s][rest];
        advance(chunk.gradient[rest], chunk.master[rest], own);
        for (int s = 0; s < Rule::slots; s++) chunk.slots[s][rest] = own[s];
    }
    w_squares = block_sum<threads>(w_squares);
    r_squares = block_sum<threads>(r_squares);
    if (threadIdx.x == 0) *(double2 *)job.sums[c] = make_double2(w_squares, r_squares);
}

template <class Rule> static enum status update_run(const struct update *update, const struct update_job *job)
{
    static_assert(sizeof(struct board<Rule>) <= board_bytes, "a board has its place");
    cudaStream_t stream = (cudaStream_t)update->stream;
    update_norm_kernel<Rule><<<job->block_count, threads, 0, stream>>>(*job);
    if (job->chunk_count > 0) {
        if constexpr (Rule::two_passes)
            update_advance_kernel<Rule><<<job->chunk_count, threads, 0, stream>>>(*job);
        update_kernel<Rule><<<job->chunk_count, threads, 0, stream>>>(*job);
    }
    return cuda_status(update->device, cudaGetLastError(), "starting an update");
}

/* ---- Matrices of muon ---- */

/* A batch of matrices: its parts, and where they lie. */
struct update_batch {
    int first, parts;          /* in the job's list */
    int matrices;
    struct orthogonalize_rooms rooms;        /* in the scratch memory */
    struct orthogonalizer *orthogonalizer;
};

__device__ static struct muon_factors matrix_factors(const struct update_job *job, const struct chunk *chunk)
{
    const struct optimizer_numbers numbers = chunk_numbers<muon_rule>(job, chunk);
    return muon_factors(&job->settings, &numbers, chunk->rows, chunk->columns);
}

/* One block per part, as below. Momentum advances; the squares of what is orthogonalised, chunk by chunk.
 * `input` is NULL if another rank orthogonalises. */
static __global__ void __launch_bounds__(threads)
matrix_advance_kernel(const struct update_job job, const struct matrix_part *parts, float *input)
{
    if (!board_of<muon_rule>(&job)->applies) return;
    const struct matrix_part part = parts[blockIdx.x];
    const struct chunk *chunk = &job.chunks[part.chunk];
    const struct muon_factors f = matrix_factors(&job, chunk);
    double squares = 0;
    for (int i = threadIdx.x; i < chunk->count; i += threads) {
        float u = muon_advance(&f, chunk->gradient[i], &chunk->slots[0][i]);
        if (input) input[part.at + i] = u;
        squares += (double)u * (double)u;
    }
    squares = block_sum<threads>(squares);
    if (threadIdx.x == 0) *(double2 *)job.sums[part.chunk] = make_double2(squares, 0);
}

static __global__ void __launch_bounds__(threads)
matrix_scale_kernel(const struct update_job job, const struct matrix_part *parts, const float *input,
                    __nv_bfloat16 *x)
{
    if (!board_of<muon_rule>(&job)->applies) return;
    const struct matrix_part part = parts[blockIdx.x];
    const struct chunk *chunk = &job.chunks[part.chunk];
    double sums[2];
    add_up(job.sums + chunk->first, chunk->chunks, sums);
    float factor = (float)(1 / (sqrt(sums[0]) + ORTHOGONALIZE_EPS));
    for (int i = threadIdx.x; i < chunk->count; i += threads)
        x[part.at + i] = from_float<__nv_bfloat16>(input[part.at + i] * factor);
}

static __global__ void __launch_bounds__(threads)
matrix_apply_kernel(const struct update_job job, const struct matrix_part *parts,
                    const __nv_bfloat16 *orthogonal)
{
    if (!board_of<muon_rule>(&job)->applies) return;
    const struct matrix_part part = parts[blockIdx.x];
    const struct chunk *chunk = &job.chunks[part.chunk];
    const struct muon_factors f = matrix_factors(&job, chunk);
    const __nv_bfloat16 *from = orthogonal + part.at;
    struct ema ema(&job);
    for (int i = threadIdx.x; i < chunk->count; i += threads) {
        float w = chunk->master[i];
        muon_element(&f, to_float(from[i]), &w);
        if (chunk->average) ema(&chunk->average[i], &w);
        chunk->master[i] = w;
        if (chunk->low) store_low_one(chunk, i, w);
    }
}

static char *scratch_of(const struct update *update)
{
    return (char *)update->params[update->sharing->order[0]].scratch;
}

/* The results of rank i in a round. */
static char *results_of(const struct update *update, const struct update_batch *batch, int64_t room, int i)
{
    const struct matrix_sharing *sharing = update->sharing;
    return scratch_of(update) + (sharing->ranks.count == 1 ? batch->rooms.y : sharing->gathered + i * room);
}

static enum status batch_orthogonalize(const struct update *update, const struct update_job *job,
                                       const struct update_batch *batch, char *to)
{
    char *scratch = scratch_of(update);
    const struct orthogonalizer_call call = {update->device, update->stream, scratch, batch->matrices, to};
    matrix_scale_kernel<<<batch->parts, threads, 0, (cudaStream_t)update->stream>>>(
        *job, job->parts + batch->first, (const float *)(scratch + batch->rooms.input),
        (__nv_bfloat16 *)(scratch + batch->rooms.x));
    TRY(cuda_status(update->device, cudaGetLastError(), "starting the update of matrices"));
    return orthogonalizer_run(batch->orthogonalizer, &call);
}

/* `batches` are the round's. */
static enum status round_run(const struct update *update, const struct update_job *job,
                             const struct update_batch *batches, const struct matrix_round *round)
{
    const struct matrix_ranks *ranks = &update->sharing->ranks;
    cudaStream_t stream = (cudaStream_t)update->stream;
    for (int i = 0; i < round->count; i++) {
        const struct update_batch *batch = &batches[i];
        bool own = i == ranks->rank;
        float *input = own ? (float *)(scratch_of(update) + batch->rooms.input) : NULL;
        matrix_advance_kernel<<<batch->parts, threads, 0, stream>>>(*job, job->parts + batch->first, input);
        if (own)
            TRY(batch_orthogonalize(update, job, batch, results_of(update, batch, round->room, i)));
    }
    if (ranks->count > 1)
        TRY(ranks->all_gather(ranks->context, results_of(update, batches, round->room, ranks->rank),
                              results_of(update, batches, round->room, 0), (size_t)round->room, stream));
    for (int i = 0; i < round->count; i++)
        matrix_apply_kernel<<<batches[i].parts, threads, 0, stream>>>(
            *job, job->parts + batches[i].first,
            (const __nv_bfloat16 *)results_of(update, &batches[i], round->room, i));
    return cuda_status(update->device, cudaGetLastError(), "updating matrices");
}

static const struct {
    const char *optimizer;
    enum status (*run)(const struct update *update, const struct update_job *job);
} rules[] = {
#define OPTIMIZER(name, formula, ...) {#name, update_run<formula##_rule>},
#include "kernels/optimizer/rules.def"
};

/* ---- Counting, and averages of statistics ---- */

static __global__ void update_count_kernel(struct optimizer_state *state, float *scale, int stop_at)
{
    if (!update_stopped(stop_at, state)) state->step++;
    *scale = state->scaler.scale;
}

static __global__ void __launch_bounds__(threads) update_average_kernel(const struct update_job job)
{
    if (job.state->skipped) return;
    const struct piece piece = job.pieces[blockIdx.x];
    double decay = (double)job.state->ema;
    bool back = job.settings.lookahead && decay < 1;
    for (int i = threadIdx.x; i < piece.count; i += threads) {
        if (piece.dtype == I64) {
            ((int64_t *)piece.average)[i] = ((int64_t *)piece.now)[i];
        } else {
            float *average = (float *)piece.average + i, *now = (float *)piece.now + i;
            *average = (float)(decay * *average + (1 - decay) * *now);
            if (back) *now = *average;
        }
    }
}

/* ---- The table ---- */

struct update_tables {
    struct update_job job;
    enum status (*run)(const struct update *update, const struct update_job *job);
    void *memory;                            /* the device's: board, sums, chunks, pieces, parts */
    size_t bytes;
    struct update_batch *batches;            /* as in update->sharing */
    int batch_count;
};

template <class V> static V *moved(V *from, int64_t elements) { return from ? from + elements : NULL; }

static struct chunk chunk_of(const struct update *update, const struct optimizer_param *param, int64_t at)
{
    int64_t left = param->count - at;
    struct chunk chunk = {
        .gradient = param->gradient + at,
        .master = param->master + at,
        .slots = {},
        .average = update->settings.ema > 0 ? moved(param->average, at) : NULL,
        .low = moved((char *)param->low, at * (int64_t)dtype_bytes(param->low_dtype)),
        .low_dtype = param->low_dtype,
        .count = (int)(left < chunk_elements ? left : chunk_elements),
        .first = 0,
        .chunks = (int)div_up(param->count, (int64_t)chunk_elements),
        .square = 0,
        .rows = param->rows,
        .columns = param->rows > 0 ? param->count / param->rows : 0,
        .lr_scale = param->lr_scale,
        .decay = param->decay,
        .adapt = param->adapt,
    };
    for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++) chunk.slots[s] = moved(param->slots[s], at);
    return chunk;
}

static struct chunk *chunks_make(const struct update *update, int *count)
{
    struct chunk *chunks = NULL;
    *count = 0;
    for (int i = 0; i < update->param_count; i++) {
        int first = *count;
        for (int64_t at = 0; at < update->params[i].count; at += chunk_elements) {
            struct chunk chunk = chunk_of(update, &update->params[i], at);
            chunk.first = first;
            if (update->squares.stages > 0)
                chunk.square = (int)(update->squares.first[i] + at / chunk_elements);
            chunks = (struct chunk *)memory_resize(chunks, (size_t)*count + 1, sizeof *chunks);
            chunks[(*count)++] = chunk;
        }
    }
    return chunks;
}

static struct piece *pieces_make(const struct update *update, int *count)
{
    struct piece *pieces = NULL;
    *count = 0;
    for (int i = 0; i < update->average_count; i++) {
        const struct update_average *a = &update->averages[i];
        size_t bytes = dtype_bytes(a->dtype);
        for (int64_t at = 0; at < a->count; at += chunk_elements) {
            int64_t left = a->count - at;
            pieces = (struct piece *)memory_resize(pieces, (size_t)*count + 1, sizeof *pieces);
            pieces[(*count)++] = {(char *)a->now + (size_t)at * bytes,
                                  (char *)a->average + (size_t)at * bytes,
                                  (int)(left < chunk_elements ? left : chunk_elements), a->dtype};
        }
    }
    return pieces;
}

/* The parts of all batches in order; `chunks` are those of the parameters in order. */
static struct matrix_part *parts_make(const struct update *update, const struct chunk *chunks,
                                      int chunk_count, int *count)
{
    const struct matrix_sharing *sharing = update->sharing;
    struct matrix_part *parts = NULL;
    int *first = (int *)memory_new((size_t)update->param_count + 1, sizeof *first);
    for (int c = 0, i = 0; c < chunk_count; c += chunks[c].chunks) first[i++] = c;
    *count = 0;
    for (int b = 0; sharing && b < sharing->batch_count; b++)
        for (int k = 0; k < sharing->batches[b].count; k++) {
            int param = sharing->order[sharing->batches[b].first + k];
            int64_t at = k * orthogonalize_stride(update->params[param].count);
            for (int c = first[param]; c < first[param] + chunks[first[param]].chunks; c++) {
                parts = (struct matrix_part *)memory_resize(parts, (size_t)*count + 1, sizeof *parts);
                parts[(*count)++] = {c, at + (int64_t)(c - first[param]) * chunk_elements};
            }
        }
    free(first);
    return parts;
}

/* Contents of the lists of update_job, on the host. */
struct lists {
    struct chunk *chunks;
    struct piece *pieces;
    struct matrix_part *parts;
};

/* Copies the lists to device memory. The board is initialised with zeros. */
static enum status lists_upload(struct update *update, struct update_tables *tables,
                                const struct lists *lists)
{
    const struct device_transfers *transfers = &update->device->backend->transfers;
    struct update_job *job = &tables->job;
    size_t sums_bytes = (size_t)job->chunk_count * sizeof *job->sums;
    size_t chunks_bytes = (size_t)job->chunk_count * sizeof *lists->chunks;
    size_t pieces_bytes = (size_t)job->piece_count * sizeof *lists->pieces;
    size_t parts_bytes = (size_t)job->part_count * sizeof *lists->parts;
    size_t block_bytes = (size_t)job->block_count * sizeof *job->block_sums;
    tables->bytes = board_bytes + sums_bytes + chunks_bytes + pieces_bytes + parts_bytes + block_bytes;
    tables->memory = device_allocate(update->device, tables->bytes, "tables of the update");
    if (!tables->memory)
        return fail(NO_DEVICE, "not enough device memory for the update's table of %zu bytes",
                    tables->bytes);
    char *at = (char *)tables->memory;
    job->board = at;
    job->sums = (double (*)[2])(at += board_bytes);
    job->chunks = (const struct chunk *)(at += sums_bytes);
    job->pieces = (const struct piece *)(at += chunks_bytes);
    job->parts = (const struct matrix_part *)(at += pieces_bytes);
    job->block_sums = (double *)(at += parts_bytes);
    TRY(transfers->fill_zero(update->device, 0, job->board, board_bytes));
    if (chunks_bytes)
        TRY(transfers->upload(update->device, 0, (void *)job->chunks, lists->chunks, chunks_bytes));
    if (pieces_bytes)
        TRY(transfers->upload(update->device, 0, (void *)job->pieces, lists->pieces, pieces_bytes));
    if (parts_bytes)
        TRY(transfers->upload(update->device, 0, (void *)job->parts, lists->parts, parts_bytes));
    return update->device->backend->synchronize(update->device);
}

/* At most as many blocks as have a chunk for each warp. */
static int norm_blocks(const struct device *device, int chunk_count)
{
    int most = cuda_facts(device)->multiprocessors * (norm_threads / threads),
        blocks = div_up(chunk_count, threads / 32);
    return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

static enum status lists_open(struct update *update, struct update_tables *tables)
{
    struct update_job *job = &tables->job;
    struct lists lists;
    lists.chunks = chunks_make(update, &job->chunk_count);
    lists.pieces = pieces_make(update, &job->piece_count);
    lists.parts = parts_make(update, lists.chunks, job->chunk_count, &job->part_count);
    job->squares = update->squares;
    job->block_count = norm_blocks(update->device, update->squares.stages > 0 ? (int)update->squares.count
                                                                              : job->chunk_count);
    enum status status = lists_upload(update, tables, &lists);
    free(lists.chunks);
    free(lists.pieces);
    free(lists.parts);
    return status;
}

static enum status batches_open(const struct update *update, struct update_tables *tables)
{
    const struct matrix_sharing *sharing = update->sharing;
    if (!sharing) return OK;
    tables->batches = (struct update_batch *)memory_new((size_t)sharing->batch_count,
                                                        sizeof *tables->batches);
    for (int first = 0; tables->batch_count < sharing->batch_count;) {
        const struct matrix_batch *batch = &sharing->batches[tables->batch_count];
        const struct optimizer_param *param = &update->params[sharing->order[batch->first]];
        int64_t columns = param->count / param->rows;
        int parts = batch->count * (int)div_up(param->count, (int64_t)chunk_elements);
        struct update_batch *own = &tables->batches[tables->batch_count++];
        *own = {first, parts, batch->count, orthogonalize_rooms(param->rows, columns, batch->count), NULL};
        TRY(orthogonalizer_open(update->device, param->rows, columns,
                                orthogonalize_batch(param->rows, columns, param->alike),
                                &own->orthogonalizer));
        first += parts;
    }
    return OK;
}

static enum status batches_run(const struct update *update, const struct update_job *job,
                               const struct update_batch *batches)
{
    const struct matrix_sharing *sharing = update->sharing;
    for (int r = 0; sharing && r < matrix_sharing_rounds(sharing); r++) {
        const struct matrix_round round = matrix_sharing_round(sharing, r);
        TRY(round_run(update, job, batches + r * sharing->ranks.count, &round));
    }
    return OK;
}

static enum status update_open(struct update *update)
{
    struct update_tables *tables = (struct update_tables *)memory_new(1, sizeof *tables);
    update->tables = tables;
    for (const auto &rule : rules)
        if (strcmp(rule.optimizer, update->optimizer->name) == 0) tables->run = rule.run;
    if (!tables->run) return fail(FAILED, "optimizer %s has no CUDA code", update->optimizer->name);
    struct update_job *job = &tables->job;
    job->settings = update->settings;
    job->scaling = update->scaling;
    job->stop_at = update->stop_at;
    job->state = update->state;
    TRY(batches_open(update, tables));
    return lists_open(update, tables);
}

static void update_close(struct update *update)
{
    struct update_tables *tables = (struct update_tables *)update->tables;
    if (!tables) return;
    if (tables->memory) device_release(update->device, tables->memory, tables->bytes);
    for (int i = 0; i < tables->batch_count; i++) orthogonalizer_close(tables->batches[i].orthogonalizer);
    free(tables->batches);
    free(tables);
    update->tables = NULL;
}

static enum status update_count(const struct update *update)
{
    update_count_kernel<<<1, 1, 0, (cudaStream_t)update->stream>>>(update->state, update->scale,
                                                                   update->stop_at);
    return cuda_status(update->device, cudaGetLastError(), "starting a step");
}

static enum status update_apply(const struct update *update)
{
    const struct update_tables *tables = (const struct update_tables *)update->tables;
    struct update_job job = tables->job;
    job.rates = update->rates;
    TRY(tables->run(update, &job));
    return batches_run(update, &job, tables->batches);
}

static enum status update_average(const struct update *update)
{
    const struct update_tables *tables = (const struct update_tables *)update->tables;
    if (tables->job.piece_count == 0) return OK;
    update_average_kernel<<<tables->job.piece_count, threads, 0, (cudaStream_t)update->stream>>>(tables->job);
    return cuda_status(update->device, cudaGetLastError(), "starting averages");
}

static enum status update_measure(const struct update *update, double *squares)
{
    const struct update_job *job = &((const struct update_tables *)update->tables)->job;
    cudaStream_t stream = (cudaStream_t)update->stream;
    int blocks = div_up(job->chunk_count, threads / 32);
    TRY(cuda_status(update->device, cudaMemsetAsync(squares, 0, (size_t)job->squares.count * sizeof *squares,
                                                    stream), "clearing squares"));
    if (blocks > 0) update_measure_kernel<<<blocks, threads, 0, stream>>>(*job, squares);
    return cuda_status(update->device, cudaGetLastError(), "measuring gradients");
}

const struct update_code update_cuda = {
    update_open, update_close, update_count, update_apply, update_average, update_measure,
};
