#include "data/formats/csv_columns.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "data/formats/name_index.h"

#define SHOWN 64             /* bytes of a name in a message */
#define SAMPLE_BYTES 65536   /* of a table, in which columns of 0 and 1 are looked for */

static const struct column_name {
    const char *name;
    enum column column;
} column_names[] = {
    {"path", COLUMN_PATH}, {"file", COLUMN_PATH}, {"image", COLUMN_PATH}, {"filename", COLUMN_PATH},
    {"file_name", COLUMN_PATH}, {"image_path", COLUMN_PATH}, {"label", COLUMN_LABEL}, {"class", COLUMN_LABEL},
    {"labels", COLUMN_LABELS}, {"classes", COLUMN_LABELS}, {"value", COLUMN_VALUE}, {"target", COLUMN_VALUE},
    {"group", COLUMN_GROUP}, {"mask", COLUMN_MASK},
};

/* The words of data.columns. */
static const char *const roles[] = {
    [COLUMN_PATH] = "image", [COLUMN_LABEL] = "label", [COLUMN_LABELS] = "labels", [COLUMN_VALUE] = "value",
    [COLUMN_GROUP] = "group", [COLUMN_MASK] = "mask",
};
enum { NAMES = sizeof column_names / sizeof *column_names, ROLES = sizeof roles / sizeof *roles };

int csv_columns_flag(const char *cell)
{
    static const char *const words[] = {"0", "1", "0.0", "1.0", "false", "true"};
    for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
        if (strcasecmp(words[i], cell) == 0) return i % 2;
    return -1;
}

bool csv_columns_index(const char *name, int place)
{
    return place == 0 && (!*name || strcmp(name, "Unnamed: 0") == 0);
}

/* Without masks a column of that name is one of 0 and 1, and with them labels are not used. */
static enum column column_of(const char *name, int place, bool masks)
{
    enum column column = COLUMN_FLAG;
    if (csv_columns_index(name, place)) return COLUMN_NONE;
    for (int i = 0; i < NAMES; i++)
        if (strcasecmp(column_names[i].name, name) == 0) column = column_names[i].column;
    return !masks && column == COLUMN_MASK ? COLUMN_FLAG : column;
}

static bool list_header(const struct csv_columns *columns, const char *why, const char *what,
                        struct reason *reason)
{
    char shown[SHOWN];
    struct text listed = {0};
    for (int i = 0; i < columns->count && i < 8; i++)
        text_add(&listed, "%s'%s'", i ? ", " : "", text_visible(columns->header[i], shown, sizeof shown));
    if (columns->count > 8) text_add(&listed, " and %d more", columns->count - 8);
    because(reason, "%s%s; the header has %s", why, what, listed.data);
    text_free(&listed);
    return false;
}

/* Empty names, and the same twice. */
static bool check_names(const struct csv_columns *columns, struct reason *reason)
{
    char shown[SHOWN];
    struct name_index index = {0};
    bool good = true;
    for (int i = 0; i < columns->count && good; i++) {
        const char *name = columns->header[i];
        good = (*name || i == 0 || because(reason, "column %d has no name", i + 1)) &&
               (name_index_add(&index, columns->header, name) == (uint32_t)i ||
                because(reason, "two columns are named '%s'", text_visible(name, shown, sizeof shown)));
    }
    name_index_free(&index);
    return good;
}

/* ---- data.columns ---- */

/* An item, "label:diagnosis"; *role may be wrong if it is refused. */
static enum status read_item(const struct csv_columns *columns, char *item, enum column *role, int *place,
                             struct reason *reason)
{
    char shown[SHOWN];
    char *colon = strchr(item, ':');
    const char *name = colon ? colon + 1 + strspn(colon + 1, " ") : NULL;
    if (colon) *colon = '\0';
    for (*role = 0; (int)*role < ROLES && (!colon || strcmp(roles[*role], item) != 0);) ++*role;
    if ((int)*role == ROLES) {
        because(reason, "data.columns: '%s' is not ROLE:COLUMN, where a role is image, label, labels, value, "
                "mask or group", text_visible(item, shown, sizeof shown));
        return USAGE;
    }
    for (*place = 0; *place < columns->count && strcmp(columns->header[*place], name) != 0;) ++*place;
    if (*place < columns->count) return OK;
    text_visible(name, shown, sizeof shown);
    list_header(columns, "data.columns: there is no column ", shown, reason);
    return BAD_DATA;
}

/* Several columns of labels are columns of 0 and 1. Names with commas stand in quotation marks. */
static enum status read_named(const struct csv_columns *columns, const char *named, enum column *kinds,
                              struct reason *reason)
{
    char *text = text_copy(named), *items[NAMES * 64];
    struct csv_reader reader = {.at = text, .end = text + strlen(text), .separator = ',', .next = 1};
    int count = csv_reader_next(&reader, items, NAMES * 64, reason), lists = 0;
    enum status status = count > 0 && count <= NAMES * 64 ? OK : USAGE;
    if (status != OK) because(reason, "data.columns: '%.100s' is no list of ROLE:COLUMN", named);
    for (int i = 0; i < count && status == OK; i++) {
        enum column role;
        int place;
        status = read_item(columns, items[i], &role, &place, reason);
        if (status == OK) kinds[place] = role;
        lists += status == OK && role == COLUMN_LABELS;
    }
    for (int i = 0; i < columns->count && lists > 1; i++)
        if (kinds[i] == COLUMN_LABELS) kinds[i] = COLUMN_FLAG;
    free(text);
    return status;
}

static bool is_target(enum column kind)
{
    return kind != COLUMN_PATH && kind != COLUMN_GROUP && kind != COLUMN_NONE;
}

/* A column that data.columns does not name means what its name says, unless another has that role. *targets:
 * labels, values or masks are named. */
static enum status assign(struct csv_columns *columns, const char *named, bool masks, bool *targets,
                          struct reason *reason)
{
    enum column *kinds = columns->kinds;
    bool image = false, group = false;
    *targets = false;
    for (int i = 0; i < columns->count; i++) kinds[i] = COLUMN_NONE;
    if (named) TRY(read_named(columns, named, kinds, reason));
    for (int i = 0; i < columns->count; i++) {
        *targets = *targets || is_target(kinds[i]);
        image = image || kinds[i] == COLUMN_PATH;
        group = group || kinds[i] == COLUMN_GROUP;
    }
    for (int i = 0; i < columns->count; i++) {
        enum column own = column_of(columns->header[i], i, masks);
        bool taken = own == COLUMN_PATH ? image : own == COLUMN_GROUP ? group : *targets;
        if (kinds[i] == COLUMN_NONE && !taken) kinds[i] = own;
    }
    return OK;
}

/* ---- Columns of 0 and 1 ---- */

static void leave_out(struct csv_columns *columns, int place)
{
    char shown[SHOWN];
    columns->kinds[place] = COLUMN_NONE;
    text_add(&columns->left_out, "%s'%s'", columns->left_out.data ? ", " : "",
             text_visible(columns->header[place], shown, sizeof shown));
}

/* Counts the cells that are neither, in the whole records among the first bytes. */
static int count_others(const struct csv_columns *columns, const struct csv_reader *records, int *others)
{
    size_t count = (size_t)(records->end - records->at), room = count < SAMPLE_BYTES ? count : SAMPLE_BYTES;
    char *text = memory_new(room + 1, 1), **fields = memory_new((size_t)columns->count, sizeof *fields);
    struct csv_reader reader = *records;
    struct reason unsaid;
    int seen = 0;
    memcpy(text, records->at, room);
    reader.at = text;
    reader.end = text + room;
    while (csv_reader_next(&reader, fields, columns->count, &unsaid) == columns->count) {
        if (reader.at == reader.end && room < count) break;
        for (int i = 0; i < columns->count; i++) others[i] += csv_columns_flag(fields[i]) < 0;
        seen++;
    }
    free(text);
    free(fields);
    return seen;
}

/* Labels that have a name of their own are the only ones. */
static void choose_flags(struct csv_columns *columns, const struct csv_reader *records)
{
    int *others = memory_new((size_t)columns->count, sizeof *others), seen = 0;
    bool labels = false, flags = false;
    for (int i = 0; i < columns->count; i++) {
        labels = labels || (is_target(columns->kinds[i]) && columns->kinds[i] != COLUMN_FLAG);
        flags = flags || columns->kinds[i] == COLUMN_FLAG;
    }
    if (flags && !labels) seen = count_others(columns, records, others);
    for (int i = 0; i < columns->count; i++)
        if (columns->kinds[i] == COLUMN_FLAG && (labels || 2 * others[i] > seen)) leave_out(columns, i);
    free(others);
}

/* ---- */

/* The first two columns that cannot both be there; false: there are some. */
static bool check_twice(const struct csv_columns *columns, struct reason *reason)
{
    static const char *const words[] = {"of paths", "of labels", "of labels", "of values", "of groups",
                                        "of masks"};
    char one[SHOWN], other[SHOWN];
    const enum column *kinds = columns->kinds;
    for (int i = 0; i < columns->count; i++)
        for (int k = 0; k < i && kinds[i] < COLUMN_FLAG; k++)
            if (kinds[k] == kinds[i])
                return because(reason, "two columns %s: '%s' and '%s'; data.columns=%s:NAME says which one "
                               "it is", words[kinds[i]], text_visible(columns->header[k], one, sizeof one),
                               text_visible(columns->header[i], other, sizeof other), roles[kinds[i]]);
    if (columns->given[COLUMN_LABEL] + columns->given[COLUMN_LABELS] + columns->given[COLUMN_VALUE] > 1)
        return because(reason, "more than one of the columns 'label', 'labels' and 'value'; "
                       "data.columns=label:NAME says which one it is");
    return true;
}

static bool check_columns(const struct csv_columns *columns, bool masks, struct reason *reason)
{
    const int *given = columns->given;
    if (!check_twice(columns, reason)) return false;
    if (!given[COLUMN_PATH])
        return list_header(columns, "no column of paths ('path', 'file' or 'image', or "
                           "data.columns=image:NAME)", "", reason);
    if (masks && !given[COLUMN_MASK]) return because(reason, "no column 'mask' for data.task = segment");
    if (masks || given[COLUMN_LABEL] || given[COLUMN_LABELS] || given[COLUMN_VALUE] || given[COLUMN_FLAG])
        return true;
    return list_header(columns, "no column of labels ('label', 'labels', 'value', columns of 0 and 1, or "
                       "data.columns=label:NAME)", "", reason);
}

enum status csv_columns_find(struct csv_columns *columns, const char *named, bool masks,
                             const struct csv_reader *records, struct reason *reason)
{
    columns->kinds = memory_new((size_t)columns->count, sizeof *columns->kinds);
    if (!check_names(columns, reason)) return BAD_DATA;
    bool targets;
    TRY(assign(columns, named, masks, &targets, reason));
    if (!masks && !targets) choose_flags(columns, records);
    for (int i = columns->count - 1; i >= 0; i--) {
        columns->given[columns->kinds[i]]++;
        columns->place[columns->kinds[i]] = i;
    }
    return check_columns(columns, masks, reason) ? OK : BAD_DATA;
}
