/* finding.h: describes a value that is not finite in words. */
#pragma once

#include "data/loader/loader.h"
#include "exec/exec_checks.h"

/* Describes a finding, with the indices and files of the affected images. */
void finding_add(const struct exec_finding *found, const struct dataset *dataset, const struct loader *loader,
                 const struct batch *batch, struct text *text);
