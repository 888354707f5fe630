#include "base/members.h"

#include <inttypes.h>

void member_key(struct text *object, const char *key)
{
    bool first = object->length == 0 || object->data[object->length - 1] == '{';
    text_add(object, "%s\"%s\":", first ? "" : ",", key);
}

void member_integer(struct text *object, const char *key, int64_t value)
{
    member_key(object, key);
    text_add(object, "%" PRId64, value);
}

void member_number(struct text *object, const char *key, double value)
{
    member_key(object, key);
    text_json_number(object, value);
}

void member_numbers(struct text *object, const char *key, const double *values, int count)
{
    member_key(object, key);
    text_json_numbers(object, values, count);
}

void member_string(struct text *object, const char *key, const char *value)
{
    member_key(object, key);
    if (value) text_json_string(object, value);
    else text_add(object, "null");
}

void member_bytes(struct text *object, const char *key, const char *value)
{
    member_key(object, key);
    if (value) text_json_bytes(object, value);
    else text_add(object, "null");
}
