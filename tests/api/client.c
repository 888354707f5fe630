/* client: RUN FOLDER: uses the library in all ways, on the images FOLDER/.../N.png of a network of classes;
 * prints a line of TAP for each. Only amptrain.h is included. */
#include <amptrain.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMAGES 48
#define THREADS 4

/* Members that 0.1.0 had stay where they are. */
#if defined __x86_64__ || defined __aarch64__
_Static_assert(sizeof(struct amptrain_error) == 512, "ABI");
_Static_assert(offsetof(struct amptrain_options, log_context) == 80, "ABI");
_Static_assert(offsetof(struct amptrain_info, device) == 40, "ABI");
_Static_assert(offsetof(struct amptrain_image, channel_stride) == 72, "ABI");
_Static_assert(offsetof(struct amptrain_mask, probabilities) == 24, "ABI");
_Static_assert(sizeof(struct amptrain_class) == 8, "ABI");
#endif

static int cases;
static const char *run;
static char paths[IMAGES][512];
static struct amptrain_image images[IMAGES];
static struct amptrain_class best[IMAGES];
static struct amptrain_error error;

static void ok(const char *name, bool good)
{
    printf("%s %d - library: %s\n", good ? "ok" : "not ok", ++cases, name);
    if (!good) printf("# %d: %s\n", error.status, error.text);
}

static bool same_class(struct amptrain_class a, struct amptrain_class b)
{
    return a.index == b.index && fabsf(a.probability - b.probability) < 1e-6f;
}

static bool all_same(const struct amptrain_class *classes)
{
    for (int i = 0; i < IMAGES; i++)
        if (!same_class(classes[i], best[i])) return false;
    return true;
}

static struct amptrain *open_network(const char *device, uint64_t limit)
{
    struct amptrain *network = NULL;
    amptrain_open(run, device, limit, &network, &error);
    return network;
}

static void *slurp(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rb");
    char *bytes = malloc(1 << 20);
    *count = file ? fread(bytes, 1, 1 << 20, file) : 0;
    if (file) fclose(file);
    return bytes;
}

/* ---- Cases ---- */

static void knows_itself(const struct amptrain *network)
{
    struct amptrain_info info = {.size = sizeof info};
    struct amptrain_info less = {.size = offsetof(struct amptrain_info, classes)};
    bool known = amptrain_info(network, &info) == AMPTRAIN_OK && info.task == AMPTRAIN_CLASSIFY &&
                 info.classes == 2 && info.height == 28 && info.width == 28 && info.channels == 3 &&
                 strcmp(info.device, "cpu") == 0;
    ok("what is known of a network", known && strcmp(amptrain_class_name(network, 0), "apple") == 0 &&
       !amptrain_class_name(network, 2) && !amptrain_class_name(network, -1) &&
       isnan(amptrain_threshold(network, 0)));
    ok("a struct of an earlier version", amptrain_info(network, &less) == AMPTRAIN_OK &&
       less.task == AMPTRAIN_CLASSIFY && less.classes == 0);
}

static void takes_any_number(struct amptrain *network)
{
    static const size_t counts[] = {1, 2, 3, 5, 17, 33};
    struct amptrain_class some[IMAGES];
    bool good = amptrain_classify(network, NULL, 0, 1, NULL, NULL, &error) == AMPTRAIN_OK;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        good = good && amptrain_classify(network, images, counts[i], 1, some, NULL, &error) == AMPTRAIN_OK;
        for (size_t k = 0; good && k < counts[i]; k++) good = same_class(some[k], best[k]);
    }
    ok("any number of images gives the same", good);
    struct amptrain_class both[2];
    good = amptrain_classify(network, images, 1, 2, both, NULL, &error) == AMPTRAIN_OK;
    ok("all classes", good && both[0].index != both[1].index && both[0].probability >= both[1].probability &&
       fabsf(both[0].probability + both[1].probability - 1) < 1e-5f);
    ok("more classes than there are", amptrain_classify(network, images, 1, 3, both, NULL, &error) ==
       AMPTRAIN_USAGE && strstr(error.text, "top is 3, of 2 classes"));
}

static int threads_now(void)
{
    int count = -1;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "Threads: %d", &count);
    if (file) fclose(file);
    return count;
}

/* The threads that read images wait for the next call, and end with the network. */
static void keeps_its_threads(void)
{
    struct amptrain_class some[IMAGES];
    int before = threads_now(), first = 0;
    struct amptrain *network = open_network("cpu", 0);
    bool good = network != NULL;
    for (int i = 0; good && i < 20; i++) {
        good = amptrain_classify(network, images, i % 2 ? 3 : IMAGES, 1, some, NULL, &error) == AMPTRAIN_OK &&
               same_class(some[0], best[0]);
        if (i == 1) first = threads_now();
    }
    ok("calls leave no threads", good && threads_now() == first);
    int during = threads_now();
    amptrain_close(network);
    ok("... and a network that is closed ends its own", threads_now() < during || before < 0);
}

static void takes_bytes(struct amptrain *network)
{
    struct amptrain_class one;
    size_t count;
    void *bytes = slurp(paths[0], &count);
    const struct amptrain_image image = {.size = sizeof image, .bytes = bytes, .byte_count = count};
    int status = amptrain_classify(network, &image, 1, 1, &one, NULL, &error);
    ok("encoded bytes", status == AMPTRAIN_OK && same_class(one, best[0]));
    free(bytes);
}

/* One picture in several layouts, with rows upside down in two of them. */
static void takes_pixels(struct amptrain *network)
{
    enum { H = 28, W = 28 };
    static unsigned char dense[H][W][3], planes[3][H][W + 5], rgba[H][W][4], grey[H][W], grey3[H][W][3];
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            grey[y][x] = (unsigned char)(x * y);
            for (int k = 0; k < 3; k++) {
                unsigned char value = (unsigned char)(40 * k + 7 * x + 3 * y);
                dense[y][x][k] = planes[k][H - 1 - y][x] = rgba[y][x][k] = value;
                grey3[y][x][k] = grey[y][x];
            }
            rgba[y][x][3] = 255;
        }
    const struct amptrain_image all[] = {
        {.size = sizeof *all, .pixels = dense, .height = H, .width = W, .channels = 3},
        {.size = sizeof *all, .pixels = &planes[0][H - 1][0], .height = H, .width = W, .channels = 3,
         .row_stride = -(W + 5), .pixel_stride = 1, .channel_stride = sizeof planes[0]},
        {.size = sizeof *all, .pixels = rgba, .height = H, .width = W, .channels = 4},
        {.size = sizeof *all, .pixels = grey3, .height = H, .width = W, .channels = 3},
        {.size = sizeof *all, .pixels = grey, .height = H, .width = W, .channels = 1},
    };
    struct amptrain_class got[5];
    bool good = amptrain_classify(network, all, 5, 1, got, NULL, &error) == AMPTRAIN_OK;
    ok("pixels", good && same_class(got[0], got[1]));
    ok("... with alpha", good && same_class(got[0], got[2]));
    ok("... grey", good && same_class(got[3], got[4]));
    const struct amptrain_image five = {.size = sizeof five, .pixels = planes, .height = 2, .width = 2,
                                        .channels = 5};
    ok("... of five channels", amptrain_classify(network, &five, 1, 1, got, NULL, &error) ==
       AMPTRAIN_BAD_DATA && strcmp(error.text, "image 0: has 5 channels, not 3") == 0);
}

static void embeds(struct amptrain *network)
{
    int64_t features = 0;
    static float values[IMAGES * 3136], some[2 * 16];
    bool good = amptrain_features(network, NULL, &features, &error) == AMPTRAIN_OK && features == 3136 &&
                amptrain_embed(network, images, IMAGES, NULL, values, NULL, &error) == AMPTRAIN_OK;
    FILE *out = good ? fopen("library.features", "wb") : NULL;
    if (out) fwrite(values, sizeof *values, IMAGES * 3136, out);
    if (out) fclose(out);
    ok("features", good);
    good = amptrain_features(network, "relu2", &features, &error) == AMPTRAIN_OK && features == 16 &&
           amptrain_embed(network, images, 2, "relu2", some, NULL, &error) == AMPTRAIN_OK;
    ok("... of another layer", good && isfinite(some[31]));
    ok("... that there is not", amptrain_features(network, "relu9", &features, &error) == AMPTRAIN_USAGE &&
       strstr(error.text, "has no layer 'relu9'"));
}

static void says_what_is_wrong(struct amptrain *network)
{
    struct amptrain_image three[3];
    struct amptrain_class got[3];
    struct amptrain_error problems[3];
    float values[2];
    memcpy(three, images, sizeof three);
    three[1].file = "/nowhere.png";
    int status = amptrain_classify(network, three, 3, 1, got, problems, &error);
    ok("an unreadable image among others", status == AMPTRAIN_OK && same_class(got[0], best[0]) &&
       same_class(got[2], best[2]) && got[1].index == -1 && problems[1].status == AMPTRAIN_BAD_DATA &&
       problems[0].status == AMPTRAIN_OK && strstr(problems[1].text, "No such file"));
    status = amptrain_classify(network, three, 3, 1, got, NULL, &error);
    ok("... without problems[]", status == AMPTRAIN_BAD_DATA && strstr(error.text, "/nowhere.png: No such"));
    three[1].pixels = values;
    ok("file and pixels", amptrain_classify(network, three, 3, 1, got, NULL, &error) == AMPTRAIN_USAGE &&
       strstr(error.text, "image 1 has several of file, bytes and pixels"));
    ok("another task", amptrain_values(network, images, 1, values, NULL, &error) == AMPTRAIN_USAGE &&
       strstr(error.text, "amptrain_classify"));
    struct amptrain *none = NULL;
    ok("weights that are not there", amptrain_open("/nowhere", NULL, 0, &none, &error) ==
       AMPTRAIN_BAD_WEIGHTS && strstr(error.text, "/nowhere") && !none);
    ok("a device that is not there", amptrain_open(run, "abacus", 0, &none, &error) == AMPTRAIN_USAGE &&
       strstr(error.text, "abacus"));
    ok("too little memory", amptrain_open(run, "cpu", 4096, &none, &error) == AMPTRAIN_USAGE &&
       strstr(error.text, "memory.limit=4096: must be at least 1048576"));
    struct amptrain_options options = {.size = sizeof options,
                                       .settings = (const char *[]){"augment.val_crap=3"},
                                       .setting_count = 1};
    ok("a setting that is none", amptrain_open_with(run, &options, &none, &error) == AMPTRAIN_USAGE &&
       strstr(error.text, "val_crap") && strstr(error.text, "val_crop"));
    ok("errors may be ignored", amptrain_open("/nowhere", NULL, 0, &none, NULL) == AMPTRAIN_BAD_WEIGHTS);
}

static void keeps_to_a_limit(void)
{
    struct amptrain_info all = {.size = sizeof all}, less = {.size = sizeof less};
    struct amptrain *plenty = open_network("cpu", 0), *few = open_network("cpu", 1 << 20);
    struct amptrain_class got[IMAGES];
    bool good = plenty && few && amptrain_info(plenty, &all) == AMPTRAIN_OK &&
                amptrain_info(few, &less) == AMPTRAIN_OK && less.batch < all.batch;
    ok("a limit of memory makes batches smaller", good &&
       amptrain_classify(few, images, IMAGES, 1, got, NULL, &error) == AMPTRAIN_OK && all_same(got));
    amptrain_close(plenty);
    amptrain_close(few);
}

static void note_line(void *context, int32_t level, const char *line)
{
    *(int *)context += strstr(line, "the weights were trained with") != NULL && level == AMPTRAIN_WARNING;
}

static void gives_its_lines(void)
{
    int lines = 0;
    struct amptrain_options options = {
        .size = sizeof options, .settings = (const char *[]){"augment.mean=0.1,0.1,0.1"}, .setting_count = 1,
        .log = note_line, .log_context = &lines, .device = "cpu",
    };
    struct amptrain *network = NULL;
    int status = amptrain_open_with(run, &options, &network, &error);
    ok("warnings are the caller's", status == AMPTRAIN_OK && lines == 1);
    amptrain_close(network);
}

/* ---- Threads ---- */

struct caller {
    struct amptrain *network;        /* shared; NULL: it opens its own */
    bool good;
};

static void *call(void *context)
{
    struct caller *caller = context;
    struct amptrain *own = NULL;
    struct amptrain_class got[IMAGES];
    struct amptrain_error its;
    if (!caller->network) amptrain_open(run, "cpu", 0, &own, &its);
    struct amptrain *network = caller->network ? caller->network : own;
    caller->good = network != NULL;
    for (int round = 0; round < 3 && caller->good; round++)
        caller->good = amptrain_classify(network, images, IMAGES, 1, got, NULL, &its) == AMPTRAIN_OK &&
                       all_same(got);
    amptrain_close(own);
    return NULL;
}

static bool call_together(struct amptrain *network)
{
    pthread_t threads[THREADS];
    struct caller callers[THREADS];
    bool good = true;
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.network = network};
        pthread_create(&threads[i], NULL, call, &callers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        good = good && callers[i].good;
    }
    return good;
}

/* The actions of signals, and which are blocked: a shell's background jobs ignore SIGINT. */
struct actions {
    void (*handlers[8])(int);
    bool blocked[8];
};

static struct actions actions_now(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGPIPE, SIGXFSZ, SIGALRM};
    struct actions now = {0};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action;
        sigset_t blocked;
        sigaction(numbers[i], NULL, &action);
        sigprocmask(SIG_BLOCK, NULL, &blocked);
        now.handlers[i] = action.sa_handler;
        now.blocked[i] = sigismember(&blocked, numbers[i]);
    }
    return now;
}

/* True if signals have the actions that they had. */
static bool leaves_the_process(const struct actions *before)
{
    struct actions now = actions_now();
    return memcmp(before, &now, sizeof now) == 0;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    const struct actions before = actions_now();
    run = argv[1];
    setlocale(LC_ALL, "de_DE.UTF-8");
    /* A wrong place for models and caches, which the library does not ask for. */
    setenv("AMPTRAIN_DATADIR", "/nowhere", 1);
    for (int i = 0; i < IMAGES; i++) {
        snprintf(paths[i], sizeof *paths, "%s/%s/%d.png", argv[2], i % 2 ? "pear" : "apple", i / 2);
        images[i] = (struct amptrain_image){.size = sizeof *images, .file = paths[i]};
    }
    struct amptrain *network = open_network("cpu", 0);
    ok("a run is opened", network != NULL);
    ok("its images are classified",
       network && amptrain_classify(network, images, IMAGES, 1, best, NULL, &error) == AMPTRAIN_OK);
    for (int i = 0; network && i < IMAGES; i++)
        fprintf(stderr, "%s: %s %.4f\n", paths[i], amptrain_class_name(network, best[i].index),
                best[i].probability);
    if (!network) return 1;
    knows_itself(network);
    takes_any_number(network);
    keeps_its_threads();
    takes_bytes(network);
    takes_pixels(network);
    embeds(network);
    says_what_is_wrong(network);
    keeps_to_a_limit();
    gives_its_lines();
    ok("a network of several threads", call_together(network));
    ok("a network for each thread", call_together(NULL));
    amptrain_close(network);
    amptrain_close(NULL);
    ok("signals are as they were", leaves_the_process(&before));
    printf("1..%d\n", cases);
    return 0;
}
