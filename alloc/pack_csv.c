#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "alloc/pack.h"
#include "base/directory.h"
#include "base/memory.h"
#include "base/text.h"

/* Larger totals could overflow and are implausible. */
#define BYTES_LIMIT ((int64_t)1 << 60)
#define MISTAKE_LIMIT 20
#define FILE_LIMIT (256 << 20)
#define COLUMN_LIMIT 4

enum column { COLUMN_ID, COLUMN_LOWER, COLUMN_UPPER, COLUMN_END, COLUMN_SIZE };

static const struct {
    const char *name;
    enum column column;
} column_names[] = {
    {"id", COLUMN_ID}, {"lower", COLUMN_LOWER}, {"start", COLUMN_LOWER}, {"begin", COLUMN_LOWER},
    {"upper", COLUMN_UPPER}, {"end", COLUMN_END}, {"size", COLUMN_SIZE},
};

struct table {
    const char *path;
    int line, mistakes;
    enum column columns[COLUMN_LIMIT];     /* what each column holds */
    struct span *spans;
    char **ids;
    int *lines;                            /* where each span was found */
    int count;
    int64_t bytes;
};

static bool table_refuse(struct table *table, const struct reason *reason)
{
    if (table->mistakes++ < MISTAKE_LIMIT)
        fail(BAD_DATA, "%s:%d: %s", table->path, table->line, reason->text);
    return false;
}

static char *csv_trim(char *text)
{
    while (isspace((unsigned char)*text)) text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1])) text[--length] = '\0';
    return text;
}

/* Cuts a line at its commas; false unless there are exactly COLUMN_LIMIT cells. */
static bool csv_split(char *line, char *cells[COLUMN_LIMIT], struct reason *reason)
{
    for (int i = 0; i < COLUMN_LIMIT; i++) {
        char *comma = strchr(line, ',');
        if ((comma != NULL) != (i < COLUMN_LIMIT - 1))
            return because(reason, "%s than %d columns", comma ? "more" : "fewer", COLUMN_LIMIT);
        if (comma) *comma = '\0';
        cells[i] = csv_trim(line);
        if (comma) line = comma + 1;
    }
    return true;
}

static bool read_column(const char *name, enum column *column, struct reason *reason)
{
    for (size_t i = 0; i < sizeof column_names / sizeof *column_names; i++)
        if (strcmp(column_names[i].name, name) == 0) {
            *column = column_names[i].column;
            return true;
        }
    return because(reason, "unknown column '%.60s'; the columns are id, lower, upper, size", name);
}

static bool read_header(struct table *table, char *line, struct reason *reason)
{
    char *cells[COLUMN_LIMIT];
    int seen = 0;
    if (!csv_split(line, cells, reason)) return false;
    for (int i = 0; i < COLUMN_LIMIT; i++) {
        if (!read_column(cells[i], &table->columns[i], reason)) return false;
        /* "end" and "upper" say the same thing. */
        int kind = table->columns[i] == COLUMN_END ? COLUMN_UPPER : table->columns[i];
        if (seen & 1 << kind) return because(reason, "duplicate column '%.60s'", cells[i]);
        seen |= 1 << kind;
    }
    return true;
}

static bool read_number(const char *text, int64_t *value, struct reason *reason)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end) return because(reason, "not a whole number: '%.60s'", text);
    if (errno || number > BYTES_LIMIT || number < -BYTES_LIMIT)
        return because(reason, "%.60s is too large", text);
    *value = number;
    return true;
}

/* It is printed with results, possibly on a terminal. */
static bool check_id(const char *id, struct reason *reason)
{
    size_t room = 4 * strlen(id) + 1;
    char *shown = memory_new(room, 1);
    bool good = strcmp(text_visible(id, shown, room), id) == 0;
    if (!good) because(reason, "the id '%.60s' is not plain text", id);
    free(shown);
    return good && (*id || because(reason, "the id is empty"));
}

static bool read_cell(struct table *table, int column, const char *cell, struct span *span,
                      const char **id, struct reason *reason)
{
    switch (table->columns[column]) {
    case COLUMN_ID:
        *id = cell;
        return check_id(cell, reason);
    case COLUMN_LOWER: return read_number(cell, &span->lower, reason);
    case COLUMN_UPPER: return read_number(cell, &span->upper, reason);
    case COLUMN_SIZE: return read_number(cell, &span->size, reason);
    case COLUMN_END:
        if (!read_number(cell, &span->upper, reason)) return false;
        span->upper++;
        return true;
    }
    return false;
}

static bool read_row(struct table *table, char *line, struct reason *reason)
{
    char *cells[COLUMN_LIMIT];
    struct span span = {0};
    const char *id = NULL;
    if (!csv_split(line, cells, reason)) return false;
    for (int i = 0; i < COLUMN_LIMIT; i++)
        if (!read_cell(table, i, cells[i], &span, &id, reason)) return false;
    if (span.lower >= span.upper) return because(reason, "the lifetime is empty");
    if (span.size < 0) return because(reason, "the size is negative");
    if (span.size > BYTES_LIMIT - table->bytes) return because(reason, "the sum of the sizes exceeds 2^60");
    if (table->count == INT32_MAX / 4) return because(reason, "too many rows");
    int ids = table->count, lines = table->count;
    *array_push(table->ids, ids) = text_copy(id);
    *array_push(table->lines, lines) = table->line;
    *array_push(table->spans, table->count) = span;
    table->bytes += span.size;
    return true;
}

struct numbered {
    const char *id;
    int line;
};

static int compare_numbered(const void *a, const void *b)
{
    const struct numbered *left = a, *right = b;
    int order = strcmp(left->id, right->id);
    return order ? order : left->line - right->line;
}

static void refuse_doubles(struct table *table)
{
    struct numbered *list = memory_new((size_t)table->count, sizeof *list);
    for (int i = 0; i < table->count; i++) list[i] = (struct numbered){table->ids[i], table->lines[i]};
    qsort(list, (size_t)table->count, sizeof *list, compare_numbered);
    for (int i = 1; i < table->count; i++) {
        struct reason reason;
        if (strcmp(list[i - 1].id, list[i].id) != 0) continue;
        because(&reason, "duplicate id '%.60s', first used in line %d", list[i].id, list[i - 1].line);
        table->line = list[i].line;
        table_refuse(table, &reason);
    }
    free(list);
}

/* Reads one line of the file; false to stop reading. */
static bool table_line(struct table *table, char *line, size_t length, bool *header)
{
    struct reason reason;
    table->line++;
    if (memchr(line, '\0', length)) {
        because(&reason, "a NUL byte: this is not a text file");
        return table_refuse(table, &reason);
    }
    if (table->line == 1 && strncmp(line, "\xef\xbb\xbf", 3) == 0) line += 3;
    line = csv_trim(line);
    if (!*line) return true;
    if (!*header) {
        *header = true;
        return read_header(table, line, &reason) || table_refuse(table, &reason);
    }
    if (!read_row(table, line, &reason)) table_refuse(table, &reason);
    return true;
}

static enum status table_read(struct table *table, FILE *file)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    bool header = false;
    while ((length = getline(&line, &capacity, file)) >= 0)
        if (!table_line(table, line, (size_t)length, &header)) break;
    int error = errno;
    free(line);
    if (ferror(file)) return fail(BAD_DATA, "cannot read %s: %s", table->path, strerror(error));
    if (!header) return fail(BAD_DATA, "%s: empty; expected a line id,lower,upper,size", table->path);
    refuse_doubles(table);
    if (table->mistakes > MISTAKE_LIMIT)
        fail(BAD_DATA, "%s: %d more errors", table->path, table->mistakes - MISTAKE_LIMIT);
    return table->mistakes ? BAD_DATA : OK;
}

enum status pack_read_csv(const char *path, struct span **spans, char ***ids, int *count)
{
    struct table table = {.path = path};
    struct reason reason;
    FILE *file = directory_stream(&directory_working, path, "r", &reason);
    if (!file) return fail(BAD_DATA, "cannot read %s: %s", path, reason.text);
    bool large = fseeko(file, 0, SEEK_END) == 0 && ftello(file) > FILE_LIMIT;
    rewind(file);
    enum status status = large ? fail(BAD_DATA, "%s: too large to be a table of lifetimes", path)
                               : table_read(&table, file);
    fclose(file);
    free(table.lines);
    if (status == OK) {
        *spans = table.spans;
        *ids = table.ids;
        *count = table.count;
        return OK;
    }
    text_list_free(table.ids, (size_t)table.count);
    free(table.spans);
    return status;
}
