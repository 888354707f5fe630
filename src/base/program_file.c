#include "base/program_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
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

char *program_file_library(void)
{
    Dl_info info;
    struct link_map *map = NULL;
    bool found = dladdr1((void *)program_file_library, &info, (void **)&map, RTLD_DL_LINKMAP) && map;
    return found && map->l_name[0] == '/' ? text_copy(map->l_name) : program_file_find();
}

/* The link leads to the program even if another one has its name by now. */
void program_file_run(char *const *arguments)
{
    const char *name = (const char *)getauxval(AT_EXECFN);
    execv("/proc/self/exe", arguments);
    if (errno == ENOENT && name) execv(name, arguments);
}
