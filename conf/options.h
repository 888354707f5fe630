/* options.h: finding rows of the option table. */
#ifndef CONF_OPTIONS_H
#define CONF_OPTIONS_H

#include "conf/settings.h"

/* The row of a key, or NULL. */
const struct option *option_find(const char *section, const char *key);

/* The rest of a message about a name that is unknown: "; did you mean 'lr'?", or where the key
 * belongs, or nothing. */
void option_suggest_section(const char *section, struct text *out);
void option_suggest_key(const char *section, const char *key, struct text *out);

bool option_section_known(const char *section);

/* Parses a value into the option's member; false and the reason if it is wrong or not in this
 * version. The member may have changed even then. */
bool option_set(const struct option *option, struct settings *settings, const char *value,
                struct reason *reason);
void option_reset(const struct option *option, struct settings *settings);

#endif
