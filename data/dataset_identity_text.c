/* dataset_identity_text.c: an identity as text: version; "names", or "numbers" if images have no names; the
 * number of images; the hash of the sequence; cells and samples, both as hexadecimal numbers of fixed lengths
 * one after another. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/dataset_identity_parts.h"

#define VERSION 1
#define COUNT_MAX ((int64_t)1 << 40)

/* Digits of a cell and of a sample. */
#define CELL_DIGITS (3 * 16 + 3 * 8 + 2 * IDENTITY_NAME)
#define SAMPLE_DIGITS (16 + 8)

static void print_cell(const struct identity_cell *cell, struct text *out)
{
    const struct identity_image *sum = &cell->sum;
    text_add(out, "%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "%08" PRIx32 "%08" PRIx32 "%08" PRIx32,
             (uint64_t)cell->count, sum->key, sum->bytes, sum->crc, sum->class, sum->check);
    for (int i = 0; i < IDENTITY_NAME; i++) text_add(out, "%02x", (unsigned char)sum->name[i]);
}

void dataset_identity_print(const struct dataset_identity *identity, struct text *out)
{
    text_add(out, "%d %s %" PRId64 " %016" PRIx64 " ", VERSION, identity->named ? "names" : "numbers",
             identity->count, identity->sequence);
    for (int i = 0; i < IDENTITY_CELLS; i++) print_cell(&identity->cells[i], out);
    text_add(out, " ");
    for (int i = 0; i < identity->sampled; i++)
        text_add(out, "%016" PRIx64 "%08" PRIx32, identity->samples[i].key, identity->samples[i].crc);
}

/* The number of so many digits, which are known to be there, and steps over them. */
static uint64_t take(const char **text, int digits)
{
    char word[17];
    memcpy(word, *text, (size_t)digits);
    word[digits] = '\0';
    *text += digits;
    return strtoull(word, NULL, 16);
}

static void parse_cell(const char **text, struct identity_cell *cell)
{
    struct identity_image *sum = &cell->sum;
    cell->count = (int64_t)take(text, 16);
    sum->key = take(text, 16);
    sum->bytes = take(text, 16);
    sum->crc = (uint32_t)take(text, 8);
    sum->class = (uint32_t)take(text, 8);
    sum->check = (uint32_t)take(text, 8);
    for (int i = 0; i < IDENTITY_NAME; i++) sum->name[i] = (char)take(text, 2);
}

static bool parse_samples(const char *text, struct dataset_identity *identity)
{
    for (int i = 0; i < identity->sampled; i++) {
        struct identity_sample *sample = &identity->samples[i];
        sample->key = take(&text, 16);
        sample->crc = (uint32_t)take(&text, 8);
        if (i > 0 && sample->key < sample[-1].key) return false;
    }
    return true;
}

/* Cells hold at most all images; the sum of their counts is then no overflow either. */
static bool counts_can_be(const struct dataset_identity *identity)
{
    for (int i = 0; i < IDENTITY_CELLS; i++)
        if (identity->cells[i].count < 0 || identity->cells[i].count > identity->count) return false;
    return true;
}

bool dataset_identity_parse(const char *text, struct dataset_identity *identity, struct reason *reason)
{
    static const char digits[] = "0123456789abcdef";
    struct dataset_identity parsed = {0};
    char named[8] = "";
    int version = 0, at = 0;
    int read = sscanf(text, "%3d %7s %15" SCNd64 " %16" SCNx64 " %n", &version, named, &parsed.count,
                      &parsed.sequence, &at);
    if (read < 1) return because(reason, "is not an identity of a data set");
    if (version > VERSION) return because(reason, "has version %d; this amptrain reads %d", version, VERSION);
    parsed.named = strcmp(named, "names") == 0;
    const char *cells = text + at, *samples = cells + strspn(cells, digits);
    bool good = at > 0 && (parsed.named || strcmp(named, "numbers") == 0) && parsed.count >= 0 &&
                parsed.count <= COUNT_MAX && samples - cells == CELL_DIGITS * IDENTITY_CELLS &&
                *samples == ' ';
    size_t length = good ? strspn(++samples, digits) : 0;
    good = good && samples[length] == '\0' && length % SAMPLE_DIGITS == 0 &&
           length / SAMPLE_DIGITS <= IDENTITY_SAMPLES;
    if (!good) return because(reason, "is damaged");
    for (int i = 0; i < IDENTITY_CELLS; i++) parse_cell(&cells, &parsed.cells[i]);
    parsed.sampled = (int)(length / SAMPLE_DIGITS);
    parsed.samples = memory_new((size_t)parsed.sampled + 1, sizeof *parsed.samples);
    good = parse_samples(samples, &parsed) && counts_can_be(&parsed);
    if (good) *identity = parsed;
    else dataset_identity_free(&parsed);
    return good || because(reason, "is damaged");
}
