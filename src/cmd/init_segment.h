/* init_segment.h: the recipe by which `amptrain init` has a class for every pixel learned. */
#pragma once

#include "base/text.h"
#include "cmd/init_findings.h"

/* Adds the sections of the configuration up to [schedule]. USAGE: a palette is needed, which is written
 * beside `file`, and that is NULL. */
enum status init_segment_add(const struct init_findings *found, const char *file, struct text *out);

/* Writes the palette beside the configuration, if there is one. */
enum status init_segment_write(const struct init_findings *found, const char *file);
