/* events.h: TensorBoard event files: records of protocol buffers, framed with masked CRC-32C.
 *
 * Formats: tensorflow's core/lib/io/record_writer and core/util/event.proto. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "base/directory.h"

struct events {
    FILE *file;              /* NULL: switched off; every call is then without effect */
    char *path;
};

/* Creates FOLDER/events.out.tfevents.TIME.HOST.PID. `step` tells TensorBoard to ignore later steps in earlier
 * files of the folder (a resumed run). */
enum status events_open(const struct directory *folder, int64_t step, struct events *events);
void events_close(struct events *events);

/* Writes one number of a step; it is in the file on return. */
void events_scalar(struct events *events, const char *tag, int64_t step, double value);

/* UTF-8 text, which TensorBoard renders as Markdown. */
void events_text(struct events *events, const char *tag, int64_t step, const char *text);

/* An RGB picture. */
struct events_picture {
    const uint8_t *png;      /* or a JPEG file */
    size_t bytes;
    int width, height;
};
void events_image(struct events *events, const char *tag, int64_t step, const struct events_picture *picture);
