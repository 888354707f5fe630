/* client_masks: RUN IMAGE OUT: labels the pixels of images with the library in all ways; prints a line of TAP
 * for each; writes the image's mask to OUT, a byte a pixel. Only amptrain.h is included. */
#include <amptrain.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int cases;
static struct amptrain_error error;

static void ok(const char *name, bool good)
{
    printf("%s %d - masks: %s\n", good ? "ok" : "not ok", ++cases, name);
    if (!good) printf("# %d: %s\n", error.status, error.text);
}

static size_t pixels_of(const struct amptrain_mask *mask)
{
    return (size_t)mask->height * (size_t)mask->width;
}

static bool same(const struct amptrain_mask *a, const struct amptrain_mask *b)
{
    return a->classes && b->classes && a->height == b->height && a->width == b->width &&
           memcmp(a->classes, b->classes, pixels_of(a)) == 0;
}

/* True if classes are the most probable ones, and probabilities add up to 1. */
static bool agrees(const struct amptrain_mask *mask, int classes)
{
    for (size_t i = 0; mask->probabilities && i < pixels_of(mask); i++) {
        const float *its = mask->probabilities + i * (size_t)classes;
        float sum = 0;
        for (int k = 0; k < classes; k++) sum += its[k];
        for (int k = 0; k < classes; k++)
            if (its[k] > its[mask->classes[i]]) return false;
        if (fabsf(sum - 1) > 1e-4f) return false;
    }
    return mask->probabilities != NULL;
}

#define MANY 24                         /* more tiles than a batch has */

static size_t differing(const struct amptrain_mask *a, const struct amptrain_mask *b)
{
    size_t count = 0;
    if (!a->classes || !b->classes || a->height != b->height || a->width != b->width) return pixels_of(a);
    for (size_t i = 0; i < pixels_of(a); i++) count += a->classes[i] != b->classes[i];
    return count;
}

/* Pixels alone, in programs for a few tiles, as all together, call after call, but for rounding. */
static bool alone_as_together(struct amptrain *network)
{
    static unsigned char pixels[MANY][40][28][3];
    struct amptrain_image images[MANY];
    struct amptrain_mask together[MANY], alone[MANY];
    bool good = true;
    size_t others = 0;
    unsigned char *each = &pixels[0][0][0][0];
    for (size_t i = 0; i < sizeof pixels; i++) each[i] = (unsigned char)(i * i / 7 % 251);
    for (int i = 0; i < MANY; i++) {
        images[i] = (struct amptrain_image){.size = sizeof *images, .pixels = &pixels[i][0][0][0],
                                            .height = 40 - i, .width = 28, .channels = 3};
        together[i] = alone[i] = (struct amptrain_mask){.size = sizeof *alone};
    }
    good = amptrain_segment(network, images, MANY, 0, together, NULL, &error) == AMPTRAIN_OK;
    for (int i = 0, count; good && i < MANY; i += count) {
        count = 1 + i % 3 < MANY - i ? 1 + i % 3 : MANY - i;
        int status = amptrain_segment(network, images + i, (size_t)count, 0, alone + i, NULL, &error);
        good = status == AMPTRAIN_OK;
        for (int k = i; good && k < i + count; k++) others += differing(&together[k], &alone[k]);
    }
    for (int i = 0; i < MANY; i++) {
        amptrain_mask_free(&together[i]);
        amptrain_mask_free(&alone[i]);
    }
    return good && others <= 2;
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    static unsigned char small[9][7][3];
    struct amptrain *network = NULL;
    struct amptrain_info info = {.size = sizeof info};
    int status = amptrain_open(argv[1], "cpu", 0, &network, &error);
    ok("a run is opened", status == AMPTRAIN_OK && amptrain_info(network, &info) == AMPTRAIN_OK &&
       info.task == AMPTRAIN_SEGMENT && info.classes == 5);
    if (!network) return 1;
    struct amptrain_image images[3] = {
        {.size = sizeof *images, .file = argv[2]},
        {.size = sizeof *images, .file = "/nowhere.png"},
        {.size = sizeof *images, .pixels = small, .height = 9, .width = 7, .channels = 3},
    };
    struct amptrain_mask masks[3] = {{.size = sizeof *masks}, {.size = sizeof *masks},
                                     {.size = sizeof *masks}};
    struct amptrain_mask again = {.size = sizeof again}, flipped = {.size = sizeof flipped};
    struct amptrain_error problems[3];
    status = amptrain_segment(network, images, 3, AMPTRAIN_PROBABILITIES, masks, problems, &error);
    ok("images of any size", status == AMPTRAIN_OK && masks[0].classes && masks[2].height == 9 &&
       masks[2].width == 7 && problems[0].status == AMPTRAIN_OK);
    ok("... and one that cannot be read", problems[1].status == AMPTRAIN_BAD_DATA && !masks[1].classes &&
       strstr(problems[1].text, "No such file") == problems[1].text);
    ok("probabilities", agrees(&masks[0], info.classes) && agrees(&masks[2], info.classes));
    status = amptrain_segment(network, images, 1, 0, &again, NULL, &error);
    ok("the same mask without them",
       status == AMPTRAIN_OK && !again.probabilities && same(&masks[0], &again));
    status = amptrain_segment(network, images, 1, AMPTRAIN_FLIP, &flipped, NULL, &error);
    ok("averaged with the mirror image", status == AMPTRAIN_OK && flipped.classes);
    FILE *out = again.classes ? fopen(argv[3], "wb") : NULL;
    if (out) fwrite(again.classes, 1, pixels_of(&again), out);
    if (out) fclose(out);
    for (int i = 0; i < 3; i++) amptrain_mask_free(&masks[i]);
    amptrain_mask_free(&again);
    amptrain_mask_free(&flipped);
    status = amptrain_segment(network, images, 2, 0, masks, NULL, &error);
    ok("without problems[]", status == AMPTRAIN_BAD_DATA && !masks[0].classes &&
       strstr(error.text, "/nowhere.png: No such file"));
    ok("images alone and together", alone_as_together(network));
    struct amptrain_class class;
    ok("classes of images are refused", amptrain_classify(network, images, 1, 1, &class, NULL, &error) ==
       AMPTRAIN_USAGE && strstr(error.text, "amptrain_segment"));
    amptrain_close(network);
    printf("1..%d\n", cases);
    return 0;
}
