#include "train/tensorboard.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/image/image.h"

#define TABLE_CLASSES 50
#define PICTURE_CLASSES 1000
#define PICTURE_SIDE 512     /* pixels, about */

void tensorboard_settings(struct events *events, int64_t step, const struct settings *settings,
                          const char *file)
{
    struct text ini = {0}, valid = {0}, code = {0};
    if (!events->file) return;
    settings_print_resolved(settings, file, &ini);
    text_escape(&valid, ini.data);
    text_add(&code, "    ");             /* as Markdown has code */
    for (const char *from = valid.data; *from; from++)
        text_add(&code, *from == '\n' ? "%c    " : "%c", *from);
    events_text(events, "config", step, code.data);
    text_free(&ini);
    text_free(&valid);
    text_free(&code);
}

/* [classes][classes] images, true class by predicted class; the caller frees it. */
static int64_t *count_cells(const struct evaluation *evaluation, int64_t classes)
{
    int64_t *cells = memory_new((size_t)(classes * classes), sizeof *cells);
    for (int64_t i = 0; i < evaluation->images; i++)
        if (evaluation->cells[i] >= 0) cells[evaluation->cells[i]]++;
    return cells;
}

static void add_name(struct text *table, const char *name)
{
    struct text html = {0};
    text_html(&html, name);
    for (const char *from = html.data ? html.data : ""; *from; from++)
        text_add(table, *from == '|' ? "&#124;" : "%c", *from);
    text_free(&html);
}

static void write_table(struct events *events, int64_t step, const struct data *data, const int64_t *cells)
{
    struct text table = {0};
    text_add(&table, "true\\predicted");
    for (int i = 0; i < data->classes; i++) {
        text_add(&table, " | ");
        add_name(&table, data->class_names[i]);
    }
    text_add(&table, "\n---");
    for (int i = 0; i < data->classes; i++) text_add(&table, " | ---:");
    for (int row = 0; row < data->classes; row++) {
        text_add(&table, "\n");
        add_name(&table, data->class_names[row]);
        for (int i = 0; i < data->classes; i++) text_add(&table, " | %" PRId64, *cells++);
    }
    events_text(events, "confusion", step, table.data);
    text_free(&table);
}

/* From white to dark blue. */
static void colour(double share, uint8_t pixel[3])
{
    static const uint8_t dark[3] = {8, 48, 107};
    for (int i = 0; i < 3; i++) pixel[i] = (uint8_t)(255 - share * (255 - dark[i]) + 0.5);
}

/* A row is a true class; its cells are shares of its images. */
static void paint(const int64_t *cells, int classes, struct image *picture)
{
    int scale = picture->h / classes;
    uint8_t *pixel = picture->pixels;
    for (int y = 0; y < picture->h; y++) {
        const int64_t *row = cells + (int64_t)(y / scale) * classes;
        int64_t images = 0;
        for (int i = 0; i < classes; i++) images += row[i];
        for (int x = 0; x < picture->w; x++, pixel += 3)
            colour(images > 0 ? (double)row[x / scale] / (double)images : 0, pixel);
    }
}

static void write_picture(struct events *events, int64_t step, const int64_t *cells, int classes)
{
    struct image picture = {0};
    struct events_picture shown = {0};
    struct reason reason;
    uint8_t *png = NULL;
    int side = classes * (classes < PICTURE_SIDE ? PICTURE_SIDE / classes : 1);
    bool good = image_resize_buffer(&picture, side, side, 3, &reason);
    if (good) paint(cells, classes, &picture);
    good = good && image_encode_png(&picture, &png, &shown.bytes, &reason);
    if (good) {
        shown.png = png;
        shown.width = shown.height = side;
        events_image(events, "confusion", step, &shown);
    } else {
        log_warning("the confusion matrix is not drawn: %s", reason.text);
    }
    free(png);
    image_free(&picture);
}

void tensorboard_confusion(struct events *events, int64_t step, const struct data *data,
                           const struct evaluation *evaluation)
{
    if (!events->file || data->classes > PICTURE_CLASSES) return;
    int64_t *counted = evaluation->pixels ? NULL : count_cells(evaluation, data->classes);
    const int64_t *cells = counted ? counted : evaluation->pixels;
    if (data->classes <= TABLE_CLASSES) write_table(events, step, data, cells);
    write_picture(events, step, cells, data->classes);
    free(counted);
}

/* Adds pictures as JPEG, which is small, since there are some of them in every epoch. */
void tensorboard_strips(struct events *events, int64_t step, const struct mask_strip *strips, int count)
{
    for (int i = 0; i < count && events->file; i++) {
        const struct image *picture = &strips[i].picture;
        struct events_picture shown = {.width = picture->w, .height = picture->h};
        struct reason unsaid;
        uint8_t *bytes;
        char tag[32];
        if (!picture->pixels || !image_encode_jpeg(picture, 80, &bytes, &shown.bytes, &unsaid)) continue;
        snprintf(tag, sizeof tag, "validation/%d", i + 1);
        shown.png = bytes;
        events_image(events, tag, step, &shown);
        free(bytes);
    }
}
