#include "device/built_for.h"

#include <stdlib.h>

bool built_for(const char *capabilities, int capability)
{
    int last = 0;
    char *end;
    for (const char *at = capabilities;; at = end) {
        int number = (int)strtol(at, &end, 10);
        if (end == at) return last > 0 && last <= capability;
        if (number / 10 == capability / 10 && number <= capability) return true;
        last = number;
    }
}
