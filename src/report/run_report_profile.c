#include <math.h>

#include "report/run_report_parts.h"

#define MIB (1.0 / (1 << 20))

struct column {
    const char *key, *title;
    double scale;            /* 0: it is text */
    int decimals;
};

static const struct column stage_columns[] = {
    {"name", "stage", 0, 0}, {"alone_ms", "alone, ms", 1, 3}, {"exposed_ms", "exposed, ms", 1, 3},
    {"share", "of the step, %", 100, 1}, {NULL, NULL, 0, 0},
};
static const struct column layer_columns[] = {
    {"name", "layer", 0, 0}, {"phase", "phase", 0, 0}, {"op", "op", 0, 0}, {"ms", "ms", 1, 4},
    {"won_ms", "possible gain, ms", 1, 4},
    {"tflops", "TFLOP/s", 1, 3}, {"gbps", "GB/s", 1, 1}, {"share_of_peak", "of the peak, %", 100, 1},
    {"bound", "bound", 0, 0}, {"weight_bytes", "weights, MiB", MIB, 1},
    {"activation_bytes", "activation, MiB", MIB, 1}, {"workspace_bytes", "workspace, MiB", MIB, 1},
    {"share_of_card", "of memory, %", 100, 2}, {"algorithm", "algorithm", 0, 0}, {NULL, NULL, 0, 0},
};

static void add_rows(const json_t *rows, const struct column *columns, struct text *out)
{
    size_t i;
    const json_t *row;
    text_add(out, "<div class=\"scroll lines\"><table><thead><tr>");
    for (const struct column *column = columns; column->key; column++)
        text_add(out, "<th%s>%s</th>", column->scale != 0 ? " class=\"n\"" : "", column->title);
    text_add(out, "</tr></thead><tbody>\n");
    json_array_foreach(rows, i, row) {
        text_add(out, "<tr>");
        for (const struct column *column = columns; column->key; column++) {
            const json_t *value = json_object_get(row, column->key);
            const char *text = json_string_value(value);
            if (column->scale == 0) html_cell(out, text ? text : "");
            else html_number(out, json_is_number(value) ? column->scale * json_number_value(value) : NAN,
                             column->decimals);
        }
        text_add(out, "</tr>\n");
    }
    text_add(out, "</tbody></table></div>\n");
}

void report_add_profile(const struct run_records *records, struct text *out)
{
    json_t *profile = records_json(records, "profile.json");
    const json_t *peaks = json_object_get(profile, "peaks");
    if (profile) {
        html_section(out, "profile", "Profile");
        text_add(out, "<p>A step of %.0f images takes %.3f ms; the device reaches %.3f TFLOP/s and %.1f GB/s."
                 "</p>\n",
                 json_number_value(json_object_get(profile, "batch")),
                 json_number_value(json_object_get(profile, "step_ms")),
                 json_number_value(json_object_get(peaks, "tflops")),
                 json_number_value(json_object_get(peaks, "gbps")));
        add_rows(json_object_get(profile, "stages"), stage_columns, out);
        text_add(out, "<h3>Layers, by the time that could be saved</h3>\n");
        add_rows(json_object_get(profile, "layers"), layer_columns, out);
    }
    json_decref(profile);
}
