#include "library.h"

#include <dlfcn.h>
#include <string.h>

static bool look_up(void *library, const char *file, const char *name, void **found, struct reason *why)
{
    *found = dlsym(library, name);
    return *found || because(why, "%s is of another version: it has no %s", file, name);
}

bool library_open(const char *file, const char *const names[], void *functions, struct reason *why)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL), *found;
    bool good = library || because(why, "%s", dlerror());
    for (int i = 0; names[i]; i++) {
        good = good && look_up(library, file, names[i], &found, why);
        if (!good) found = NULL;
        memcpy((void **)functions + i, &found, sizeof found);
    }
    return good;
}
