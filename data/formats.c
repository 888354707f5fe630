#include <string.h>

#include "data/dataset.h"

extern const struct format format_mnist, format_cifar10, format_cifar100, format_digits, format_folder,
    format_packed, format_synthetic;

const struct format *const format_table[] = {
    &format_mnist,
    &format_cifar10,
    &format_cifar100,
    &format_folder,
    &format_packed,
    &format_digits,
    &format_synthetic,
    NULL,
};

const struct format *format_find(const char *name)
{
    for (int i = 0; format_table[i]; i++)
        if (strcmp(format_table[i]->name, name) == 0) return format_table[i];
    return NULL;
}
