/* ini_parts.h: an INI file's entries and mistakes, as they are gathered. */
#pragma once

#include "conf/ini.h"

/* More of them would only be noise. */
#define INI_MISTAKE_LIMIT 20

/* Takes ownership of the sentence. */
void ini_note(struct ini *ini, int line, char *why);

/* Notes every key that stands twice in a section, and sorts all mistakes by line. */
void ini_note_doubles(struct ini *ini);

void ini_entry_free(struct ini_entry *entry);
