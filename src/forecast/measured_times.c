#include "forecast/measured_times.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/memory.h"

struct row {
    const char *name;        /* the JSON's */
    double seconds, bytes;
};

struct measured_times {
    json_t *root;
    struct row *rows;        /* by name */
    int count;
};

/* Instructions are measured serialised, which takes longer than the step in which they overlap: times are
 * scaled to add up to the step. */
static bool read_rows(struct measured_times *times)
{
    const json_t *layers = json_object_get(times->root, "layers");
    double step = 1e-3 * json_number_value(json_object_get(times->root, "step_ms_median")), sum = 0;
    size_t count = json_array_size(layers);
    for (size_t k = 0; k < count; k++) {
        const json_t *layer = json_array_get(layers, k);
        const struct row row = {
            .name = json_string_value(json_object_get(layer, "name")),
            .seconds = 1e-3 * json_number_value(json_object_get(layer, "ms")),
            .bytes = json_number_value(json_object_get(layer, "bytes")),
        };
        if (!row.name || row.seconds < 0 || row.bytes < 0) return false;
        sum += row.seconds;
        *array_push(times->rows, times->count) = row;
    }
    if (count == 0 || step <= 0 || sum <= 0) return false;
    for (int k = 0; k < times->count; k++) times->rows[k].seconds *= step / sum;
    qsort(times->rows, count, sizeof *times->rows, text_compare);
    return true;
}

enum status measured_times_open(const char *path, struct measured_times **times)
{
    struct reason reason;
    json_error_t error;
    FILE *file = directory_stream_within(&directory_working, path, "r", 64 << 20, &reason);
    if (!file) return fail(BAD_DATA, "cannot read %s: %s", path, reason.text);
    struct measured_times *made = memory_new(1, sizeof *made);
    made->root = json_loadf(file, 0, &error);
    fclose(file);
    if (made->root && read_rows(made)) {
        *times = made;
        return OK;
    }
    if (made->root)
        fail(BAD_DATA, "%s: no times of instructions, as 'amptrain bench --layers --json' prints them", path);
    else
        fail(BAD_DATA, "%s:%d: %s", path, error.line, error.text);
    measured_times_close(made);
    return BAD_DATA;
}

void measured_times_close(struct measured_times *times)
{
    if (!times) return;
    json_decref(times->root);
    free(times->rows);
    free(times);
}

double measured_times_find(const struct measured_times *times, const char *name, double bytes, double call)
{
    const struct row key = {.name = name};
    const struct row *row = bsearch(&key, times->rows, (size_t)times->count, sizeof key, text_compare);
    if (!row) return NAN;
    if (row->seconds <= call || row->bytes <= 0) return row->seconds;
    return call + (row->seconds - call) * bytes / row->bytes;
}
