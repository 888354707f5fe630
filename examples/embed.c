/* embed: writes the features of all images of a folder, float32 [images][features], to a file, and their
 * names to standard output.
 *
 *     cc embed.c -o embed $(pkg-config --cflags --libs amptrain)
 *     ./embed RUN|FILE FOLDER OUT */
#include <amptrain.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

static int is_image(const struct dirent *entry) { return entry->d_name[0] != '.'; }

int main(int argc, char **argv)
{
    struct amptrain *network = NULL;
    struct amptrain_error error = {0};
    struct dirent **entries;
    int64_t features = 0;
    if (argc != 4) return fprintf(stderr, "usage: embed RUN|FILE FOLDER OUT\n"), AMPTRAIN_USAGE;
    int count = scandir(argv[2], &entries, is_image, alphasort);
    if (count < 1) return fprintf(stderr, "%s: no images\n", argv[2]), AMPTRAIN_BAD_DATA;
    struct amptrain_image *images = calloc((size_t)count, sizeof *images);
    for (int i = 0; i < count; i++) {
        size_t room = snprintf(NULL, 0, "%s/%s", argv[2], entries[i]->d_name) + (size_t)1;
        char *path = malloc(room);
        snprintf(path, room, "%s/%s", argv[2], entries[i]->d_name);
        images[i] = (struct amptrain_image){.size = sizeof *images, .file = path};
    }
    int status = amptrain_open(argv[1], NULL, 0, &network, &error);
    if (status == AMPTRAIN_OK) status = amptrain_features(network, NULL, &features, &error);
    float *values = calloc((size_t)count * (size_t)features + 1, sizeof *values);
    if (status == AMPTRAIN_OK)
        status = amptrain_embed(network, images, (size_t)count, NULL, values, NULL, &error);
    FILE *out = status == AMPTRAIN_OK ? fopen(argv[3], "wb") : NULL;
    if (status != AMPTRAIN_OK) fprintf(stderr, "%s\n", error.text);
    for (int i = 0; out && i < count; i++) puts(images[i].file);
    if (out && fwrite(values, sizeof *values * (size_t)features, (size_t)count, out) != (size_t)count)
        perror(argv[3]);
    if (out) fclose(out);
    amptrain_close(network);
    for (int i = 0; i < count; i++) {
        free((char *)images[i].file);
        free(entries[i]);
    }
    free(entries);
    free(images);
    free(values);
    return status;
}
