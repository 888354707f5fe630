#include "train/results_masks.h"

#include <math.h>
#include <stdlib.h>

#include "base/members.h"
#include "base/memory.h"
#include "evaluate/evaluate_masks.h"

#define LISTED 5
#define NAME_ROOM 32

double *results_masks_iou(const struct evaluation *evaluation, int classes)
{
    double *iou = memory_new((size_t)classes, sizeof *iou);
    for (int i = 0; i < classes; i++) iou[i] = pixel_scores_of(evaluation->pixels, classes, i).iou;
    return iou;
}

static void list_worst(const double *iou, const struct data *data, struct text *out)
{
    char name[NAME_ROOM];
    bool *listed = memory_new((size_t)data->classes, sizeof *listed);
    for (int count = 0; count < LISTED; count++) {
        int worst = -1;
        for (int i = 0; i < data->classes; i++)
            if (!listed[i] && iou[i] < 1 && (worst < 0 || iou[i] < iou[worst])) worst = i;
        if (worst < 0) break;
        listed[worst] = true;
        text_add(out, "%s%s (%.2f %%)", count ? ", " : "",
                 text_visible(data->class_names[worst], name, NAME_ROOM), 100 * iou[worst]);
    }
    free(listed);
}

void results_masks_add(const struct evaluation *evaluation, const struct data *data, const char *when,
                       struct progress_table *table)
{
    double *iou = results_masks_iou(evaluation, data->classes);
    struct text worst = {0}, missing = {0};
    char name[NAME_ROOM];
    list_worst(iou, data, &worst);
    for (int i = 0; i < data->classes; i++)
        if (isnan(iou[i]))
            text_add(&missing, "%s%s", missing.data ? ", " : "",
                     text_visible(data->class_names[i], name, NAME_ROOM));
    if (worst.data) progress_table_add(table, "worst IoU", "%s%s", worst.data, when);
    if (missing.data) progress_table_add(table, "classes without a pixel", "%s%s", missing.data, when);
    text_free(&worst);
    text_free(&missing);
    free(iou);
}

void results_masks_json(const struct evaluation *evaluation, const struct data *data, struct text *object)
{
    member_integer(object, "pixels", pixel_scores_count(evaluation->pixels, data->classes));
    member_key(object, "per_class");
    for (int i = 0; i < data->classes; i++) {
        const struct pixel_scores scores = pixel_scores_of(evaluation->pixels, data->classes, i);
        text_add(object, i ? ",{" : "[{");
        member_bytes(object, "class", data->class_names[i]);
        member_integer(object, "pixels", scores.pixels);
        member_number(object, "iou", scores.iou);
        member_number(object, "dice", scores.dice);
        text_add(object, "}");
    }
    text_add(object, "]");
}
