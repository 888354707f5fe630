#include "base/host.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

/* Names of a control group's files. Linux, Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst. */
struct version {
    const char *folder;          /* root of control groups */
    const char *limit, *used;
    const char *cache;           /* line of memory.stat: reclaimable files */
};
static const struct version version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                         "memory.usage_in_bytes", "total_inactive_file"};
static const struct version version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

struct bytes {
    size_t available, total;
};

static FILE *open_at(const char *root, const char *folder, const char *group, const char *name)
{
    char *path = text_format("%s%s%s/%s", root, folder, group, name);
    FILE *file = fopen(path, "re");
    free(path);
    return file;
}

/* False if it is not a number: "max". */
static bool read_number(FILE *file, size_t *number)
{
    bool read = file && fscanf(file, "%zu", number) == 1;
    if (file) fclose(file);
    return read;
}

/* 0 if there is no such line. */
static size_t read_line(FILE *file, const char *name)
{
    char line[256], key[128];
    size_t number, found = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %zu", key, &number) == 2 && strcmp(key, name) == 0) found = number;
    if (file) fclose(file);
    return found;
}

static void limit_by(const char *root, const struct version *version, const char *group, struct bytes *bytes)
{
    size_t limit, used = 0;
    if (!read_number(open_at(root, version->folder, group, version->limit), &limit)) return;
    read_number(open_at(root, version->folder, group, version->used), &used);
    size_t cache = read_line(open_at(root, version->folder, group, "memory.stat"), version->cache);
    used = used > cache ? used - cache : 0;
    size_t left = limit > used ? limit - used : 1;
    if (limit < bytes->total) bytes->total = limit;
    if (left < bytes->available) bytes->available = left;
}

/* A group is limited by its ancestors as well. Inside a container, its own group is often the root. */
static void limit_by_groups_of(const char *root, const struct version *version, char *group,
                               struct bytes *bytes)
{
    for (;;) {
        limit_by(root, version, group, bytes);
        char *last = strrchr(group, '/');
        if (!last) return;
        *last = '\0';
    }
}

/* Lines "ID:CONTROLLERS:GROUP". */
static void limit_by_groups(const char *root, struct bytes *bytes)
{
    FILE *file = open_at(root, "/proc/self", "", "cgroup");
    char line[4096];
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        if (controllers[1] == '\0') limit_by_groups_of(root, &version_2, group, bytes);
        if (strcmp(controllers + 1, "memory") == 0) limit_by_groups_of(root, &version_1, group, bytes);
    }
    if (file) fclose(file);
}

void host_memory_under(const char *root, size_t *available, size_t *total)
{
    struct bytes bytes = {
        .total = read_line(open_at(root, "/proc", "", "meminfo"), "MemTotal:") << 10,
        .available = read_line(open_at(root, "/proc", "", "meminfo"), "MemAvailable:") << 10,
    };
    limit_by_groups(root, &bytes);
    *available = bytes.available;
    *total = bytes.total;
}

void host_memory(size_t *available, size_t *total)
{
    host_memory_under("", available, total);
}

int host_processors(void)
{
    cpu_set_t cpus;
    bool known = sched_getaffinity(0, sizeof cpus, &cpus) == 0;      /* up to 1024 */
    int count = known ? CPU_COUNT(&cpus) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? count : 1;
}
