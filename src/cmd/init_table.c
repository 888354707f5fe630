#include "cmd/init_table.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv_reader.h"
#include "base/directory.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/formats/csv_columns.h"
#include "data/formats/json_table.h"

#define BEGINNING 65536      /* bytes of a table that are read */
#define COLUMNS 256
#define RECORDS 500
#define LOOKED_FOR 5         /* files */
#define FOLDERS_MAX 256
#define CLASSES_MOST 0.5     /* different labels, as a share of the images seen; more are no classes */

/* The beginning of a table. */
struct sample {
    char *text;
    char *header[COLUMNS];
    char *cells[RECORDS][COLUMNS];
    int columns, records;
    char **folders;          /* that images may be in: the table's own, and those below it */
    int folder_count;
};

static bool sample_read(const char *path, struct sample *sample)
{
    struct csv_reader reader;
    struct reason unsaid;
    FILE *file = directory_stream(&directory_working, path, "r", &unsaid);
    sample->text = memory_new(BEGINNING + 1, 1);
    size_t bytes = file ? fread(sample->text, 1, BEGINNING, file) : 0;
    if (file) fclose(file);
    if (!csv_reader_open(&reader, sample->text, bytes, &unsaid)) return false;
    sample->columns = csv_reader_next(&reader, sample->header, COLUMNS, &unsaid);
    if (sample->columns < 1 || sample->columns > COLUMNS) return false;
    while (sample->records < RECORDS &&
           csv_reader_next(&reader, sample->cells[sample->records], COLUMNS, &unsaid) == sample->columns)
        sample->records++;
    if (bytes == BEGINNING && sample->records > 1) sample->records--;      /* the last one may be cut off */
    return sample->records > 0;
}

/* Folders below one, to a depth. */
static void add_folders(const char *path, int depth, struct sample *sample)
{
    if (sample->folder_count == FOLDERS_MAX) return;
    *array_push(sample->folders, sample->folder_count) = text_copy(path);
    DIR *folder = depth > 0 ? opendir(path) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char *below = text_format("%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && directory_is(below)) add_folders(below, depth - 1, sample);
        free(below);
    }
    if (folder) closedir(folder);
}

/* ---- Images ---- */

/* True if the first cells of a column, with an extension, are files in a folder. */
static bool has_files(const struct sample *sample, int column, const char *folder, const char *extension)
{
    int looked = sample->records < LOOKED_FOR ? sample->records : LOOKED_FOR;
    for (int i = 0; i < looked; i++) {
        const char *name = sample->cells[i][column];
        bool whole = *name == '/';
        char *path = text_format("%s%s%s%s", whole ? "" : folder, whole ? "" : "/", name, extension);
        bool has = *name && directory_has(&directory_working, path) && !directory_is(path);
        free(path);
        if (!has) return false;
    }
    return true;
}

/* The first column, folder and extension of which there are files. */
static bool find_images(const struct sample *sample, int *column, int *folder, const char **extension)
{
    static const char *const extensions[] = {"", ".jpg", ".png", ".jpeg", ".tif", ".tiff", ".webp", ".JPG",
                                             ".PNG"};
    for (size_t e = 0; e < sizeof extensions / sizeof *extensions; e++)
        for (*column = 0; *column < sample->columns; ++*column)
            for (*folder = 0; *folder < sample->folder_count; ++*folder) {
                *extension = extensions[e];
                if (has_files(sample, *column, sample->folders[*folder], *extension)) return true;
            }
    return false;
}

/* ---- Labels ---- */

static bool is_number(const char *cell)
{
    char *end;
    strtod(cell, &end);
    return end > cell && *end == '\0';
}

/* True if a column may be one of classes: two or few different ones; if they are numbers, whole ones. */
static bool may_be_label(const struct sample *sample, int column)
{
    int different = 0;
    for (int i = 0; i < sample->records; i++) {
        const char *cell = sample->cells[i][column];
        bool seen = false;
        if (!*cell || (is_number(cell) && strpbrk(cell, ".eE"))) return false;
        for (int k = 0; k < i && !seen; k++) seen = strcmp(sample->cells[k][column], cell) == 0;
        different += !seen;
    }
    return different == 2 || (different > 2 && different <= CLASSES_MOST * sample->records);
}

static bool is_flag(const struct sample *sample, int column)
{
    for (int i = 0; i < sample->records; i++)
        if (csv_columns_flag(sample->cells[i][column]) < 0) return false;
    return true;
}

/* The only column that may be one of classes; without one, columns of 0 and 1 are labels by themselves. */
static enum status find_label(const char *path, const struct sample *sample, int image, int *label)
{
    struct text choice = {0};
    char shown[64];
    int found = 0, flags = 0;
    for (int i = 0; i < sample->columns; i++) {
        if (i == image || csv_columns_index(sample->header[i], i) || !may_be_label(sample, i)) continue;
        if (is_flag(sample, i)) flags++;
        found++;
        *label = i;
        text_visible(sample->header[i], shown, sizeof shown);
        text_add(&choice, "%s'%s'", choice.data ? ", " : "", shown);
    }
    enum status status = OK;
    if (flags == found && flags > 1) *label = -1;
    else if (found != 1)
        status = fail(USAGE, "init: %s: which column is the label? %s%s; --columns image:%s,label:NAME says "
                      "it", path, choice.data ? "It may be " : "None looks like classes",
                      choice.data ? choice.data : "", sample->header[image]);
    text_free(&choice);
    return status;
}

/* ---- */

/* True if the names of the columns say enough, but for the extension and the folder. */
static bool is_known(const struct sample *sample, const char *columns)
{
    struct csv_columns known = {.count = sample->columns, .header = (char **)sample->header};
    char nothing[1] = "";
    struct csv_reader none = {.at = nothing, .end = nothing, .separator = ','};
    struct reason unsaid;
    bool is = csv_columns_find(&known, columns, false, &none, &unsaid) == OK &&
              (known.given[COLUMN_LABEL] || known.given[COLUMN_LABELS] || known.given[COLUMN_VALUE]);
    free(known.kinds);
    text_free(&known.left_out);
    return is;
}

static enum status look(const char *path, struct sample *sample, struct init_table *table)
{
    int image, folder, label = -1;
    const char *extension;
    if (!find_images(sample, &image, &folder, &extension)) return OK;
    if (*extension) table->extension = text_copy(extension);
    if (folder > 0) table->root = text_copy(sample->folders[folder]);
    if (table->columns || is_known(sample, NULL)) return OK;
    char *columns = text_format("image:%s", sample->header[image]);
    enum status status = is_known(sample, columns) ? OK : find_label(path, sample, image, &label);
    if (status == OK)
        table->columns = label < 0 ? text_copy(columns)
                                   : text_format("%s,label:%s", columns, sample->header[label]);
    free(columns);
    return status;
}

enum status init_table_look(const char *path, struct init_table *table)
{
    struct sample *sample = memory_new(1, sizeof *sample);
    const char *slash = strrchr(path, '/');
    char *folder = slash ? text_format("%.*s", (int)(slash - path), path) : text_copy(".");
    enum status status = OK;
    add_folders(folder, 2, sample);
    if (json_table_kind(path) == JSON_NONE && sample_read(path, sample)) status = look(path, sample, table);
    text_list_free(sample->folders, (size_t)sample->folder_count);
    free(sample->text);
    free(sample);
    free(folder);
    return status;
}

void init_table_free(struct init_table *table)
{
    free(table->columns);
    free(table->extension);
    free(table->root);
    *table = (struct init_table){0};
}
