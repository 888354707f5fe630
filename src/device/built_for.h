/* built_for.h: which GPUs the program's code for GPUs runs on. */
#pragma once

#include <stdbool.h>

/* True if a GPU of this compute capability (86 is 8.6) runs code that was compiled for `capabilities`,
 * ascending numbers with blanks between them, such as "80 90": machine code runs on the same major number
 * from its own minor number on; of the last one there is PTX, which newer GPUs compile. */
bool built_for(const char *capabilities, int capability);
