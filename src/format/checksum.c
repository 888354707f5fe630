#include "format/checksum.h"

#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/memory.h"

#define DIGITS (CHECKSUM_TEXT - 1)

void checksum_text(uint32_t crc, char text[CHECKSUM_TEXT])
{
    snprintf(text, CHECKSUM_TEXT, "%08x", crc);
}

char *checksum_key(const char *tensor)
{
    return text_format("crc32c:%s", tensor);
}

char *checksum_place(char *header)
{
    static const char before[] = "\"" CHECKSUM_HEADER_KEY "\":\"";
    char *found = strstr(header, before);
    if (!found) return NULL;
    char *digits = found + strlen(before);
    return strnlen(digits, DIGITS) == DIGITS ? digits : NULL;
}

bool checksum_header(char *header, size_t length, char text[CHECKSUM_TEXT])
{
    snprintf(text, CHECKSUM_TEXT, "none");
    char *digits = checksum_place(header);
    if (!digits) return false;
    char kept[DIGITS];
    memcpy(kept, digits, DIGITS);
    memset(digits, '0', DIGITS);
    checksum_text(crc32c(0, header, length), text);
    memcpy(digits, kept, DIGITS);
    return true;
}
