#include "data/dataset.h"

#include <stdlib.h>

enum status dataset_open(const struct format *format, const struct dataset_options *options,
                         struct dataset *dataset)
{
    struct dataset opened = {.format = format};
    enum status status = format->open(options, &opened);
    if (status != OK) {
        dataset_close(&opened);
        return status;
    }
    *dataset = opened;
    return OK;
}

void dataset_close(struct dataset *dataset)
{
    if (dataset->held) return;
    if (dataset->format) dataset->format->close(dataset);
    for (int i = 0; dataset->class_names && i < dataset->classes; i++) free(dataset->class_names[i]);
    free(dataset->class_names);
    *dataset = (struct dataset){0};
}
