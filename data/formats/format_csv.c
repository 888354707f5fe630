/* A table of image files and their labels, or numbers, as comma-separated values. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/dataset/dataset.h"
#include "data/formats/csv_table.h"

/* Files that are looked for when the table is opened. */
#define LOOKED_FOR 20000

struct csv_data {
    char *path;
    char *folder;              /* that its paths are relative to, with '/'; "": the working folder */
    char *extension;           /* of names without one, with its dot; "": none */
    struct csv_table table;
};

static char *folder_of(const char *path, const char *root)
{
    if (root) return text_format("%s/", root);
    const char *slash = strrchr(path, '/');
    return slash ? text_format("%.*s", (int)(slash + 1 - path), path) : text_copy("");
}

static const char *csv_image_name(const struct dataset *dataset, int64_t index)
{
    const struct csv_data *csv = dataset->state;
    return csv->table.paths[index];
}

/* Without printf: it is called for every image. */
static char *csv_path(const struct csv_data *csv, const char *name, const char *extension)
{
    size_t folder = *name == '/' ? 0 : strlen(csv->folder), rest = strlen(name);
    char *path = memory_new(folder + rest + strlen(extension) + 1, 1);
    memcpy(path, csv->folder, folder);
    memcpy(path + folder, name, rest);
    strcpy(path + folder + rest, extension);
    return path;
}

static char *csv_image_path(const struct dataset *dataset, int64_t index)
{
    const struct csv_data *csv = dataset->state;
    const char *name = csv->table.paths[index];
    return csv_path(csv, name, *csv->extension && !image_is_named(name) ? csv->extension : "");
}

static char *csv_mask_path(const struct dataset *dataset, int64_t index)
{
    const struct csv_data *csv = dataset->state;
    return csv_path(csv, csv->table.masks[index], "");
}

/* True if a file is missing, and why; frees the path. */
static bool is_missing(char *path, struct reason *reason)
{
    struct stat status;
    bool good = (stat(path, &status) == 0 || because_errno(reason, path)) &&
                (S_ISREG(status.st_mode) || because_of(reason, path, "is no regular file"));
    free(path);
    return !good;
}

/* Some missing files are left to data.on_error, as unreadable ones are. */
static enum status find_missing(const struct csv_data *csv, const struct dataset *dataset)
{
    int64_t count = dataset->count, looked = count < LOOKED_FOR ? count : LOOKED_FOR, missing = 0, first = 0;
    struct reason reason, why = {0};
    for (int64_t i = 0; i < looked; i++) {
        int64_t index = (int64_t)((double)i / (double)looked * (double)count);
        bool there = !is_missing(csv_image_path(dataset, index), &reason) &&
                     (!csv->table.masks || !is_missing(csv_mask_path(dataset, index), &reason));
        if (there) continue;
        if (missing++ > 0) continue;
        first = index;
        why = reason;
    }
    if (missing == 0) return OK;
    char place[CSV_TABLE_PLACE];
    csv_table_place(&csv->table, csv->path, csv_table_line(&csv->table, first), place);
    if (missing == looked)
        return fail(BAD_DATA, "%s: %s; nor is any other file%s there: paths are relative to the "
                    "table's folder or data.root, and data.extension is added to names without one", place,
                    why.text, looked < count ? " that was looked for" : "");
    log_warning("%s: %s; %" PRId64 " of %" PRId64 " files%s are missing", place, why.text,
                missing, looked, looked < count ? " that were looked for" : "");
    return OK;
}

static enum status csv_open(const struct dataset_options *options, struct dataset *dataset)
{
    struct csv_data *csv = dataset->state = memory_new(1, sizeof *csv);
    struct csv_table *table = &csv->table;
    if (!options->path) return fail(BAD_DATA, "csv: no file is given; set data.train");
    csv->path = text_copy(options->path);
    csv->folder = folder_of(options->path, options->table.root);
    const char *extension = options->table.extension ? options->table.extension : "";
    csv->extension = text_format("%s%s", *extension && *extension != '.' ? "." : "", extension);
    TRY(csv_table_read(csv->path, options->target, options->table.columns, table));
    if (table->left_out && !options->class_names)
        log_info("%s: columns left out, which are no labels: %s", csv->path, table->left_out);
    if (!table->masks && table->classes == 0 && !options->class_names)
        return fail(BAD_DATA, "%s: no image has a label", csv->path);
    dataset->target = table->kind;
    dataset->classes = table->masks ? 1 : table->classes;
    dataset->class_names = text_list(table->names, table->classes, dataset->classes);
    dataset->count = table->count;
    dataset->c = dataset_channels(options);
    dataset->decoded = true;
    return find_missing(csv, dataset);
}

static int csv_label(const struct dataset *dataset, int64_t index)
{
    const struct csv_table *table = &((const struct csv_data *)dataset->state)->table;
    return table->kind == TARGET_CLASS ? dataset_number(dataset, table->labels[index]) : 0;
}

static double csv_number(const struct dataset *dataset, int64_t index)
{
    const struct csv_table *table = &((const struct csv_data *)dataset->state)->table;
    return table->numbers[index];
}

static void csv_labels(const struct dataset *dataset, int64_t index, float *target)
{
    const struct csv_table *table = &((const struct csv_data *)dataset->state)->table;
    memset(target, 0, (size_t)dataset->classes * sizeof *target);
    int64_t begin = table->begins ? table->begins[index] : index;
    int64_t end = table->begins ? table->begins[index + 1] : index + 1;
    for (int64_t i = begin; i < end; i++) target[dataset_number(dataset, table->labels[i])] = 1;
}

static uint64_t csv_group(const struct dataset *dataset, int64_t index)
{
    const struct csv_table *table = &((const struct csv_data *)dataset->state)->table;
    return table->groups ? table->groups[index] : 0;
}

static void csv_close(struct dataset *dataset)
{
    struct csv_data *csv = dataset->state;
    if (!csv) return;
    csv_table_free(&csv->table);
    free(csv->path);
    free(csv->folder);
    free(csv->extension);
    free(csv);
}

const struct format format_csv = {
    .name = "csv",
    .help = "a table (CSV, .jsonl, COCO's .json): a column path, and label, labels (A;B), value, or columns "
            "of 0 and 1; perhaps group",
    .open = csv_open,
    .read = dataset_file_decode,
    .label = csv_label,
    .labels = csv_labels,
    .number = csv_number,
    .group = csv_group,
    .read_file = dataset_file_read,
    .image_name = csv_image_name,
    .contents = dataset_file_contents,
    .masks = &(const struct format_masks){.path = csv_mask_path},
    .image_path = csv_image_path,
    .close = csv_close,
};
