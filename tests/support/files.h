/* files.h: folders that tests write in. */
#pragma once

#include <stddef.h>

/* A fresh folder under $TMPDIR; case_remove deletes it with all it holds. */
char *case_folder(void);
void case_remove(char *folder);

/* Paths are "FOLDER/NAME"; folders on the way are made. case_path: the caller frees it. */
char *case_path(const char *folder, const char *name);
void case_write(const char *folder, const char *name, const void *data, size_t count);
void case_write_text(const char *folder, const char *name, const char *text);
void case_unlink(const char *folder, const char *name);
