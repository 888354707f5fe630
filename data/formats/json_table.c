#include "data/formats/json_table.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv.h"
#include "base/text.h"

#define COCO_BYTES ((size_t)1 << 29)     /* as values in memory they take some ten times as much */

enum json_table json_table_kind(const char *path)
{
    if (text_ends_in(path, ".jsonl") || text_ends_in(path, ".ndjson")) return JSON_LINES;
    return text_ends_in(path, ".json") ? JSON_COCO : JSON_NONE;
}

/* Adds a value without quotation marks. False: it is an object, or a name in a list has a semicolon. */
static bool add_value(const json_t *value, bool listed, struct text *out)
{
    size_t i;
    const json_t *item;
    const char *string = json_string_value(value);
    if (json_is_object(value) || (listed && (json_is_array(value) || (string && strchr(string, ';')))))
        return false;
    if (string) text_add(out, "%s", string);
    else if (json_is_integer(value)) text_add(out, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value)) text_add(out, "%.17g", json_real_value(value));
    else if (json_is_boolean(value)) text_add(out, "%d", json_is_true(value));
    json_array_foreach(value, i, item) {
        if (i) text_add(out, ";");
        if (!add_value(item, true, out)) return false;
    }
    return true;
}

/* ---- Lines ---- */

/* The keys of the first object are the columns; others are left out. */
static bool add_object(const json_t *object, json_t **first, struct text *out, struct reason *reason)
{
    const char *key;
    json_t *unused;
    bool header = !*first, begun = false;
    if (!json_is_object(object) || json_object_size(object) == 0)
        return because(reason, "is no object with the image and its label");
    if (header) *first = json_deep_copy(object);
    json_object_foreach(*first, key, unused) {
        if (header) csv_quote(out, key), text_add(out, ",");
    }
    if (header) out->data[out->length - 1] = '\n';
    json_object_foreach(*first, key, unused) {
        struct text value = {0};
        text_add(&value, "%s", "");
        bool good = add_value(json_object_get(object, key), false, &value);
        if (begun) text_add(out, ",");
        begun = true;
        csv_quote(out, value.data);
        text_free(&value);
        if (!good) return because(reason, "the value of \"%.100s\" is neither a text, a number nor a list of "
                                  "names without ';'", key);
    }
    text_add(out, "\n");
    return true;
}

/* Empty lines stay, so that lines keep their numbers, behind the header. */
static enum status convert_lines(const char *path, const char *text, size_t bytes, struct text *out)
{
    json_t *first = NULL;
    struct reason reason;
    bool good = true;
    long long line = 1;
    for (const char *at = text, *end; good && at < text + bytes; at = end + 1, line++) {
        end = memchr(at, '\n', (size_t)(text + bytes - at));
        if (!end) end = text + bytes;
        json_error_t error;
        if (strspn(at, " \t\r") >= (size_t)(end - at)) {
            text_add(out, "\n");
            continue;
        }
        json_t *object = json_loadb(at, (size_t)(end - at), JSON_REJECT_DUPLICATES, &error);
        good = object ? add_object(object, &first, out, &reason) : because(&reason, "%s", error.text);
        json_decref(object);
    }
    json_decref(first);
    return good ? OK : fail(BAD_DATA, "%s:%lld: %s", path, line - 1, reason.text);
}

/* ---- COCO ---- */

struct coco {
    json_t *names;               /* of categories, by their number as text */
    json_t *labels;              /* of images, likewise: objects whose keys are the names of categories */
    bool several;                /* an image has another number of them than one */
};

static const char *id_of(const json_t *object, const char *key, char id[32])
{
    snprintf(id, 32, "%lld", (long long)json_integer_value(json_object_get(object, key)));
    return json_is_integer(json_object_get(object, key)) ? id : "";
}

static bool read_annotations(const json_t *root, struct coco *coco, struct reason *reason)
{
    char id[32], category[32];
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(root, "categories"), i, item) {
        json_t *name = json_object_get(item, "name");
        if (!*id_of(item, "id", id) || !json_is_string(name) || strchr(json_string_value(name), ';'))
            return because(reason, "categories[%zu] has no id, or no name without ';'", i);
        json_object_set(coco->names, id, name);
    }
    json_array_foreach(json_object_get(root, "annotations"), i, item) {
        const char *image = id_of(item, "image_id", id), *of = id_of(item, "category_id", category);
        const char *name = json_string_value(json_object_get(coco->names, of));
        if (!*image || !name)
            return because(reason, "annotations[%zu] has no image_id, or no known category_id", i);
        if (!json_object_get(coco->labels, image)) json_object_set_new(coco->labels, image, json_object());
        json_object_set_new(json_object_get(coco->labels, image), name, json_true());
    }
    return true;
}

static bool add_images(const json_t *root, struct coco *coco, struct text *out, struct reason *reason)
{
    const json_t *images = json_object_get(root, "images"), *image;
    char id[32];
    size_t i;
    if (json_array_size(images) == 0) return because(reason, "has no list of images, as COCO's files have");
    json_array_foreach(images, i, image)
        coco->several |= json_object_size(json_object_get(coco->labels, id_of(image, "id", id))) != 1;
    text_add(out, "path,%s\n", coco->several ? "labels" : "label");
    json_array_foreach(images, i, image) {
        const char *name = json_string_value(json_object_get(image, "file_name")), *label;
        json_t *unused;
        if (!name || !*id_of(image, "id", id))
            return because(reason, "images[%zu] has no id or file_name", i);
        struct text labels = {0};
        text_add(&labels, "%s", "");
        json_object_foreach(json_object_get(coco->labels, id), label, unused)
            text_add(&labels, "%s%s", *labels.data ? ";" : "", label);
        csv_quote(out, name);
        text_add(out, ",");
        csv_quote(out, labels.data);
        text_add(out, "\n");
        text_free(&labels);
    }
    return true;
}

static enum status convert_coco(const char *path, const char *text, size_t bytes, struct text *out)
{
    struct coco coco = {json_object(), json_object(), false};
    struct reason reason;
    json_error_t error;
    if (bytes > COCO_BYTES) return fail(BAD_DATA, "%s: is too large for JSON in memory", path);
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    bool good = root ? read_annotations(root, &coco, &reason) && add_images(root, &coco, out, &reason)
                     : because(&reason, "line %d: %s", error.line, error.text);
    json_decref(root);
    json_decref(coco.names);
    json_decref(coco.labels);
    return good ? OK : fail(BAD_DATA, "%s: %s", path, reason.text);
}

enum status json_table_convert(const char *path, enum json_table kind, char **text, size_t *bytes)
{
    struct text out = {0};
    enum status status = (kind == JSON_LINES ? convert_lines : convert_coco)(path, *text, *bytes, &out);
    free(*text);
    *text = NULL;
    if (status == OK && !out.data) status = fail(BAD_DATA, "%s: is empty", path);
    if (status != OK) {
        text_free(&out);
        return status;
    }
    *text = out.data;
    *bytes = out.length;
    return OK;
}
