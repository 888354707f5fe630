#include "report/run_export.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "report/run_records.h"
#include "train/folder.h"
#include "train/run.h"

static void take_start(struct run_export *run, json_t *line)
{
    const char *key;
    json_t *value;
    char *whole = json_dumps(line, JSON_SORT_KEYS);
    uint64_t one = hash_bytes(1, whole, strlen(whole)), two = hash_bytes(one, whole, strlen(whole));
    snprintf(run->id, sizeof run->id, "%016llx%016llx", (unsigned long long)one, (unsigned long long)two);
    free(whole);
    run->start = json_object();
    json_object_foreach(line, key, value)
        if ((json_is_string(value) || json_is_integer(value)) && strcmp(key, "event") != 0)
            json_object_set(run->start, key, value);
}

static void take_summary(void *context, json_t *line)
{
    struct run_export *run = context;
    const char *event = json_string_value(json_object_get(line, "event"));
    const json_t *time = json_object_get(line, "time");
    if (!event) return;
    if (json_is_number(time) && strcmp(event, "eval") != 0) run->last = json_number_value(time);
    if (strcmp(event, "start") == 0) {
        if (!run->start) take_start(run, line);
        run->reason[0] = '\0';
    }
    const char *reason = json_string_value(json_object_get(line, "reason"));
    if (reason) snprintf(run->reason, sizeof run->reason, "%s", reason);
}

static const char *name_of(const struct run_export *run)
{
    for (int i = 0; i < run->config.count; i++) {
        const struct ini_entry *entry = &run->config.entries[i];
        if (entry->key && strcmp(entry->section, "run") == 0 && strcmp(entry->key, "name") == 0 &&
            entry->value[0])
            return entry->value;
    }
    const char *slash = strrchr(run->path, '/');
    return slash && slash[1] ? slash + 1 : run->path;
}

static enum run_export_end end_of(const struct run_export *run)
{
    if (!run->reason[0]) return folder_is_taken(run->path) ? EXPORT_RUNNING : EXPORT_BROKEN;
    bool is_stopped = strcmp(run->reason, "stopped") == 0 || strcmp(run->reason, "max_time") == 0;
    return is_stopped ? EXPORT_STOPPED : EXPORT_FINISHED;
}

static void read_config(const struct directory *folder, struct ini *config)
{
    struct text text = {0};
    if (records_read(folder, "config.ini", 1 << 20, &text)) ini_scan_text("config.ini", text.data, config);
    for (int i = 0; i < config->count; i++)
        if (config->entries[i].key) ini_unquote(config->entries[i].value);
    text_free(&text);
}

static enum status read_all(const struct directory *folder, struct run_export *run)
{
    struct stat state;
    TRY(records_each(folder, take_summary, run));
    if (!run->start) return fail(BAD_DATA, "%s: its records have no beginning", folder->path);
    run->path = realpath(folder->path, NULL);
    if (!run->path || fstatat(folder->file, RUN_METRICS, &state, 0) != 0)
        return fail(BAD_DATA, "%s: has no run", folder->path);
    run->begun = (double)state.st_mtime - run->last;
    read_config(folder, &run->config);
    run->name = name_of(run);
    run->end = end_of(run);
    return OK;
}

enum status run_export_open(const struct directory *folder, struct run_export *run)
{
    *run = (struct run_export){0};
    enum status status = read_all(folder, run);
    if (status != OK) run_export_close(run);
    return status;
}

void run_export_close(struct run_export *run)
{
    json_decref(run->start);
    ini_free(&run->config);
    free(run->path);
    *run = (struct run_export){0};
}

static bool is_one_of(const char *word, const char *const *words)
{
    while (*words && strcmp(word, *words) != 0) words++;
    return *words != NULL;
}

struct taker {
    void (*take)(void *context, const json_t *line, const char *key, json_t *value);
    void *context;
};

static void take_line(void *context, json_t *line)
{
    static const char *const others[] = {"event", "time", "step", "epoch", NULL};
    static const char *const of_steps[] = {"lr", "loss_scale", "grad_norm", "images_per_s", NULL};
    const struct taker *taker = context;
    const char *event = json_string_value(json_object_get(line, "event")), *key;
    bool epoch = event && strcmp(event, "epoch") == 0;
    if (!event || !(epoch || strcmp(event, "step") == 0)) return;
    json_t *value;
    json_object_foreach(line, key, value)
        if (json_is_number(value) && !is_one_of(key, others) && !(epoch && is_one_of(key, of_steps)))
            taker->take(taker->context, line, key, value);
}

enum status run_export_metrics(const struct directory *folder,
                               void (*take)(void *context, const json_t *line, const char *key,
                                            json_t *value),
                               void *context)
{
    struct taker taker = {take, context};
    return records_each(folder, take_line, &taker);
}
