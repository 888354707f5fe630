/* checksum.h: the checksums in the metadata of our safetensors files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECKSUM_TEXT 9                       /* eight hexadecimal digits and the end */
#define CHECKSUM_HEADER_KEY "header_crc32c"   /* of the header with these digits set to zeros */

/* The digits of a checksum. */
void checksum_text(uint32_t crc, char text[CHECKSUM_TEXT]);

/* "crc32c:NAME", for the caller to free. */
char *checksum_key(const char *tensor);

/* The position of the digits of the header's own checksum, or NULL. */
char *checksum_place(char *header);

/* The checksum of a header (which ends in '\0' at header[length]), ignoring its own digits; false if it does
 * not contain them. */
bool checksum_header(char *header, size_t length, char text[CHECKSUM_TEXT]);
