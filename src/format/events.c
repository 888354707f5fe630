#include "format/events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/memory.h"

/* A protocol buffer being built; what does not fit is a mistake of ours. */
struct message {
    uint8_t bytes[512];
    size_t length;
};

static void add_bytes(struct message *message, const void *bytes, size_t count)
{
    if (message->length + count > sizeof message->bytes) return;
    memcpy(message->bytes + message->length, bytes, count);
    message->length += count;
}

static void add_varint(struct message *message, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));
        add_bytes(message, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void add_tag(struct message *message, int field, enum wire wire)
{
    add_varint(message, (uint64_t)(field << 3 | (int)wire));
}

static void put_little_endian(uint8_t *to, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static void add_double(struct message *message, int field, double value)
{
    uint64_t bits;
    uint8_t bytes[8];
    memcpy(&bits, &value, 8);
    put_little_endian(bytes, bits, 8);
    add_tag(message, field, WIRE_64);
    add_bytes(message, bytes, 8);
}

static void add_float(struct message *message, int field, float value)
{
    uint32_t bits;
    uint8_t bytes[4];
    memcpy(&bits, &value, 4);
    put_little_endian(bytes, bits, 4);
    add_tag(message, field, WIRE_32);
    add_bytes(message, bytes, 4);
}

static void add_block(struct message *message, int field, const void *bytes, size_t count)
{
    add_tag(message, field, WIRE_BYTES);
    add_varint(message, count);
    add_bytes(message, bytes, count);
}

static uint32_t events_masked_crc(const void *data, size_t bytes)
{
    uint32_t crc = crc32c(0, data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

bool events_record(FILE *file, const void *data, size_t bytes)
{
    uint8_t head[12], tail[4];
    put_little_endian(head, bytes, 8);
    put_little_endian(head + 8, events_masked_crc(head, 8), 4);
    put_little_endian(tail, events_masked_crc(data, bytes), 4);
    return fwrite(head, 1, 12, file) == 12 && fwrite(data, 1, bytes, file) == bytes &&
           fwrite(tail, 1, 4, file) == 4;
}

static double events_now(void)
{
    struct timeval time;
    gettimeofday(&time, NULL);
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

/* Numbers of the members, from event.proto and summary.proto. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

static struct message event_begin(int64_t step)
{
    struct message event = {.length = 0};
    add_double(&event, EVENT_TIME, events_now());
    if (step > 0) {
        add_tag(&event, EVENT_STEP, WIRE_VARINT);
        add_varint(&event, (uint64_t)step);
    }
    return event;
}

/* Every event reaches the file at once, so that a killed run loses none. Curves are a convenience: when they
 * cannot be written, that is said once and the run goes on. */
static void event_write(struct events *events, const struct message *event)
{
    if (events_record(events->file, event->bytes, event->length) && fflush(events->file) == 0) return;
    log_warning("%s: cannot be written: %s; no more events are written written written",
                events->path, strerror(errno));
    events_close(events);
}

static void write_start(struct events *events, int64_t step)
{
    static const char version[] = "brain.Event:2";
    struct message event = event_begin(0);
    add_block(&event, EVENT_VERSION, version, strlen(version));
    event_write(events, &event);
    if (step == 0 || !events->file) return;
    struct message session = {.length = 0};
    add_tag(&session, SESSION_STATUS, WIRE_VARINT);
    add_varint(&session, SESSION_START);
    event = event_begin(step + 1);
    add_block(&event, EVENT_SESSION, session.bytes, session.length);
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

void events_scalar(struct events *events, const char *tag, int64_t step, double value)
{
    if (!events->file) return;
    struct message number = {.length = 0}, summary = {.length = 0}, event = event_begin(step);
    add_block(&number, VALUE_TAG, tag, strlen(tag));
    add_float(&number, VALUE_SIMPLE, (float)value);
    add_block(&summary, SUMMARY_VALUE, number.bytes, number.length);
    add_block(&event, EVENT_SUMMARY, summary.bytes, summary.length);
    event_write(events, &event);
}
