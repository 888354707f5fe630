#include "cmd/image_arguments.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/formats/listing.h"
#include "explain/classifier.h"

/* The most bytes of a list: a hundred million paths are a mistake. */
#define LIST_BYTES_MAX ((size_t)4 << 30)

static size_t file_name_at(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash + 1 - path) : 0;
}

static struct listed_image *add(struct image_arguments *images, char *name, size_t below)
{
    int64_t count = images->count;
    *array_push(images->below, count) = below;
    struct listed_image *added = array_push(images->images, images->count);
    *added = (struct listed_image){.name = name};
    return added;
}

/* An image that is none: its problem is kept. */
static void add_problem(struct image_arguments *images, const char *name, const char *why)
{
    add(images, text_copy(name), file_name_at(name))->problem = text_copy(why);
}

static void add_folder(struct image_arguments *images, const char *folder)
{
    struct listing listing;
    struct reason reason;
    if (!listing_images(folder, &listing, &reason)) {
        add_problem(images, folder, reason.text);
        return;
    }
    listing_warn(folder, &listing);
    for (size_t i = 0; i < listing.count; i++)
        add(images, text_format("%s/%s", folder, listing.names + listing.files[i].name + strlen("./")),
            strlen(folder) + 1);
    if (listing.count == 0) add_problem(images, folder, "contains no PNG, JPEG, WebP or TIFF images");
    listing_free(&listing);
}

static void add_path(struct image_arguments *images, const char *path)
{
    if (directory_is(path)) add_folder(images, path);
    else add(images, text_copy(path), file_name_at(path));
}

/* All that a stream has, up to `most` bytes, and then a zero; false, with the reason. */
static bool read_all(FILE *stream, size_t most, uint8_t **bytes, size_t *count, struct reason *reason)
{
    size_t room = 1 << 16, length = 0, got;
    uint8_t *data = memory_new(room, 1);
    while (length <= most && (got = fread(data + length, 1, room - length - 1, stream)) > 0)
        if ((length += got) == room - 1) data = memory_resize(data, room *= 2, 1);
    data[length] = 0;
    *bytes = data;
    *count = length;
    if (ferror(stream)) return because(reason, "%s", strerror(errno));
    return length <= most || because(reason, "exceeds %zu GiB", most >> 30);
}

static void add_input(struct image_arguments *images)
{
    struct reason reason;
    size_t count;
    if (!read_all(stdin, IMAGE_FILE_BYTES_MAX, &images->input, &count, &reason)) {
        add_problem(images, "-", reason.text);
        return;
    }
    size_t extent = image_extent(images->input, count);
    if (extent < count)
        log_warning("-: %zu bytes follow the image and are ignored: standard input is one image (@- is a "
                    "list of files)", count - extent);
    struct listed_image *added = add(images, text_copy("-"), 0);
    added->bytes = images->input;
    added->count = count;
}

/* Lines end in LF or CR LF; empty ones mean nothing. */
static void add_lines(struct image_arguments *images, char *lines)
{
    for (char *line = lines, *next; *line; line = next) {
        size_t length = strcspn(line, "\n");
        next = line + length + (line[length] != '\0');
        if (length > 0 && line[length - 1] == '\r') length--;
        line[length] = '\0';
        if (length > 0) add_path(images, line);
    }
}

static enum status add_list(struct image_arguments *images, const char *path)
{
    struct reason reason;
    uint8_t *bytes = NULL;
    size_t count = 0;
    int64_t before = images->count;
    bool input = strcmp(path, "-") == 0;
    FILE *stream = input ? stdin : directory_stream(&directory_working, path, "r", &reason);
    if (!stream) return fail(BAD_DATA, "%s: %s", path, reason.text);
    bool good = read_all(stream, LIST_BYTES_MAX, &bytes, &count, &reason);
    if (!input) fclose(stream);
    if (good && memchr(bytes, 0, count)) good = because(&reason, "has zero bytes: write one path a line");
    size_t mark = count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;      /* U+FEFF */
    if (good) add_lines(images, (char *)bytes + mark);
    free(bytes);
    if (good && images->count == before) good = because(&reason, "names no image");
    return good ? OK : fail(BAD_DATA, "%s: %s", path, reason.text);
}

static enum status add_argument(struct image_arguments *images, const char *argument)
{
    if (argument[0] == '@') return add_list(images, argument + 1);
    if (strcmp(argument, "-") == 0) add_input(images);
    else add_path(images, argument);
    return OK;
}

enum status image_arguments_read(char *const *arguments, int count, struct image_arguments *images)
{
    int inputs = 0;
    *images = (struct image_arguments){0};
    for (int i = 0; i < count; i++)
        inputs += strcmp(arguments[i], "-") == 0 || strcmp(arguments[i], "@-") == 0;
    if (inputs > 1) return fail(USAGE, "standard input is named %d times; it can be read once", inputs);
    for (int i = 0; i < count; i++) TRY(add_argument(images, arguments[i]));
    return OK;
}

void image_arguments_free(struct image_arguments *images)
{
    for (int64_t i = 0; i < images->count; i++) {
        free((char *)images->images[i].name);
        free((char *)images->images[i].problem);
    }
    free(images->images);
    free(images->below);
    free(images->input);
    free(images->first);
}

void image_arguments_note(struct image_arguments *images, int64_t image, enum status status,
                          const char *problem)
{
    images->unusable++;
    if (images->worst != FAILED) images->worst = status;
    if (!images->first) images->first = text_format("%s: %s", images->images[image].name, problem);
}

enum status image_arguments_report(const struct image_arguments *images, const char *one, const char *more)
{
    if (images->unusable == 0) return OK;
    if (images->unusable == 1) return fail(images->worst, "%s%s", images->first, one);
    return fail(images->worst, "%s; %" PRId64 " more of %" PRId64 " images %s", images->first,
                images->unusable - 1, images->count, more);
}

#define BATCH 64         /* images; larger ones are hardly faster */

/* The batch is the images', not that of training, which would waste memory. */
enum status image_arguments_set_batch(const struct image_arguments *images, struct cmd *cmd)
{
    long most;
    TRY(cmd_number(cmd, "batch", 1, BATCH, &most));
    settings_derive_number(&cmd->settings, "train", "batch", classifier_batch(images->count, (int)most));
    settings_derive(&cmd->settings, "train", "accumulate", "1");
    return OK;
}
