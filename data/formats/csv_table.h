/* csv_table.h: a table of images and their labels, as data.format=csv has it: read into memory that is in
 * proportion to the paths in it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset/target.h"
#include "data/formats/json_table.h"

struct csv_table {
    enum json_table json;      /* what the file was */
    enum target_kind kind;
    int64_t count;
    char **paths;              /* [count] as they are in the table, in `text` */
    char **names;              /* [classes] of labels, in bytewise order, or of columns, in theirs; for a
                                * number the column's */
    int classes;
    int32_t *labels;           /* of all images, one after another: numbers of classes */
    int64_t *begins;           /* [count + 1]: where those of each image begin; NULL: each has one */
    char **masks;              /* [count] likewise, if `kind` is TARGET_MASK */
    double *numbers;           /* [count] if `kind` is TARGET_NUMBER */
    uint64_t *groups;          /* [count] hashes of their names; 0: in no group. NULL: no image is in one */
    int64_t *lines;            /* [count] of a file of lines; NULL: one after another from 2 on */
    bool columns;              /* labels are columns of 0 and 1 */
    char *text;
    char *left_out;            /* names of the columns that are no labels; NULL: none */
};

/* Reads the file at `path`, whose labels are to be of that kind; perhaps no image has one. `columns`:
 * data.columns, or NULL. BAD_DATA with file and line, of the first of several mistakes. */
enum status csv_table_read(const char *path, enum target_kind kind, const char *columns,
                           struct csv_table *table);
void csv_table_free(struct csv_table *table);          /* accepts a zeroed struct */

/* "FILE:12", or "FILE: images[10]" of JSON: where a line is in the file, of which it was made. */
#define CSV_TABLE_PLACE 512
const char *csv_table_place(const struct csv_table *table, const char *path, int64_t line,
                            char place[CSV_TABLE_PLACE]);

static inline int64_t csv_table_line(const struct csv_table *table, int64_t image)
{
    return table->lines ? table->lines[image] : image + 2;
}
