/* shard_set.c: checks that the packed files of a folder are the complete output of one amptrain pack. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "data/formats/shard.h"

/* Maximum number of files named. */
#define FAULTS_TOLD 8

struct faults {
    struct text text;
    int count;
};

static const char *name_of(const struct shard *shard)
{
    const char *slash = strrchr(shard->path, '/');
    return slash ? slash + 1 : shard->path;
}

/* The position of the next name; NULL: enough are named. */
static struct text *next_fault(struct faults *faults)
{
    if (faults->count++ >= FAULTS_TOLD) return NULL;
    if (faults->count > 1) text_add(&faults->text, ", ");
    return &faults->text;
}

static bool of_one_set(const struct shard *a, const struct shard *b)
{
    return a->set.id == b->set.id && a->set.count == b->set.count;
}

/* One of the set that most files belong to, if it has more than half of them (Boyer and Moore's vote). */
static const struct shard *shard_set_elect(const struct shard *shards, int count)
{
    const struct shard *elected = shards;
    for (int i = 0, votes = 0; i < count; i++) {
        if (votes == 0) elected = &shards[i];
        votes += of_one_set(elected, &shards[i]) ? 1 : -1;
    }
    return elected;
}

static void check_files(const struct shard *shards, int count, const struct shard **by_number,
                        struct faults *faults)
{
    const struct shard *elected = shard_set_elect(shards, count);
    for (int i = 0; i < count; i++) {
        const struct shard **place = &by_number[shards[i].set.number];
        if (!of_one_set(elected, &shards[i])) {
            struct text *text = next_fault(faults);
            if (text)
                text_add(text, "%s is not from the same set as %s", name_of(&shards[i]), name_of(elected));
        } else if (*place) {
            struct text *text = next_fault(faults);
            if (text)
                text_add(text, "%s is the same shard as %s", name_of(&shards[i]), name_of(*place));
        } else {
            *place = &shards[i];
        }
    }
    for (uint32_t i = 0; i < elected->set.count; i++) {
        struct text *text = by_number[i] ? NULL : next_fault(faults);
        if (text) text_add(text, "shard %04u of %u is missing", i, elected->set.count);
    }
}

enum status shard_set_check(const char *folder, const struct shard *shards, int count)
{
    struct faults faults = {.count = 0};
    if (count > 1 && shard_set_elect(shards, count)->set.count == 1)
        return fail(BAD_DATA, "%s: %s and %s are separate data sets, not shards of one (see amptrain pack "
                    "--shards)", folder, name_of(&shards[0]), name_of(&shards[1]));
    const struct shard **by_number = memory_new(PACKED_SHARDS_MAX, sizeof(const struct shard *));
    check_files(shards, count, by_number, &faults);
    enum status status = OK;
    if (faults.count > FAULTS_TOLD) text_add(&faults.text, ", and so on");
    if (faults.count) status = fail(BAD_DATA, "%s: %s", folder, faults.text.data);
    free(by_number);
    text_free(&faults.text);
    return status;
}
