#include "data/image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_kind.h"

/* A larger image is treated as an error or an attack: 20,000 x 20,000 pixels in colour are none. */
#define PIXEL_BYTES_MAX ((size_t)5 << 28)

/* `sample`: bytes of one. */
static bool resize_part(struct image *image, int h, int w, struct box part, int c, size_t sample,
                        struct reason *reason)
{
    if (h < 1 || w < 1 || c < 1 || c > IMAGE_CHANNELS_MAX)
        return because(reason, "an image of %dx%dx%d", h, w, c);
    if ((size_t)h > PIXEL_BYTES_MAX / (size_t)w / ((size_t)c * sample))
        return because(reason, "%dx%d pixels are too many: they exceed %zu MiB", w, h, PIXEL_BYTES_MAX >> 20);
    size_t bytes = (size_t)part.h * (size_t)part.w * (size_t)c * sample;
    if (bytes > image->capacity) {
        free(image->pixels);
        image->capacity = 0;
        image->pixels = malloc(bytes);
        if (!image->pixels) return because(reason, "not enough memory for %dx%d pixels", part.w, part.h);
        image->capacity = bytes;
    }
    image->h = part.h;
    image->w = part.w;
    image->c = c;
    image->top = part.y;
    image->left = part.x;
    image->full_h = h;
    image->full_w = w;
    image->deep = sample > 1;
    return true;
}

bool image_resize_part(struct image *image, int h, int w, struct box part, int c, struct reason *reason)
{
    return resize_part(image, h, w, part, c, 1, reason);
}

bool image_resize_buffer(struct image *image, int h, int w, int c, struct reason *reason)
{
    struct box all = {.h = h, .w = w};
    return image_resize_part(image, h, w, all, c, reason);
}

bool image_resize_deep(struct image *image, int h, int w, int c, float low, float high,
                       struct reason *reason)
{
    struct box all = {.h = h, .w = w};
    if (!resize_part(image, h, w, all, c, sizeof(float), reason)) return false;
    image->low = low;
    image->high = high;
    return true;
}

void image_free(struct image *image)
{
    free(image->pixels);
    *image = (struct image){0};
}

enum image_kind image_sniff(const uint8_t *bytes, size_t count)
{
    enum kind_of_file kind = file_kind(bytes, count, count).kind;
    if (kind == FILE_PNG) return IMAGE_PNG;
    if (kind == FILE_JPEG) return IMAGE_JPEG;
    if (kind == FILE_TIFF) return IMAGE_TIFF;
    return kind == FILE_WEBP ? IMAGE_WEBP : IMAGE_UNKNOWN;
}

const char *image_foreign(const uint8_t *bytes, size_t count)
{
    struct file_kind kind = file_kind(bytes, count, count);
    return kind.kind == FILE_IMAGE ? kind.name : NULL;
}

bool image_is_named(const char *name)
{
    static const char *const known[] = {".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff"};
    const char *extension = strrchr(name, '.');
    for (size_t i = 0; extension && i < sizeof known / sizeof *known; i++)
        if (strcasecmp(extension, known[i]) == 0) return true;
    return false;
}

void image_over_white(uint8_t *to, const uint8_t *from, size_t count, int channels)
{
    for (size_t i = 0; i < count; i++, from += channels + 1) {
        uint32_t alpha = from[channels];
        for (int k = 0; k < channels; k++)
            *to++ = (uint8_t)((from[k] * alpha + 255 * (255 - alpha) + 127) / 255);
    }
}

void image_grey_from_rgb(uint8_t *to, const uint8_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t red = from[3 * i], green = from[3 * i + 1], blue = from[3 * i + 2];
        to[i] = (uint8_t)((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
    }
}

static bool read_all(int file, uint8_t *bytes, size_t count, struct reason *reason)
{
    ssize_t got = file_read(file, bytes, count, 0);
    if (got < 0) return because(reason, "%s", strerror(errno));
    return (size_t)got == count || because(reason, "the file was truncated while it was read");
}

static bool read_open(int file, uint8_t **bytes, size_t *count, struct reason *reason)
{
    struct stat stat;
    if (fstat(file, &stat) != 0) return because(reason, "%s", strerror(errno));
    if (!S_ISREG(stat.st_mode)) return because(reason, "not a regular file");
    if (stat.st_size > IMAGE_FILE_BYTES_MAX) return because(reason, "the file exceeds 1 GiB");
    *count = (size_t)stat.st_size;
    uint8_t *read = malloc(*count ? *count : 1);
    if (!read) return because(reason, "not enough memory for its %zu bytes", *count);
    bool good = read_all(file, read, *count, reason);
    if (good)
        *bytes = read;
    else
        free(read);
    return good;
}

bool image_read_file(const char *path, uint8_t **bytes, size_t *count, struct reason *reason)
{
    struct reason why;
    /* Without O_NONBLOCK a named pipe in a class folder would block its reader forever. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return because_of(reason, path, strerror(errno));
    bool good = read_open(file, bytes, count, &why);
    close(file);
    return good || because_of(reason, path, why.text);
}

bool image_load(const char *path, struct image_options options, const struct image_choice *choice,
                struct image *image, struct reason *reason)
{
    struct reason why;
    uint8_t *bytes;
    size_t count;
    if (!image_read_file(path, &bytes, &count, reason)) return false;
    bool good = image_decode(bytes, count, options, choice, image, &why);
    free(bytes);
    return good || because_of(reason, path, why.text);
}
