/* mlflow.c: the file store's layout, as mlflow/store/tracking/file_store.py reads it: EXPERIMENT/meta.yaml,
 * EXPERIMENT/RUN/meta.yaml, and a file for each metric ("milliseconds value step" a line), parameter and tag.
 * Strings in YAML are written as JSON's, which is a part of it. */
#include "report/mlflow.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "conf/ini.h"
#include "report/run_records.h"
#include "train/folder.h"
#include "train/run.h"

#define EXPERIMENT "109709112116114971"    /* "amptrain"; MLflow's own have random ones of 18 digits */

/* MLflow's RunStatus. */
enum { RUNNING = 1, FINISHED = 3, BROKEN = 4, KILLED = 5 };

struct metric {
    char *key;
    struct text lines;
};

struct mlflow {
    char run[33];                 /* the run's name in the store: a hash of its first record */
    double begun, last;           /* seconds: since 1970 when the records' time was 0; the last one's time */
    char *tags[64][2];            /* keys and values of the first record */
    int tag_count;
    char reason[16];              /* of the last record; "": the run has not ended */
    struct metric *metrics;
    int64_t metric_count;
};

static void mlflow_free(struct mlflow *run)
{
    for (int i = 0; i < run->tag_count; i++) {
        free(run->tags[i][0]);
        free(run->tags[i][1]);
    }
    for (int64_t i = 0; i < run->metric_count; i++) {
        free(run->metrics[i].key);
        text_free(&run->metrics[i].lines);
    }
    free(run->metrics);
}

/* Takes the tags and the run's name from the first record. */
static void take_start(struct mlflow *run, const json_t *line)
{
    const char *key;
    json_t *value;
    char *whole = json_dumps(line, JSON_SORT_KEYS);
    uint64_t one = hash_bytes(1, whole, strlen(whole)), two = hash_bytes(one, whole, strlen(whole));
    snprintf(run->run, sizeof run->run, "%016llx%016llx", (unsigned long long)one, (unsigned long long)two);
    free(whole);
    json_object_foreach((json_t *)line, key, value) {
        if (run->tag_count == 64 || !(json_is_string(value) || json_is_integer(value))) continue;
        char *said = json_is_string(value) ? text_format("%s", json_string_value(value))
                                           : text_format("%lld", (long long)json_integer_value(value));
        run->tags[run->tag_count][0] = text_format("%s", key);
        run->tags[run->tag_count++][1] = said;
    }
}

/* The first pass over the records: what is said of the whole run. */
static void take_summary(void *context, json_t *line)
{
    struct mlflow *run = context;
    const char *event = json_string_value(json_object_get(line, "event"));
    const json_t *time = json_object_get(line, "time");
    if (!event) return;
    if (json_is_number(time) && strcmp(event, "eval") != 0) run->last = json_number_value(time);
    if (strcmp(event, "start") == 0) {
        if (!run->run[0]) take_start(run, line);
        run->reason[0] = '\0';
    }
    const char *reason = json_string_value(json_object_get(line, "reason"));
    if (reason) snprintf(run->reason, sizeof run->reason, "%s", reason);
}

static bool is_one_of(const char *word, const char *const *words)
{
    while (*words && strcmp(word, *words) != 0) words++;
    return *words != NULL;
}

static struct metric *metric_of(struct mlflow *run, const char *key)
{
    for (int64_t i = 0; i < run->metric_count; i++)
        if (strcmp(run->metrics[i].key, key) == 0) return &run->metrics[i];
    struct metric *metric = array_push(run->metrics, run->metric_count);
    *metric = (struct metric){.key = text_format("%s", key)};
    return metric;
}

/* The second pass: numbers of steps and epochs. Epochs repeat some of their last step's. */
static void take_metrics(void *context, json_t *line)
{
    static const char *const others[] = {"event", "time", "step", "epoch", NULL};
    static const char *const of_steps[] = {"lr", "loss_scale", "grad_norm", "images_per_s", NULL};
    struct mlflow *run = context;
    const char *event = json_string_value(json_object_get(line, "event")), *key;
    bool epoch = event && strcmp(event, "epoch") == 0;
    if (!event || !(epoch || strcmp(event, "step") == 0)) return;
    double time = run->begun + json_number_value(json_object_get(line, "time"));
    long long step = json_integer_value(json_object_get(line, "step"));
    json_t *value;
    json_object_foreach(line, key, value) {
        if (!json_is_number(value) || is_one_of(key, others) || (epoch && is_one_of(key, of_steps)))
            continue;
        text_add(&metric_of(run, key)->lines, "%.0f %.9g %lld\n", floor(time * 1000),
                 json_number_value(value), step);
    }
}

/* Writes a file whose name is a key. Records are the user's: keys that are no plain names, such as "../x",
 * are left out. */
static enum status put(const struct directory *in, const char *name, const char *data, size_t bytes)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t length = strlen(name);
    if (name[0] == '.' || length == 0 || length > 200 || strspn(name, plain) != length) return OK;
    struct reason reason;
    FILE *file = directory_stream(in, name, "w", &reason);
    if (!file) return directory_refuse(in, name, reason.text);
    bool good = fwrite(data, 1, bytes, file) == bytes;
    good = fclose(file) == 0 && good;
    return good ? OK : directory_refuse(in, name, "an error of writing");
}

/* Makes STORE/EXPERIMENT[/RUN[/KIND]] and opens it. */
static enum status open_below(const char *store, const char *run, const char *kind, struct directory *opened)
{
    struct reason reason;
    char *path = text_format("%s/%s/%s/%s", store, EXPERIMENT, run, kind);
    enum status status = directory_make(path, 0777, &reason)
        ? directory_open(path, opened) : fail(FAILED, "%s: cannot be created: %s", path, reason.text);
    free(path);
    return status;
}

static enum status put_tags(const struct mlflow *run, const struct directory *to, const char *name)
{
    TRY(put(to, "mlflow.runName", name, strlen(name)));
    for (int i = 0; i < run->tag_count; i++)
        TRY(put(to, run->tags[i][0], run->tags[i][1], strlen(run->tags[i][1])));
    return OK;
}

static enum status put_metrics(const struct mlflow *run, const struct directory *to)
{
    for (int64_t i = 0; i < run->metric_count; i++)
        TRY(put(to, run->metrics[i].key, run->metrics[i].lines.data, run->metrics[i].lines.length));
    return OK;
}

/* The configuration: SECTION.KEY. */
static enum status put_parameters(const struct ini *config, const struct directory *to)
{
    for (int i = 0; i < config->count; i++) {
        const struct ini_entry *entry = &config->entries[i];
        if (!entry->key) continue;
        ini_unquote(entry->value);
        char *name = text_format("%s.%s", entry->section, entry->key);
        enum status status = put(to, name, entry->value, strlen(entry->value));
        free(name);
        TRY(status);
    }
    return OK;
}

static int status_of(const struct mlflow *run, bool is_running)
{
    if (!run->reason[0]) return is_running ? RUNNING : BROKEN;
    return strcmp(run->reason, "stopped") == 0 || strcmp(run->reason, "max_time") == 0 ? KILLED : FINISHED;
}

static enum status put_meta(const struct mlflow *run, const struct directory *to, const char *name,
                            const char *artifacts, bool is_running)
{
    struct text meta = {0};
    int ended = status_of(run, is_running);
    text_add(&meta, "artifact_uri: ");
    text_json_string(&meta, artifacts);
    text_add(&meta, "\nend_time: ");
    if (ended == RUNNING) text_add(&meta, "null");
    else text_add(&meta, "%.0f", floor((run->begun + run->last) * 1000));
    text_add(&meta, "\nentry_point_name: ''\nexperiment_id: '%s'\nlifecycle_stage: active\nrun_id: '%s'\n"
             "run_name: ", EXPERIMENT, run->run);
    text_json_string(&meta, name);
    text_add(&meta, "\nrun_uuid: '%s'\nsource_name: amptrain\nsource_type: 4\nsource_version: ''\n"
             "start_time: %.0f\nstatus: %d\ntags: []\nuser_id: ''\n",
             run->run, floor(run->begun * 1000), ended);
    enum status status = put(to, "meta.yaml", meta.data, meta.length);
    text_free(&meta);
    return status;
}

static enum status put_experiment(const struct mlflow *run, const char *store)
{
    struct directory to;
    TRY(open_below(store, "", "", &to));
    struct text meta = {0};
    char *place = text_format("%s/" EXPERIMENT, store);
    text_add(&meta, "artifact_location: ");
    text_json_string(&meta, place);
    text_add(&meta, "\ncreation_time: %.0f\nexperiment_id: '" EXPERIMENT "'\nlast_update_time: %.0f\n"
             "lifecycle_stage: active\nname: amptrain\n", floor(run->begun * 1000),
             floor((run->begun + run->last) * 1000));
    enum status status = directory_has(&to, "meta.yaml") ? OK : put(&to, "meta.yaml", meta.data, meta.length);
    free(place);
    text_free(&meta);
    directory_close(&to);
    return status;
}

/* run.name, or the folder's name. */
static const char *name_of(const struct ini *config, const char *folder)
{
    for (int i = 0; i < config->count; i++) {
        const struct ini_entry *entry = &config->entries[i];
        if (entry->key && strcmp(entry->section, "run") == 0 && strcmp(entry->key, "name") == 0 &&
            entry->value[0])
            return entry->value;
    }
    const char *slash = strrchr(folder, '/');
    return slash && slash[1] ? slash + 1 : folder;
}

/* All files of the run, of which meta.yaml, which makes it one for MLflow, is the last. */
static enum status put_run(const struct mlflow *run, const struct ini *config, const char *store,
                           const char *artifacts, bool is_running)
{
    enum { TAGS, METRICS, PARAMETERS, ARTIFACTS, META, KINDS };
    static const char *const kinds[] = {"tags", "metrics", "params", "artifacts", ""};
    const char *name = name_of(config, artifacts);
    enum status status = OK;
    for (int i = TAGS; i < KINDS && status == OK; i++) {
        struct directory to;
        TRY(open_below(store, run->run, kinds[i], &to));
        if (i == TAGS) status = put_tags(run, &to, name);
        if (i == METRICS) status = put_metrics(run, &to);
        if (i == PARAMETERS) status = put_parameters(config, &to);
        if (i == META) status = put_meta(run, &to, name, artifacts, is_running);
        directory_close(&to);
    }
    return status;
}

static enum status put_all(struct mlflow *run, const struct directory *folder, const char *path)
{
    struct stat state;
    struct text config = {0};
    struct ini ini = {0};
    struct reason reason;
    if (!run->run[0]) return fail(BAD_DATA, "%s: its records have no beginning", folder->path);
    if (fstatat(folder->file, RUN_METRICS, &state, 0) != 0)
        return fail(BAD_DATA, "%s: has no run", folder->path);
    run->begun = (double)state.st_mtime - run->last;
    TRY(records_each(folder, take_metrics, run));
    if (!directory_make(path, 0777, &reason))
        return fail(FAILED, "%s: cannot be created: %s", path, reason.text);
    char *store = realpath(path, NULL), *artifacts = realpath(folder->path, NULL);
    if (records_read(folder, "config.ini", 1 << 20, &config)) ini_scan_text("config.ini", config.data, &ini);
    enum status status = store && artifacts ? put_experiment(run, store)
                                            : fail(FAILED, "%s: cannot be found", path);
    if (status == OK) status = put_run(run, &ini, store, artifacts, folder_is_taken(folder->path));
    ini_free(&ini);
    text_free(&config);
    free(store);
    free(artifacts);
    return status;
}

enum status mlflow_write(const struct directory *folder, const char *path)
{
    struct mlflow run = {0};
    enum status status = records_each(folder, take_summary, &run);
    if (status == OK) status = put_all(&run, folder, path);
    mlflow_free(&run);
    return status;
}
