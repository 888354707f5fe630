#include "base/signature.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/file.h"

bool signature_matches(const struct directory *in, const char *name, const char *signature)
{
    char bytes[SIGNATURE_BYTES + 1];
    struct reason unsaid;
    int file = directory_file(in, name, O_RDONLY, &unsaid);
    if (file < 0) return true;
    ssize_t count = file_read(file, bytes, SIGNATURE_BYTES, 0);
    close(file);
    if (count <= 0) return true;
    for (ssize_t i = 0; i < count; i++)
        if (bytes[i] == '\0') bytes[i] = ' ';
    bytes[count] = '\0';
    return fnmatch(signature, bytes, FNM_NOESCAPE | FNM_EXTMATCH) == 0;
}
