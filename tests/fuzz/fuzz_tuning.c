/* The autotuner's cache file, and the same text in a checkpoint. Checksums of
 * lines are put right, too, so that what is behind them is tried. */
#include "device/cuda_tuning.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/text.h"
#include "fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

/* Every line that has a blank as its ninth character, with the right number before it. */
static void repair(const char *from, struct text *to)
{
    for (const char *end; (end = strchr(from, '\n')); from = end + 1) {
        int length = (int)(end - from);
        if (length > 8 && from[8] == ' ')
            text_add(to, "%08x %.*s\n", crc32c(0, from + 9, (size_t)length - 9), length - 9, from + 9);
        else
            text_add(to, "%.*s\n", length, from);
    }
    text_add(to, "%s", from);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text lines = {0}, repaired = {0}, printed = {0}, again = {0};
    text_add(&lines, "%.*s", (int)size, (const char *)data);
    repair(lines.data, &repaired);
    struct tuning *tuning = tuning_new(), *other = tuning_new();
    tuning_set(tuning, "conv 8x8", "1.0 us");
    tuning_add(tuning, lines.data);
    tuning_add(tuning, repaired.data);
    fuzz_must(strcmp(tuning_find(tuning, "conv 8x8"), "1.0 us") == 0);
    tuning_print(tuning, &printed);
    tuning_add(other, printed.data);
    tuning_print(other, &again);
    fuzz_must(strcmp(printed.data, again.data) == 0);
    tuning_close(tuning);
    tuning_close(other);
    text_free(&lines);
    text_free(&repaired);
    text_free(&printed);
    text_free(&again);
    return 0;
}
