/* mlflow.h: writes a run to MLflow's file store: `mlflow ui --backend-store-uri STORE`. */
#pragma once

#include "base/directory.h"

/* Adds the run to the experiment "amptrain" of the store in `path`, which is created if it does not exist, or
 * replaces what an earlier call wrote of the same run: metrics of steps and epochs, the configuration as
 * parameters, members of the first record as tags. Artifacts are the run folder's files, where they are.
 * BAD_DATA if there are no records. */
enum status mlflow_write(const struct directory *folder, const char *path);
