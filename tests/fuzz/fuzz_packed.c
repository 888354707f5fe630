/* Packed data sets. Checksums are put right first, so that what is behind them is tried, too. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "data/packed.h"
#include "fuzz_images.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

static void repair(uint8_t *bytes, size_t size)
{
    struct packed_header header;
    if (size < sizeof header) return;
    memcpy(&header, bytes, sizeof header);
    header.file_bytes = size;
    if (header.index_at <= size && header.count <= (size - header.index_at) / sizeof(struct packed_entry)) {
        for (uint64_t i = 0; i < header.count; i++) {
            struct packed_entry entry;
            uint8_t *at = bytes + header.index_at + i * sizeof entry;
            memcpy(&entry, at, sizeof entry);
            if (entry.at <= size && entry.bytes <= size - entry.at)
                entry.crc = crc32c(0, bytes + entry.at, entry.bytes);
            memcpy(at, &entry, sizeof entry);
        }
        header.index_crc = crc32c(0, bytes + header.index_at, header.count * sizeof(struct packed_entry));
    }
    if (header.names_at <= size && header.names_bytes <= size - header.names_at)
        header.names_crc = crc32c(0, bytes + header.names_at, header.names_bytes);
    header.crc = crc32c(0, &header, offsetof(struct packed_header, crc));
    memcpy(bytes, &header, sizeof header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = memory_new(size, 1);
    const struct dataset_options options = {.path = fuzz_write("fuzz.pack", data, size)};
    fuzz_dataset("packed", &options, "fuzz.pack");
    memcpy(bytes, data, size);
    repair(bytes, size);
    fuzz_write("fuzz.pack", bytes, size);
    fuzz_dataset("packed", &options, "fuzz.pack");
    free(bytes);
    return 0;
}
