/* csv_columns.h: the meaning of the columns of a table: by their names, or as data.columns says. */
#pragma once

#include "base/csv_reader.h"
#include "base/text.h"

enum column { COLUMN_PATH, COLUMN_LABEL, COLUMN_LABELS, COLUMN_VALUE, COLUMN_GROUP, COLUMN_MASK,
              COLUMN_FLAG,               /* of 0 and 1, or False and True: its name is a label */
              COLUMN_NONE };             /* it has no meaning here */

struct csv_columns {
    int count;
    char **header;                       /* [count] their names */
    enum column *kinds;                  /* [count] */
    int given[COLUMN_NONE + 1];          /* how many columns of each kind there are */
    int place[COLUMN_NONE + 1];          /* the first of them */
    struct text left_out;                /* the names of those that are no labels; no data: none */
};

/* Finds the meaning of columns whose names are set. `named` is data.columns, NULL: names alone count. Without
 * a column of labels by name, those are labels whose first cells, from `records` on, are mostly 0 and 1;
 * `masks`: labels do not count. USAGE: `named` is wrong; BAD_DATA. */
enum status csv_columns_find(struct csv_columns *columns, const char *named, bool masks,
                             const struct csv_reader *records, struct reason *reason);

/* 0 and 1 of such a cell; -1: it is neither. */
int csv_columns_flag(const char *cell);

/* True for the index that pandas writes: a first column without a name, "Unnamed: 0" the next time. */
bool csv_columns_index(const char *name, int place);
