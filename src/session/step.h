/* step.h: a training step or the evaluation of a batch, compiled and planned. */
#pragma once

#include "compile/compile.h"
#include "exec/exec.h"
#include "session/session.h"

enum step_kind { STEP_TRAINING, STEP_EVALUATION };

/* The compiler's options, and the network to compile: of a linear probe, the part that is trained. */
struct compile_options step_options(const struct session *session, enum step_kind kind);
const struct graph *step_graph(const struct session *session, enum step_kind kind);

/* The program of a step, made to fit within the limit. The caller frees it with program_free. */
enum status step_program(const struct session *session, enum step_kind kind, struct program *program);

/* How it meets the memory limit: "keep", "recompute" or "offload". */
const char *step_strategy(const struct session *session, const struct program *program);

/* A program that can run. */
struct step {
    struct compiled compiled;
    struct exec *exec;
};

/* The device is the session's; the store belongs to the session's graph. A step that is prepared is planned
 * and has no memory yet: exec_place. */
enum status step_prepare(const struct session *session, enum step_kind kind, struct store *store,
                         struct step *step);
enum status step_open(const struct session *session, enum step_kind kind, struct store *store,
                      struct step *step);
/* An evaluation of a part of the session's network (graph_until), whose outputs are exec_logits; there are no
 * losses. The store is the whole network's. */
enum status step_open_features(const struct session *session, const struct graph *part, struct store *store,
                               const struct exec_memory *memory, struct step *step);
void step_close(struct step *step);          /* accepts a zeroed struct */

/* The number of consecutive overflows at the minimum loss scale that is reported; train.on_nan=stop ends the
 * run then. */
int step_stuck(const struct hyperparameters *hyper);

/* The next batch, as from loader_next, for the next run; all ranks call together. Waiting is only counted
 * while the device is idle. */
enum status step_next(const struct session *session, const struct step *step, struct loader *loader,
                      struct batch **batch, double *wait_seconds);

/* Rates of the next step to be queued, after `updates` applied ones. While a step is running, it is not known
 * whether it will be applied, so rates for both cases are given. */
struct update_rates step_rates(const struct hyperparameters *hyper, int64_t updates);

/* Device memory of a training run, known before allocation. */
struct budget step_taken(const struct session *session, const struct program *program, int64_t arena);
/* Adds members to a JSON object; the arena's workspaces are told apart by workspace_bytes. */
void step_taken_json(const struct budget *taken, const struct plan *plan, struct text *object);

/* Bytes of a training run's store. */
int64_t step_store_bytes(const struct session *session);
