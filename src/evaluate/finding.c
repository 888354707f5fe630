#include "evaluate/finding.h"

#include <inttypes.h>
#include <stdlib.h>

/* "image 17 (photos/a.jpg)": an image of the batch by its index in the data. */
static void add_image(const struct dataset *dataset, int64_t index, struct text *text)
{
    char *path = dataset_image_path(dataset, index);
    text_add(text, "image %" PRId64, index);
    if (path) text_add(text, " (%s)", path);
    free(path);
}

void finding_add(const struct exec_finding *found, const struct dataset *dataset, const struct loader *loader,
                 const struct batch *batch, struct text *text)
{
    int last = found->last < batch->count ? found->last : batch->count - 1, count = last - found->first + 1;
    text_add(text, "%s", found->what.text);
    if (count < 1) return;
    text_add(text, count > 1 ? ", in %d images of the batch, from " : ", in ", count);
    add_image(dataset, loader_image(loader, batch, found->first), text);
    if (count == 1) return;
    text_add(text, " to ");
    add_image(dataset, loader_image(loader, batch, last), text);
}
