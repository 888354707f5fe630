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
#include "format/protobuf.h"

static uint32_t events_masked_crc(const void *data, size_t bytes)
{
    uint32_t crc = crc32c(0, data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

bool events_record(FILE *file, const void *data, size_t bytes)
{
    uint8_t head[12], tail[4];
    protobuf_little_endian(head, bytes, 8);
    protobuf_little_endian(head + 8, events_masked_crc(head, 8), 4);
    protobuf_little_endian(tail, events_masked_crc(data, bytes), 4);
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

static struct protobuf event_begin(int64_t step)
{
    struct protobuf event = {0};
    protobuf_double(&event, EVENT_TIME, events_now());
    if (step > 0) protobuf_int(&event, EVENT_STEP, step);
    return event;
}

/* Every event reaches the file at once, so that a killed run loses none. Curves are a convenience: when they
 * cannot be written, that is said once and the run goes on. */
static void event_write(struct events *events, struct protobuf *event)
{
    bool written = events_record(events->file, event->bytes, event->length) && fflush(events->file) == 0;
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

void events_scalar(struct events *events, const char *tag, int64_t step, double value)
{
    if (!events->file) return;
    struct protobuf number = {0}, summary = {0}, event = event_begin(step);
    protobuf_text(&number, VALUE_TAG, tag);
    protobuf_float(&number, VALUE_SIMPLE, (float)value);
    protobuf_nest(&summary, SUMMARY_VALUE, &number);
    protobuf_nest(&event, EVENT_SUMMARY, &summary);
    event_write(events, &event);
}
