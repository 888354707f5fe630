/* jpeg_plain.c: parses markers and tables as in ITU-T T.81, annex B. */
#include "data/image/jpeg_plain.h"

#include <string.h>

#include "data/image/orientation.h"

enum {
    MARKER_BASELINE = 0xc0,
    MARKER_HUFFMAN = 0xc4,
    MARKER_START = 0xd8,
    MARKER_END = 0xd9,
    MARKER_SCAN = 0xda,
    MARKER_QUANTIZATION = 0xdb,
    MARKER_RESTARTS = 0xdd,
    MARKER_APPLICATION = 0xe0,
    MARKER_ADOBE = 0xee,
    MARKER_APPLICATION_LAST = 0xef,
    MARKER_COMMENT = 0xfe,
};

/* Tables of a class that a baseline image may have. */
#define HUFFMAN_TABLES 2
#define QUANTIZATION_TABLES 4

struct component {
    uint8_t id, sampling, quantization;
};

struct parser {
    const uint8_t *at, *end;
    int components;            /* 0: no frame header was met */
    struct component component[3];
    int h, w;
    bool huffman[2][HUFFMAN_TABLES];         /* by class: DC, AC */
    bool quantization[QUANTIZATION_TABLES];
    bool jfif;
    int transform;             /* of Adobe's marker; -1: there is none */
};

/* The contents of a marker's segment, without its length. */
struct segment {
    const uint8_t *at;
    size_t count;
};

static bool take_segment(struct parser *parser, struct segment *segment)
{
    if (parser->end - parser->at < 2) return false;
    size_t length = (size_t)parser->at[0] << 8 | parser->at[1];
    if (length < 2 || length > (size_t)(parser->end - parser->at)) return false;
    *segment = (struct segment){parser->at + 2, length - 2};
    parser->at += length;
    return true;
}

static bool parse_frame(struct parser *parser, struct segment segment)
{
    const uint8_t *at = segment.at;
    if (parser->components || segment.count < 6 || at[0] != 8) return false;
    parser->h = at[1] << 8 | at[2];
    parser->w = at[3] << 8 | at[4];
    int components = at[5];
    if (parser->h == 0 || parser->w == 0 || (components != 1 && components != 3)) return false;
    if (segment.count != 6 + 3 * (size_t)components) return false;
    for (int i = 0; i < components; i++) {
        parser->component[i] = (struct component){at[6 + 3 * i], at[7 + 3 * i], at[8 + 3 * i]};
        if (parser->component[i].quantization >= QUANTIZATION_TABLES) return false;
    }
    parser->components = components;
    return true;
}

/* Codes of a length are numbered one by one, each length going on from twice where the last one ended; they
 * must not run out. Baseline values: up to 11 bits a DC difference, 10 an AC coefficient. */
static bool huffman_good(const uint8_t counts[16], const uint8_t *values, bool ac)
{
    unsigned code = 0;
    for (int bits = 1; bits <= 16; bits++) {
        code += counts[bits - 1];
        if (code > 1u << bits) return false;
        code <<= 1;
    }
    int total = 0;
    for (int i = 0; i < 16; i++) total += counts[i];
    for (int i = 0; i < total; i++)
        if (ac ? (values[i] & 15) > 10 : values[i] > 11) return false;
    return total > 0;
}

static bool parse_huffman(struct parser *parser, struct segment segment)
{
    while (segment.count >= 17) {
        unsigned kind = segment.at[0] >> 4, number = segment.at[0] & 15;
        size_t total = 0;
        for (int i = 1; i <= 16; i++) total += segment.at[i];
        if (kind > 1 || number >= HUFFMAN_TABLES || total > 256 || segment.count < 17 + total) return false;
        if (!huffman_good(segment.at + 1, segment.at + 17, kind == 1)) return false;
        parser->huffman[kind][number] = true;
        segment.at += 17 + total;
        segment.count -= 17 + total;
    }
    return segment.count == 0;
}

static bool parse_quantization(struct parser *parser, struct segment segment)
{
    while (segment.count >= 65) {
        if (segment.at[0] >= QUANTIZATION_TABLES) return false;          /* 16 bits, too */
        for (int i = 1; i <= 64; i++)
            if (segment.at[i] == 0) return false;
        parser->quantization[segment.at[0]] = true;
        segment.at += 65;
        segment.count -= 65;
    }
    return segment.count == 0;
}

static void parse_application(struct parser *parser, int marker, struct segment segment)
{
    if (marker == MARKER_APPLICATION && segment.count >= 5 && memcmp(segment.at, "JFIF", 5) == 0)
        parser->jfif = true;
    if (marker == MARKER_ADOBE && segment.count >= 12 && memcmp(segment.at, "Adobe", 5) == 0)
        parser->transform = segment.at[11];
}

/* If the colour space is not explicit, decoders guess it in different ways. */
static bool is_ycbcr(const struct parser *parser)
{
    if (parser->transform >= 0) return parser->transform == 1;
    if (parser->jfif) return true;
    for (int i = 0; i < 3; i++)
        if (parser->component[i].id != i + 1) return false;
    return true;
}

static bool sampling_good(const struct parser *parser)
{
    const struct component *component = parser->component;
    if (parser->components == 1) return component[0].sampling == 0x11;
    if (component[1].sampling != 0x11 || component[2].sampling != 0x11) return false;
    uint8_t luma = component[0].sampling;
    return luma == 0x11 || luma == 0x21 || luma == 0x12 || luma == 0x22;
}

/* All components in one scan, in order, with the tables that they name. */
static bool parse_scan(const struct parser *parser, struct segment segment)
{
    size_t components = (size_t)parser->components;
    if (components == 0 || segment.count != 4 + 2 * components || segment.at[0] != components) return false;
    for (size_t i = 0; i < components; i++) {
        const uint8_t *at = segment.at + 1 + 2 * i;
        unsigned dc = at[1] >> 4, ac = at[1] & 15;
        if (at[0] != parser->component[i].id || dc >= HUFFMAN_TABLES || ac >= HUFFMAN_TABLES) return false;
        if (!parser->huffman[0][dc] || !parser->huffman[1][ac]) return false;
        if (!parser->quantization[parser->component[i].quantization]) return false;
    }
    const uint8_t *rest = segment.at + 1 + 2 * components;
    return rest[0] == 0 && rest[1] == 63 && rest[2] == 0;
}

/* A block of 8 x 8 takes a code for its first coefficient and one that ends it: two bits at least. */
static bool is_long_enough(const struct parser *parser, size_t bytes)
{
    int luma = parser->component[0].sampling;
    uint64_t across = 8 * (uint64_t)(luma >> 4), down = 8 * (uint64_t)(luma & 15);
    uint64_t columns = ((uint64_t)parser->w + across - 1) / across,
             rows = ((uint64_t)parser->h + down - 1) / down;
    uint64_t blocks = columns * rows * (uint64_t)((luma >> 4) * (luma & 15) + parser->components - 1);
    return (uint64_t)bytes * 8 >= 2 * blocks;
}

/* To the marker that ends the image; a zero after 0xff says that it is none. */
static bool parse_coded(struct parser *parser)
{
    const uint8_t *first = parser->at;
    for (;;) {
        const uint8_t *found = memchr(parser->at, 0xff, (size_t)(parser->end - parser->at));
        if (!found || parser->end - found < 2) return false;
        parser->at = found + 2;
        if (found[1] == 0) continue;
        return found[1] == MARKER_END && is_long_enough(parser, (size_t)(found - first));
    }
}

static bool take_marker(struct parser *parser, int *marker)
{
    if (parser->end - parser->at < 2 || parser->at[0] != 0xff) return false;
    while (parser->end - parser->at > 2 && parser->at[1] == 0xff) parser->at++;
    *marker = parser->at[1];
    parser->at += 2;
    return true;
}

static bool jpeg_parse(struct parser *parser)
{
    int marker;
    struct segment segment;
    if (!take_marker(parser, &marker) || marker != MARKER_START) return false;
    while (take_marker(parser, &marker) && take_segment(parser, &segment)) {
        if (marker == MARKER_SCAN)
            return parse_scan(parser, segment) && sampling_good(parser) &&
                   (parser->components == 1 || is_ycbcr(parser)) && parse_coded(parser);
        if (marker == MARKER_BASELINE) {
            if (!parse_frame(parser, segment)) return false;
        } else if (marker == MARKER_HUFFMAN) {
            if (!parse_huffman(parser, segment)) return false;
        } else if (marker == MARKER_QUANTIZATION) {
            if (!parse_quantization(parser, segment)) return false;
        } else if (marker == MARKER_RESTARTS) {
            if (segment.count != 2 || segment.at[0] || segment.at[1]) return false;
        } else if (marker >= MARKER_APPLICATION && marker <= MARKER_APPLICATION_LAST) {
            parse_application(parser, marker, segment);
        } else if (marker != MARKER_COMMENT) {
            return false;
        }
    }
    return false;
}

bool jpeg_plain(const uint8_t *bytes, size_t count, struct jpeg_plain *plain)
{
    struct parser parser = {.at = bytes, .end = bytes + count, .transform = -1};
    if (!jpeg_parse(&parser)) return false;
    *plain = (struct jpeg_plain){parser.h, parser.w, parser.components, orientation_of_jpeg(bytes, count),
                                 (size_t)(parser.at - bytes)};
    return true;
}
