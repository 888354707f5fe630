/* patience.h: how long OpenMP's threads spin before they sleep, where the user does not say. */
#ifndef PATIENCE_H
#define PATIENCE_H

/* Call first in main, with its arguments: may begin the program anew, in the same process. */
void patience_shorten(char **words);

#endif
