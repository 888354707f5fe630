#include "base/program_file.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/memory.h"

char *program_file_find(void)
{
    char path[PATH_MAX];
    const char *name = (const char *)getauxval(AT_EXECFN);
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return name ? realpath(name, NULL) : NULL;
    path[length] = '\0';
    return text_copy(path);
}

/* The link leads to the program even if another one has its name by now. */
void program_file_run(char *const *arguments)
{
    const char *name = (const char *)getauxval(AT_EXECFN);
    execv("/proc/self/exe", arguments);
    if (errno == ENOENT && name) execv(name, arguments);
}
