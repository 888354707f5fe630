/* ini_manual.c: writes amptrain.ini(5): its hand-written frame, read from standard input, with the
 * option table's own words where a line says @OPTIONS@. */
#include <stdio.h>
#include <string.h>

#include "conf/settings.h"

int main(void)
{
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "@OPTIONS@\n") != 0) {
            fputs(line, stdout);
            continue;
        }
        struct text options = {0};
        settings_manual(&options);
        fputs(options.data, stdout);
        text_free(&options);
    }
    return ferror(stdin) || fflush(stdout) != 0;
}
