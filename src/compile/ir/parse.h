/* parse.h: reads a program from the text that program_dump writes. */
#pragma once

#include "compile/ir/program.h"

/* The program of a text, of which program_dump makes the same text; it owns its network. `file` is for
 * messages. The caller frees it with program_free. Values, streams and waits are such that it can be planned,
 * and verified (plan.h); what passes expect of a program is not checked. USAGE, with file and line. */
enum status program_parse(const char *file, const char *text, struct program *program);
