#include "base/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Lowers *most to the limit that a file holds, if there is one. */
static void limit_by(const char *folder, const char *group, const char *name, size_t *most)
{
    char *path = text_format("%s%s/%s", folder, group, name);
    FILE *file = fopen(path, "re");
    size_t bytes;
    if (file && fscanf(file, "%zu", &bytes) == 1 && bytes < *most) *most = bytes;
    if (file) fclose(file);
    free(path);
}

/* Seen from inside of a container, its own group is often the root. */
static void limit_by_group(const char *folder, const char *group, const char *name, size_t *most)
{
    limit_by(folder, group, name, most);
    limit_by(folder, "", name, most);
}

/* Linux, Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst: lines "ID:CONTROLLERS:GROUP". */
static void limit_by_groups(size_t *most)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[4096];
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        if (controllers[1] == '\0') limit_by_group("/sys/fs/cgroup", group, "memory.max", most);
        if (strcmp(controllers + 1, "memory") == 0)
            limit_by_group("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", most);
    }
    if (file) fclose(file);
}

void host_memory(size_t *available, size_t *total)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    size_t kilobytes;
    *available = *total = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemTotal: %zu", &kilobytes) == 1) *total = kilobytes << 10;
        if (sscanf(line, "MemAvailable: %zu", &kilobytes) == 1) *available = kilobytes << 10;
    }
    if (file) fclose(file);
    limit_by_groups(total);
    if (*available > *total) *available = *total;
}
