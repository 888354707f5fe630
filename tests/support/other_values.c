/* other_values.c: prints for each option another value than a configuration has, "section.key=value", and
 * whether it may differ when a run is resumed, "yes" or "no". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "conf/options.h"
#include "conf/settings.h"

/* The first of them that the option accepts is taken; after its choices. */
static const char *const candidates[] = {
    "yes", "no", "2", "3", "0.5", "0.25", "0.9,0.99", "0.3,0.3,0.3", "0.5,1", "2h", "2 steps", "1G", "other",
};

static bool differs(const char *file, const struct option *option, const struct settings *base,
                    const char *value)
{
    struct settings now;
    char *set = text_format("%s.%s=%s", option->section, option->field.name, value);
    bool accepted = settings_load(file, (const char *const *)&set, 1, &now) == OK;
    free(set);
    if (!accepted) return false;
    char *before = option_value(option, base), *after = option_value(option, &now);
    bool differ = strcmp(before, after) != 0;
    free(before);
    free(after);
    settings_free(&now);
    return differ;
}

static const char *another(const char *file, const struct option *option, const struct settings *base)
{
    for (const char *const *choice = option->field.choices; choice && *choice; choice++)
        if (differs(file, option, base, *choice)) return *choice;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        if (differs(file, option, base, candidates[i])) return candidates[i];
    return NULL;
}

int main(int count, char **words)
{
    struct settings base;
    if (count != 2 || settings_load(words[1], NULL, 0, &base) != OK) return 2;
    if (!freopen("/dev/null", "w", stderr)) return 1;
    for (const struct option *option = option_table; option->section; option++) {
        const char *value = another(words[1], option, &base);
        printf("%s.%s=%s %s\n", option->section, option->field.name, value ? value : "",
               option->resumable ? "yes" : "no");
    }
    settings_free(&base);
    return 0;
}
