#include "shape.h"

#include <inttypes.h>
#include <stdio.h>

const char *shape_text(struct shape shape, char text[SHAPE_TEXT])
{
    int used = 0;
    text[0] = '\0';
    for (int i = 0; i < shape.rank; i++)
        used += snprintf(text + used, (size_t)(SHAPE_TEXT - used), "%s%" PRId64, i ? "x" : "", shape.dim[i]);
    return text;
}
