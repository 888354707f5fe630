/* client_devices: RUN DEVICE SETTING IMAGE...: what the library gives on a device, in every precision, is
 * what it gives on the CPU in fp32, but for rounding; prints a line of TAP for each, and on standard error the
 * device's results in fp32: the class of each image, or of a network that labels pixels how many have each. */
#include <amptrain.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Numbers of all images; their classes are told by the largest. */
struct results {
    int classes;
    size_t count;                        /* of images or pixels */
    float *probabilities;                /* [count][classes] */
    uint8_t *best;                       /* [count] */
    struct amptrain_mask mask;           /* that both are of, if they are a mask's */
};

static struct amptrain_error error;
static const char *setting;

static struct amptrain *open_on(const char *run, const char *device, const char *precision)
{
    char chosen[64];
    struct amptrain *network = NULL;
    snprintf(chosen, sizeof chosen, "amp.precision=%s", precision);
    const struct amptrain_options options = {.size = sizeof options, .device = device, .setting_count = 2,
                                             .settings = (const char *[]){chosen, setting}};
    amptrain_open_with(run, &options, &network, &error);
    return network;
}

static int classify(struct amptrain *network, const struct amptrain_image *images, size_t count,
                    struct results *out)
{
    struct amptrain_class *all = calloc(count * (size_t)out->classes, sizeof *all);
    int status = amptrain_classify(network, images, count, out->classes, all, NULL, &error);
    out->count = count;
    out->probabilities = calloc(count * (size_t)out->classes, sizeof(float));
    out->best = calloc(count, 1);
    for (size_t i = 0; status == AMPTRAIN_OK && i < count * (size_t)out->classes; i++) {
        size_t image = i / (size_t)out->classes;
        out->probabilities[image * (size_t)out->classes + (size_t)all[i].index] = all[i].probability;
        if (i % (size_t)out->classes == 0) out->best[image] = (uint8_t)all[i].index;
    }
    free(all);
    return status;
}

/* One image. */
static int segment(struct amptrain *network, const struct amptrain_image *image, struct results *out)
{
    struct amptrain_mask mask = {.size = sizeof mask};
    int status = amptrain_segment(network, image, 1, AMPTRAIN_PROBABILITIES, &mask, NULL, &error);
    out->count = (size_t)mask.height * (size_t)mask.width;
    out->probabilities = mask.probabilities;
    out->best = mask.classes;
    out->mask = mask;
    return status;
}

static void release(struct results *results)
{
    if (results->mask.classes) {
        amptrain_mask_free(&results->mask);
        return;
    }
    free(results->probabilities);
    free(results->best);
}

static bool run_on(const char *run, const char *device, const char *precision,
                   const struct amptrain_image *images, size_t count, struct results *out)
{
    struct amptrain_info info = {.size = sizeof info};
    struct amptrain *network = open_on(run, device, precision);
    *out = (struct results){0};
    if (!network || amptrain_info(network, &info) != AMPTRAIN_OK) return false;
    out->classes = info.classes;
    int status = info.task == AMPTRAIN_SEGMENT ? segment(network, images, out)
                                               : classify(network, images, count, out);
    amptrain_close(network);
    return status == AMPTRAIN_OK;
}

/* True if probabilities are this close, and classes the same, or nearly as probable. */
static bool agrees(const struct results *a, const struct results *b, float most)
{
    float off = 0;
    size_t classes = (size_t)a->classes, others = 0;
    if (a->count != b->count || a->classes != b->classes) return false;
    for (size_t i = 0; i < a->count * classes; i++)
        off = fmaxf(off, fabsf(a->probabilities[i] - b->probabilities[i]));
    for (size_t i = 0; i < a->count; i++) {
        const float *p = a->probabilities + i * classes;
        others += a->best[i] != b->best[i] && p[a->best[i]] - p[b->best[i]] > 2 * most;
    }
    printf("# off by %.2g, %zu other classes\n", (double)off, others);
    return off <= most && others == 0;
}

/* How much results of different images, or pixels, differ: an error of the weights would change as much. */
static float spread(const struct results *a)
{
    float least = 1, most = 0;
    for (size_t i = 0; i < a->count; i++) {
        least = fminf(least, a->probabilities[i * (size_t)a->classes]);
        most = fmaxf(most, a->probabilities[i * (size_t)a->classes]);
    }
    return most - least;
}

static void print_results(const struct results *a, char **paths, bool pixels)
{
    for (size_t i = 0; !pixels && i < a->count; i++)
        fprintf(stderr, "%s %d %.6f\n", paths[i], a->best[i],
                (double)a->probabilities[i * (size_t)a->classes + a->best[i]]);
    for (int k = 0; pixels && k < a->classes; k++) {
        size_t count = 0;
        for (size_t i = 0; i < a->count; i++) count += a->best[i] == k;
        fprintf(stderr, "%d %zu\n", k, count);
    }
}

int main(int argc, char **argv)
{
    static const struct precision {
        const char *name;
        float most;                      /* difference, in shares of the spread */
    } precisions[] = {{"fp32", 1e-3f}, {"fp16", 0.05f}, {"bf16", 0.25f}};
    if (argc < 5) return 2;
    size_t count = (size_t)argc - 4;
    setting = argv[3];
    struct amptrain_image *images = calloc(count, sizeof *images);
    struct results wanted, got;
    for (size_t i = 0; i < count; i++) images[i] = (struct amptrain_image){.size = sizeof *images,
                                                                           .file = argv[4 + i]};
    bool good = run_on(argv[1], "cpu", "fp32", images, count, &wanted);
    bool pixels = wanted.count != count;
    float all = good ? spread(&wanted) : 0;
    printf("# %s: spread %.2g\n", argv[1], (double)all);
    printf("%s 1 - %s: on the CPU\n", all > 0.02f ? "ok" : "not ok", argv[1]);
    for (int i = 0; good && i < 3; i++) {
        bool ran = run_on(argv[1], argv[2], precisions[i].name, images, count, &got);
        bool same = ran && agrees(&wanted, &got, precisions[i].most * all);
        printf("%s %d - %s: %s in %s\n", same ? "ok" : "not ok", i + 2, argv[1], argv[2], precisions[i].name);
        if (!ran) printf("# %d: %s\n", error.status, error.text);
        else if (i == 0) print_results(&got, argv + 4, pixels);
        release(&got);
    }
    release(&wanted);
    free(images);
    printf("1..4\n");
    return 0;
}
