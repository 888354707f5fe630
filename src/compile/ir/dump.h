/* dump.h: a program as text, as amptrain-ir(7) describes it. */
#pragma once

#include "base/text.h"
#include "compile/ir/program.h"

/* Appends the network, a line on the program as a whole, its values that are in use, and its instructions,
 * one a line. The same program always gives the same text, of which program_parse (parse.h) makes the same
 * program. */
void program_dump(const struct program *program, struct text *text);
