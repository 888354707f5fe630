/* signature.h: tells by how a file begins whether it is one that amptrain wrote, and so may be replaced. */
#pragma once

#include "base/directory.h"

/* A signature is an extended pattern, as of fnmatch(3), that a file's first SIGNATURE_BYTES match; NUL bytes
 * are blanks. */
#define SIGNATURE_BYTES 512

/* Also true of an empty file, and of one that is not there or cannot be read: opening it for writing tells
 * more. */
_Bool signature_matches(const struct directory *in, const char *name, const char *signature);
