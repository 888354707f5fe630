#include "kernels/optimizer/optimizer_walk.h"

#include "kernels/cpu.h"

#define PART 4096      /* elements per part: their arrays fit the second-level cache */
#define GROUPS 64      /* number of groups of parts for sums, which are then summed over groups */

static struct optimizer_param part_of(const struct optimizer_param *param, int64_t first, int64_t count)
{
    struct optimizer_param part = *param;
    part.count = count;
    part.master += first;
    part.gradient += first;
    for (int i = 0; i < OPTIMIZER_MAX_SLOTS; i++)
        if (part.slots[i]) part.slots[i] += first;
    if (part.average) part.average += first;
    if (part.low) part.low = (char *)part.low + (size_t)first * dtype_bytes(part.low_dtype);
    return part;
}

static void walk_parts(const struct optimizer_param *param, int64_t first, int64_t end,
                       optimizer_part *function, const void *factors, double sums[2])
{
    for (int64_t i = first; i < end; i++) {
        struct optimizer_param part = part_of(param, i * PART, min_count(PART, param->count - i * PART));
        function(&part, factors, sums);
    }
}

void optimizer_walk(const struct optimizer_param *param, optimizer_part *function, const void *factors,
                    double sums[2])
{
    int64_t parts = pieces(param->count, PART), groups = min_count(parts, GROUPS);
    double partial[GROUPS][2] = {{0}};
#pragma omp parallel for schedule(static) if (param->count > PARALLEL)
    for (int64_t g = 0; g < groups; g++)
        walk_parts(param, g * parts / groups, (g + 1) * parts / groups, function, factors, partial[g]);
    if (!sums) return;
    sums[0] = sums[1] = 0;
    for (int64_t g = 0; g < groups; g++) {
        sums[0] += partial[g][0];
        sums[1] += partial[g][1];
    }
}

static EVERY_MACHINE(double, square_sum, (const float *values, int64_t count), (values, count))
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
    return sum;
}

static void gradient_part(const struct optimizer_param *part, const void *factors, double sums[2])
{
    sums[0] += square_sum(part->gradient, part->count);
}

static void master_part(const struct optimizer_param *part, const void *factors, double sums[2])
{
    sums[0] += square_sum(part->master, part->count);
}

double optimizer_gradient_squares(const struct optimizer_param *param)
{
    double sums[2];
    optimizer_walk(param, gradient_part, NULL, sums);
    return sums[0];
}

double optimizer_master_squares(const struct optimizer_param *param)
{
    double sums[2];
    optimizer_walk(param, master_part, NULL, sums);
    return sums[0];
}
