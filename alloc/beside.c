#include "beside.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* The power of two that a length rounds up to. */
static int power_of(const struct beside_life *life)
{
    int32_t length = life->upper - life->lower;
    return length <= 1 ? 0 : 32 - __builtin_clz((unsigned)(length - 1));
}

static int compare_lives(const void *a, const void *b)
{
    const struct beside_life *left = a, *right = b;
    int powers = power_of(left) - power_of(right);
    if (powers) return powers;
    if (left->lower != right->lower) return left->lower < right->lower ? -1 : 1;
    return (left->index > right->index) - (left->index < right->index);
}

/* Cell c of a power begins with the first life that is born at c << power or later. */
static int *cells_make(const struct beside *beside, int power)
{
    int count = (beside->end >> power) + 2, at = beside->first[power];
    int *cells = memory_new((size_t)count, sizeof *cells);
    for (int c = 0; c < count; c++) {
        while (at < beside->first[power + 1] && beside->lives[at].lower >> power < c) at++;
        cells[c] = at;
    }
    return cells;
}

struct beside beside_open(const struct beside_life *lives, int count)
{
    struct beside beside = {.lives = memory_new((size_t)count, sizeof *lives)};
    memcpy(beside.lives, lives, (size_t)count * sizeof *lives);
    qsort(beside.lives, (size_t)count, sizeof *lives, compare_lives);
    for (int i = 0; i < count; i++) {
        beside.first[power_of(&beside.lives[i]) + 1]++;
        if (lives[i].upper > beside.end) beside.end = lives[i].upper;
    }
    for (int p = 0; p < 32; p++) beside.first[p + 1] += beside.first[p];
    for (int p = 0; p < 32; p++)
        if (beside.first[p + 1] > beside.first[p]) beside.cells[p] = cells_make(&beside, p);
    return beside;
}

void beside_close(struct beside *beside)
{
    for (int p = 0; p < 32; p++) free(beside->cells[p]);
    free(beside->lives);
    *beside = (struct beside){0};
}

int beside_collect(struct beside *beside, int32_t lower, int32_t upper, int32_t *index)
{
    int collected = 0;
    for (int p = 0; p < 32; p++) {
        if (!beside->cells[p]) continue;
        /* What is born 2^p or more before is dead. */
        int32_t born = lower - (int32_t)((1u << p) - 1);
        const struct beside_life *life = beside->lives + beside->cells[p][born > 0 ? born >> p : 0];
        const struct beside_life *last = beside->lives + beside->cells[p][((upper - 1) >> p) + 1];
        beside->visits += last - life;
        for (; life < last; life++) {
            index[collected] = life->index;
            collected += (life->upper > lower) & (life->lower < upper);
        }
    }
    return collected;
}
