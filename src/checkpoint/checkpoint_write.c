/* checkpoint_write.c: writes a run's checkpoint, at once or in a thread of its own. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/host.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/openmp.h"
#include "base/signals.h"
#include "base/watch.h"
#include "graph/graph_text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_parts.h"

#define LAST_TEMPORARY CHECKPOINT_LAST ".tmp"

/* The state is copied if that takes at most this fraction of the host memory that is available. */
#define COPY_FRACTION 4

struct checkpoint_writing {
    struct store store;                  /* the run's, or a copy of it in host memory */
    const struct directory *folder;
    char **also;                         /* other names of the file, ended by NULL */
    struct checkpoint_parts parts;
    struct safetensors_item *items;      /* of the parts */
    struct safetensors_pair *pairs;      /* metadata */
    int pair_count;
    bool keeps_last;                     /* the last checkpoint becomes the previous one */
    pthread_t thread;
    atomic_bool over;                    /* `status` is that of the whole */
    enum status status;
};

static enum status read_part(void *context, int item, void *data)
{
    const struct checkpoint_writing *writing = context;
    const struct checkpoint_part *part = &writing->parts.list[item];
    return store_read(&writing->store, part->param, part->part, data);
}

static void add_pair(struct checkpoint_writing *writing, const char *key, char *value)
{
    *array_push(writing->pairs, writing->pair_count) = (struct safetensors_pair){text_copy(key), value};
}

static void add_identity(struct checkpoint_writing *writing, const char *key,
                         const struct dataset_identity *identity)
{
    struct text text = {0};
    if (!identity) return;
    dataset_identity_print(identity, &text);
    add_pair(writing, key, text.data);
}

static void add_metadata(const struct checkpoint_source *source, int64_t serial,
                         struct checkpoint_writing *writing)
{
    struct text settings = {0}, config = {0}, classes = {0}, graph = {0};
    text_json_names(&classes, source->class_names, source->classes);
    settings_print_resolved(source->settings, source->file, &settings);
    text_escape(&config, settings.data);
    text_free(&settings);
    add_pair(writing, "format", text_copy(CHECKPOINT_FORMAT));
    add_pair(writing, "version", text_format("%d", CHECKPOINT_VERSION));
    add_pair(writing, "serial", text_format("%" PRId64, serial));
    if (source->run) add_pair(writing, "run", text_copy(source->run));
    add_pair(writing, "arch", text_copy(source->store->graph->arch));
    add_pair(writing, "classes", classes.data);
    add_pair(writing, "images", text_format("%" PRId64 " %" PRId64, source->train_images,
                                            source->val_images));
    add_identity(writing, CHECKPOINT_TRAIN_IDENTITY, source->identities[SPLIT_TRAIN]);
    add_identity(writing, CHECKPOINT_VAL_IDENTITY, source->identities[SPLIT_VAL]);
    add_pair(writing, "input", text_format("%d %d %d", source->h, source->w, source->channels));
    add_pair(writing, "config", config.data);
    if (source->teacher) add_pair(writing, "teacher", text_copy(source->teacher));
    if (source->masks) {
        struct text masks = {0};
        mask_classes_print(source->masks, &masks);
        add_pair(writing, "masks", masks.data);
    }
    if (source->thresholds) {
        struct text thresholds = {0};
        text_json_numbers(&thresholds, source->thresholds, source->classes);
        add_pair(writing, "thresholds", thresholds.data);
    }
    if (source->graph) graph_text(source->graph, &graph);
    if (source->graph) add_pair(writing, "graph", graph.data);
    if (source->algorithms) add_pair(writing, "engines", text_copy(source->algorithms));
    if (source->threads > 0) add_pair(writing, "threads", text_format("%d", source->threads));
}

/* The folder is one in which no other checkpoint is being written. */
static enum status prepare(const struct checkpoint_source *source, const struct position *position,
                           const char *const *also, struct checkpoint_writing *writing)
{
    struct optimizer_state state;
    TRY(store_read_state(&writing->store, &state));
    int64_t last = checkpoint_serial(writing->folder, CHECKPOINT_LAST);
    int64_t previous = checkpoint_serial(writing->folder, CHECKPOINT_PREVIOUS);
    int64_t newest = last > previous ? last : previous;
    writing->keeps_last = last >= 0 && last >= previous;
    add_metadata(source, newest < 0 ? 1 : newest + 1, writing);
    position_print(position, &state, &writing->pairs, &writing->pair_count);
    writing->parts = checkpoint_parts_of(&writing->store, source->optimizer);
    writing->items = memory_new((size_t)writing->parts.count, sizeof *writing->items);
    for (int i = 0; i < writing->parts.count; i++)
        writing->items[i] = checkpoint_part_item(&writing->store, &writing->parts.list[i]);
    int names = 0;
    for (; also && *also; also++) *array_push(writing->also, names) = text_copy(*also);
    *array_push(writing->also, names) = NULL;
    return OK;
}

static void release(struct checkpoint_writing *writing)
{
    for (int i = 0; i < writing->pair_count; i++) {
        free(writing->pairs[i].key);
        free(writing->pairs[i].value);
    }
    for (char **name = writing->also; name && *name; name++) free(*name);
    free(writing->also);
    free(writing->pairs);
    free(writing->items);
    checkpoint_parts_free(&writing->parts);
}

/* The last one becomes the previous one, without a moment in which neither exists if the file system has hard
 * links. */
static enum status keep_previous(const struct directory *folder)
{
    static const char last[] = CHECKPOINT_LAST, previous[] = CHECKPOINT_PREVIOUS;
    static const char temporary[] = CHECKPOINT_PREVIOUS ".tmp";
    int at = folder->file;
    directory_remove(folder, temporary);
    bool linked = linkat(at, last, at, temporary, 0) == 0;
    bool good = renameat(at, linked ? temporary : last, at, previous) == 0;
    int why = errno;
    directory_remove(folder, temporary);
    return good ? OK : fail(FAILED, "%s/%s: cannot be renamed: %s", folder->path, last, strerror(why));
}

static void give_names(const struct directory *folder, char *const *names)
{
    for (; *names; names++)
        if (atomic_file_link(folder, LAST_TEMPORARY, *names) != OK)
            log_warning("%s/%s was not written; the run continues", folder->path, *names);
}

static enum status write_files(struct checkpoint_writing *writing)
{
    const struct directory *folder = writing->folder;
    const struct safetensors_content content = {
        writing->items, writing->parts.count, writing->pairs, writing->pair_count, read_part, writing,
    };
    struct watch *watch = watch_begin(WATCH_SECONDS, "%s: writing a checkpoint", folder->path);
    /* A file left by a process that died may have other names too. */
    directory_remove(folder, LAST_TEMPORARY);
    enum status status = safetensors_write_in(folder, LAST_TEMPORARY, &content);
    if (status == OK) status = directory_check(folder, CHECKPOINT_LAST);
    if (status == OK) give_names(folder, writing->also);
    if (status == OK && writing->keeps_last) status = keep_previous(folder);
    if (status == OK) status = atomic_file_rename(folder, LAST_TEMPORARY, CHECKPOINT_LAST);
    if (status != OK) directory_remove(folder, LAST_TEMPORARY);
    watch_end(watch);
    return status;
}

enum status checkpoint_save(const struct checkpoint_source *source, const struct position *position,
                            const struct directory *folder, const char *const *also)
{
    struct checkpoint_writing writing = {.store = *source->store, .folder = folder};
    enum status status = prepare(source, position, also, &writing);
    if (status == OK) status = write_files(&writing);
    release(&writing);
    return status;
}

/* The processors are left to the run. */
static void *writing_thread(void *context)
{
    struct checkpoint_writing *writing = context;
    omp_set_num_threads(1);
    writing->status = write_files(writing);
    atomic_store(&writing->over, true);
    return NULL;
}

static bool has_room(const struct store *store)
{
    size_t available, total;
    host_memory(&available, &total);
    return available == 0 || (size_t)store->layout.bytes <= available / COPY_FRACTION;
}

struct checkpoint_writing *checkpoint_begin(const struct checkpoint_source *source,
                                            const struct position *position,
                                            const struct directory *folder, const char *const *also)
{
    struct checkpoint_writing *writing = memory_new(1, sizeof *writing);
    writing->folder = folder;
    if (has_room(source->store) && store_copy(source->store, &writing->store)) {
        if (prepare(source, position, also, writing) == OK &&
            signals_start_thread(&writing->thread, writing_thread, writing) == 0)
            return writing;
        release(writing);
        store_close(&writing->store);
    }
    free(writing);
    return NULL;
}

bool checkpoint_over(const struct checkpoint_writing *writing)
{
    return atomic_load(&writing->over);
}

enum status checkpoint_end(struct checkpoint_writing *writing)
{
    pthread_join(writing->thread, NULL);
    enum status status = writing->status;
    release(writing);
    store_close(&writing->store);
    free(writing);
    return status;
}
