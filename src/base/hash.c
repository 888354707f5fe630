#include "base/hash.h"

#include <string.h>

/* FNV-1a by eight bytes, whose upper bits are mixed into the lower ones; at the end MurmurHash3's finalizer,
 * so that every bit of the result depends on every bit of the input. */
uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t count)
{
    const uint8_t *from = bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (size_t at = 0; at < count; at += 8) {
        uint64_t word = 0;
        memcpy(&word, from + at, count - at < 8 ? count - at : 8);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    hash ^= count;
    hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
    hash = (hash ^ hash >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return hash ^ hash >> 33;
}
