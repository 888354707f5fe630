#include "data/dataset/by_class.h"

#include <stdlib.h>

#include "base/memory.h"

struct subset_labels {
    const struct dataset *dataset;
    const int64_t *subset;
};

static int label_of(const struct subset_labels *listed, int64_t position)
{
    const struct dataset *dataset = listed->dataset;
    int64_t index = listed->subset ? listed->subset[position] : position;
    return dataset->format->label ? dataset->format->label(dataset, index) : 0;
}

struct by_class by_class_make(const struct dataset *dataset, const int64_t *subset, int64_t count)
{
    const struct subset_labels listed = {dataset, subset};
    size_t classes = (size_t)dataset->classes;
    struct by_class by = {.images = memory_new((size_t)count, sizeof *by.images)};
    by.begins = memory_new(classes + 1, sizeof *by.begins);
    int64_t *next = memory_new(classes + 1, sizeof *next);
    for (int64_t i = 0; i < count; i++) next[label_of(&listed, i) + 1]++;
    for (size_t k = 0; k < classes; k++) {
        if (next[k + 1] > 0) by.begins[++by.classes] = next[k] + next[k + 1];
        next[k + 1] += next[k];
    }
    for (int64_t i = 0; i < count; i++) by.images[next[label_of(&listed, i)]++] = i;
    free(next);
    return by;
}

void by_class_free(struct by_class *by)
{
    free(by->images);
    free(by->begins);
    *by = (struct by_class){0};
}
