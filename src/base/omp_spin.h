/* omp_spin.h: how long OpenMP's threads spin before they sleep, unless the user sets it. */
#pragma once

/* Call first in main, with its arguments: may restart the program in the same process. */
void omp_spin_shorten(char **argv);
