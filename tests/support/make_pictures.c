/* make_pictures.c: writes a small data set of PNG files, as a user would have one:
 * FOLDER/apple/N.png are reddish, FOLDER/pear/N.png greenish, in uneven sizes; with HEIGHT and WIDTH of this
 * size, and only their first third has the colour; with `deep`, of 16 bits a channel. */
#include <png.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define COUNT 24          /* of each class */
#define SIDE_MAX 64

static int write_picture(const char *path, int strong, int number, const unsigned size[2], bool deep)
{
    static uint8_t pixels[SIDE_MAX * SIDE_MAX * 3];
    static uint16_t words[SIDE_MAX * SIDE_MAX * 3];
    png_image image = {.version = PNG_IMAGE_VERSION, .format = PNG_FORMAT_RGB};
    image.height = size ? size[0] : SIDE_MAX - (unsigned)number % 5;
    image.width = size ? size[1] : SIDE_MAX - (unsigned)number % 9;
    for (unsigned i = 0; i < image.width * image.height; i++) {
        bool coloured = !size || i % image.width < image.width / 3;
        for (int c = 0; c < 3; c++) {
            int base = coloured && c == strong ? 120 : 20;
            pixels[3 * i + c] = (uint8_t)(base + (i * 7 + (unsigned)number * 13) % 101);
        }
    }
    for (unsigned i = 0; i < 3 * image.width * image.height; i++) words[i] = (uint16_t)(257 * pixels[i]);
    if (deep) image.format = PNG_FORMAT_LINEAR_RGB;
    return png_image_write_to_file(&image, path, 0, deep ? (void *)words : pixels, 0, NULL) ? 0 : 1;
}

int main(int count, char **words)
{
    static const char *const names[] = {"apple", "pear"};
    if (count < 2 || count > 4) return 2;
    bool sized = count == 4, deep = count == 3;
    const unsigned size[] = {sized ? (unsigned)atoi(words[2]) : 0, sized ? (unsigned)atoi(words[3]) : 0};
    if (size[0] > SIDE_MAX || size[1] > SIDE_MAX) return 2;
    char path[4096];
    int failed = mkdir(words[1], 0777);
    for (int class = 0; class < 2; class++) {
        snprintf(path, sizeof path, "%s/%s", words[1], names[class]);
        failed |= mkdir(path, 0777);
        for (int number = 0; number < COUNT; number++) {
            snprintf(path, sizeof path, "%s/%s/%d.png", words[1], names[class], number);
            failed |= write_picture(path, class, number, sized ? size : NULL, deep);
        }
    }
    return failed ? 1 : 0;
}
