/* text_form.h: names that look the same: in another Unicode form, or in upper or lower case. */
#pragma once

#include "base/text.h"

/* A name whose letters (Latin, Greek, Cyrillic, kana, Hangul) are taken apart, as in Unicode's form D, which
 * macOS writes: two forms of a name become the same bytes. `fold`: ASCII letters become lower case. In new
 * memory. */
char *text_decomposed(const char *name, bool fold);
