#include "evaluate/evaluate_masks.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "exec/exec_checks.h"
#include "explain/tiling.h"
#include "session/session_loader.h"

#define STRIP_SIDE 224

/* The scores of an image; numbers, so that those of all ranks can be added up. */
struct scored {
    double loss, pixels;         /* the sum over its pixels that count, and their number */
    double used, bad, lost;      /* 1 of these: it is */
};

struct scoring {
    const struct session *session;
    const struct images *images;
    struct ranks *ranks;
    pthread_mutex_t lock;
    struct scored *scored;       /* [images] */
    int64_t *pixels;             /* [classes][classes] */
    int64_t lost;                /* a place, of this rank; -1: none */
    struct mask_strip *strips;   /* [strip_count] pictures of the first images */
    int strip_count;
    float *ious;                 /* [images][classes]; NULL: not kept */
};

/* Counting on the threads that read images costs a nanosecond a pixel, which is less than what sending the
 * true classes to a device would. */
static void count_pixels(const struct whole_image *image, int64_t classes, int64_t *counts)
{
    size_t pixels = (size_t)image->h * (size_t)image->w;
    for (size_t i = 0; i < pixels; i++) {
        int64_t truth = image->mask.pixels[i];
        if (truth < classes) counts[truth * classes + image->classes[i]]++;
    }
}

static void keep_strip(const struct scoring *scoring, const struct whole_image *image, const int64_t *counts)
{
    struct mask_strip *strip = &scoring->strips[image->place];
    int classes = scoring->session->data.classes, seen = 0;
    strip->miou = 0;
    for (int c = 0; c < classes; c++) {
        double iou = pixel_scores_of(counts, classes, c).iou;
        if (!isnan(iou)) strip->miou += iou, seen++;
    }
    strip->miou /= seen;
    mask_strip_draw(image, scoring->images->dataset->masks, &scoring->session->data.augment.range, STRIP_SIDE,
                    &strip->picture);
}

static void take_image(void *context, const struct whole_image *image)
{
    struct scoring *scoring = context;
    const struct data *data = &scoring->session->data;
    size_t cells = (size_t)data->classes * (size_t)data->classes;
    struct scored *scored = &scoring->scored[image->place];
    float *ious = scoring->ious ? scoring->ious + image->place * data->classes : NULL;
    for (int c = 0; ious && c < data->classes; c++) ious[c] = NAN;
    if (image->problem) {
        scored->bad = 1;
        bad_images_report(bad_images_source(data->bad, scoring->images->dataset),
                          images_index(scoring->images, image->place), image->problem);
        return;
    }
    int64_t *counts = memory_new(cells, sizeof *counts);
    count_pixels(image, data->classes, counts);
    for (size_t i = 0; i < cells; i++) scored->pixels += (double)counts[i];
    scored->loss = image->loss;
    scored->used = 1;
    scored->lost = !isfinite(image->loss);
    pthread_mutex_lock(&scoring->lock);
    for (size_t i = 0; i < cells && scored->lost == 0; i++) scoring->pixels[i] += counts[i];
    if (scored->lost > 0 && (scoring->lost < 0 || image->place < scoring->lost)) scoring->lost = image->place;
    pthread_mutex_unlock(&scoring->lock);
    for (int c = 0; ious && scored->lost == 0 && c < data->classes; c++)
        ious[c] = (float)pixel_scores_of(counts, data->classes, c).iou;
    if (image->place < scoring->strip_count) keep_strip(scoring, image, counts);
    free(counts);
}

static int is_stopped(void *context) { return ranks_asked_to_stop(((struct scoring *)context)->ranks); }

static void report_progress(void *context)
{
    struct ranks *ranks = ((struct scoring *)context)->ranks;
    ranks_report(ranks, COMM_EVALUATION, ranks->progress.step);
}

/* Names the cause, once. */
static enum status diagnose_lost(const struct scoring *scoring, const struct step *step,
                                 const struct evaluate_options *options)
{
    struct exec_finding found;
    if (scoring->lost < 0 || (options->lost && *options->lost)) return OK;
    int64_t index = images_index(scoring->images, scoring->lost);
    char *path = dataset_image_path(scoring->images->dataset, index);
    enum status status = exec_diagnose(step->exec, &found);
    if (status == OK)
        log_warning("evaluation: the output is not finite for image %lld%s%s%s%s", (long long)index,
                    path ? " " : "", path ? path : "", found.what.text[0] ? ": " : "", found.what.text);
    free(path);
    return status;
}

static enum status score_images(struct scoring *scoring, const struct step *step,
                                const struct evaluate_options *options)
{
    const struct session *session = scoring->session;
    const struct whole_images_options reading = {
        .dataset = scoring->images->dataset, .subset = scoring->images->subset,
        .count = scoring->images->count, .rank = comm_rank(session->comm), .ranks = comm_count(session->comm),
        .resize = session->data.augment.val_resize,
        .interpolation = session->data.augment.interpolation, .masks = true,
        .threads = session_workers(session), .timeout = session->settings->loader.timeout, .stop = is_stopped,
        .take = take_image, .context = scoring,
    };
    const struct tiling_options tiles = {.session = session, .step = step,
                                         .mirrored = options->views.mirrored, .progress = report_progress,
                                         .context = scoring};
    struct whole_images *whole = NULL;
    struct tiling *tiling = NULL;
    enum status status = whole_images_open(&reading, &whole);
    if (status == OK) status = tiling_open(&tiles, &tiling);
    if (status == OK) status = tiling_run(tiling, whole);
    enum status closed = whole_images_close(whole);
    if (status == OK) status = closed;
    if (status == OK) status = diagnose_lost(scoring, step, options);
    tiling_close(tiling);
    return status;
}

/* Adds up what all ranks have, which are whole numbers, or of one rank alone. If a rank was asked to stop,
 * all of them do. */
static enum status share_scores(struct scoring *scoring)
{
    struct comm *comm = scoring->session->comm;
    const struct ranks_batch none = {0};
    int cells = scoring->session->data.classes * scoring->session->data.classes;
    if (comm_count(comm) == 1) return OK;
    TRY(ranks_gather(scoring->ranks, &none));
    if (ranks_stop(scoring->ranks)) return STOPPED;
    double *counts = memory_new((size_t)cells, sizeof *counts);
    for (int i = 0; i < cells; i++) counts[i] = (double)scoring->pixels[i];
    enum status status = comm_sum(comm, counts, cells);
    for (int i = 0; i < cells; i++) scoring->pixels[i] = (int64_t)counts[i];
    free(counts);
    if (status == OK)
        status = comm_sum(comm, (double *)scoring->scored,
                          (int)scoring->images->count * (int)(sizeof *scoring->scored / sizeof(double)));
    return status;
}

static void add_up(const struct scoring *scoring, struct evaluation *sums)
{
    int classes = scoring->session->data.classes, seen = 0;
    double loss = 0, pixels = 0;
    for (int64_t i = 0; i < scoring->images->count; i++) {
        const struct scored *scored = &scoring->scored[i];
        sums->images += scored->used > 0;
        sums->bad += scored->bad > 0;
        sums->lost += scored->lost > 0;
        loss += scored->loss;
        pixels += scored->pixels;
        if (scored->pixels > 0)
            evaluation_keep_mistake(sums, (struct mistake){
                .image = i, .confidence = (float)(scored->loss / scored->pixels)});
    }
    sums->loss = sums->lost > 0 ? (double)NAN : pixels > 0 ? loss / pixels : 0;
    sums->top1 = sums->top5 = NAN;
    sums->pixels = scoring->pixels;
    double iou = 0, dice = 0, right = 0, counted = (double)pixel_scores_count(sums->pixels, classes);
    for (int c = 0; c < classes; c++) {
        const struct pixel_scores scores = pixel_scores_of(sums->pixels, classes, c);
        right += (double)sums->pixels[c * classes + c];
        if (isnan(scores.iou)) continue;
        iou += scores.iou;
        dice += scores.dice;
        seen++;
    }
    sums->metrics[0] = iou / seen;
    sums->metrics[1] = dice / seen;
    sums->metrics[2] = right / counted;
}

enum status evaluate_masks(const struct session *session, const struct images *images,
                           const struct step *step, const struct evaluate_options *options,
                           struct evaluation *evaluation)
{
    size_t classes = (size_t)session->data.classes;
    struct ranks alone = {0};
    struct evaluation sums = {0};
    double start = clock_seconds();
    struct scoring scoring = {
        .session = session, .images = images, .ranks = options->ranks ? options->ranks : &alone, .lost = -1,
        .scored = memory_new((size_t)images->count, sizeof *scoring.scored),
        .pixels = memory_new(classes * classes, sizeof *scoring.pixels),
        .strips = options->strips, .strip_count = options->strip_count,
        .ious = options->ious ? memory_new((size_t)images->count * classes, sizeof *scoring.ious) : NULL,
    };
    pthread_mutex_init(&scoring.lock, NULL);
    enum status status = score_images(&scoring, step, options);
    if (status == OK || (status == STOPPED && comm_count(session->comm) > 1)) status = share_scores(&scoring);
    if (status == OK) add_up(&scoring, &sums);
    if (status == OK && sums.images == 0) status = fail(BAD_DATA, "there is no image to evaluate on");
    pthread_mutex_destroy(&scoring.lock);
    free(scoring.scored);
    if (status != OK) {
        free(scoring.pixels);
        free(scoring.ious);
        return status;
    }
    sums.seen = images->count;
    sums.ious = scoring.ious;
    if (options->lost) *options->lost = sums.lost > 0;
    sums.seconds = clock_seconds() - start;
    *evaluation = sums;
    return OK;
}

struct pixel_scores pixel_scores_of(const int64_t *pixels, int classes, int class)
{
    int64_t truth = 0, predicted = 0, both = pixels[(int64_t)class * classes + class];
    for (int i = 0; i < classes; i++) {
        truth += pixels[(int64_t)class * classes + i];
        predicted += pixels[(int64_t)i * classes + class];
    }
    double all = (double)(truth + predicted);
    if (all == 0) return (struct pixel_scores){0, NAN, NAN};
    return (struct pixel_scores){truth, (double)both / (all - (double)both), 2 * (double)both / all};
}

int64_t pixel_scores_count(const int64_t *pixels, int classes)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < (int64_t)classes * classes; i++) sum += pixels[i];
    return sum;
}
