#include "fuzz_repair.h"

#include <stddef.h>
#include <string.h>

#include "base/crc32c.h"
#include "data/formats/packed.h"

void fuzz_repair_packed(uint8_t *bytes, size_t size)
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
    if (header.targets.at <= size && header.targets.bytes <= size - header.targets.at)
        header.targets.crc = crc32c(0, bytes + header.targets.at, header.targets.bytes);
    header.crc = crc32c(0, &header, offsetof(struct packed_header, crc));
    memcpy(bytes, &header, sizeof header);
}
