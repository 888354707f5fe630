#include "input/sampled_sizes.h"

#include <stdlib.h>

#include "base/text.h"

int sampled_count(const struct images *images)
{
    return images->count < SAMPLED_SIZES ? (int)images->count : SAMPLED_SIZES;
}

static int64_t sampled_index(const struct images *images, int number)
{
    return images_index(images, number * images->count / sampled_count(images));
}

bool sampled_facts(const struct images *images, int number, struct image_facts *facts)
{
    struct reason reason;
    return dataset_image_facts(images->dataset, sampled_index(images, number), facts, &reason);
}

/* True if the file's name is one of a format that has 8 bits. */
static bool is_shallow(const struct images *images, int number)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".JPG", ".JPEG", ".webp"};
    char *path = dataset_image_path(images->dataset, sampled_index(images, number));
    bool shallow = false;
    for (size_t i = 0; path && i < sizeof endings / sizeof *endings; i++)
        shallow = shallow || text_ends_in(path, endings[i]);
    free(path);
    return shallow;
}

bool sampled_deep(const struct images *images)
{
    bool files = images->dataset && images->dataset->decoded && images->dataset->format->read_file;
    for (int i = 0; files && i < sampled_count(images); i++) {
        struct image_facts facts;
        if (!is_shallow(images, i) && sampled_facts(images, i, &facts) && facts.deep) return true;
    }
    return false;
}
