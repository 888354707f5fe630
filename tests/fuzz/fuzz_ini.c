/* Configurations: what is taken is written and read back as the same. */
#include "fuzz.h"

#include "base/text.h"
#include "conf/settings.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_write("fuzz.ini", data, size);
    struct settings settings, again;
    if (!fuzz_good(settings_load(path, NULL, 0, &settings), "fuzz.ini")) return 0;
    struct text text = {0}, differences = {0};
    settings_print(&settings, false, &text);
    fuzz_must(fuzz_good(settings_load_text("again.ini", text.data, &again), "again.ini"));
    fuzz_must(!settings_differ(&settings, &again, &differences));
    settings_free(&settings);
    settings_free(&again);
    text_free(&text);
    return 0;
}
