/* protobuf.h: writes protocol buffers field by field (protobuf.dev/programming-guides/encoding). */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct protobuf {
    uint8_t *bytes;      /* freed by protobuf_free */
    size_t length, room;
};

/* Fields by their numbers. */
void protobuf_int(struct protobuf *message, int member, int64_t value);
void protobuf_float(struct protobuf *message, int member, float value);
void protobuf_double(struct protobuf *message, int member, double value);
void protobuf_block(struct protobuf *message, int member, const void *bytes, size_t count);
void protobuf_text(struct protobuf *message, int member, const char *text);
/* A message as a field; frees and empties the message. */
void protobuf_nest(struct protobuf *message, int member, struct protobuf *inner);

/* The beginning of a field of `count` bytes, which the caller writes. */
void protobuf_begin(struct protobuf *message, int member, uint64_t count);

void protobuf_free(struct protobuf *message);

/* The lowest `count` bytes of a number, lowest first. */
void protobuf_little_endian(uint8_t *to, uint64_t value, int count);
