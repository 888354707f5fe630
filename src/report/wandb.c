/* wandb.c: the log of an offline run: LevelDB's format (github.com/google/leveldb, doc/log_format.md) with a
 * header of its own and zlib's CRC-32, of messages "Record" of W&B's wandb_internal.proto. */
#include "report/wandb.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/atomic_file.h"
#include "base/deflated.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/protobuf.h"
#include "report/run_export.h"

/* Pieces of a record, each within a block, where fewer bytes than a piece's head are zeros. */
enum { BLOCK = 32768, HEAD = 7 };
enum piece { FULL = 1, FIRST, MIDDLE, LAST };
static const char beginning[HEAD] = {':', 'W', '&', 'B', '\xe1', '\xbe', 0};

/* Numbers of the members. */
enum {
    RECORD_NUMBER = 1, RECORD_HISTORY = 2, RECORD_SUMMARY = 3, RECORD_RUN = 17, RECORD_EXIT = 18,
    RECORD_FINAL = 20, RECORD_HEADER = 21, RECORD_FOOTER = 22,
};
enum { HEADER_VERSION = 1, VERSION_PRODUCER = 1, VERSION_LEAST = 2 };
enum { RUN_ID = 1, RUN_PROJECT = 3, RUN_CONFIG = 4, RUN_NAME = 8, RUN_START = 17 };
enum { TIME_SECONDS = 1, TIME_NANOS = 2 };
enum { ITEMS = 1, ITEM_KEY = 1, ITEM_JSON = 16, HISTORY_STEP = 2, STEP_NUMBER = 1 };
enum { EXIT_CODE = 1, EXIT_RUNTIME = 2 };

#define PRODUCER "amptrain"

struct wandb {
    struct run_export run;
    FILE *file;
    size_t at;                   /* in the block */
    int64_t records;
    json_t *row, *summary;       /* members of the step that is being read; the last ones of all */
    int64_t step;
};

static void write_piece(struct wandb *log, enum piece kind, const uint8_t *data, size_t bytes)
{
    uint8_t head[HEAD], type = (uint8_t)kind;
    protobuf_little_endian(head, deflated_crc(deflated_crc(0, &type, 1), data, bytes), 4);
    protobuf_little_endian(head + 4, bytes, 2);
    head[6] = type;
    fwrite(head, 1, HEAD, log->file);
    fwrite(data, 1, bytes, log->file);
    log->at += HEAD + bytes;
}

static void write_bytes(struct wandb *log, const uint8_t *data, size_t left)
{
    static const uint8_t zeros[HEAD] = {0};
    bool is_first = true, is_last = false;
    while (!is_last) {
        if (BLOCK - log->at < HEAD) {
            fwrite(zeros, 1, BLOCK - log->at, log->file);
            log->at = 0;
        }
        size_t room = BLOCK - log->at - HEAD, bytes = left < room ? left : room;
        is_last = bytes == left;
        if (is_first) write_piece(log, is_last ? FULL : FIRST, data, bytes);
        else write_piece(log, is_last ? LAST : MIDDLE, data, bytes);
        is_first = false;
        data += bytes;
        left -= bytes;
    }
}

/* Frees and empties the message. */
static void write_record(struct wandb *log, int kind, struct protobuf *inner)
{
    struct protobuf record = {0};
    protobuf_int(&record, RECORD_NUMBER, ++log->records);
    protobuf_nest(&record, kind, inner);
    write_bytes(log, record.bytes, record.length);
    protobuf_free(&record);
}

/* Members of an object as items of a configuration, a history or a summary, which are alike. */
static void add_items(struct protobuf *message, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        struct protobuf item = {0};
        char *json = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
        protobuf_text(&item, ITEM_KEY, key);
        protobuf_text(&item, ITEM_JSON, json);
        protobuf_nest(message, ITEMS, &item);
        free(json);
    }
}

static void write_header(struct wandb *log)
{
    struct protobuf version = {0}, header = {0};
    protobuf_text(&version, VERSION_PRODUCER, PRODUCER);
    protobuf_text(&version, VERSION_LEAST, "0.40.0");
    protobuf_nest(&header, HEADER_VERSION, &version);
    fwrite(beginning, 1, HEAD, log->file);
    log->at = HEAD;
    write_record(log, RECORD_HEADER, &header);
}

/* An object for each section, in which numbers are numbers, and the first record's members as "start". */
static json_t *config_of(const struct run_export *run)
{
    json_t *config = json_object();
    for (int i = 0; i < run->config.count; i++) {
        const struct ini_entry *entry = &run->config.entries[i];
        if (!entry->key) continue;
        json_t *section = json_object_get(config, entry->section);
        if (!section) json_object_set_new(config, entry->section, section = json_object());
        json_t *value = json_loads(entry->value, JSON_DECODE_ANY, NULL);
        if (!json_is_number(value)) {
            json_decref(value);
            value = json_string(entry->value);
        }
        json_object_set_new(section, entry->key, value);
    }
    json_object_set(config, "start", run->start);
    return config;
}

static void write_run(struct wandb *log)
{
    struct protobuf run = {0}, settings = {0}, start = {0};
    json_t *config = config_of(&log->run);
    add_items(&settings, config);
    json_decref(config);
    double seconds = floor(log->run.begun);
    protobuf_int(&start, TIME_SECONDS, (int64_t)seconds);
    protobuf_int(&start, TIME_NANOS, (int64_t)(1e9 * (log->run.begun - seconds)));
    protobuf_text(&run, RUN_ID, log->run.id);
    protobuf_text(&run, RUN_PROJECT, "amptrain");
    protobuf_nest(&run, RUN_CONFIG, &settings);
    protobuf_text(&run, RUN_NAME, log->run.name);
    protobuf_nest(&run, RUN_START, &start);
    write_record(log, RECORD_RUN, &run);
}

static void write_row(struct wandb *log)
{
    struct protobuf history = {0}, step = {0};
    if (json_object_size(log->row) == 0) return;
    json_object_update(log->summary, log->row);
    add_items(&history, log->row);
    protobuf_int(&step, STEP_NUMBER, log->step);
    protobuf_nest(&history, HISTORY_STEP, &step);
    write_record(log, RECORD_HISTORY, &history);
    json_object_clear(log->row);
}

/* Lines of one step are one row, as the client makes of them. */
static void take_metric(void *context, const json_t *line, const char *key, json_t *value)
{
    struct wandb *log = context;
    int64_t step = json_integer_value(json_object_get(line, "step"));
    double time = json_number_value(json_object_get(line, "time"));
    json_t *epoch = json_object_get(line, "epoch");
    if (step != log->step) write_row(log);
    log->step = step;
    json_object_set(log->row, key, value);
    json_object_set_new(log->row, "_step", json_integer(step));
    json_object_set_new(log->row, "_runtime", json_real(time));
    json_object_set_new(log->row, "_timestamp", json_real(log->run.begun + time));
    if (epoch) json_object_set(log->row, "epoch", epoch);
}

/* The last records: a run that goes on has no exit. */
static void write_end(struct wandb *log)
{
    static const int codes[] = {[EXPORT_FINISHED] = OK, [EXPORT_STOPPED] = STOPPED, [EXPORT_BROKEN] = FAILED};
    struct protobuf summary = {0}, end = {0}, none = {0};
    add_items(&summary, log->summary);
    write_record(log, RECORD_SUMMARY, &summary);
    if (log->run.end == EXPORT_RUNNING) return;
    protobuf_int(&end, EXIT_CODE, codes[log->run.end]);
    protobuf_int(&end, EXIT_RUNTIME, (int64_t)log->run.last);
    write_record(log, RECORD_EXIT, &end);
    write_record(log, RECORD_FINAL, &none);
    write_record(log, RECORD_FOOTER, &none);
}

static enum status write_log(struct wandb *log, const struct directory *folder)
{
    log->row = json_object();
    log->summary = json_object();
    write_header(log);
    write_run(log);
    enum status status = run_export_metrics(folder, take_metric, log);
    write_row(log);
    write_end(log);
    json_decref(log->row);
    json_decref(log->summary);
    return status;
}

/* Refuses a file that amptrain did not write: its name is in the first record. */
static enum status check_ours(const struct directory *to, const char *name)
{
    char bytes[64];
    struct reason reason;
    if (!directory_has(to, name)) return OK;
    FILE *file = directory_stream(to, name, "r", &reason);
    if (!file) return directory_refuse(to, name, reason.text);
    size_t got = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    bool is_ours = got > HEAD && memcmp(bytes, beginning, HEAD) == 0 &&
        memmem(bytes, got, PRODUCER, strlen(PRODUCER));
    return is_ours ? OK : directory_refuse(to, name, "it exists, and amptrain did not write it");
}

/* The name of the run's folder: that of an earlier call, whose time may differ if the run went on since. */
static char *folder_of(const struct run_export *run, const char *path)
{
    char date[32] = "", *ending = text_format("-%s", run->id), *name = NULL;
    time_t begun = (time_t)run->begun;
    struct tm parts;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && !name && (entry = readdir(folder));)
        if (strncmp(entry->d_name, "offline-run-", 12) == 0 && text_ends_in(entry->d_name, ending))
            name = text_format("%s/%s", path, entry->d_name);
    if (folder) closedir(folder);
    if (gmtime_r(&begun, &parts)) strftime(date, sizeof date, "%Y%m%d_%H%M%S", &parts);
    if (!name) name = text_format("%s/offline-run-%s%s", path, date, ending);
    free(ending);
    return name;
}

static enum status write_in(struct wandb *log, const struct directory *folder, const struct directory *to)
{
    struct atomic_file file;
    char *name = text_format("run-%s.wandb", log->run.id);
    enum status status = check_ours(to, name);
    if (status == OK) status = atomic_file_begin(to, name, &file);
    free(name);
    TRY(status);
    log->file = file.stream;
    status = write_log(log, folder);
    enum status ended = atomic_file_end(&file, status == OK);
    return status == OK ? ended : status;
}

enum status wandb_write(const struct directory *folder, const char *path)
{
    struct reason reason;
    struct directory to;
    struct wandb log = {0};
    TRY(run_export_open(folder, &log.run));
    char *name = folder_of(&log.run, path), *files = text_format("%s/files", name);
    enum status status = directory_make(files, 0777, &reason)
        ? directory_open(name, &to) : fail(FAILED, "%s: cannot be created: %s", files, reason.text);
    if (status == OK) {
        status = write_in(&log, folder, &to);
        directory_close(&to);
    }
    free(files);
    free(name);
    run_export_close(&log.run);
    return status;
}
