#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/pack.h"
#include "base/csv_reader.h"
#include "base/directory.h"
#include "base/memory.h"
#include "base/text.h"

#define HEADER "id,lower,upper,size"
#define COLUMNS 4
/* Larger totals could overflow and are implausible. */
#define BYTES_LIMIT ((int64_t)1 << 60)
#define FILE_LIMIT ((size_t)256 << 20)

struct csv_table {
    struct span *spans;
    char **ids;
    int count;
    int64_t bytes;
};

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
    bool good = strcmp(text_visible(id, shown, room), id) == 0 && !strpbrk(id, ",\"");
    if (!good) because(reason, "the id '%.60s' is not plain text", id);
    free(shown);
    return good && (*id || because(reason, "the id is empty"));
}

static bool read_row(struct csv_table *table, char *const *cells, int count, struct reason *reason)
{
    struct span span = {0};
    if (count != COLUMNS)
        return because(reason, "%s than %d columns", count > COLUMNS ? "more" : "fewer", COLUMNS);
    if (!check_id(cells[0], reason) || !read_number(cells[1], &span.lower, reason) ||
        !read_number(cells[2], &span.upper, reason) || !read_number(cells[3], &span.size, reason))
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

static bool is_header(const struct csv_reader *reader, char *const *cells, int count)
{
    static const char *const names[COLUMNS] = {"id", "lower", "upper", "size"};
    bool good = count == COLUMNS && reader->separator == ',';
    for (int i = 0; good && i < COLUMNS; i++) good = strcmp(cells[i], names[i]) == 0;
    return good;
}

static enum status table_read(struct csv_table *table, const char *path, char *text, size_t bytes)
{
    struct csv_reader reader;
    struct reason reason;
    char *cells[COLUMNS];
    if (!csv_reader_open(&reader, text, bytes, &reason)) return fail(BAD_DATA, "%s: %s", path, reason.text);
    int count = csv_reader_next(&reader, cells, COLUMNS, &reason);
    bool good = count > 0 &&
                (is_header(&reader, cells, count) || because(&reason, "expected a header " HEADER));
    if (count == 0 && !*reason.text) return fail(BAD_DATA, "%s: empty; expected a header " HEADER, path);
    while (good && (count = csv_reader_next(&reader, cells, COLUMNS, &reason)) > 0)
        good = read_row(table, cells, count, &reason);
    if (*reason.text) return fail(BAD_DATA, "%s:%" PRId64 ": %s", path, reader.line, reason.text);
    return check_ids(table, path);
}

enum status pack_read_csv(const char *path, struct span **spans, char ***ids, int *count)
{
    struct csv_table table = {0};
    struct reason reason;
    char *text;
    size_t bytes;
    if (!directory_read(&directory_working, path, FILE_LIMIT, &text, &bytes, &reason))
        return fail(BAD_DATA, "cannot read %s: %s", path, reason.text);
    enum status status = table_read(&table, path, text, bytes);
    free(text);
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
