/* expression.h: values in model files: text, $parameters, and integer arithmetic. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Parameters by name, with their original text. */
struct bindings {
    struct binding {
        char *name, *text;
    } *entries;
    int count;
};

/* The text bound to a name of `length` bytes, or NULL. */
const char *bindings_find(const struct bindings *bindings, const char *name, size_t length);
void bindings_add(struct bindings *bindings, const char *name, const char *text);
void bindings_free(struct bindings *bindings);

/* The value of a text: the text itself if it has no '$'; the parameter's text if it is a single parameter;
 * otherwise integer arithmetic (+ - * / and parentheses), in which division truncates. The caller frees it;
 * NULL, with a reason, if it is invalid. */
char *expression_text(const char *text, const struct bindings *bindings, struct reason *reason);

/* The next parameter's name in a text: returns a pointer behind its '$' and sets `length`; NULL at the
 * end. */
const char *expression_next(const char *text, size_t *length);
