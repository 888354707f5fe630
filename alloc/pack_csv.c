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

#define HEADER "id,lower,upper,size"
#define COLUMNS 4
/* Larger totals could overflow and are implausible. */
#define BYTES_LIMIT ((int64_t)1 << 60)
#define FILE_LIMIT (256 << 20)

struct csv_table {
    struct span *spans;
    char **ids;
    int count;
    int64_t bytes;
};

static char *csv_trim(char *text)
{
    while (isspace((unsigned char)*text)) text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1])) text[--length] = '\0';
    return text;
}

/* Cuts a line at its commas; false unless there are exactly COLUMNS cells. */
static bool csv_split(char *line, char *cells[COLUMNS], struct reason *reason)
{
    for (int i = 0; i < COLUMNS; i++) {
        char *comma = strchr(line, ',');
        if ((comma != NULL) != (i < COLUMNS - 1))
            return because(reason, "%s than %d columns", comma ? "more" : "fewer", COLUMNS);
        if (comma) *comma = '\0';
        cells[i] = csv_trim(line);
        if (comma) line = comma + 1;
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

static bool read_row(struct csv_table *table, char *line, struct reason *reason)
{
    char *cells[COLUMNS];
    struct span span = {0};
    if (!csv_split(line, cells, reason) || !check_id(cells[0], reason) ||
        !read_number(cells[1], &span.lower, reason) || !read_number(cells[2], &span.upper, reason) ||
        !read_number(cells[3], &span.size, reason))
        return false;
    if (span.lower >= span.upper) return because(reason, "the lifetime is empty");
    if (span.size < 0) return because(reason, "the size is negative");
    if (span.size > BYTES_LIMIT - table->bytes) return because(reason, "the sum of the sizes exceeds 2^60");
    if (table->count == INT32_MAX / 4) return because(reason, "too many rows");
    int ids = table->count;
    *array_push(table->ids, ids) = text_copy(cells[0]);
    *array_push(table->spans, table->count) = span;
    table->bytes += span.size;
    return true;
}

static enum status check_ids(const struct csv_table *table, const char *path)
{
    const char **ids = memory_new((size_t)table->count + 1, sizeof *ids);
    enum status status = OK;
    if (table->count > 0) memcpy(ids, table->ids, (size_t)table->count * sizeof *ids);
    text_list_sort((char **)ids, (size_t)table->count);
    for (int i = 1; i < table->count && status == OK; i++)
        if (strcmp(ids[i - 1], ids[i]) == 0)
            status = fail(BAD_DATA, "%s: duplicate id '%.60s'", path, ids[i]);
    free(ids);
    return status;
}

/* A byte order mark and empty lines are skipped. */
static bool read_line(struct csv_table *table, char *line, size_t length, bool *header, struct reason *reason)
{
    if (memchr(line, '\0', length)) return because(reason, "a NUL byte: this is not a text file");
    if (!*header && strncmp(line, "\xef\xbb\xbf", 3) == 0) line += 3;
    line = csv_trim(line);
    if (*header || !*line) return !*line || read_row(table, line, reason);
    *header = strcmp(line, HEADER) == 0;
    return *header || because(reason, "expected a header " HEADER);
}

static enum status table_read(struct csv_table *table, const char *path, FILE *file)
{
    struct reason reason;
    char *text = NULL;
    size_t room = 0;
    ssize_t length;
    bool header = false, good = true;
    int line = 0;
    while (good && (length = getline(&text, &room, file)) >= 0) {
        line++;
        good = read_line(table, text, (size_t)length, &header, &reason);
    }
    int error = errno;
    free(text);
    if (!good) return fail(BAD_DATA, "%s:%d: %s", path, line, reason.text);
    if (ferror(file)) return fail(BAD_DATA, "cannot read %s: %s", path, strerror(error));
    if (!header) return fail(BAD_DATA, "%s: empty; expected a header " HEADER, path);
    return check_ids(table, path);
}

enum status pack_read_csv(const char *path, struct span **spans, char ***ids, int *count)
{
    struct csv_table table = {0};
    struct reason reason;
    FILE *file = directory_stream(&directory_working, path, "r", &reason);
    if (!file) return fail(BAD_DATA, "cannot read %s: %s", path, reason.text);
    bool large = fseeko(file, 0, SEEK_END) == 0 && ftello(file) > FILE_LIMIT;
    rewind(file);
    enum status status = large ? fail(BAD_DATA, "%s: too large to be a table of lifetimes", path)
                               : table_read(&table, path, file);
    fclose(file);
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
