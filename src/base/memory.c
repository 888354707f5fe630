#include "memory.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/guest.h"
#include "status.h"

/* Other threads may be in any state, so no exit handlers may run. */
void memory_none(const char *what)
{
    const struct guest *guest = guest_now();
    if (guest && guest->no_memory) longjmp(*guest->no_memory, 1);
    fail(FAILED, "out of host memory (asked for %s)", what);
    _exit(FAILED);
}

static void out_of_memory(size_t count, size_t size)
{
    char what[64];
    snprintf(what, sizeof what, "%zu x %zu bytes", count, size);
    memory_none(what);
}

void *memory_try(size_t count, size_t size)
{
    return calloc(count ? count : 1, size ? size : 1);
}

void *memory_new(size_t count, size_t size)
{
    void *memory = memory_try(count, size);
    if (!memory) out_of_memory(count, size);
    return memory;
}

void *memory_resize(void *old, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size) out_of_memory(count, size);
    size_t bytes = count * size;
    void *memory = realloc(old, bytes > 0 ? bytes : 1);
    if (!memory) out_of_memory(count, size);
    return memory;
}

char *text_copy(const char *text)
{
    if (!text) return NULL;
    size_t bytes = strlen(text) + 1;
    return memcpy(memory_new(bytes, 1), text, bytes);
}

char *text_format(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = memory_new((size_t)length + 1, 1);
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

char **text_list(char *const *names, int named, int count)
{
    char **list = memory_new((size_t)count, sizeof *list);
    for (int i = 0; i < count; i++) list[i] = i < named ? text_copy(names[i]) : text_format("%d", i);
    return list;
}

int text_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void text_list_sort(char **list, size_t count)
{
    qsort(list, count, sizeof *list, text_compare);
}

void text_list_free(char **list, size_t count)
{
    for (size_t i = 0; list && i < count; i++) free(list[i]);
    free(list);
}
