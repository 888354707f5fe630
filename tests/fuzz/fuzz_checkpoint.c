/* Checkpoints as a resumed run reads them. Checksums are put right first, so that what is behind them is
 * tried. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "fuzz_network.h"
#include "checkpoint/checkpoint.h"
#include "format/checksum.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    fuzz_network();
    return 0;
}

/* The checksums of tensors, where the header has a place for them. */
static void repair_tensors(const struct safetensors *file, char *header, const uint8_t *data)
{
    for (int i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];
        char *key = checksum_key(entry->name), *place = text_format("\"%s\":\"", key), digits[CHECKSUM_TEXT];
        char *at = strstr(header, place);
        checksum_text(crc32c(0, data + entry->begin, (size_t)(entry->end - entry->begin)), digits);
        if (at && strlen(at) > strlen(place) + strlen(digits))
            memcpy(at + strlen(place), digits, strlen(digits));
        free(key);
        free(place);
    }
}

static void repair(uint8_t *bytes, size_t size)
{
    uint64_t length = 0;
    for (int i = 7; i >= 0 && size >= 8; i--) length = length << 8 | bytes[i];
    if (size < 8 || length > size - 8) return;
    char *header = memory_new(length + 1, 1), digits[CHECKSUM_TEXT];
    memcpy(header, bytes + 8, length);
    struct safetensors file;
    struct reason reason;
    for (int round = 0; round < 2; round++) {
        /* First the header's own, so that the file opens; and again when those of the tensors are right. */
        if (checksum_header(header, length, digits)) memcpy(checksum_place(header), digits, strlen(digits));
        memcpy(bytes + 8, header, length);
        if (round || !safetensors_open(fuzz_write("repair", bytes, size), &file, &reason)) continue;
        repair_tensors(&file, header, bytes + 8 + length);
        safetensors_close(&file);
    }
    free(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors file;
    uint8_t *bytes = memory_new(size, 1);
    memcpy(bytes, data, size);
    repair(bytes, size);
    fuzz_resume(fuzz_write(CHECKPOINT_LAST, bytes, size));
    /* The file as it came is the one that a run falls back from, or to. */
    fuzz_write(CHECKPOINT_PREVIOUS, data, size);
    struct directory folder;
    fuzz_must(directory_open(fuzz_folder(), &folder) == OK);
    if (fuzz_good(checkpoint_open_newest(&folder, &file), "checkpoint")) safetensors_close(&file);
    directory_close(&folder);
    free(bytes);
    return 0;
}
