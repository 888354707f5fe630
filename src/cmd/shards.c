#include "cmd/shards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/signature.h"
#include "data/formats/packed.h"

char *shards_path(const char *output, int number)
{
    const char *end = strrchr(output, '.');
    size_t stem = end && strcmp(end, ".pack") == 0 ? (size_t)(end - output) : strlen(output);
    return text_format("%.*s-%04d.pack", (int)stem, output, number);
}

/* It is enough that a file of this name is the shard of this number: a larger new set would replace it as
 * well. */
static bool is_leftover(const char *path, int number)
{
    struct packed_set set;
    return packed_set_of(path, &set) && set.count > (uint32_t)number && set.number == (uint32_t)number;
}

enum status shards_check_existing(const char *output, int count, int *replaced)
{
    *replaced = 0;
    for (int i = 0; i < PACKED_SHARDS_MAX; i++) {
        char *path = shards_path(output, i);
        bool there = access(path, F_OK) == 0;
        bool good = !there || (i < count ? signature_matches(&directory_working, path, PACKED_SIGNATURE)
                                         : is_leftover(path, i));
        *replaced += there && i < count;
        enum status status = OK;
        if (!good)
            status = fail(BAD_DATA, "%s: has the name of one of the %d shards but is not from an earlier "
                          "set; remove it first, or write elsewhere", path, count);
        free(path);
        TRY(status);
    }
    return OK;
}

enum status shards_remove_leftovers(const char *output, int count)
{
    enum status status = OK;
    for (int i = count; i < PACKED_SHARDS_MAX && status == OK; i++) {
        char *path = shards_path(output, i);
        if (is_leftover(path, i)) {
            if (unlink(path) != 0)
                status = fail(FAILED, "%s: cannot be removed: %s", path, strerror(errno));
            else
                log_warning("%s: removed; it was a surplus shard of an earlier set", path);
        }
        free(path);
    }
    return status;
}
