#include "input/train_sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define SIDE_MAX 65536
#define EPOCH_MAX 1000000

static enum status refuse(const struct settings *settings, const char *word)
{
    return settings_refuse(settings, "augment", "sizes", "'%s' must be SIZE@EPOCH, such as 128@1: a side, or "
                           "height and width, of 1 to %d, and an epoch after that of the size before", word,
                           SIDE_MAX);
}

static enum status read_one(const struct settings *settings, const char *word, struct train_sizes *sizes)
{
    static const struct field field = {.name = "size", .type = FIELD_IMAGE_SIZE, .min = 1, .max = SIDE_MAX};
    struct train_size size;
    struct reason unsaid;
    int used = 0;
    const char *at = strchr(word, '@');
    int64_t before = sizes->count > 0 ? sizes->list[sizes->count - 1].epoch : 0;
    bool read = at && sscanf(at, "@%7" SCNd64 "%n", &size.epoch, &used) == 1 && at[used] == '\0';
    char *image = text_format("%.*s", at ? (int)(at - word) : 0, word);
    read = read && field_parse(&field, &size.size, image, &unsaid);
    free(image);
    if (!read || size.epoch <= before || size.epoch > EPOCH_MAX) return refuse(settings, word);
    *array_push(sizes->list, sizes->count) = size;
    return OK;
}

static enum status check_covered(const struct settings *settings, struct image_size size,
                                 struct image_size most)
{
    if (size.h <= most.h && size.w <= most.w) return OK;
    return settings_refuse(settings, "augment", "sizes", "%dx%d is larger than %dx%d in one direction and "
                           "smaller in the other", size.h, size.w, most.h, most.w);
}

/* Memory is planned for the largest size. */
static enum status check_most(const struct settings *settings, const struct train_sizes *sizes)
{
    struct image_size crop = settings->augment.crop, most = train_sizes_most(sizes, crop);
    TRY(check_covered(settings, train_sizes_at(sizes, 0, crop), most));
    for (int i = 0; i < sizes->count; i++) TRY(check_covered(settings, sizes->list[i].size, most));
    return OK;
}

enum status train_sizes_read(const struct settings *settings, struct train_sizes *sizes)
{
    char *words = text_copy(settings->augment.sizes ? settings->augment.sizes : ""), *rest = NULL;
    enum status status = OK;
    for (char *word = strtok_r(words, ", ", &rest); word && status == OK; word = strtok_r(NULL, ", ", &rest))
        status = read_one(settings, word, sizes);
    free(words);
    return status == OK ? check_most(settings, sizes) : status;
}

void train_sizes_free(struct train_sizes *sizes)
{
    free(sizes->list);
    *sizes = (struct train_sizes){0};
}

struct image_size train_sizes_at(const struct train_sizes *sizes, int64_t epoch, struct image_size otherwise)
{
    struct image_size size = otherwise;
    for (int i = 0; i < sizes->count && sizes->list[i].epoch <= epoch + 1; i++) size = sizes->list[i].size;
    return size;
}

struct image_size train_sizes_most(const struct train_sizes *sizes, struct image_size otherwise)
{
    struct image_size most = train_sizes_at(sizes, 0, otherwise);
    for (int i = 0; i < sizes->count; i++) {
        struct image_size size = sizes->list[i].size;
        if ((int64_t)size.h * size.w > (int64_t)most.h * most.w) most = size;
    }
    return most;
}
