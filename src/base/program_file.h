/* program_file.h: the file that this program runs from, also where /proc is not mounted. */
#pragma once

/* Its path, for the caller to free; NULL: it cannot be found. */
char *program_file_find(void);

/* The path of the shared library that this code is linked into; the program's, if it is in none. */
char *program_file_library(void);

/* Runs it anew, with these arguments, in the place of the process; returns if that fails, errno says why. */
void program_file_run(char *const *arguments);
