/* segment: writes the mask of an image as a PGM file, the number of its class for each pixel, and prints how
 * many pixels each class has.
 *
 *     cc segment.c -o segment $(pkg-config --cflags --libs amptrain)
 *     ./segment RUN|FILE IMAGE OUT.pgm */
#include <amptrain.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct amptrain *network = NULL;
    struct amptrain_error error = {0};
    struct amptrain_mask mask = {.size = sizeof mask};
    size_t counts[256] = {0};
    if (argc != 4) return fprintf(stderr, "usage: segment RUN|FILE IMAGE OUT.pgm\n"), AMPTRAIN_USAGE;
    const struct amptrain_image image = {.size = sizeof image, .file = argv[2]};
    int status = amptrain_open(argv[1], NULL, 0, &network, &error);
    if (status == AMPTRAIN_OK) status = amptrain_segment(network, &image, 1, 0, &mask, NULL, &error);
    FILE *out = status == AMPTRAIN_OK ? fopen(argv[3], "wb") : NULL;
    if (status != AMPTRAIN_OK) fprintf(stderr, "%s\n", error.text);
    else if (!out) perror(argv[3]);
    size_t pixels = (size_t)mask.height * (size_t)mask.width;
    if (out) fprintf(out, "P5\n%d %d\n255\n", (int)mask.width, (int)mask.height);
    if (out && fwrite(mask.classes, 1, pixels, out) != pixels) perror(argv[3]);
    if (out && fclose(out) != 0) perror(argv[3]);
    for (size_t i = 0; i < pixels; i++) counts[mask.classes[i]]++;
    for (int class = 0; class < 256; class++)
        if (counts[class] > 0) printf("%s %zu\n", amptrain_class_name(network, class), counts[class]);
    amptrain_mask_free(&mask);
    amptrain_close(network);
    return status;
}
