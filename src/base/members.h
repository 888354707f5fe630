/* members.h: the members of a JSON object: a key and its value, after a comma unless it is the first. */
#pragma once

#include "base/text.h"

/* The value follows. */
void member_key(struct text *object, const char *key);
void member_integer(struct text *object, const char *key, int64_t value);
void member_number(struct text *object, const char *key, double value);     /* as text_json_number */
void member_numbers(struct text *object, const char *key, const double *values, int count);
/* NULL is null. Bytes may not be UTF-8, such as a file's name: see text_json_bytes. */
void member_string(struct text *object, const char *key, const char *value);
void member_bytes(struct text *object, const char *key, const char *value);
