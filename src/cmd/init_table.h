/* init_table.h: examines a table for `amptrain init`: which columns mean what, and where its images are. */
#pragma once

#include "base/status.h"

/* Settings that the table needs; NULL each: none. */
struct init_table {
    char *columns, *extension, *root;
};

/* Looks at the beginning of a table (CSV): a column of names of images, below its folder, perhaps without
 * their extension, and one of labels, if their names do not say it. USAGE: which column is the label cannot
 * be told; the message has the choice. */
enum status init_table_look(const char *path, struct init_table *table);
void init_table_free(struct init_table *table);        /* accepts a zeroed struct */
