/* dataset_classes.c: gives the classes of a data set the numbers that they have elsewhere, by their names. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text_form.h"
#include "data/dataset/dataset.h"

/* Names that a message lists of each list of classes. */
#define LISTED 8
#define NAME_ROOM 128

struct class_name {
    const char *name;
    int number;
};

/* Gives classes without a number that of the known class whose name differs in its Unicode form alone. */
static void match_forms(const struct dataset *dataset, const struct dataset_options *options, int *numbers)
{
    size_t known = (size_t)options->class_count;
    struct class_name *sorted = memory_new(known + 1, sizeof *sorted);
    char shown[2][NAME_ROOM];
    for (size_t i = 0; i < known; i++)
        sorted[i] = (struct class_name){text_decomposed(options->class_names[i], false), (int)i};
    qsort(sorted, known, sizeof *sorted, text_compare);
    for (int i = 0; i < dataset->classes; i++) {
        if (numbers[i] >= 0) continue;
        char *name = text_decomposed(dataset->class_names[i], false);
        const struct class_name wanted = {name, 0};
        const struct class_name *found = bsearch(&wanted, sorted, known, sizeof *sorted, text_compare);
        free(name);
        if (!found) continue;
        numbers[i] = found->number;
        log_warning("%s: class '%s' is taken for '%s', the same name in another Unicode form",
                    options->path ? options->path : dataset->format->name,
                    text_visible(dataset->class_names[i], shown[0], NAME_ROOM),
                    text_visible(options->class_names[found->number], shown[1], NAME_ROOM));
    }
    for (size_t i = 0; i < known; i++) free((char *)sorted[i].name);
    free(sorted);
}

/* The number that each class of the files has among the known ones; -1: none. */
static int *find_numbers(const struct dataset *dataset, const struct dataset_options *options)
{
    size_t known = (size_t)options->class_count, classes = (size_t)dataset->classes;
    struct class_name *sorted = memory_new(known + 1, sizeof *sorted);
    int *numbers = memory_new(classes + 1, sizeof *numbers);
    bool some_unknown = false;
    for (size_t i = 0; i < known; i++) sorted[i] = (struct class_name){options->class_names[i], (int)i};
    qsort(sorted, known, sizeof *sorted, text_compare);
    for (size_t i = 0; i < classes; i++) {
        const struct class_name wanted = {dataset->class_names[i], 0};
        const struct class_name *found = bsearch(&wanted, sorted, known, sizeof *sorted, text_compare);
        numbers[i] = found ? found->number : -1;
        some_unknown = some_unknown || !found;
    }
    free(sorted);
    if (some_unknown) match_forms(dataset, options, numbers);
    return numbers;
}

/* The first class that images have and that has no number; of labels, the first that has none. -1: there is
 * none. */
static int first_unknown(const struct dataset *dataset, const int *numbers)
{
    int first = -1;
    for (int i = dataset->classes - 1; i >= 0; i--)
        if (numbers[i] < 0) first = i;
    bool all = first < 0;
    if (all || dataset->target != TARGET_CLASS) return first;
    first = -1;
    for (int64_t i = 0; !all && i < dataset->count; i++) {
        int label = dataset->format->label(dataset, i);
        if (numbers[label] < 0 && (first < 0 || label < first)) first = label;
    }
    return first;
}

static void add_names(char *const *names, int count, struct text *out)
{
    char shown[NAME_ROOM];
    for (int i = 0; i < count && i < LISTED; i++)
        text_add(out, "%s%s", i ? ", " : "", text_visible(names[i], shown, sizeof shown));
    if (count > LISTED) text_add(out, " and %d more", count - LISTED);
}

static enum status refuse(const struct dataset *dataset, const struct dataset_options *options, int unknown)
{
    struct text text = {0};
    char shown[NAME_ROOM];
    text_add(&text, "class '%s' is not one of the %d known ones (",
             text_visible(dataset->class_names[unknown], shown, sizeof shown), options->class_count);
    add_names(options->class_names, options->class_count, &text);
    text_add(&text, "); the data have ");
    add_names(dataset->class_names, dataset->classes, &text);
    enum status status =
        fail(BAD_DATA, "%s: %s", options->path ? options->path : dataset->format->name, text.data);
    text_free(&text);
    return status;
}

/* True if a known class is named by a number that is not its own: then only names can tell which is meant. */
static bool names_are_numbers(const struct dataset_options *options)
{
    for (int i = 0; i < options->class_count; i++) {
        const char *name = options->class_names[i];
        char *end;
        long number = strtol(name, &end, 10);
        if (*name && *end == '\0' && number != i) return true;
    }
    return false;
}

/* Labels of files that name no classes are the numbers of the known ones. */
static bool take_as_numbers(const struct dataset *dataset, const struct dataset_options *options)
{
    char shown[NAME_ROOM];
    bool more = dataset->target == TARGET_LABELS && dataset->classes > options->class_count;
    if (!dataset->numbered || names_are_numbers(options) || more) return false;
    for (int64_t i = 0; i < dataset->count; i++)
        if (dataset->format->label(dataset, i) >= options->class_count) return false;
    log_warning("%s: its classes are numbers: 0 is taken to be '%s', and so on",
                options->path ? options->path : dataset->format->name,
                text_visible(options->class_names[0], shown, sizeof shown));
    return true;
}

static bool is_identity(const int *numbers, int count)
{
    for (int i = 0; i < count; i++)
        if (numbers[i] != i) return false;
    return true;
}

enum status dataset_number_classes(const struct dataset_options *options, struct dataset *dataset)
{
    if (!options->class_names) return OK;
    int *numbers = find_numbers(dataset, options), unknown = first_unknown(dataset, numbers);
    bool as_numbers = unknown >= 0 && take_as_numbers(dataset, options);
    enum status status = unknown >= 0 && !as_numbers ? refuse(dataset, options, unknown) : OK;
    if (status != OK || as_numbers || is_identity(numbers, dataset->classes)) {
        free(numbers);
        numbers = NULL;
    }
    TRY(status);
    text_list_free(dataset->class_names, (size_t)dataset->classes);
    dataset->class_names = text_list(options->class_names, options->class_count, options->class_count);
    dataset->classes = options->class_count;
    dataset->numbers = numbers;
    return OK;
}
