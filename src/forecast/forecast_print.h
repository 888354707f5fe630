/* forecast_print.h: prints a forecast as text or JSON, for plan and --check. */
#pragma once

#include "forecast/forecast.h"

/* Prints the totals, the tensors alive at the peak, and every layer; or the same as JSON. */
/* `brief`: without the memory of each layer, and what would need less. */
void forecast_print(const struct session *session, const struct forecast *forecast, bool brief);
void forecast_print_json(const struct session *session, const struct forecast *forecast);
