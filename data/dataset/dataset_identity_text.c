/* dataset_identity_text.c: an identity as text. Its first line: version; "names", or "numbers" if images have
 * no names; the number of images; the hash of the sequence. Then a line for each sample: key, 1 if its
 * contents are known, their CRC-32C, hash of the class, size, and the name as text_visible shows it.
 * Version 1 had one line, with a table before the samples, which is ignored, and of these only key and
 * CRC-32C. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/dataset/dataset_identity.h"

#define VERSION 2
#define COUNT_MAX ((int64_t)1 << 40)
#define NAME_ROOM 256

void dataset_identity_print(const struct dataset_identity *identity, struct text *out)
{
    text_add(out, "%d %s %" PRId64 " %016" PRIx64 "\n", VERSION, identity->named ? "names" : "numbers",
             identity->count, identity->sequence);
    for (int i = 0; i < identity->sampled; i++) {
        const struct identity_sample *sample = &identity->samples[i];
        char shown[NAME_ROOM];
        text_add(out, "%016" PRIx64 " %d %08" PRIx32 " %08" PRIx32 " %" PRIx64 " %s\n", sample->key,
                 sample->known, sample->crc, sample->class, sample->bytes,
                 text_visible(sample->name ? sample->name : "an image", shown, sizeof shown));
    }
}

/* Returns how many bytes the sample at `text` has; 0: it is damaged. */
static size_t take_sample(const char *text, struct identity_sample *sample)
{
    int known, at = 0;
    sscanf(text, "%16" SCNx64 " %1d %8" SCNx32 " %8" SCNx32 " %16" SCNx64 "%n", &sample->key, &known,
           &sample->crc, &sample->class, &sample->bytes, &at);
    size_t name = strcspn(text + at, "\n");
    if (at == 0 || text[at] != ' ' || name > NAME_ROOM || text[(size_t)at + name] != '\n') return 0;
    sample->known = known == 1;
    sample->name = text_format("%.*s", (int)name - 1, text + at + 1);
    return (size_t)at + name + 1;
}

static size_t take_old_sample(const char *text, struct identity_sample *sample)
{
    int at = 0;
    sscanf(text, "%16" SCNx64 "%8" SCNx32 "%n", &sample->key, &sample->crc, &at);
    sample->known = true;
    return (size_t)at;
}

static bool take_samples(const char *text, int version, struct dataset_identity *identity)
{
    identity->samples = memory_new(IDENTITY_SAMPLES, sizeof *identity->samples);
    while (*text) {
        if (identity->sampled == IDENTITY_SAMPLES) return false;
        struct identity_sample *sample = &identity->samples[identity->sampled];
        size_t bytes = (version == 1 ? take_old_sample : take_sample)(text, sample);
        if (bytes == 0) return false;
        text += bytes;
        if (identity->sampled++ > 0 && sample->key < sample[-1].key) return false;
    }
    return identity->sampled <= identity->count;
}

bool dataset_identity_parse(const char *text, struct dataset_identity *identity, struct reason *reason)
{
    struct dataset_identity parsed = {0};
    char named[8] = "";
    int version = 0, at = 0;
    int read = sscanf(text, "%3d %7s %15" SCNd64 " %16" SCNx64 "%n", &version, named, &parsed.count,
                      &parsed.sequence, &at);
    if (read < 1) return because(reason, "is not an identity of a data set");
    if (version > VERSION) return because(reason, "has version %d; this amptrain reads %d", version, VERSION);
    parsed.named = strcmp(named, "names") == 0;
    const char *rest = text + at, *samples = strchr(rest, version == 1 ? ' ' : '\n');
    if (samples && version == 1) samples = strchr(samples + 1, ' ');
    bool good = at > 0 && version > 0 && (parsed.named || strcmp(named, "numbers") == 0) &&
                parsed.count >= 0 && parsed.count <= COUNT_MAX && samples;
    if (good && take_samples(samples + 1, version, &parsed)) {
        *identity = parsed;
        return true;
    }
    dataset_identity_free(&parsed);
    return because(reason, "is damaged");
}
