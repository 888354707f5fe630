/* The reader of INI files: what it takes is what inih reports of the same text, and is written and read back
 * as the same; so is a value of any bytes. */
#include "fuzz.h"

#include <ini.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "conf/ini.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

/* inih's calls, beside our entries. */
struct beside {
    const struct ini *ini;
    int at;                    /* the entry that was reported last; -1: none */
    struct text value;         /* its lines */
};

static void check_value(const struct beside *beside)
{
    if (beside->at < 0) return;
    char *value = text_copy(beside->value.data);
    fuzz_must(!ini_unquote(value));
    fuzz_must(strcmp(value, beside->ini->entries[beside->at].value) == 0);
    free(value);
}

/* Debian's inih leaves comments behind lines that continue a value. */
static size_t uncommented(const char *line)
{
    size_t length = 0;
    while (line[length] && (line[length] != ';' || length == 0 || !strchr(" \t", line[length - 1]))) length++;
    while (length && strchr(" \t", line[length - 1])) length--;
    return length;
}

static int on_report(void *user, const char *section, const char *key, const char *value)
{
    struct beside *beside = user;
    const struct ini_entry *entry = beside->at < 0 ? NULL : &beside->ini->entries[beside->at];
    if (entry && strcmp(entry->section, section) == 0 && strncmp(entry->key, key, strlen(key)) == 0 &&
        strlen(key) == (strlen(entry->key) < 49 ? strlen(entry->key) : 49)) {
        const char *between = strchr("\"", *beside->value.data) ? "" : " ";
        text_add(&beside->value, "%s%.*s", between, (int)uncommented(value), value);
        return 1;
    }
    check_value(beside);
    text_free(&beside->value);
    text_add(&beside->value, "%s", value);
    do beside->at++;
    while (beside->at < beside->ini->count && !beside->ini->entries[beside->at].key);
    fuzz_must(beside->at < beside->ini->count);
    entry = &beside->ini->entries[beside->at];
    fuzz_must(strcmp(entry->section, section) == 0 && strcmp(entry->key, key) == 0);
    return 1;
}

/* Long comments are left out, which inih would cut. */
static void try_inih(const struct ini *ini, const char *text)
{
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at != '\0')
        if (strcspn(at, "\n") > INI_LINE_LIMIT) return;
    struct beside beside = {.ini = ini, .at = -1};
    fuzz_must(ini_parse_string(text, on_report, &beside) == 0);
    check_value(&beside);
    for (int i = beside.at + 1; i < ini->count; i++) fuzz_must(!ini->entries[i].key);
    text_free(&beside.value);
}

static void try_again(const struct ini *ini)
{
    struct text text = {0};
    struct ini again;
    text_add(&text, "%s", "");
    for (int i = 0; i < ini->count; i++) {
        const struct ini_entry *entry = &ini->entries[i];
        fuzz_must(entry->line > (i ? ini->entries[i - 1].line : 0));
        text_add(&text, entry->key ? "%s = " : "[%s]", entry->key ? entry->key : entry->section);
        if (entry->key) ini_add_value(&text, entry->value);
        if (entry->key) ini_add_comment(&text, 1, entry->section);
        text_add(&text, "\n");
    }
    fuzz_must(fuzz_good(ini_read_text("again.ini", text.data, &again), "again.ini"));
    fuzz_must(again.count == ini->count);
    for (int i = 0; i < ini->count; i++) {
        fuzz_must(strcmp(again.entries[i].section, ini->entries[i].section) == 0);
        if (ini->entries[i].key) fuzz_must(strcmp(again.entries[i].value, ini->entries[i].value) == 0);
    }
    ini_free(&again);
    text_free(&text);
}

static void try_value(const char *value)
{
    struct text text = {0};
    struct ini ini;
    text_add(&text, "[a]\nkey = ");
    ini_add_value(&text, value);
    fuzz_must(fuzz_good(ini_read_text("value.ini", text.data, &ini), "value.ini"));
    fuzz_must(ini.count == 2 && strcmp(ini.entries[1].value, value) == 0);
    ini_free(&ini);
    text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ini ini;
    char *text = memory_new(size + 1, 1);
    memcpy(text, data, size);
    if (strlen(text) < 4000) try_value(text);
    if (fuzz_good(ini_read_text("fuzz.ini", text, &ini), "fuzz.ini")) {
        try_inih(&ini, text);
        try_again(&ini);
        ini_free(&ini);
    }
    free(text);
    return 0;
}
