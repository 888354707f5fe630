#include "checkpoint/checkpoint.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint/checkpoint_parts.h"
#include "conf/options.h"
#include "data/dataset/dataset.h"

/* Limit of the autotuner's choices in bytes, enough for more than a thousand shapes. */
#define ALGORITHMS_MAX (1 << 20)

#define SIDE_MAX 65536   /* of an image, as options and model files have it */

static void add_part(struct checkpoint_parts *parts, const struct store *store, int param,
                     enum store_part part, char *name)
{
    if (store_has(store, param, part))
        *array_push(parts->list, parts->count) = (struct checkpoint_part){name, param, part};
    else
        free(name);
}

struct checkpoint_parts checkpoint_parts_of(const struct store *store, const struct optimizer *optimizer)
{
    struct checkpoint_parts parts = {0};
    for (int i = 0; i < store->graph->param_count; i++) {
        const char *name = store->graph->params[i].name;
        add_part(&parts, store, i, STORE_MASTER, text_copy(name));
        add_part(&parts, store, i, STORE_AVERAGE, text_format(CHECKPOINT_AVERAGE "%s", name));
        for (int slot = 0; optimizer && slot < optimizer->slots; slot++)
            add_part(&parts, store, i, (enum store_part)(STORE_SLOT0 + slot),
                     text_format(CHECKPOINT_OPTIMIZER "%s/%s", optimizer->slot_names[slot], name));
    }
    return parts;
}

void checkpoint_parts_free(struct checkpoint_parts *parts)
{
    for (int i = 0; i < parts->count; i++) free(parts->list[i].name);
    free(parts->list);
}

struct safetensors_item checkpoint_part_item(const struct store *store, const struct checkpoint_part *part)
{
    const struct op_param *spec = &store->graph->params[part->param].spec;
    return (struct safetensors_item){part->name, spec->dtype, spec->shape};
}

/* More than any run writes. */
#define SERIAL_MAX ((int64_t)1 << 40)

bool checkpoint_read_serial(const struct safetensors *file, int64_t *serial)
{
    const char *text = safetensors_value(file, "serial");
    char *end = NULL;
    long long number = text ? strtoll(text, &end, 10) : 0;
    if (text && (end == text || *end != '\0' || number < 1 || number > SERIAL_MAX)) return false;
    *serial = number;
    return true;
}

static bool check_format(const struct safetensors *file, struct reason *reason)
{
    const char *format = safetensors_value(file, "format"), *version = safetensors_value(file, "version");
    if (!format || strcmp(format, CHECKPOINT_FORMAT) != 0 || !version)
        return because(reason, "is not an amptrain checkpoint (weights alone cannot be resumed)");
    char *end;
    int64_t serial;
    long number = strtol(version, &end, 10);
    if (number < 1 || *end != '\0') return because(reason, "has an invalid version: '%.20s'", version);
    if (number > CHECKPOINT_VERSION)
        return because(reason, "has version %ld; this amptrain reads versions up to %d", number,
                       CHECKPOINT_VERSION);
    if (!checkpoint_read_serial(file, &serial)) return because(reason, "has an invalid serial number");
    return safetensors_complete(file, reason);
}

static bool check_tensors(const struct safetensors *file, struct reason *reason)
{
    for (int i = 0; i < file->count; i++)
        if (!safetensors_verify(file, i, reason)) return false;
    return true;
}

bool checkpoint_open(const struct directory *in, const char *name, struct safetensors *file,
                     struct reason *reason)
{
    struct safetensors opened;
    if (!safetensors_open_in(in, name, &opened, reason)) return false;
    if (!check_format(&opened, reason) || !check_tensors(&opened, reason)) {
        safetensors_close(&opened);
        return false;
    }
    *file = opened;
    return true;
}

static bool has_averages(const struct safetensors *file)
{
    for (int i = 0; i < file->count; i++)
        if (strncmp(file->entries[i].name, CHECKPOINT_AVERAGE, strlen(CHECKPOINT_AVERAGE)) == 0) return true;
    return false;
}

/* New averages of a run that had none start with the weights. */
static int find_part(const struct safetensors *file, const struct store *store,
                     const struct checkpoint_part *part)
{
    int entry = safetensors_find(file, part->name);
    bool begins = entry < 0 && part->part == STORE_AVERAGE && !has_averages(file);
    return begins ? safetensors_find(file, store->graph->params[part->param].name) : entry;
}

static enum status match_part(const struct safetensors *file, const struct store *store,
                              const struct checkpoint_part *part)
{
    struct safetensors_item item = checkpoint_part_item(store, part);
    int entry = find_part(file, store, part);
    if (entry < 0)
        return fail(BAD_CHECKPOINT,
                    "%s: tensor '%s' is missing: the checkpoint belongs to another model or optimizer",
                    file->path, item.name);
    const struct safetensors_entry *found = &file->entries[entry];
    if (shape_equal(found->shape, item.shape) && found->dtype == item.dtype) return OK;
    char is[SHAPE_TEXT], wanted[SHAPE_TEXT];
    return fail(BAD_CHECKPOINT, "%s: tensor '%s' is %s (%s), but %s (%s) in this model", file->path,
                item.name, shape_text(found->shape, is), dtype_table[found->dtype].name,
                shape_text(item.shape, wanted), dtype_table[item.dtype].name);
}

static bool parts_find(const struct checkpoint_parts *parts, const char *name)
{
    for (int i = 0; i < parts->count; i++)
        if (strcmp(parts->list[i].name, name) == 0) return true;
    return false;
}

static enum status match_unexpected(const struct safetensors *file, const struct checkpoint_parts *parts)
{
    if (file->count == parts->count) return OK;
    for (int i = 0; i < file->count; i++)
        if (!parts_find(parts, file->entries[i].name))
            return fail(BAD_CHECKPOINT, "%s: tensor '%s' is not part of this model or optimizer", file->path,
                        file->entries[i].name);
    return OK;
}

enum status checkpoint_match(const struct safetensors *file, const struct store *store,
                             const struct optimizer *optimizer)
{
    struct checkpoint_parts parts = checkpoint_parts_of(store, optimizer);
    enum status status = OK;
    for (int i = 0; status == OK && i < parts.count; i++) status = match_part(file, store, &parts.list[i]);
    if (status == OK) status = match_unexpected(file, &parts);
    checkpoint_parts_free(&parts);
    return status;
}

static enum status restore_part(const struct safetensors *file, struct store *store,
                                const struct checkpoint_part *part)
{
    int entry = find_part(file, store, part);
    size_t bytes = (size_t)(file->entries[entry].end - file->entries[entry].begin);
    void *buffer = memory_try(bytes, 1);
    if (!buffer) return fail(FAILED, "%s: not enough host memory to read it", file->path);
    struct reason reason;
    enum status status = OK;
    if (!safetensors_read(file, entry, buffer, &reason))
        status = fail(BAD_CHECKPOINT, "%s %s", file->path, reason.text);
    if (status == OK) status = store_write(store, part->param, part->part, buffer);
    free(buffer);
    return status;
}

enum status checkpoint_restore(const struct safetensors *file, struct store *store,
                               const struct optimizer *optimizer, struct position *position)
{
    struct optimizer_state state;
    struct position parsed;
    struct reason reason;
    if (!position_parse(file, &parsed, &state, &reason))
        return fail(BAD_CHECKPOINT, "%s %s", file->path, reason.text);
    struct checkpoint_parts parts = checkpoint_parts_of(store, optimizer);
    enum status status = OK;
    for (int i = 0; status == OK && i < parts.count; i++) status = restore_part(file, store, &parts.list[i]);
    checkpoint_parts_free(&parts);
    TRY(status);
    TRY(store_write_state(store, &state));
    TRY(store_refresh(store));
    *position = parsed;
    return OK;
}

void checkpoint_class_names(const struct safetensors *file, char ***names, int *count)
{
    const char *text = safetensors_value(file, "classes");
    bool believable = text && text_json_marks(text, strlen(text)) <= CLASSES_MAX;
    json_t *array = believable ? json_loads(text, 0, NULL) : NULL;
    *count = 0;
    *names = NULL;
    size_t index;
    json_t *name;
    json_array_foreach(array, index, name) {
        if (!json_is_string(name)) continue;
        char *own = text_copy(json_string_value(name));
        text_unescape(own);
        *array_push(*names, *count) = own;
    }
    json_decref(array);
}

double *checkpoint_thresholds(const struct safetensors *file, int count)
{
    const char *text = safetensors_value(file, "thresholds");
    bool believable = text && text_json_marks(text, strlen(text)) <= CLASSES_MAX;
    json_t *array = believable ? json_loads(text, 0, NULL) : NULL;
    double *thresholds = NULL;
    bool good = true;
    size_t index;
    json_t *number;
    if (array && count > 0 && json_array_size(array) == (size_t)count) {
        thresholds = memory_new((size_t)count, sizeof *thresholds);
        json_array_foreach(array, index, number) {
            good = good && json_is_number(number);
            thresholds[index] = json_number_value(number);
        }
    }
    json_decref(array);
    if (good) return thresholds;
    free(thresholds);
    return NULL;
}

bool checkpoint_masks(const struct safetensors *file, char *const *names, int count,
                      struct mask_classes *masks)
{
    const char *text = safetensors_value(file, "masks");
    return text && mask_classes_scan(text, names, count, masks);
}

const char *checkpoint_algorithms(const struct safetensors *file)
{
    const char *text = safetensors_value(file, "engines");
    return text && strlen(text) <= ALGORITHMS_MAX ? text : NULL;
}

int checkpoint_threads(const struct safetensors *file)
{
    const char *text = safetensors_value(file, "threads");
    long threads = text ? strtol(text, NULL, 10) : 0;
    return threads > 0 && threads <= option_find("run", "threads")->field.max ? (int)threads : 0;
}

bool checkpoint_input(const struct safetensors *file, int *h, int *w, int *channels, struct reason *reason)
{
    const char *text = safetensors_value(file, "input");
    int64_t number[3] = {0}, most[3] = {SIDE_MAX, SIDE_MAX, IMAGE_CHANNELS_MAX};
    char *end = (char *)text;
    for (int i = 0; text && i < 3; i++) {
        number[i] = strtoll(end, &end, 10);
        bool good = number[i] >= 1 && number[i] <= most[i] && *end == (i < 2 ? ' ' : '\0');
        if (!good) return because(reason, "its 'input' is not height, width and channels: '%.40s'", text);
    }
    *h = (int)number[0];
    *w = (int)number[1];
    *channels = (int)number[2];
    return true;
}
