#include "device/cuda_families.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define FAR_ENOUGH 3         /* times */

struct family {
    char *name;
    int far;                 /* times that a member was */
    bool near;               /* one was */
};

struct families {
    struct family *at;
    int count;
};

struct families *families_new(void)
{
    return memory_new(1, sizeof(struct families));
}

void families_free(struct families *families)
{
    if (!families) return;
    for (int i = 0; i < families->count; i++) free(families->at[i].name);
    free(families->at);
    free(families);
}

static struct family *families_find(const struct families *families, const char *name)
{
    for (int i = 0; i < families->count; i++)
        if (strcmp(families->at[i].name, name) == 0) return &families->at[i];
    return NULL;
}

void families_learn(struct families *families, const char *name, enum family_result result)
{
    struct family *family = families_find(families, name);
    if (!family) {
        family = array_push(families->at, families->count);
        *family = (struct family){.name = text_copy(name)};
    }
    family->far += result == FAMILY_FAR;
    family->near |= result == FAMILY_NEAR;
}

bool families_hopeless(const struct families *families, const char *name)
{
    const struct family *family = families_find(families, name);
    return family && !family->near && family->far >= FAR_ENOUGH;
}
