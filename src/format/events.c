#include "format/events.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/memory.h"
#include "format/protobuf.h"

static uint32_t events_masked_crc(const void *data, size_t bytes)
{
    uint32_t crc = crc32c(0, data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* One framed record, in the file at once: length, its masked checksum, the data, theirs. */
static bool events_record(FILE *file, const void *data, size_t bytes)
{
    uint8_t head[12], tail[4];
    protobuf_little_endian(head, bytes, 8);
    protobuf_little_endian(head + 8, events_masked_crc(head, 8), 4);
    protobuf_little_endian(tail, events_masked_crc(data, bytes), 4);
    fwrite(head, 1, 12, file);
    fwrite(data, 1, bytes, file);
    fwrite(tail, 1, 4, file);
    return fflush(file) == 0 && !ferror(file);
}

static double events_now(void)
{
    struct timeval time;
    gettimeofday(&time, NULL);
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

/* Numbers of the members, from event.proto and summary.proto. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, SESSION_STATUS = 1, SESSION_START = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_IMAGE = 4, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, PLUGIN_NAME = 1, TENSOR_DTYPE = 1, TENSOR_STRING = 8, DTYPE_STRING = 7 };
enum { IMAGE_HEIGHT = 1, IMAGE_WIDTH = 2, IMAGE_COLOURS = 3, IMAGE_BYTES = 4, COLOURS_RGB = 3 };

static struct protobuf event_begin(int64_t step)
{
    struct protobuf event = {0};
    protobuf_double(&event, EVENT_TIME, events_now());
    if (step > 0) protobuf_int(&event, EVENT_STEP, step);
    return event;
}

/* Every event reaches the file at once, so that a killed run loses none. Curves are a convenience: a write
 * error is reported once and the run continues. */
static void event_write(struct events *events, struct protobuf *event)
{
    bool written = events_record(events->file, event->bytes, event->length);
    protobuf_free(event);
    if (written) return;
    log_warning("%s: cannot be written: %s; no more events are written", events->path, strerror(errno));
    events_close(events);
}

static void write_start(struct events *events, int64_t step)
{
    struct protobuf event = event_begin(0), session = {0};
    protobuf_text(&event, EVENT_VERSION, "brain.Event:2");
    event_write(events, &event);
    if (step == 0 || !events->file) return;
    protobuf_int(&session, SESSION_STATUS, SESSION_START);
    event = event_begin(step + 1);
    protobuf_nest(&event, EVENT_SESSION, &session);
    event_write(events, &event);
}

enum status events_open(const struct directory *folder, int64_t step, struct events *events)
{
    char host[65] = "localhost";
    struct reason reason;
    gethostname(host, sizeof host - 1);
    char *name = text_format("events.out.tfevents.%010lld.%s.%ld", (long long)time(NULL), host,
                             (long)getpid());
    FILE *file = directory_stream(folder, name, "w", &reason);
    enum status status = file ? OK : directory_refuse(folder, name, reason.text);
    if (file) {
        *events = (struct events){file, directory_show(folder, name)};
        write_start(events, step);
    }
    free(name);
    return status;
}

void events_close(struct events *events)
{
    if (!events->file) return;
    fclose(events->file);
    free(events->path);
    *events = (struct events){0};
}

static struct protobuf value_begin(const char *tag)
{
    struct protobuf value = {0};
    protobuf_text(&value, VALUE_TAG, tag);
    return value;
}

static void write_value(struct events *events, int64_t step, struct protobuf *value)
{
    struct protobuf summary = {0}, event = event_begin(step);
    protobuf_nest(&summary, SUMMARY_VALUE, value);
    protobuf_nest(&event, EVENT_SUMMARY, &summary);
    event_write(events, &event);
}

void events_scalar(struct events *events, const char *tag, int64_t step, double number)
{
    if (!events->file) return;
    struct protobuf value = value_begin(tag);
    protobuf_float(&value, VALUE_SIMPLE, (float)number);
    write_value(events, step, &value);
}

/* A tensor of one string, for the plugin "text". */
void events_text(struct events *events, const char *tag, int64_t step, const char *text)
{
    if (!events->file) return;
    struct protobuf value = value_begin(tag), tensor = {0}, plugin = {0}, metadata = {0};
    protobuf_int(&tensor, TENSOR_DTYPE, DTYPE_STRING);
    protobuf_text(&tensor, TENSOR_STRING, text);
    protobuf_nest(&value, VALUE_TENSOR, &tensor);
    protobuf_text(&plugin, PLUGIN_NAME, "text");
    protobuf_nest(&metadata, METADATA_PLUGIN, &plugin);
    protobuf_nest(&value, VALUE_METADATA, &metadata);
    write_value(events, step, &value);
}

void events_image(struct events *events, const char *tag, int64_t step, const struct events_picture *picture)
{
    if (!events->file) return;
    struct protobuf value = value_begin(tag), image = {0};
    protobuf_int(&image, IMAGE_HEIGHT, picture->height);
    protobuf_int(&image, IMAGE_WIDTH, picture->width);
    protobuf_int(&image, IMAGE_COLOURS, COLOURS_RGB);
    protobuf_block(&image, IMAGE_BYTES, picture->png, picture->bytes);
    protobuf_nest(&value, VALUE_IMAGE, &image);
    write_value(events, step, &value);
}
