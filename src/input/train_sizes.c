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
    return settings_refuse(settings, "augment", "sizes", "'%s' must be SIDE@EPOCH, such as 128@1: a side "
                           "from 1 to %d, and an epoch after that of the size before", word, SIDE_MAX);
}

static enum status read_one(const struct settings *settings, const char *word, struct train_sizes *sizes)
{
    struct train_size size;
    int used = 0;
    int64_t before = sizes->count > 0 ? sizes->list[sizes->count - 1].epoch : 0;
    bool read = sscanf(word, "%7d@%7" SCNd64 "%n", &size.side, &size.epoch, &used) == 2 && word[used] == '\0';
    if (!read || size.side < 1 || size.side > SIDE_MAX || size.epoch <= before || size.epoch > EPOCH_MAX)
        return refuse(settings, word);
    *array_push(sizes->list, sizes->count) = size;
    return OK;
}

enum status train_sizes_read(const struct settings *settings, struct train_sizes *sizes)
{
    char *words = text_copy(settings->augment.sizes ? settings->augment.sizes : ""), *rest = NULL;
    enum status status = OK;
    for (char *word = strtok_r(words, ", ", &rest); word && status == OK; word = strtok_r(NULL, ", ", &rest))
        status = read_one(settings, word, sizes);
    free(words);
    if (status == OK && sizes->count > 0 && settings->parallel.stages > 1)
        status = settings_refuse(settings, "augment", "sizes",
                                 "is not possible in a pipeline (parallel.stages)");
    return status;
}

void train_sizes_free(struct train_sizes *sizes)
{
    free(sizes->list);
    *sizes = (struct train_sizes){0};
}

int train_sizes_at(const struct train_sizes *sizes, int64_t epoch, int otherwise)
{
    int side = otherwise;
    for (int i = 0; i < sizes->count && sizes->list[i].epoch <= epoch + 1; i++) side = sizes->list[i].side;
    return side;
}

int train_sizes_most(const struct train_sizes *sizes, int otherwise)
{
    int most = train_sizes_at(sizes, 0, otherwise);
    for (int i = 0; i < sizes->count; i++)
        if (sizes->list[i].side > most) most = sizes->list[i].side;
    return most;
}
