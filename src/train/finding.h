/* finding.h: describes a value that is not finite in words. */
#pragma once

#include "data/loader.h"
#include "exec/exec.h"

/* A finding, and the images that it is in by their indices in the data, and files where they have some. */
void finding_add(const struct exec_finding *found, const struct dataset *dataset, const struct loader *loader,
                 const struct batch *batch, struct text *text);
