/* json_table.h: tables of images and labels as JSON: lines of objects, or COCO's file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum json_table { JSON_NONE, JSON_LINES, JSON_COCO };

/* The kind that the name of a file tells: .jsonl, .ndjson; .json. */
enum json_table json_table_kind(const char *path);

/* Makes a table for csv_reader.h of the text of such a file, which it frees: of lines, a header with the keys
 * of the first object, then a line for each line, where lists are A;B and null is nothing; of COCO, a line
 * for each image: its file name, and the categories that its annotations name, in the column label if each
 * image has one. BAD_DATA, with a message that names the file and the line or the image; then *text is
 * NULL. */
enum status json_table_convert(const char *path, enum json_table kind, char **text, size_t *bytes);
