/* norm_eps.h: what the norms of a network add to variances: its layer norms or, where there are none, its
 * batch norms. Libraries differ in it for the same network. */
#pragma once

#include "graph/graph.h"

/* The eps of all of them; 0: there are none, or they have several. */
double norm_eps_of(const struct graph *graph);

/* True if both are known, and are not the same. */
bool norm_eps_differs(double eps, double other);

/* Sets all of them (model.norm_eps); USAGE if there are none. */
enum status norm_eps_set(double eps, struct graph *graph);
