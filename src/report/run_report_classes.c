#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv_reader.h"
#include "base/memory.h"
#include "evaluate/mistakes.h"
#include "report/run_report_parts.h"

#define NUMBERED 30          /* maximum of classes for numbers in cells and names beside them */
#define TINY 300             /* number of classes above which cells are smaller than a pixel, and drawn as
                              * one */
#define LISTED 1000          /* classes */
#define CONFUSIONS 50

/* The matrix from confusion.csv. */
struct confusion {
    struct text text;        /* the file, split */
    char **header, **names;  /* the first line; behind a first field, the classes, which lie in the text */
    int classes;
    double *cells;           /* [classes, classes] images, or pixels, of a true class in a row */
    double *images;          /* [classes] of a row */
    bool pixels;
};

#define CELL_MAX 1e15        /* integers up to this are exact */

static bool take_row(char *const *cells, struct confusion *confusion, int row)
{
    for (int i = 0; i < confusion->classes; i++) {
        double images = atof(cells[i]);
        if (!(images >= 0 && images <= CELL_MAX)) return false;
        confusion->cells[(size_t)row * (size_t)confusion->classes + (size_t)i] = images;
        confusion->images[row] += images;
    }
    return true;
}

static void confusion_free(struct confusion *confusion)
{
    text_free(&confusion->text);
    free(confusion->header);
    free(confusion->cells);
    free(confusion->images);
}

static bool take_header(struct csv_reader *reader, struct confusion *confusion)
{
    struct reason unsaid = {0};
    size_t room = 1;
    for (const char *c = confusion->text.data; *c && *c != '\n'; c++) room += *c == reader->separator;
    confusion->header = memory_new(room, sizeof *confusion->header);
    confusion->names = confusion->header + 1;
    size_t fields = (size_t)csv_reader_next(reader, confusion->header, (int)room, &unsaid);
    if (fields < 2 || fields > room) return false;
    confusion->classes = (int)fields - 1;
    for (int i = 0; i < confusion->classes; i++)
        confusion->names[i] += confusion->names[i][0] == '\'';          /* of csv_text */
    return true;
}

/* False if there is no valid one. */
static bool confusion_read(const struct directory *folder, struct confusion *confusion)
{
    struct csv_reader reader;
    struct reason unsaid = {0};
    struct text *text = &confusion->text;
    *confusion = (struct confusion){0};
    if (!records_read(folder, "confusion.csv", REPORT_FILE_MAX, text)) return false;
    if (!csv_reader_open(&reader, text->data, text->length, &unsaid) || !take_header(&reader, confusion))
        return false;
    size_t classes = (size_t)confusion->classes;
    bool good = classes * classes <= text->length && text->data[text->length - 1] == '\n';
    char **fields = memory_new(classes + 1, sizeof *fields);
    if (good) confusion->cells = memory_new(classes * classes, sizeof *confusion->cells);
    if (good) confusion->images = memory_new(classes, sizeof *confusion->images);
    for (int i = 0; good && i < confusion->classes; i++)
        good = csv_reader_next(&reader, fields, (int)classes + 1, &unsaid) == (int)classes + 1 &&
               take_row(fields + 1, confusion, i);
    free(fields);
    return good;
}

static double cell_of(const struct confusion *confusion, int row, int column)
{
    return confusion->cells[(size_t)row * (size_t)confusion->classes + (size_t)column];
}

/* NAN where the class has no images. */
static double accuracy_of(const struct confusion *confusion, int class)
{
    return confusion->images[class] > 0 ? cell_of(confusion, class, class) / confusion->images[class] : NAN;
}

/* Classes, worst first, those without images last. */

struct ranked {
    double key;
    int row, column;
};

static int compare(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->row != y->row ? (x->row > y->row) - (x->row < y->row)
                            : (x->column > y->column) - (x->column < y->column);
}

/* The class that this one is most often predicted as; itself: none. */
static int taken_for(const struct confusion *confusion, int class)
{
    int most = -1;
    for (int i = 0; i < confusion->classes; i++)
        if (i != class && cell_of(confusion, class, i) > (most < 0 ? 0 : cell_of(confusion, class, most)))
            most = i;
    return most < 0 ? class : most;
}

static double column_sum(const struct confusion *confusion, int column)
{
    double sum = 0;
    for (int i = 0; i < confusion->classes; i++) sum += cell_of(confusion, i, column);
    return sum;
}

/* Intersection over union; NAN where neither the truth nor a prediction has the class. */
static double iou_of(const struct confusion *confusion, int class)
{
    double both = cell_of(confusion, class, class);
    double any = confusion->images[class] + column_sum(confusion, class) - both;
    return any > 0 ? both / any : NAN;
}

static double score_of(const struct confusion *confusion, int class)
{
    return confusion->pixels ? iou_of(confusion, class) : accuracy_of(confusion, class);
}

/* Dice follows from IoU. */
static void add_class(const struct confusion *confusion, int class, double training, struct text *out)
{
    double score = score_of(confusion, class);
    int other = taken_for(confusion, class);
    text_add(out, "<tr>");
    html_cell(out, confusion->names[class]);
    html_number(out, 100 * score, 1);
    text_add(out, "<td class=\"bar\" style=\"--v:%.1f%%\"></td>", isnan(score) ? 0 : 100 * score);
    if (confusion->pixels) html_number(out, 200 * score / (1 + score), 1);
    html_cell(out, other == class ? "" : confusion->names[other]);
    html_number(out, confusion->images[class], 0);
    if (!confusion->pixels) html_number(out, training, 0);
    text_add(out, "</tr>\n");
}

static void add_table(const struct run_records *records, const struct confusion *confusion, struct text *out)
{
    const json_t *training = json_object_get(records->start, "train_per_class");
    struct ranked *ranked = memory_new((size_t)confusion->classes, sizeof *ranked);
    for (int i = 0; i < confusion->classes; i++) {
        double score = score_of(confusion, i);
        ranked[i] = (struct ranked){isnan(score) ? 2 : score, i, 0};
    }
    qsort(ranked, (size_t)confusion->classes, sizeof *ranked, compare);
    text_add(out, "<div><h3>%s by class, worst first</h3>\n<div class=\"scroll\"><table><thead><tr>"
             "<th>class</th><th class=\"n\">%s, %%</th><th></th>%s<th>predicted as</th>"
             "<th class=\"n\">validation %s</tr></thead><tbody>\n",
             confusion->pixels ? "Intersection over union" : "Accuracy",
             confusion->pixels ? "IoU" : "accuracy",
             confusion->pixels ? "<th class=\"n\">Dice, %</th>" : "",
             confusion->pixels ? "pixels</th>" : "images</th><th class=\"n\">training images</th>");
    for (int i = 0; i < confusion->classes && i < LISTED; i++) {
        const json_t *count = json_array_get(training, (size_t)ranked[i].row);
        add_class(confusion, ranked[i].row, count ? json_number_value(count) : NAN, out);
    }
    text_add(out, "</tbody></table></div></div>\n");
    free(ranked);
}

/* The matrix as a picture: rows are true classes. */

static void add_numbered_cell(const struct confusion *confusion, int row, int column, struct text *out)
{
    double images = cell_of(confusion, row, column), share = images / fmax(1, confusion->images[row]);
    text_add(out, "<rect x=\"%d\" y=\"%d\" width=\"1\" height=\"1\" class=\"%s\" "
             "fill-opacity=\"%.3f\"><title>", column, row, row == column ? "right" : "wrong",
             images > 0 ? 0.1 + 0.9 * share : 0);
    text_html(out, confusion->names[row]);
    text_add(out, " predicted as ");
    text_html(out, confusion->names[column]);
    text_add(out, ": %.0f of %.0f (%.1f %%)</title></rect>\n", images, confusion->images[row], 100 * share);
    double shown = confusion->pixels ? round(100 * share) : images;
    if (shown > 0)
        text_add(out, "<text x=\"%.2f\" y=\"%.2f\" font-size=\".36\" fill=\"%s\" "
                 "pointer-events=\"none\">%.0f</text>\n", column + 0.5, row + 0.63,
                 share > 0.5 ? "var(--ground)" : "currentColor", shown);
}

#define SHORT 12             /* maximum length of names beside the cells */

/* The length in bytes of the first characters; `count` becomes their number. */
static size_t short_length(const char *name, int *count)
{
    size_t length = 0;
    for (*count = 0; name[length] && *count < SHORT; ++*count)
        do length++; while (((unsigned char)name[length] & 0xc0) == 0x80);
    return length;
}

static void add_short_name(const char *name, struct text *out)
{
    int count;
    size_t length = short_length(name, &count);
    char *cut = text_format("%.*s%s", (int)length, name, name[length] ? "." : "");
    text_html(out, cut);
    free(cut);
}

/* Width of the longest name, in cells. */
static double names_width(const struct confusion *confusion)
{
    int longest = 1, count;
    for (int i = 0; i < confusion->classes; i++) {
        short_length(confusion->names[i], &count);
        if (count > longest) longest = count;
    }
    return 0.3 + 0.26 * longest;
}

static void add_numbered(const struct confusion *confusion, struct text *out)
{
    int n = confusion->classes;
    double names = names_width(confusion), side = n + names;
    text_add(out, "<svg class=\"cells\" viewBox=\"%.2f 0 %.2f %.2f\" style=\"max-width:%.0fpx\" role=\"img\" "
             "aria-label=\"confusion matrix\">\n", -names, side, side, 46 * side);
    for (int i = 0; i < n; i++) {
        text_add(out, "<text x=\"-.15\" y=\"%.2f\" font-size=\".42\" style=\"text-anchor:end\" "
                 "fill=\"currentColor\">", i + 0.64);
        add_short_name(confusion->names[i], out);
        text_add(out, "</text><text font-size=\".42\" style=\"text-anchor:end\" fill=\"currentColor\" "
                 "transform=\"translate(%.2f %.2f) rotate(-90)\">", i + 0.64, n + 0.15);
        add_short_name(confusion->names[i], out);
        text_add(out, "</text>\n");
        for (int j = 0; j < n; j++) add_numbered_cell(confusion, i, j, out);
    }
    text_add(out, "</svg>\n");
}

/* Cells with this level, in runs along their rows. */
static void add_level(const struct confusion *confusion, bool right, double from, double to, struct text *out)
{
    int n = confusion->classes;
    bool any = false;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double share = cell_of(confusion, i, j) / fmax(1, confusion->images[i]);
            if ((i == j) != right || share <= from || share > to) continue;
            text_add(out, "%sM%d %d.5h1", any ? "" : "<path d=\"", j, i);
            any = true;
        }
    if (any)
        text_add(out, "\" class=\"%s\" stroke-opacity=\"%g\"/>\n", right ? "right" : "wrong",
                 fmin(1, 0.3 + to));
}

static void add_dense(const struct confusion *confusion, struct text *out)
{
    static const double levels[] = {0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1};
    int n = confusion->classes;
    struct text names = {0};
    text_json_names(&names, confusion->names, n);
    text_add(out, "<svg class=\"cells%s\" viewBox=\"0 0 %d %d\" style=\"max-width:800px\" role=\"img\" "
             "aria-label=\"confusion matrix\" shape-rendering=\"crispEdges\" data-names=\"",
             n > TINY ? " tiny" : "", n, n);
    text_html(out, names.data);
    text_add(out, "\">\n");
    for (int right = 0; right < 2; right++)
        for (size_t i = 0; i + 1 < sizeof levels / sizeof *levels; i++)
            add_level(confusion, right, levels[i], levels[i + 1], out);
    text_add(out, "</svg><output></output>\n");
    text_free(&names);
}

static void add_confusions(const struct confusion *confusion, struct text *out)
{
    const char *what = confusion->pixels ? "pixels" : "images";
    struct ranked *ranked = NULL;
    int count = 0, n = confusion->classes;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (i != j && cell_of(confusion, i, j) > 0)
                *array_push(ranked, count) = (struct ranked){-cell_of(confusion, i, j), i, j};
    if (count > 0) qsort(ranked, (size_t)count, sizeof *ranked, compare);
    text_add(out, "<div><h3>Most frequent confusions</h3>\n<div class=\"scroll\"><table><thead><tr>"
             "<th>class</th><th>predicted as</th><th class=\"n\">%s</th>"
             "<th class=\"n\">of its %s, %%</th></tr></thead><tbody>\n", what, what);
    for (int i = 0; i < count && i < CONFUSIONS; i++) {
        text_add(out, "<tr>");
        html_cell(out, confusion->names[ranked[i].row]);
        html_cell(out, confusion->names[ranked[i].column]);
        html_number(out, -ranked[i].key, 0);
        html_number(out, -100 * ranked[i].key / confusion->images[ranked[i].row], 1);
        text_add(out, "</tr>\n");
    }
    text_add(out, "</tbody></table></div></div>\n");
    free(ranked);
}

static void add_which(const struct run_records *records, struct text *out)
{
    int64_t best = records_best_epoch(records);
    if (best < 0) return;
    text_add(out, "<p class=\"grey\">In epoch %.0f, the best one.</p>\n",
             records_column(&records->epochs, "epoch")[best]);
}

void report_add_classes(const struct run_records *records, struct text *out)
{
    struct confusion confusion;
    if (confusion_read(records->folder, &confusion)) {
        confusion.pixels = strcmp(records_start_text(records, "task"), "segment") == 0;
        html_section(out, "classes", "Classes");
        add_which(records, out);
        text_add(out, "<div class=\"pair\">\n");
        add_table(records, &confusion, out);
        add_confusions(&confusion, out);
        text_add(out, "</div>\n<h3>Confusion matrix: true classes down, predictions across%s</h3>\n<div>",
                 confusion.pixels ? "; per cent of a class's pixels" : "");
        if (confusion.classes <= NUMBERED) add_numbered(&confusion, out);
        else add_dense(&confusion, out);
        text_add(out, "</div>\n");
    }
    confusion_free(&confusion);
}

/* Mistakes. */

static const char *text_of(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

/* Only base64 characters are copied into the page. */
static void add_jpeg(const char *picture, bool is_small, struct text *out)
{
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    if (*picture == '\0' || strspn(picture, base64) != strlen(picture)) return;
    text_add(out, "<img%s alt=\"\" src=\"data:image/jpeg;base64,%s\"/>", is_small ? " class=\"small\"" : "",
             picture);
}

static void add_file_name(const json_t *mistake, struct text *out)
{
    const char *path = text_of(mistake, "image"), *name = strrchr(path, '/');
    if (*path) text_html(out, name ? name + 1 : path);
    else text_add(out, "image %.0f", json_number_value(json_object_get(mistake, "index")));
}

/* The image, its truth, its prediction and what differs are one picture. */
static void add_strip(const json_t *mistake, struct text *out)
{
    text_add(out, "<figure class=\"strip\" title=\"");
    text_html(out, text_of(mistake, "image"));
    text_add(out, "\">");
    add_jpeg(text_of(mistake, "picture"), false, out);
    const json_t *miou = json_object_get(mistake, "miou");
    if (miou) text_add(out, "mean IoU %.1f %%, ", 100 * json_number_value(miou));
    text_add(out, "loss %.4g <span class=\"grey\">",
             json_number_value(json_object_get(mistake, "loss")));
    add_file_name(mistake, out);
    text_add(out, "</span></figure>\n");
}

/* True if a list, "cat, dog", has these `length` bytes of another one. */
static bool has_item(const char *list, const char *item, size_t length)
{
    for (const char *at = list; at; at = strstr(at, ", "), at += at ? 2 : 0)
        if (strncmp(at, item, length) == 0 && (at[length] == '\0' || strncmp(at + length, ", ", 2) == 0))
            return true;
    return false;
}

/* Adds a list whose items are wrong where the other one lacks them; "none" is no item. */
static void add_items(const char *list, const char *other, struct text *out)
{
    for (const char *at = list, *end; *at; at = *end ? end + 2 : end) {
        end = strstr(at, ", ");
        if (!end) end = at + strlen(at);
        char *item = text_format("%.*s", (int)(end - at), at);
        bool wrong = strcmp(list, "none") != 0 && !has_item(other, at, (size_t)(end - at));
        text_add(out, "%s%s", at == list ? "" : ", ", wrong ? "<span class=\"bad\">" : "");
        text_html(out, item);
        text_add(out, wrong ? "</span>" : "");
        free(item);
    }
}

/* A class is wrong, and so are labels of one list alone; a number is only more or less far off. */
static void add_answers(const json_t *mistake, bool number, struct text *out)
{
    const char *label = text_of(mistake, "label"), *predicted = text_of(mistake, "predicted");
    const json_t *loss = json_object_get(mistake, "loss");
    if (loss && !number) add_items(label, predicted, out);
    else text_html(out, label);
    text_add(out, ", predicted as<br/>%s", loss ? "" : "<span class=\"bad\">");
    if (loss && !number) add_items(predicted, label, out);
    else text_html(out, predicted);
    if (loss) text_add(out, " (loss %.4g)", json_number_value(loss));
    else text_add(out, " %.1f %%</span>", 100 * json_number_value(json_object_get(mistake, "confidence")));
}

static void add_mistake(const json_t *mistake, bool number, struct text *out)
{
    bool is_small = json_integer_value(json_object_get(mistake, "height")) < 64;
    text_add(out, "<figure title=\"");
    text_html(out, text_of(mistake, "image"));
    text_add(out, "\">");
    add_jpeg(text_of(mistake, "picture"), is_small, out);
    add_jpeg(text_of(mistake, "explanation"), is_small, out);
    add_answers(mistake, number, out);
    text_add(out, "<br/><span class=\"grey\">");
    add_file_name(mistake, out);
    text_add(out, "</span></figure>\n");
}

void report_add_mistakes(const struct run_records *records, struct text *out)
{
    size_t i;
    const json_t *mistake;
    json_t *mistakes = records_json(records, MISTAKES_FILE);
    if (json_array_size(mistakes) > 0) {
        bool losses = json_object_get(json_array_get(mistakes, 0), "loss");
        bool strips = !json_object_get(json_array_get(mistakes, 0), "label");
        html_section(out, "mistakes", losses ? "Largest losses" : "Most confident mistakes");
        const char *what = strips   ? "the image, the truth, the prediction, and in red what is wrong; black "
                                      "pixels do not count"
                           : losses ? "the truth, and the prediction with its loss"
                                    : "the true class, and the predicted class with its probability; below "
                                      "it, where the network saw that (Grad-CAM)";
        text_add(out, "<p class=\"grey\">Validation images in the best epoch: %s.</p>\n"
                 "<div class=\"pictures%s\">\n", what, strips ? " strips" : "");
        bool number = strcmp(records_start_text(records, "task"), "regress") == 0;
        json_array_foreach(mistakes, i, mistake) {
            if (strips) add_strip(mistake, out);
            else add_mistake(mistake, number, out);
        }
        text_add(out, "</div>\n");
    }
    json_decref(mistakes);
}
