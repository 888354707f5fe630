#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "tests/support/unit.h"

char *case_folder(void)
{
    const char *root = getenv("TMPDIR");
    char *folder = text_format("%s/amptrain-test-XXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(folder));
    return folder;
}

void case_remove(char *folder)
{
    char *command = text_format("rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
    free(command);
    free(folder);
}

char *case_path(const char *folder, const char *name)
{
    char *path = text_format("%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    return path;
}

void case_write(const char *folder, const char *name, const void *data, size_t count)
{
    char *path = case_path(folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    if (count) assert_int_equal(fwrite(data, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    free(path);
}

void case_write_text(const char *folder, const char *name, const char *text)
{
    case_write(folder, name, text, strlen(text));
}

void case_unlink(const char *folder, const char *name)
{
    char *path = case_path(folder, name);
    assert_int_equal(unlink(path), 0);
    free(path);
}
