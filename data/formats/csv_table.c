#include "data/formats/csv_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv_reader.h"
#include "base/directory.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/dataset/dataset.h"
#include "data/formats/csv_columns.h"
#include "data/formats/name_index.h"

#define COLUMNS_MAX 65536
#define SHOWN 64               /* bytes of a cell in a message */
#define IMAGES_MAX (UINT32_MAX - 1)

/* A file being read. */
struct csv_reading {
    const char *path;
    struct csv_reader reader;
    struct csv_table *table;
    struct csv_columns columns;
    char **fields;             /* [columns] of the record */
    bool masks;                /* TARGET_MASK: labels are not used */
    int *flags;                /* [columns] the class of a column of 0 and 1 */
    struct name_index index;   /* of table->names */
    int64_t *latest;           /* [classes] the number of the last image that had it, from 1 */
    int64_t latest_count;
    int64_t labels, room_labels, room;
};

/* Lines of JSON have no header; COCO's file has no lines, but a list of images. */
const char *csv_table_place(const struct csv_table *table, const char *path, int64_t line,
                            char place[CSV_TABLE_PLACE])
{
    int64_t own = table->json == JSON_NONE ? line : line - 1;
    if (table->json != JSON_COCO) snprintf(place, CSV_TABLE_PLACE, "%s:%" PRId64, path, own < 1 ? 1 : own);
    else if (line < 2) snprintf(place, CSV_TABLE_PLACE, "%s", path);
    else snprintf(place, CSV_TABLE_PLACE, "%s: images[%" PRId64 "]", path, line - 2);
    return place;
}

static enum status refuse_line(const struct csv_reading *reading, int64_t line, const char *why)
{
    char place[CSV_TABLE_PLACE];
    return fail(BAD_DATA, "%s: %s", csv_table_place(reading->table, reading->path, line, place), why);
}

#define REFUSE(reading, ...)                                                    \
    do {                                                                        \
        struct reason refused_;                                                 \
        because(&refused_, __VA_ARGS__);                                        \
        return refuse_line(reading, (reading)->reader.line, refused_.text);     \
    } while (0)

/* The header. */

static enum status read_header(struct csv_reading *reading, const char *named)
{
    struct csv_columns *columns = &reading->columns;
    struct reason reason;
    columns->header = memory_new(COLUMNS_MAX, sizeof *columns->header);
    columns->count = csv_reader_next(&reading->reader, columns->header, COLUMNS_MAX, &reason);
    if (columns->count == 0 && !*reason.text) return fail(BAD_DATA, "%s: is empty", reading->path);
    if (columns->count == 0) return refuse_line(reading, reading->reader.line, reason.text);
    if (columns->count > COLUMNS_MAX) REFUSE(reading, "%d columns are too many", columns->count);
    size_t count = (size_t)columns->count;
    columns->header = memory_resize(columns->header, count, sizeof *columns->header);
    reading->fields = memory_new(count, sizeof *reading->fields);
    reading->flags = memory_new(count, sizeof *reading->flags);
    enum status status = csv_columns_find(columns, named, reading->masks, &reading->reader, &reason);
    if (status == USAGE) return fail(USAGE, "%s", reason.text);
    return status == OK ? OK : refuse_line(reading, reading->reader.line, reason.text);
}

/* Labels are of the kind that is wanted, if the columns can give it. */
static enum status choose_kind(struct csv_reading *reading, enum target_kind wanted)
{
    struct csv_table *table = reading->table;
    bool value = reading->columns.given[COLUMN_VALUE], one = reading->columns.given[COLUMN_LABEL];
    table->kind = value ? TARGET_NUMBER : one ? TARGET_CLASS : TARGET_LABELS;
    table->columns = reading->columns.given[COLUMN_FLAG] > 0;
    if (wanted == TARGET_MASK) {
        table->kind = TARGET_MASK;
        table->columns = false;
    }
    if (wanted == TARGET_ANY || wanted == table->kind) return OK;
    if (wanted == TARGET_NUMBER) REFUSE(reading, "no column 'value' for data.task = regress");
    if (value) REFUSE(reading, "a column 'value' is for data.task = regress");
    table->kind = wanted;
    return OK;
}

/* Records. */

static const char *name_of(const struct csv_reading *reading, enum column kind)
{
    return reading->columns.header[reading->columns.place[kind]];
}

/* A label that an image has twice counts once. */
static enum status add_label(struct csv_reading *reading, const char *name)
{
    struct csv_table *table = reading->table;
    uint32_t class = name_index_add(&reading->index, table->names, name);
    if (class == CLASSES_MAX) REFUSE(reading, "more than %d different labels", CLASSES_MAX);
    if ((int)class == table->classes) {
        *array_push(table->names, table->classes) = (char *)name;
        *array_push(reading->latest, reading->latest_count) = 0;
    }
    if (reading->latest[class] == table->count + 1) return OK;
    reading->latest[class] = table->count + 1;
    *array_put(table->labels, reading->labels, reading->room_labels) = (int32_t)class;
    return OK;
}

/* "A;B". */
static enum status add_labels(struct csv_reading *reading, char *cell)
{
    for (char *at = cell; *cell && at;) {
        char *end = strchr(at, ';'), *next = end ? end + 1 : NULL;
        if (!end) end = at + strlen(at);
        while (*at == ' ') at++;
        while (end > at && end[-1] == ' ') end--;
        *end = '\0';
        if (!*at) REFUSE(reading, "column '%s': a label is empty", name_of(reading, COLUMN_LABELS));
        TRY(add_label(reading, at));
        at = next;
    }
    return OK;
}

static enum status add_flags(struct csv_reading *reading)
{
    char name[SHOWN], cell[SHOWN];
    for (int i = 0; i < reading->columns.count; i++) {
        const char *field = reading->fields[i];
        if (reading->columns.kinds[i] != COLUMN_FLAG) continue;
        int flag = csv_columns_flag(field);
        if (flag < 0)
            REFUSE(reading, "column '%s': '%s' is neither 0 nor 1, as labels in columns of their own are",
                   text_visible(reading->columns.header[i], name, sizeof name),
                   text_visible(field, cell, sizeof cell));
        if (flag > 0)
            *array_put(reading->table->labels, reading->labels, reading->room_labels) = reading->flags[i];
    }
    return OK;
}

static enum status read_number(const struct csv_reading *reading, const char *cell, double *number)
{
    struct reason reason;
    if (!target_parse_number(cell, number, &reason))
        REFUSE(reading, "column '%s': %s", name_of(reading, COLUMN_VALUE), reason.text);
    return OK;
}

static enum status read_target(struct csv_reading *reading, int64_t image)
{
    struct csv_table *table = reading->table;
    if (table->kind == TARGET_MASK) {
        table->masks[image] = reading->fields[reading->columns.place[COLUMN_MASK]];
        if (!*table->masks[image]) REFUSE(reading, "column '%s' is empty", name_of(reading, COLUMN_MASK));
        return OK;
    }
    const char *value = reading->fields[reading->columns.place[COLUMN_VALUE]];
    if (reading->columns.given[COLUMN_VALUE]) return read_number(reading, value, &table->numbers[image]);
    if (reading->columns.given[COLUMN_LABEL]) {
        const char *label = reading->fields[reading->columns.place[COLUMN_LABEL]];
        if (!*label) REFUSE(reading, "column '%s' is empty", name_of(reading, COLUMN_LABEL));
        return add_label(reading, label);
    }
    int64_t begin = table->begins[image] = reading->labels;
    if (table->columns) TRY(add_flags(reading));
    else TRY(add_labels(reading, reading->fields[reading->columns.place[COLUMN_LABELS]]));
    if (table->kind == TARGET_CLASS && reading->labels != begin + 1)
        REFUSE(reading, "the image has %" PRId64 " labels, not one, as data.task = classify needs",
               reading->labels - begin);
    return OK;
}

/* The number of images that there is room for. */
static void make_room(struct csv_reading *reading, int64_t room)
{
    struct csv_table *table = reading->table;
    size_t count = (size_t)room;
    table->paths = memory_resize(table->paths, count, sizeof *table->paths);
    if (reading->masks)
        table->masks = memory_resize(table->masks, count, sizeof *table->masks);
    else if (reading->columns.given[COLUMN_VALUE])
        table->numbers = memory_resize(table->numbers, count, sizeof *table->numbers);
    else if (!reading->columns.given[COLUMN_LABEL])
        table->begins = memory_resize(table->begins, count + 1, sizeof *table->begins);
    if (reading->columns.given[COLUMN_GROUP])
        table->groups = memory_resize(table->groups, count, sizeof *table->groups);
    if (table->lines) table->lines = memory_resize(table->lines, count, sizeof *table->lines);
    reading->room = room;
}

/* Lines are noted from the first one on that is not where it would be without empty lines and breaks in
 * fields. */
static void note_line(struct csv_reading *reading, int64_t image)
{
    struct csv_table *table = reading->table;
    if (!table->lines && reading->reader.line == image + 2) return;
    if (!table->lines) {
        table->lines = memory_new((size_t)reading->room, sizeof *table->lines);
        for (int64_t i = 0; i < image; i++) table->lines[i] = i + 2;
    }
    table->lines[image] = reading->reader.line;
}

static enum status read_record(struct csv_reading *reading)
{
    struct csv_table *table = reading->table;
    char *path = reading->fields[reading->columns.place[COLUMN_PATH]];
    if (!*path) REFUSE(reading, "column '%s' is empty", name_of(reading, COLUMN_PATH));
    if (strstr(path, "://")) REFUSE(reading, "'%.100s' is an address; images are read from files", path);
    if (table->count == IMAGES_MAX) REFUSE(reading, "more than %u images", (unsigned)IMAGES_MAX);
    if (table->count == reading->room) make_room(reading, reading->room + reading->room / 4 + 1024);
    table->paths[table->count] = path;
    note_line(reading, table->count);
    if (table->groups)
        table->groups[table->count] = dataset_group(reading->fields[reading->columns.place[COLUMN_GROUP]]);
    TRY(read_target(reading, table->count));
    table->count++;
    return OK;
}

static enum status read_records(struct csv_reading *reading)
{
    struct reason reason;
    int columns = reading->columns.count;
    for (int count; (count = csv_reader_next(&reading->reader, reading->fields, columns, &reason)) > 0;) {
        if (count != columns)
            REFUSE(reading, "%d field%s, where the header has %d", count, count == 1 ? "" : "s", columns);
        TRY(read_record(reading));
    }
    if (*reason.text) return refuse_line(reading, reading->reader.line, reason.text);
    if (reading->table->count == 0) return fail(BAD_DATA, "%s: has a header, but no images", reading->path);
    if (reading->table->begins) reading->table->begins[reading->table->count] = reading->labels;
    return OK;
}

/* The whole table. */

/* A path without "./" and repeated slashes: itself, or in new memory. */
static char *plain_path(char *path)
{
    if (!strstr(path, "./") && !strstr(path, "//")) return path;
    char *plain = memory_new(strlen(path) + 1, 1), *to = plain;
    for (const char *at = path; *at;) {
        bool begins = to == plain || to[-1] == '/';
        if (begins && strncmp(at, "./", 2) == 0) at += 1 + strspn(at + 1, "/");
        else if (*at == '/' && to > plain && begins) at++;
        else *to++ = *at++;
    }
    return plain;
}

static enum status check_duplicates(const struct csv_reading *reading)
{
    const struct csv_table *table = reading->table;
    struct name_index index = {0};
    char shown[SHOWN * 2], **plain = memory_new((size_t)table->count, sizeof *plain);
    int64_t first = -1, second = 0;
    name_index_reserve(&index, (uint64_t)table->count);
    for (; second < table->count; second++) {
        plain[second] = plain_path(table->paths[second]);
        first = name_index_add(&index, plain, plain[second]);
        if (first != second) break;
    }
    name_index_free(&index);
    for (int64_t i = 0; i < table->count; i++)
        if (plain[i] != table->paths[i]) free(plain[i]);
    free(plain);
    if (second == table->count) return OK;
    int64_t line = csv_table_line(table, first), own = table->json == JSON_NONE ? line : line - 1;
    struct reason reason;
    text_visible(table->paths[second], shown, sizeof shown);
    because(&reason, "'%s' is already in line %" PRId64, shown, own);
    if (table->json == JSON_COCO) because(&reason, "'%s' is there twice", shown);
    return refuse_line(reading, csv_table_line(table, second), reason.text);
}

struct class_place {
    const char *name;
    int class;
};

/* Classes in the order of their names, as folders have them, whatever the order of the lines. */
static void sort_classes(struct csv_reading *reading)
{
    struct csv_table *table = reading->table;
    size_t classes = (size_t)table->classes;
    struct class_place *sorted = memory_new(classes, sizeof *sorted);
    int32_t *numbers = memory_new(classes, sizeof *numbers);
    for (int i = 0; i < table->classes; i++) sorted[i] = (struct class_place){table->names[i], i};
    qsort(sorted, classes, sizeof *sorted, text_compare);
    for (int i = 0; i < table->classes; i++) {
        numbers[sorted[i].class] = i;
        table->names[i] = (char *)sorted[i].name;
    }
    for (int64_t i = 0; i < reading->labels; i++) table->labels[i] = numbers[table->labels[i]];
    free(sorted);
    free(numbers);
}

static char *move_to(char *to, char **path)
{
    size_t bytes = strlen(*path) + 1;
    *path = memmove(to, *path, bytes);
    return to + bytes;
}

/* Copies the names, and moves the paths together, so that what is between them can be freed. */
static void compact(struct csv_table *table)
{
    char *to = table->text;
    table->names = text_list(table->names, table->classes, table->classes);
    for (int64_t i = 0; i < table->count; i++) {
        bool mask_first = table->masks && table->masks[i] < table->paths[i];
        if (mask_first) to = move_to(to, &table->masks[i]);
        to = move_to(to, &table->paths[i]);
        if (table->masks && !mask_first) to = move_to(to, &table->masks[i]);
    }
    ptrdiff_t begin = (ptrdiff_t)(uintptr_t)table->text;
    char *text = memory_resize(table->text, (size_t)(to - table->text), 1);
    ptrdiff_t moved = (ptrdiff_t)(uintptr_t)text - begin;
    for (int64_t i = 0; i < table->count; i++)
        table->paths[i] = (char *)((uintptr_t)table->paths[i] + (uintptr_t)moved);
    for (int64_t i = 0; table->masks && i < table->count; i++)
        table->masks[i] = (char *)((uintptr_t)table->masks[i] + (uintptr_t)moved);
    table->text = text;
}

static void name_columns(struct csv_reading *reading)
{
    struct csv_table *table = reading->table;
    bool value = table->kind == TARGET_NUMBER;
    for (int i = 0; !reading->masks && i < reading->columns.count; i++) {
        if (reading->columns.kinds[i] != (value ? COLUMN_VALUE : COLUMN_FLAG)) continue;
        reading->flags[i] = table->classes;
        *array_push(table->names, table->classes) = reading->columns.header[i];
    }
}

static enum status read_table(struct csv_reading *reading, size_t bytes, enum target_kind wanted,
                              const char *columns)
{
    struct csv_table *table = reading->table;
    struct reason reason;
    if (!csv_reader_open(&reading->reader, table->text, bytes, &reason))
        return fail(BAD_DATA, "%s: %s", reading->path, reason.text);
    TRY(read_header(reading, columns));
    TRY(choose_kind(reading, wanted));
    name_columns(reading);
    TRY(read_records(reading));
    TRY(check_duplicates(reading));
    bool names = table->kind == TARGET_CLASS || table->kind == TARGET_LABELS;
    if (!table->columns && names) sort_classes(reading);
    if (table->kind != TARGET_CLASS) return OK;
    free(table->begins);
    table->begins = NULL;
    return OK;
}

static void reading_free(struct csv_reading *reading)
{
    name_index_free(&reading->index);
    free(reading->fields);
    free(reading->columns.header);
    free(reading->columns.kinds);
    text_free(&reading->columns.left_out);
    free(reading->flags);
    free(reading->latest);
}

enum status csv_table_read(const char *path, enum target_kind kind, const char *columns,
                           struct csv_table *result)
{
    struct csv_table table = {0};
    struct csv_reading reading = {.path = path, .table = &table, .masks = kind == TARGET_MASK};
    struct reason reason;
    size_t bytes = 0;
    if (directory_is(path)) return fail(BAD_DATA, "%s: is a folder; name the table in it", path);
    if (!directory_read(&directory_working, path, SIZE_MAX, &table.text, &bytes, &reason))
        return fail(BAD_DATA, "%s: %s", path, reason.text);
    table.json = json_table_kind(path);
    enum status status = OK;
    if (table.json != JSON_NONE) status = json_table_convert(path, table.json, &table.text, &bytes);
    if (status == OK) status = read_table(&reading, bytes, kind, columns);
    table.left_out = reading.columns.left_out.data;
    reading.columns.left_out.data = NULL;
    reading_free(&reading);
    if (status == OK) {
        char **names = table.names;
        compact(&table);
        free(names);
        *result = table;
        return OK;
    }
    free(table.names);
    table.names = NULL;
    csv_table_free(&table);
    return status;
}

void csv_table_free(struct csv_table *table)
{
    if (table->names) text_list_free(table->names, (size_t)table->classes);
    free(table->paths);
    free(table->labels);
    free(table->begins);
    free(table->masks);
    free(table->numbers);
    free(table->groups);
    free(table->lines);
    free(table->text);
    free(table->left_out);
    *table = (struct csv_table){0};
}
