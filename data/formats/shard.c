#include "data/formats/shard.h"

#include <errno.h>
#include <string.h>

#include "base/file.h"

bool shard_read(const struct shard *shard, uint64_t at, void *to, size_t count, struct reason *reason)
{
    ssize_t got = file_read(shard->file, to, count, (int64_t)at);
    if (got < 0) return because_of(reason, shard->path, strerror(errno));
    return (size_t)got == count ||
           because_of(reason, shard->path, "truncated while it was read");
}
