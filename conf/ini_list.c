#include "ini_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void ini_note(struct ini *ini, int line, char *why)
{
    *array_push(ini->mistakes, ini->mistake_count) = (struct ini_mistake){line, why};
}

static int entry_compare(const void *a, const void *b)
{
    const struct ini_entry *left = *(const struct ini_entry *const *)a;
    const struct ini_entry *right = *(const struct ini_entry *const *)b;
    int order = strcmp(left->section, right->section);
    if (order == 0) order = strcmp(left->key, right->key);
    return order ? order : (left->line > right->line) - (left->line < right->line);
}

static int mistake_compare(const void *a, const void *b)
{
    const struct ini_mistake *left = a, *right = b;
    return (left->line > right->line) - (left->line < right->line);
}

void ini_note_doubles(struct ini *ini)
{
    const struct ini_entry **sorted = memory_new((size_t)ini->count, sizeof *sorted);
    int count = 0, doubles = 0;
    for (int i = 0; i < ini->count; i++)
        if (ini->entries[i].key) sorted[count++] = &ini->entries[i];
    qsort(sorted, (size_t)count, sizeof *sorted, entry_compare);
    for (int i = 1; i < count; i++) {
        const struct ini_entry *before = sorted[i - 1], *entry = sorted[i];
        if (strcmp(before->section, entry->section) != 0 || strcmp(before->key, entry->key) != 0) continue;
        if (doubles++ < INI_MISTAKE_LIMIT)
            ini_note(ini, entry->line, text_format("duplicate key '%s' in [%s]; first set in line %d",
                                                   entry->key, entry->section, before->line));
    }
    free(sorted);
    if (ini->mistake_count > 0)
        qsort(ini->mistakes, (size_t)ini->mistake_count, sizeof *ini->mistakes, mistake_compare);
}

enum status ini_report(struct ini *ini, int line)
{
    for (; ini->reported < ini->mistake_count && ini->mistakes[ini->reported].line < line; ini->reported++)
        fail(USAGE, "%s:%d: %s", ini->file, ini->mistakes[ini->reported].line,
             ini->mistakes[ini->reported].why);
    if (line == INI_END && ini->more > 0) fail(USAGE, "%s: %d more errors", ini->file, ini->more);
    return ini->mistake_count > 0 ? USAGE : OK;
}

void ini_entry_free(struct ini_entry *entry)
{
    free(entry->section);
    free(entry->key);
    free(entry->value);
}

void ini_free(struct ini *ini)
{
    for (int i = 0; i < ini->count; i++) ini_entry_free(&ini->entries[i]);
    for (int i = 0; i < ini->mistake_count; i++) free(ini->mistakes[i].why);
    free(ini->mistakes);
    free(ini->entries);
    free(ini->file);
    *ini = (struct ini){0};
}
