/* amptrain.h: networks that amptrain trained, or whose weights it reads, for images in a program of your own.
 *
 *     struct amptrain *network;
 *     struct amptrain_error error;
 *     struct amptrain_image image = {.size = sizeof image, .file = "cat.jpg"};
 *     struct amptrain_class best;
 *     if (amptrain_open("runs/pets", NULL, 0, &network, &error) != AMPTRAIN_OK ||
 *         amptrain_classify(network, &image, 1, 1, &best, NULL, &error) != AMPTRAIN_OK)
 *         fprintf(stderr, "%s\n", error.text);
 *     else
 *         printf("%s %.4f\n", amptrain_class_name(network, best.index), best.probability);
 *
 * Rules for all functions:
 *
 *   Errors    are values: a function returns AMPTRAIN_OK, or another value of enum amptrain_status and a text
 *             in *error, which may be NULL. Results are only valid after AMPTRAIN_OK. Nothing is printed, no
 *             signal is handled, and the process is not ended.
 *   Threads   Every function may be called from any thread. A network computes one call at a time: others
 *             wait. Networks are independent of each other, but share the processors. A network has a thread
 *             of its own, on which all of its calls run, and threads that decode images during a call; all
 *             signals of amptrain(1) are blocked in them. After fork() the child may not use it.
 *   Memory    Everything that is passed is the caller's, and is not used after the call. Strings and structs
 *             that are returned belong to the network, and are valid until amptrain_close.
 *   Structs   A first member `size` is the size of the struct, set by the caller, so that later versions can
 *             add members at the end. All other members may be zero, which is the default.
 *   Environment variables are only read by the libraries below: OpenMP (OMP_NUM_THREADS and others), oneDNN
 *             and CUDA. Numbers are read and printed independently of the locale.
 *
 * The interface only grows: what is compiled with a version runs with later ones of the same soname. */
#ifndef AMPTRAIN_H
#define AMPTRAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AMPTRAIN_API __attribute__((visibility("default")))

/* The exit codes of amptrain(1). */
enum amptrain_status {
    AMPTRAIN_OK = 0,
    AMPTRAIN_FAILED = 1,          /* while computing, or without host memory */
    AMPTRAIN_USAGE = 2,           /* wrong arguments, or settings */
    AMPTRAIN_BAD_DATA = 3,        /* an image that cannot be used */
    AMPTRAIN_NO_DEVICE = 4,       /* there is no such device, or it has not enough memory */
    AMPTRAIN_BAD_WEIGHTS = 5      /* weights that cannot be used */
};

/* A status with its text, which ends with '\0'; several lines if there are several reasons. */
struct amptrain_error {
    int32_t status;
    char text[508];
};

/* The version of the library, such as "1.0.0". */
AMPTRAIN_API const char *amptrain_version(void);

/* ---- Networks ---- */

struct amptrain;

enum amptrain_level { AMPTRAIN_WARNING = 1, AMPTRAIN_NOTICE = 3 };

struct amptrain_options {
    size_t size;
    const char *device;           /* "auto" (or NULL): a GPU if there is one; "cpu", "cuda", "cuda:1" */
    uint64_t memory_limit;        /* bytes of device memory, at least 2^20; on the CPU of weights, activations
                                   * and batches; 0: none (then calls for one or two images there keep the
                                   * weights in the layouts of their code, too, which is faster). Batches
                                   * become smaller; NO_DEVICE if one image does not fit */
    int32_t batch;                /* the most images that are computed at a time; 0: 32 */
    int32_t threads;              /* that compute on the CPU; 0: OMP_NUM_THREADS, or one a processor */
    int32_t workers;              /* that decode; 0: one a processor */
    const char *const *settings;  /* [setting_count] "SECTION.KEY=VALUE" of amptrain.ini(5), which override
                                   * those of the weights: "augment.val_crop=320" */
    int32_t setting_count;
    const char *data_folder;      /* with models/ in it; NULL: where the library is installed */
    const char *cache_folder;     /* where a GPU's fastest algorithms are kept from one process to the next;
                                   * NULL: nowhere, so they are chosen anew */
    /* Gets warnings and notices, a line each, on the network's own thread, while a function is called; it
     * must not call functions of that network. NULL: they are lost. */
    void (*log)(void *context, int32_t level, const char *line);
    void *log_context;
};

/* Opens the weights of a run folder (its best checkpoint), a checkpoint, an exported file, or one of other
 * libraries: see --weights in amptrain(1). The network, its classes and the preparation of images come with
 * them. `device` and `memory_limit` as in struct amptrain_options. *opened is for amptrain_close. */
AMPTRAIN_API int amptrain_open(const char *weights, const char *device, uint64_t memory_limit,
                               struct amptrain **opened, struct amptrain_error *error);
/* Opens weights with options; NULL: all defaults. */
AMPTRAIN_API int amptrain_open_with(const char *weights, const struct amptrain_options *options,
                                    struct amptrain **opened, struct amptrain_error *error);
/* No other call may be in progress, or follow. NULL is ignored. */
AMPTRAIN_API void amptrain_close(struct amptrain *network);

enum amptrain_task {
    AMPTRAIN_CLASSIFY = 1,        /* one of the classes */
    AMPTRAIN_LABELS = 2,          /* any of the classes */
    AMPTRAIN_VALUE = 3,           /* a number */
    AMPTRAIN_SEGMENT = 4,         /* a class for every pixel */
    AMPTRAIN_FEATURES = 5         /* the weights have no last layer: amptrain_embed alone is possible */
};

struct amptrain_info {
    size_t size;
    int32_t task;                 /* enum amptrain_task */
    int32_t classes;              /* 1 of a value, 0 of features */
    int32_t height, width, channels;   /* of the images that the network gets; of tiles */
    int32_t batch;                /* the most that are computed at a time */
    const char *arch;             /* "resnet50" */
    const char *device;           /* "cpu" or "cuda" */
};

/* Fills info->size bytes of *info, which the caller has set. */
AMPTRAIN_API int amptrain_info(const struct amptrain *network, struct amptrain_info *info);
/* The name of a class, UTF-8 as a rule; NULL if there is none with this number. */
AMPTRAIN_API const char *amptrain_class_name(const struct amptrain *network, int32_t index);
/* The probability from which on label `index` is predicted; NAN: there is no such label. */
AMPTRAIN_API double amptrain_threshold(const struct amptrain *network, int32_t index);

/* ---- Images ---- */

/* An image, of which exactly one of file, bytes and pixels is given. Files are those that amptrain(1) reads
 * (PNG, JPEG, WebP, TIFF), upright by their Exif data. In an array of images all have the same `size`. */
struct amptrain_image {
    size_t size;
    const char *file;             /* a path */
    const void *bytes;            /* [byte_count] the contents of such a file */
    size_t byte_count;
    /* Unsigned bytes from 0 to 255, `height` rows of `width` pixels of `channels`: 1 is grey, 2 grey and
     * alpha, 3 RGB, 4 RGB and alpha, more of a multispectral image. Strides are distances in bytes, and may
     * be negative; 0: there are no gaps, and channels are innermost. */
    const void *pixels;
    int32_t height, width, channels;
    ptrdiff_t row_stride, pixel_stride, channel_stride;
};

/* ---- Results ----
 *
 * For `count` images, in their order and in any number: they are decoded on several threads, and computed in
 * batches. With `problems` NULL a function ends with an image that cannot be used, whose status it returns.
 * Otherwise each image has its own, problems[count], AMPTRAIN_OK or not; its results are then NAN, and
 * classes -1. USAGE if the network does something else. */

struct amptrain_class {
    int32_t index;
    float probability;            /* from 0 to 1; those of all classes add up to 1 */
};

/* The `top` most probable classes of each image, the first one first: classes[count][top]. `top` is from 1 to
 * the number of classes. */
AMPTRAIN_API int amptrain_classify(struct amptrain *network, const struct amptrain_image *images,
                                   size_t count, int32_t top, struct amptrain_class *classes,
                                   struct amptrain_error *problems, struct amptrain_error *error);
/* The probability of each label: probabilities[count][classes]. */
AMPTRAIN_API int amptrain_labels(struct amptrain *network, const struct amptrain_image *images, size_t count,
                                 float *probabilities, struct amptrain_error *problems,
                                 struct amptrain_error *error);
/* The value of each image in the unit of the training data: values[count]. */
AMPTRAIN_API int amptrain_values(struct amptrain *network, const struct amptrain_image *images, size_t count,
                                 float *values, struct amptrain_error *problems,
                                 struct amptrain_error *error);

/* The classes of an image's pixels, in its own size. */
struct amptrain_mask {
    size_t size;
    int32_t height, width;
    uint8_t *classes;             /* [height][width]; NULL: the image has a problem */
    float *probabilities;         /* [height][width][classes], if they are asked for */
};

enum amptrain_segment_flags {
    AMPTRAIN_PROBABILITIES = 1,   /* masks have probabilities */
    AMPTRAIN_FLIP = 2             /* each image is averaged with its mirror image */
};

/* The class of every pixel of each image, of any size, in tiles as in an evaluation: masks[count], whose
 * `size` is set by the caller, and the same in all; the rest is made by the function, for amptrain_mask_free.
 * After a failure there is nothing to free. `flags` are of enum amptrain_segment_flags. */
AMPTRAIN_API int amptrain_segment(struct amptrain *network, const struct amptrain_image *images, size_t count,
                                  int32_t flags, struct amptrain_mask *masks,
                                  struct amptrain_error *problems, struct amptrain_error *error);
AMPTRAIN_API void amptrain_mask_free(struct amptrain_mask *mask);

/* The number of features of an image: outputs of `layer`, a layer or block, the mean of their pixels; NULL:
 * the input of the last layer with weights. */
AMPTRAIN_API int amptrain_features(struct amptrain *network, const char *layer, int64_t *features,
                                   struct amptrain_error *error);
/* Computes the features of each image: values[count][features]. */
AMPTRAIN_API int amptrain_embed(struct amptrain *network, const struct amptrain_image *images, size_t count,
                                const char *layer, float *values, struct amptrain_error *problems,
                                struct amptrain_error *error);

#ifdef __cplusplus
}
#endif

#endif
