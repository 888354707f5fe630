/* places.h: where the models and data that come with the program are. */
#ifndef BASE_SEARCH_PATHS_H
#define BASE_SEARCH_PATHS_H

#define PLACES_MAX 4

/* Folders in the order in which they are searched: $AMPTRAIN_DATADIR/models, then the source tree
 * for a program that runs from its build folder, then where `make install` put them. */
struct places {
    char *models[PLACES_MAX + 1];      /* ended by NULL */
    char *data;                        /* the first that exists; never NULL */
};

struct places places_find(void);
void places_free(struct places *places);

#endif
