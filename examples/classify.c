/* classify: prints the most probable class of each image.
 *
 *     cc classify.c -o classify $(pkg-config --cflags --libs amptrain)
 *     ./classify RUN|FILE IMAGE... */
#include <amptrain.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct amptrain *network;
    struct amptrain_error error;
    size_t count = argc > 2 ? (size_t)argc - 2 : 0;
    if (count == 0) {
        fprintf(stderr, "usage: classify RUN|FILE IMAGE...\n");
        return AMPTRAIN_USAGE;
    }
    if (amptrain_open(argv[1], "auto", 0, &network, &error) != AMPTRAIN_OK) {
        fprintf(stderr, "%s\n", error.text);
        return error.status;
    }
    struct amptrain_image *images = calloc(count, sizeof *images);
    struct amptrain_class *best = calloc(count, sizeof *best);
    struct amptrain_error *problems = calloc(count, sizeof *problems);
    for (size_t i = 0; i < count; i++) {
        images[i].size = sizeof *images;
        images[i].file = argv[2 + i];
    }
    int status = amptrain_classify(network, images, count, 1, best, problems, &error);
    if (status != AMPTRAIN_OK) fprintf(stderr, "%s\n", error.text);
    for (size_t i = 0; status == AMPTRAIN_OK && i < count; i++)
        if (problems[i].status != AMPTRAIN_OK) printf("%s: error: %s\n", argv[2 + i], problems[i].text);
        else printf("%s: %s %.4f\n", argv[2 + i], amptrain_class_name(network, best[i].index),
                    best[i].probability);
    free(problems);
    free(best);
    free(images);
    amptrain_close(network);
    return status;
}
