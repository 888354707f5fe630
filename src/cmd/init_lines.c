#include "cmd/init_lines.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/ini.h"

void init_add(struct text *out, const char *key, const char *comment, const char *format, ...)
{
    char value[PATH_MAX + 64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    size_t start = out->length;
    text_add(out, "%s = ", key);
    ini_add_value(out, value);
    int width = (int)(out->length - start);
    ini_add_comment(out, width < 27 ? 28 - width : 1, comment);
    text_add(out, "\n");
}

void init_add_size(struct text *out, const char *key, const char *comment, struct image_size size)
{
    if (size.h == size.w) init_add(out, key, comment, "%d", size.h);
    else init_add(out, key, comment, "%dx%d", size.h, size.w);
}

/* A path as it must be written in a configuration `file` (NULL: here); in `whole` if that differs. */
static const char *path_from(const char *file, const char *path, char whole[PATH_MAX])
{
    bool here = !file || !strchr(file, '/');
    return !here && realpath(path, whole) ? whole : path;
}

void init_add_path(struct text *out, const char *key, const char *path, const char *file,
                     const char *comment)
{
    char whole[PATH_MAX];
    init_add(out, key, comment, "%s", path_from(file, path, whole));
}

void init_add_numbers(struct text *out, const char *key, const double *values, int count,
                        const char *comment)
{
    char list[16 * IMAGE_BANDS_MAX];
    int length = 0;
    for (int c = 0; c < count; c++)
        length += snprintf(list + length, sizeof list - (size_t)length, "%s%.4g", c ? " " : "", values[c]);
    init_add(out, key, comment, "%s", list);
}

void init_add_samples(struct text *out, const struct init_findings *found)
{
    const struct image_range *range = &found->samples.range;
    if (found->samples.own_channels)
        init_add(out, "channels", "of the files; bands = 4,3,2 would name some", "%d", found->channels);
    if (range->set)
        init_add(out, "range", "becomes 0 to 1: nearly all samples lie in it", "%.9g,%.9g", range->low,
                 range->high);
}

#define FORGET 0.02    /* the part of their first values that running statistics have after half an epoch */

/* Running statistics that follow slowly are those of a network that is long gone, and a deep one multiplies
 * the error of each layer's (bench/NOTES.md). */
void init_add_momentum(struct text *out, const struct init_findings *found, int batch)
{
    double kept = found->train && !found->val ? 0.8 : 1;      /* some are held out */
    double steps = fmax(1, floor(kept * (double)found->images / batch));
    double momentum = 1 - pow(FORGET, 2 / steps);
    if (momentum > 0.1)
        init_add(out, "bn_momentum", "for few steps: running statistics follow faster", "%.2f",
                 fmin(momentum, 0.5));
}
