/* pass_text.h: one pass on a program in text (amptrain-ir(7)), for tests. */
#pragma once

#include "base/text.h"
#include "compile/ir/kernel_plans.h"

/* Appends what the pass of this name makes of the text's program, with the options in its first line; both
 * are verified. `file` is for messages. `code_of`: the codes of ops; NULL: those for the device that the
 * options name. USAGE if the text is wrong, or the pass does not run with these options. */
enum status pass_text(const char *file, const char *text, const char *pass, code_lookup *code_of,
                      struct text *out);
