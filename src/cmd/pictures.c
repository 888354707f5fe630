/* pictures.c: a page of training images as the network gets them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "conf/options.h"
#include "data/image/mask.h"
#include "data/image/mask_palette.h"
#include "data/loader/targets.h"
#include "format/html_page.h"
#include "session/session_loader.h"
#include "session/session_open.h"
#include "task/task.h"

#define PICTURES 64
#define TITLE "Training images of "
#define PAGE_SIGNATURE HTML_HEAD TITLE "*"
#define SMALL 96               /* pixels: images are enlarged up to this side, unblurred */
#define SHARE_LEAST 0.05       /* of a class that an image is mixed of; label smoothing gives less */

struct page {
    const struct session *session;
    const struct loader *loader;
    const struct batch *batch;
    struct images images;      /* in the size of the epoch */
    struct mask_palette palette;
    struct text out;
    int count;                 /* pictures on it */
};

/* The numbers that the network gets, as bytes again: grey, or the first three channels. */
static bool picture_of(const struct page *page, int place, struct image *picture, struct reason *reason)
{
    const struct data *data = &page->session->data;
    int h = page->images.h, w = page->images.w, c = data->channels;
    size_t pixels = (size_t)h * (size_t)w;
    const float *numbers = (const float *)page->batch->images + (size_t)place * pixels * (size_t)c;
    if (!image_resize_buffer(picture, h, w, c < 3 ? 1 : 3, reason)) return false;
    for (size_t i = 0; i < pixels; i++)
        for (int k = 0; k < picture->c; k++) {
            double x = numbers[i * (size_t)c + (size_t)k] * data->augment.std[k] + data->augment.mean[k];
            picture->pixels[i * (size_t)picture->c + (size_t)k] = (uint8_t)fmin(255, fmax(0, 255 * x + 0.5));
        }
    return true;
}

/* The picture with its mask over it, if it has one, as a PNG. */
static bool encode(const struct page *page, int place, uint8_t **bytes, size_t *count, struct reason *reason)
{
    struct image picture = {0}, drawn = {0};
    size_t pixels = (size_t)page->images.h * (size_t)page->images.w;
    bool masked = page->batch->masks != NULL;
    struct image mask = {.h = page->images.h, .w = page->images.w, .c = 1};
    if (masked) mask.pixels = page->batch->masks + (size_t)place * pixels;
    bool good = picture_of(page, place, &picture, reason) &&
                (!masked || mask_overlay(&picture, &mask, &page->palette, &drawn, reason)) &&
                image_encode_png(masked ? &drawn : &picture, bytes, count, reason);
    image_free(&picture);
    image_free(&drawn);
    return good;
}

/* "cat"; "cat 70 %, dog 30 %" of one that is mixed; labels or a number. */
static void add_label(const struct page *page, int place, struct text *out)
{
    const struct data *data = &page->session->data;
    const struct batch *batch = page->batch;
    const struct data_task *task = task_of(data);
    if (batch->masks) return;
    bool weighted = data->target == TARGET_LABELS && data->class_weights;
    size_t numbers = target_numbers(data->classes) + (weighted ? (size_t)data->classes : 0);
    const float *row = batch->targets ? batch->targets + (size_t)place * numbers : NULL;
    if (!row || (data->target == TARGET_CLASS && !mix_is_on(&data->mix))) {
        text_add(out, "%s", data->class_names[batch->labels[place]]);
    } else if (data->target != TARGET_CLASS) {
        task->say(data, row, out);
    } else {
        double *share = memory_new((size_t)data->classes, sizeof *share), sum = 0;
        for (int i = 0; i < data->classes; i++) {
            double weight = data->class_weights ? data->class_weights[i] : 1;
            sum += share[i] = weight > 0 ? row[i] / weight : 0;
        }
        for (int i = 0, said = 0; i < data->classes; i++)
            if (share[i] >= SHARE_LEAST * sum)
                text_add(out, "%s%s %.0f %%", said++ ? ", " : "", data->class_names[i], 100 * share[i] / sum);
        free(share);
    }
}

static enum status add_picture(struct page *page, int place)
{
    struct reason reason;
    uint8_t *bytes;
    size_t count;
    int w = page->images.w, h = page->images.h, scale = SMALL / (w < h ? w : h);
    if (!encode(page, place, &bytes, &count, &reason)) return fail(FAILED, "pictures: %s", reason.text);
    int64_t index = loader_image(page->loader, page->batch, place);
    char *path = dataset_image_path(page->images.dataset, index);
    if (!path) path = text_format("image %lld", (long long)index);
    struct text label = {0};
    add_label(page, place, &label);
    text_add(&page->out, "<figure title=\"");
    text_html(&page->out, path);
    text_add(&page->out, "\"><img alt=\"\"%s style=\"height:auto;width:%dpx\" src=\"data:image/png;base64,",
             scale > 1 ? " class=\"small\"" : "", w * (scale > 1 ? scale : 1));
    text_base64(&page->out, bytes, count);
    text_add(&page->out, "\"/><figcaption>");
    text_html(&page->out, label.data ? label.data : "");
    text_add(&page->out, "</figcaption></figure>\n");
    page->count++;
    text_free(&label);
    free(path);
    free(bytes);
    return OK;
}

/* All keys of [augment] that are not as by default. */
static void add_keys(const struct settings *settings, struct text *out)
{
    text_add(out, "<table><thead><tr><th>augment</th><th>value</th></tr></thead><tbody>\n");
    for (int i = 0; option_table[i].section; i++) {
        const struct option *option = &option_table[i];
        if (strcmp(option->section, "augment") != 0 || settings->origins[i].kind == FROM_DEFAULT) continue;
        char *value = option_value(option, settings);
        text_add(out, "<tr>");
        html_cell(out, option->field.name);
        html_cell(out, value);
        text_add(out, "</tr>\n");
        free(value);
    }
    text_add(out, "</tbody></table>\n");
}

/* The first images of the epoch, or of several if it has fewer. */
static enum status add_pictures(struct page *page, struct loader *loader, int64_t epoch)
{
    page->loader = loader;
    for (int before = -1; page->count < PICTURES && page->count > before; epoch++) {
        before = page->count;
        TRY(loader_start(loader, epoch, 0));
        for (;;) {
            struct batch *batch;
            enum status status = OK;
            TRY(loader_next(loader, &batch, NULL));
            if (!batch) break;
            page->batch = batch;
            for (int i = 0; i < batch->count && page->count < PICTURES && status == OK; i++)
                if (batch->labels[i] >= 0) status = add_picture(page, i);
            loader_return(loader, batch);
            TRY(status);
            if (page->count == PICTURES) break;
        }
    }
    return page->count > 0 ? OK : fail(BAD_DATA, "pictures: no training image can be used");
}

static enum status make_page(struct page *page, const char *path, int64_t epoch)
{
    const struct data *data = &page->session->data;
    struct loader *loader = NULL;
    char *title = text_format(TITLE "epoch %lld", (long long)epoch + 1);
    html_begin(&page->out, title);
    text_add(&page->out, "<h1>%s</h1>\n<p class=\"grey\">%dx%d pixels, %d channel%s%s, as the "
             "network gets them: cut, resized and augmented, but with mean and deviation undone. A picture's "
             "title is its file.</p>\n", title, page->images.w, page->images.h, data->channels,
             data->channels == 1 ? "" : "s", data->channels == 1 || data->channels == 3 ? ""
             : data->channels == 2 ? " (the first is shown)" : " (the first three are shown)");
    free(title);
    add_keys(page->session->settings, &page->out);
    text_add(&page->out, "<div class=\"pictures\" style=\"grid-template-columns:repeat(8,minmax(0,1fr));"
             "margin-top:12px\">\n");
    enum status status = session_loader_open_numbers(page->session, &page->images, &loader);
    if (status == OK) status = add_pictures(page, loader, epoch);
    if (loader) loader_close(loader);
    text_add(&page->out, "</div>\n");
    html_end(&page->out);
    TRY(status);
    return atomic_file_write(&directory_working, path, page->out.data, page->out.length);
}

static enum status draw(struct cmd *cmd, struct session *session)
{
    long epoch;
    TRY(cmd_number(cmd, "epoch", 1, 1, &epoch));
    session_any_batch(&cmd->settings);
    /* There may be fewer images than in a batch. */
    settings_derive(&cmd->settings, "train", "batch", "1");
    settings_derive(&cmd->settings, "train", "accumulate", "1");
    TRY(cmd_session(cmd, DATA_TRAIN, NULL, session));
    struct page page = {.session = session, .images = session->data.train};
    const struct train_sizes *sizes = &session->data.sizes;
    struct image_size crop = {page.images.h, page.images.w}, size = crop;
    if (sizes->count > 0) size = train_sizes_at(sizes, epoch - 1, session->settings->augment.crop);
    page.images.h = size.h;
    page.images.w = size.w;
    if (session->data.masks) mask_palette_of(session->data.masks, &page.palette);
    enum status status = make_page(&page, cmd->output, epoch - 1);
    if (status == OK) log_info("%s: %d training images", cmd->output, page.count);
    text_free(&page.out);
    return status;
}

static enum status pictures_run(struct cmd *cmd)
{
    struct session session = {0};
    if (!cmd->output) return fail(USAGE, "pictures: no output file; use -o FILE.html");
    if (!text_ends_in(cmd->output, ".html"))
        return fail(USAGE, "pictures: %s: the name must end in .html", cmd->output);
    TRY(cmd_check_output(cmd, cmd->output, PAGE_SIGNATURE));
    enum status status = draw(cmd, &session);
    session_close(&session);
    return status;
}

static const struct cmd_option options[] = {
    {"epoch", "N", "the epoch whose first images are drawn (default: 1)"},
    {0},
};

const struct command cmd_pictures = {
    .name = "pictures",
    .usage = "-c FILE [--epoch N] -o FILE.html",
    .help = "Draws a page of training images as the network gets them.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT,
    .options = options,
    .run = pictures_run,
};
