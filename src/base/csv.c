#include "base/csv.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void csv_quote(struct text *line, const char *value)
{
    text_add(line, "\"");
    for (const char *part = value; *part;) {
        int length = (int)strcspn(part, "\"");
        text_add(line, "%.*s%s", length, part, part[length] ? "\"\"" : "");
        part += length + (part[length] != '\0');
    }
    text_add(line, "\"");
}

void csv_text(struct text *line, const char *value)
{
    /* A byte becomes four characters at most; text_visible keeps room for one more. */
    size_t room = 4 * strlen(value) + 8;
    char *shown = memory_new(room, 1);
    text_visible(value, shown, room);
    char *safe = text_format("%s%s", *shown && strchr("=+-@\t'", *shown) ? "'" : "", shown);
    csv_quote(line, safe);
    free(safe);
    free(shown);
}
