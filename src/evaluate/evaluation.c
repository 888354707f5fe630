#include "evaluate/evaluation.h"

#include <stdlib.h>
#include <string.h>

void evaluation_free(struct evaluation *evaluation)
{
    free(evaluation->cells);
    free(evaluation->answers);
    free(evaluation->scores);
    free(evaluation->ious);
    free(evaluation->outputs.values);
    free(evaluation->outputs.targets);
    free(evaluation->places);
    free(evaluation->pixels);
    *evaluation = (struct evaluation){0};
}

/* Keeps them sorted; NaN is ignored. */
void evaluation_keep_mistake(struct evaluation *sums, struct mistake mistake)
{
    int at = sums->mistake_count;
    if (!(mistake.confidence > 0)) return;
    while (at > 0 && sums->mistakes[at - 1].confidence < mistake.confidence) at--;
    if (at == MISTAKES_MAX) return;
    if (sums->mistake_count < MISTAKES_MAX) sums->mistake_count++;
    memmove(&sums->mistakes[at + 1], &sums->mistakes[at],
            (size_t)(sums->mistake_count - at - 1) * sizeof mistake);
    sums->mistakes[at] = mistake;
}

static int compare_cells(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

void evaluation_sort(struct evaluation *evaluation)
{
    qsort(evaluation->cells, (size_t)evaluation->images, sizeof *evaluation->cells, compare_cells);
}
