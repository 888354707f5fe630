/* dump.h: a program as text, one instruction a line, as amptrain-ir(7) describes it. */
#pragma once

#include "base/text.h"
#include "compile/program.h"

/* Appends a line on the program as a whole, then one for each instruction. The same program always gives
 * the same text. */
void program_dump(const struct program *program, struct text *text);
