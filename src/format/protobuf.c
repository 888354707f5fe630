#include "format/protobuf.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

void protobuf_little_endian(uint8_t *to, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static void add_bytes(struct protobuf *message, const void *bytes, size_t count)
{
    if (message->length + count > message->room) {
        message->room = 2 * (message->length + count) + 64;
        message->bytes = memory_resize(message->bytes, message->room, 1);
    }
    if (count > 0) memcpy(message->bytes + message->length, bytes, count);
    message->length += count;
}

static void add_varint(struct protobuf *message, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));
        add_bytes(message, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void add_tag(struct protobuf *message, int member, enum wire wire)
{
    add_varint(message, (uint64_t)member << 3 | (uint64_t)wire);
}

static void add_bits(struct protobuf *message, uint64_t bits, int count)
{
    uint8_t bytes[8];
    protobuf_little_endian(bytes, bits, count);
    add_bytes(message, bytes, (size_t)count);
}

void protobuf_int(struct protobuf *message, int member, int64_t value)
{
    add_tag(message, member, WIRE_VARINT);
    add_varint(message, (uint64_t)value);
}

void protobuf_float(struct protobuf *message, int member, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_tag(message, member, WIRE_32);
    add_bits(message, bits, 4);
}

void protobuf_double(struct protobuf *message, int member, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_tag(message, member, WIRE_64);
    add_bits(message, bits, 8);
}

void protobuf_begin(struct protobuf *message, int member, uint64_t count)
{
    add_tag(message, member, WIRE_BYTES);
    add_varint(message, count);
}

void protobuf_block(struct protobuf *message, int member, const void *bytes, size_t count)
{
    protobuf_begin(message, member, count);
    add_bytes(message, bytes, count);
}

void protobuf_text(struct protobuf *message, int member, const char *text)
{
    protobuf_block(message, member, text, strlen(text));
}

void protobuf_nest(struct protobuf *message, int member, struct protobuf *inner)
{
    protobuf_block(message, member, inner->bytes, inner->length);
    protobuf_free(inner);
}

void protobuf_free(struct protobuf *message)
{
    free(message->bytes);
    *message = (struct protobuf){0};
}
