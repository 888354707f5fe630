/* memory.h: small host allocations that never return NULL. */
#pragma once

#include <stddef.h>

/* Zeroed memory for `count` elements of `size` bytes, for free(). If there is none, the program ends with a
 * message and exit code 1: the only place besides main that exits; a library's call returns (guest.h). For
 * large allocations (arenas, batches, whole files) use memory_try, which returns NULL instead. */
void *memory_new(size_t count, size_t size);
void *memory_try(size_t count, size_t size);

/* Ends the program in that way: there is no memory for `what`. */
__attribute__((noreturn)) void memory_none(const char *what);

/* `old` grown or shrunk to count * size bytes; new elements are not zeroed. */
void *memory_resize(void *old, size_t count, size_t size);

char *text_copy(const char *text);                       /* NULL stays NULL */
char *text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* `count` strings: copies of names[named], which may be more, and behind them their numbers. Sorted
 * bytewise. */
char **text_list(char *const *names, int named, int count);
void text_list_sort(char **list, size_t count);
/* For qsort and bsearch: compares strings, or structs by the string that is their first member. */
int text_compare(const void *a, const void *b);
void text_list_free(char **list, size_t count);          /* accepts NULL */

/* Appends to a growing array: `array` is a pointer to the array's pointer, `count` its length. */
#define array_push(array, count)                                                                         \
    (((count) & ((count) - 1)) == 0                                                                      \
         ? (void)((array) = memory_resize((array), (count) ? 2 * (size_t)(count) : 1, sizeof *(array)))  \
         : (void)0,                                                                                      \
     &(array)[(count)++])

/* Appends to an array whose capacity, `room`, is kept when it is emptied. */
#define array_put(array, count, room)                                                                    \
    ((count) == (room)                                                                                   \
         ? (void)((room) = 2 * (room) + 4,                                                               \
                  (array) = memory_resize((array), (size_t)(room), sizeof *(array)))                     \
         : (void)0,                                                                                      \
     &(array)[(count)++])
