#include "device/rapl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

struct package {
    int zone;
    uint64_t last;                   /* microjoules */
};

struct rapl {
    const char *root;
    struct package *packages;
    int count;
    double joules;                   /* NAN: a counter could not be read */
};

static FILE *open_at(const struct rapl *rapl, int zone, const char *name)
{
    char *path = text_format("%s/sys/class/powercap/intel-rapl:%d/%s", rapl->root, zone, name);
    FILE *file = fopen(path, "re");
    free(path);
    return file;
}

static bool read_number(const struct rapl *rapl, int zone, const char *name, uint64_t *number)
{
    FILE *file = open_at(rapl, zone, name);
    bool read = file && fscanf(file, "%" SCNu64, number) == 1;
    if (file) fclose(file);
    return read;
}

/* "package-0", "package-1-die-0"; of other zones, "psys" includes them. False if there is no such zone. */
static bool read_name(const struct rapl *rapl, int zone, char name[64])
{
    FILE *file = open_at(rapl, zone, "name");
    bool read = file && fgets(name, 64, file);
    if (file) fclose(file);
    return read;
}

struct rapl *rapl_open(const char *root)
{
    struct rapl *rapl = memory_new(1, sizeof *rapl);
    char name[64];
    rapl->root = root;
    for (int zone = 0; read_name(rapl, zone, name); zone++) {
        uint64_t now;
        if (strncmp(name, "package", 7) != 0) continue;
        if (!read_number(rapl, zone, "energy_uj", &now)) rapl->joules = NAN;
        else *array_push(rapl->packages, rapl->count) = (struct package){zone, now};
    }
    if (rapl->count == 0) rapl->joules = NAN;
    return rapl;
}

double rapl_joules(struct rapl *rapl)
{
    for (int i = 0; i < rapl->count; i++) {
        struct package *package = &rapl->packages[i];
        uint64_t now, range = 0;
        if (!read_number(rapl, package->zone, "energy_uj", &now)) return rapl->joules = NAN;
        if (now < package->last && !read_number(rapl, package->zone, "max_energy_range_uj", &range))
            return rapl->joules = NAN;
        rapl->joules += 1e-6 * (double)(now + range - package->last);
        package->last = now;
    }
    return rapl->joules;
}

void rapl_close(struct rapl *rapl)
{
    if (!rapl) return;
    free(rapl->packages);
    free(rapl);
}
