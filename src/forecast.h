/* forecast.h: what a training step will take, worked out without a device: what plan and --check print. */
#ifndef FORECAST_H
#define FORECAST_H

#include "cmd.h"
#include "session/step.h"

struct forecast {
    struct program program;
    struct kernel_plans kernel_plans;
    struct plan plan;
    struct step_bytes bytes;
    double step_ms;              /* modelled, not measured */
};

enum status forecast_make(const struct session *session, struct forecast *forecast);
void forecast_free(struct forecast *forecast);

/* To stdout: the totals, what is alive at the peak, and every layer; or the same as JSON. */
void forecast_print(const struct session *session, const struct forecast *forecast);
void forecast_print_json(const struct session *session, const struct forecast *forecast);

#endif
