#include <string.h>

#include "data/dataset/dataset.h"

#define FORMATS(EACH) \
    EACH(mnist) EACH(cifar10) EACH(cifar100) EACH(folder) EACH(csv) EACH(packed) EACH(digits) EACH(synthetic)

#define DECLARE(name) extern const struct format format_##name;
#define ROW(name) &format_##name,

FORMATS(DECLARE)
const struct format *const format_table[] = {FORMATS(ROW) NULL};

const struct format *format_find(const char *name)
{
    for (int i = 0; format_table[i]; i++)
        if (strcmp(format_table[i]->name, name) == 0) return format_table[i];
    return NULL;
}
