/* Files of a run folder, with form feeds between them, as `report` reads them: the page is whole, and its
 * pictures have numbers. The last one also as `plan --times` reads it. */
#include "fuzz.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/memory.h"
#include "forecast/measured_times.h"
#include "report/run_report.h"

#define DEEPEST 32
#define NAME 16

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

/* Behind `end`, which is there. */
static const char *skip(const char *at, const char *end)
{
    at = strstr(at, end);
    fuzz_must(at);
    return at + strlen(end);
}

/* NAME="VALUE" */
static const char *check_attribute(const char *at)
{
    static const char *const numeric[] = {"points", "d", "x", "y", "viewBox", "data-x", "data-y", "style"};
    size_t length = strcspn(at, "=");
    const char *value = at + length + 2;
    fuzz_must(strncmp(at + length, "=\"", 2) == 0);
    const char *end = value + strcspn(value, "\"<");
    fuzz_must(*end == '"');
    for (size_t i = 0; i < sizeof numeric / sizeof *numeric; i++)
        if (strlen(numeric[i]) == length && strncmp(at, numeric[i], length) == 0)
            for (const char *c = value; c < end; c++)
                fuzz_must(strncmp(c, "nan", 3) != 0 && strncmp(c, "inf", 3) != 0);
    return end + 1;
}

/* A tag, from its '<'. */
static const char *check_tag(const char *at, char open[DEEPEST][NAME], int *depth)
{
    char name[NAME];
    bool ends = at[1] == '/';
    at += 1 + ends;
    size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz123");
    fuzz_must(length > 0 && length < NAME);
    snprintf(name, NAME, "%.*s", (int)length, at);
    at += length;
    while (*at == ' ') at = check_attribute(at + 1);
    if (ends) fuzz_must(*depth > 0 && strcmp(open[--*depth], name) == 0);
    else if (*at != '/') fuzz_must(*depth < DEEPEST && strcpy(open[(*depth)++], name));
    else at++;
    fuzz_must(*at == '>');
    if (!ends && strcmp(name, "style") == 0) return strstr(at, "</style>");
    if (!ends && strcmp(name, "script") == 0) return strstr(at, "</script>");
    return at + 1;
}

/* It is XML: every element ends where it should, and no text is taken for markup. */
static void check_page(const char *page)
{
    char open[DEEPEST][NAME];
    int depth = 0;
    for (const char *at = skip(page, "<!DOCTYPE html>"); *at;) {
        fuzz_must((unsigned char)*at >= ' ' || *at == '\n' || *at == '\t');
        if (*at == '&') fuzz_must(strcspn(at, ";") <= strlen("&quot"));
        at = *at == '<' ? check_tag(at, open, &depth) : at + 1;
    }
    fuzz_must(depth == 0);
}

static char *contents(const char *path)
{
    struct text text = {0};
    struct reason reason;
    char buffer[1 << 14];
    FILE *file = directory_stream(&directory_working, path, "r", &reason);
    fuzz_must(file);
    for (size_t got; (got = fread(buffer, 1, sizeof buffer, file)) > 0;)
        text_add(&text, "%.*s", (int)got, buffer);
    fclose(file);
    return text.data;
}

static void check_times(const char *path)
{
    struct measured_times *times;
    if (!fuzz_good(measured_times_open(path, &times), "profile.json")) return;
    double seconds = measured_times_find(times, "conv1", 1, 1e-6);
    fuzz_must(isnan(seconds) || seconds >= 0);
    measured_times_close(times);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"metrics.jsonl", "confusion.csv", "mistakes.json", "bad-images.txt",
                                        "log.txt", "config.ini", "profile.json", "values.csv", "labels.csv",
                                        "scores.json"};
    const uint8_t *end = data + size;
    const char *profile = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const uint8_t *next = data < end ? memchr(data, '\f', (size_t)(end - data)) : NULL;
        if (!next) next = end;
        const char *written = fuzz_write(names[i], data, (size_t)(next - data));
        if (strcmp(names[i], "profile.json") == 0) profile = written;
        data = next < end ? next + 1 : end;
    }
    struct directory folder;
    fuzz_must(directory_open(fuzz_folder(), &folder) == OK);
    fuzz_must(run_report_write(&folder) == OK);
    char *path = directory_show(&folder, RUN_REPORT_FILE), *page = contents(path);
    check_page(page);
    check_times(profile);
    free(page);
    free(path);
    directory_close(&folder);
    return 0;
}
