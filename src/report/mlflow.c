/* mlflow.c: the file store's layout, as mlflow/store/tracking/file_store.py reads it: EXPERIMENT/meta.yaml,
 * EXPERIMENT/RUN/meta.yaml, and a file for each metric ("milliseconds value step" a line), parameter and tag.
 * Strings in YAML are written as JSON's, which is a part of it. */
#include "report/mlflow.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/text.h"
#include "report/run_export.h"

#define EXPERIMENT "109709112116114971"    /* "amptrain"; MLflow's own have random ones of 18 digits */

#define META_FILE "meta.yaml"             /* makes a folder an experiment or a run */

/* MLflow's RunStatus. */
enum { RUNNING = 1, FINISHED = 3, BROKEN = 4, KILLED = 5 };

struct metric {
    char *key;
    struct text lines;
};

struct mlflow {
    struct run_export run;        /* its id is the run's name in the store */
    struct metric *metrics;
    int64_t metric_count;
};

static void mlflow_free(struct mlflow *store)
{
    run_export_close(&store->run);
    for (int64_t i = 0; i < store->metric_count; i++) {
        free(store->metrics[i].key);
        text_free(&store->metrics[i].lines);
    }
    free(store->metrics);
}

static struct metric *metric_of(struct mlflow *store, const char *key)
{
    for (int64_t i = 0; i < store->metric_count; i++)
        if (strcmp(store->metrics[i].key, key) == 0) return &store->metrics[i];
    struct metric *metric = array_push(store->metrics, store->metric_count);
    *metric = (struct metric){.key = text_format("%s", key)};
    return metric;
}

static void take_metric(void *context, const json_t *line, const char *key, json_t *value)
{
    struct mlflow *store = context;
    double time = store->run.begun + json_number_value(json_object_get(line, "time"));
    text_add(&metric_of(store, key)->lines, "%.0f %.9g %lld\n", floor(time * 1000), json_number_value(value),
             (long long)json_integer_value(json_object_get(line, "step")));
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
    int error = errno;
    if (fclose(file) != 0 && good) good = false, error = errno;
    return good ? OK : directory_refuse(in, name, strerror(error));
}

/* Makes STORE/EXPERIMENT[/RUN[/KIND]], without those that are empty, and opens it. */
static enum status open_below(const char *store, const char *run, const char *kind, struct directory *opened)
{
    struct reason reason;
    char *path = text_format("%s/" EXPERIMENT "%s%s%s%s", store, *run ? "/" : "", run, *kind ? "/" : "",
                             kind);
    enum status status = directory_make(path, 0777, &reason)
        ? directory_open(path, opened) : fail(FAILED, "%s: cannot be created: %s", path, reason.text);
    free(path);
    return status;
}

static enum status put_tags(const struct run_export *run, const struct directory *to)
{
    const char *key;
    json_t *value;
    TRY(put(to, "mlflow.runName", run->name, strlen(run->name)));
    json_object_foreach(run->start, key, value) {
        char *tag = json_is_string(value) ? text_copy(json_string_value(value))
                                          : text_format("%lld", (long long)json_integer_value(value));
        enum status status = put(to, key, tag, strlen(tag));
        free(tag);
        TRY(status);
    }
    return OK;
}

static enum status put_metrics(const struct mlflow *store, const struct directory *to)
{
    for (int64_t i = 0; i < store->metric_count; i++)
        TRY(put(to, store->metrics[i].key, store->metrics[i].lines.data, store->metrics[i].lines.length));
    return OK;
}

/* The configuration: SECTION.KEY. */
static enum status put_parameters(const struct ini *config, const struct directory *to)
{
    for (int i = 0; i < config->count; i++) {
        const struct ini_entry *entry = &config->entries[i];
        if (!entry->key) continue;
        char *name = text_format("%s.%s", entry->section, entry->key);
        enum status status = put(to, name, entry->value, strlen(entry->value));
        free(name);
        TRY(status);
    }
    return OK;
}

static enum status put_meta(const struct run_export *run, const struct directory *to)
{
    static const int statuses[] = {
        [EXPORT_RUNNING] = RUNNING, [EXPORT_FINISHED] = FINISHED, [EXPORT_STOPPED] = KILLED,
        [EXPORT_BROKEN] = BROKEN,
    };
    struct text meta = {0};
    text_add(&meta, "artifact_uri: ");
    text_json_string(&meta, run->path);
    text_add(&meta, "\nend_time: ");
    if (run->end == EXPORT_RUNNING) text_add(&meta, "null");
    else text_add(&meta, "%.0f", floor((run->begun + run->last) * 1000));
    text_add(&meta, "\nentry_point_name: ''\nexperiment_id: '%s'\nlifecycle_stage: active\nrun_id: '%s'\n"
             "run_name: ", EXPERIMENT, run->id);
    text_json_string(&meta, run->name);
    text_add(&meta, "\nrun_uuid: '%s'\nsource_name: amptrain\nsource_type: 4\nsource_version: ''\n"
             "start_time: %.0f\nstatus: %d\ntags: []\nuser_id: ''\n",
             run->id, floor(run->begun * 1000), statuses[run->end]);
    enum status status = atomic_file_write(to, META_FILE, meta.data, meta.length);
    text_free(&meta);
    return status;
}

static enum status put_experiment(const struct run_export *run, const char *store)
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
    enum status status = OK;
    if (!directory_has(&to, META_FILE))
        status = atomic_file_write(&to, META_FILE, meta.data, meta.length);
    free(place);
    text_free(&meta);
    directory_close(&to);
    return status;
}

/* All files of the run, of which META_FILE is the last. */
static enum status put_run(const struct mlflow *store, const char *path)
{
    enum { TAGS, METRICS, PARAMETERS, ARTIFACTS, META, KINDS };
    static const char *const kinds[] = {"tags", "metrics", "params", "artifacts", ""};
    const struct run_export *run = &store->run;
    enum status status = OK;
    for (int i = TAGS; i < KINDS && status == OK; i++) {
        struct directory to;
        TRY(open_below(path, run->id, kinds[i], &to));
        if (i == TAGS) status = put_tags(run, &to);
        if (i == METRICS) status = put_metrics(store, &to);
        if (i == PARAMETERS) status = put_parameters(&run->config, &to);
        if (i == META) status = put_meta(run, &to);
        directory_close(&to);
    }
    return status;
}

static enum status put_all(const struct mlflow *store, const char *path)
{
    struct reason reason;
    if (!directory_make(path, 0777, &reason))
        return fail(FAILED, "%s: cannot be created: %s", path, reason.text);
    char *whole = realpath(path, NULL);
    enum status status = whole ? put_experiment(&store->run, whole)
                               : fail(FAILED, "%s: cannot be found", path);
    if (status == OK) status = put_run(store, whole);
    free(whole);
    return status;
}

enum status mlflow_write(const struct directory *folder, const char *path)
{
    struct mlflow store = {0};
    enum status status = run_export_open(folder, &store.run);
    if (status == OK) status = run_export_metrics(folder, take_metric, &store);
    if (status == OK) status = put_all(&store, path);
    mlflow_free(&store);
    return status;
}
