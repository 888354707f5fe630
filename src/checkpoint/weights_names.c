#include "checkpoint/weights_names.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/search_paths.h"
#include "base/text.h"
#include "conf/ini.h"

#define PARTS_MAX 9             /* wildcards of a pattern */
#define SIDE_MAX 10000          /* of images */
#define TOKENS_MAX 1000000      /* in front of those of an image */

const char *const weights_libraries[] = {"torchvision", "timm", "hf", "smp", "nnunet", NULL};

/* ---- The file ---- */

/* "[0,-1,1,1]" */
static bool parse_shape(const char *text, struct shape *shape)
{
    *shape = (struct shape){.dim = {1, 1, 1, 1}};
    if (*text++ != '[') return false;
    do {
        char *end;
        if (shape->rank == 4) return false;
        shape->dim[shape->rank++] = strtoll(text, &end, 10);
        if (end == text) return false;
        text = end;
    } while (*text++ == ',');
    return text[-1] == ']' && *text == '\0';
}

/* A line "@KEY = NUMBERS", "@interpolation = WORD", or "@encoder = NETWORK". */
static enum status take_usual(struct weights_names *names, const struct ini_entry *entry)
{
    struct weights_usual *usual = &names->usual;
    const struct {
        const char *key;
        double *numbers;
        int *number;
        int count;
        double least, most;
    } rows[] = {{"@mean", usual->mean, NULL, 3, 0, 1}, {"@std", usual->std, NULL, 3, 1e-3, 1},
                {"@norm_eps", &usual->norm_eps, NULL, 1, 1e-20, 1},
                {"@crop", NULL, &usual->crop, 1, 1, SIDE_MAX},
                {"@resize", NULL, &usual->resize, 1, 1, SIDE_MAX}};
    if (strcmp(entry->key, "@encoder") == 0 && !names->encoder) {
        names->encoder = text_copy(entry->value);
        return OK;
    }
    static const char *const interpolations[] = {"bilinear", "bicubic"};
    for (int i = 0; i < 2 && strcmp(entry->key, "@interpolation") == 0; i++)
        if (strcmp(entry->value, interpolations[i]) == 0) return usual->interpolation = interpolations[i], OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double three[3];
        bool good = true;
        if (strcmp(entry->key, rows[i].key) != 0) continue;
        if (sscanf(entry->value, "%lf %lf %lf", &three[0], &three[1], &three[2]) != rows[i].count) break;
        for (int k = 0; k < rows[i].count; k++)
            good = good && three[k] >= rows[i].least && three[k] <= rows[i].most;
        if (!good) return fail(USAGE, "%s:%d: %s must be between %g and %g, not %s", names->file, entry->line,
                               entry->key, rows[i].least, rows[i].most, entry->value);
        if (rows[i].numbers) memcpy(rows[i].numbers, three, (size_t)rows[i].count * sizeof *three);
        else *rows[i].number = (int)three[0];
        return OK;
    }
    return fail(USAGE, "%s:%d: '%s = %s' is neither @mean or @std with three numbers, nor @crop, @resize or "
                "@norm_eps with one, nor @interpolation with bilinear or bicubic", names->file, entry->line,
                entry->key, entry->value);
}

static enum status add_rule(struct weights_names *names, const struct ini_entry *entry)
{
    bool second = *entry->key == '&';
    struct weights_rule *rule = second ? array_push(names->second, names->second_count)
                                       : array_push(names->rules, names->count);
    size_t length = strcspn(entry->value, " ");
    *rule = (struct weights_rule){.pattern = text_copy(entry->key + second),
                                  .name = text_format("%.*s", (int)length, entry->value)};
    const char *shape = entry->value + length + strspn(entry->value + length, " ");
    if (length > 0 && (*shape == '\0' || parse_shape(shape, &rule->shape))) return OK;
    return fail(USAGE, "%s:%d: '%s' is not a name, or a name and a shape such as [0,-1,1,1]", names->file,
                entry->line, entry->value);
}

static bool is_for(const char *section, const char *arch)
{
    char *patterns = text_copy(section), *rest = NULL;
    bool found = false;
    for (char *word = strtok_r(patterns, " ", &rest); word && !found; word = strtok_r(NULL, " ", &rest))
        found = fnmatch(word, arch, 0) == 0;
    free(patterns);
    return found;
}

static enum status take_rules(const struct ini *ini, const char *arch, struct weights_names *names)
{
    for (int i = 0; i < ini->count; i++) {
        if (!is_for(ini->entries[i].section, arch)) continue;
        names->known = true;
        const char *key = ini->entries[i].key;
        if (key) TRY(*key == '@' ? take_usual(names, &ini->entries[i]) : add_rule(names, &ini->entries[i]));
    }
    return OK;
}

static char *find_file(const char *library)
{
    struct search_paths paths = search_paths_find();
    char *found = NULL;
    for (int i = 0; paths.models[i] && !found; i++) {
        found = text_format("%s/%s.names", paths.models[i], library);
        if (access(found, F_OK) == 0) break;
        free(found);
        found = NULL;
    }
    search_paths_free(&paths);
    return found;
}

enum status weights_names_open(const char *library, const char *arch, struct weights_names *names)
{
    struct weights_names opened = {
        .file = find_file(library),
        .usual = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}, 224, 256, "bilinear", 0},
    };
    struct ini ini;
    if (!opened.file) {
        *names = opened;
        return OK;
    }
    enum status status = ini_read(opened.file, &ini);
    if (status == OK) {
        status = take_rules(&ini, arch, &opened);
        ini_free(&ini);
    }
    if (status == OK) *names = opened;
    else weights_names_close(&opened);
    return status;
}

enum status weights_names_open_any(const char *library, const char *arch, struct weights_names *names)
{
    if (library) return weights_names_open(library, arch, names);
    for (int i = 0; weights_libraries[i]; i++) {
        TRY(weights_names_open(weights_libraries[i], arch, names));
        if (names->known) break;
        if (weights_libraries[i + 1]) weights_names_close(names);
    }
    return OK;
}

static void rules_free(struct weights_rule *rules, int count)
{
    for (int i = 0; i < count; i++) {
        free(rules[i].pattern);
        free(rules[i].name);
    }
    free(rules);
}

enum status weights_names_open_second(const char *arch, struct weights_names *names)
{
    struct weights_names opened;
    TRY(weights_names_open_any(NULL, arch, &opened));
    *names = (struct weights_names){.second = opened.second, .second_count = opened.second_count};
    opened.second = NULL;
    opened.second_count = 0;
    weights_names_close(&opened);
    return OK;
}

void weights_names_close(struct weights_names *names)
{
    rules_free(names->rules, names->count);
    rules_free(names->second, names->second_count);
    free(names->encoder);
    free(names->file);
    *names = (struct weights_names){0};
}

/* ---- Names ---- */

struct part {
    const char *start;
    int length;
};

/* True if a name is as the pattern says; a * stands for at least one character but no dot, and a ** for dots,
 * too. `parts`: what they stand for. */
static bool matches(const char *pattern, const char *name, struct part *parts, int count)
{
    while (*pattern && *pattern != '*' && *pattern == *name) pattern++, name++;
    if (*pattern != '*') return *pattern == '\0' && *name == '\0';
    bool any = pattern[1] == '*';
    if (count == PARTS_MAX) return false;
    for (int length = 1; name[length - 1] && (any || name[length - 1] != '.'); length++) {
        parts[count] = (struct part){name, length};
        if (matches(pattern + 1 + any, name + length, parts, count + 1)) return true;
    }
    return false;
}

/* "{2}", "{2+1}", "{2-1}", "{2/2}": a part, or a number made of it. Returns its length. */
static int add_part(struct text *text, const char *reference, const struct part *parts)
{
    int part = 0, operand = 0, length = 0;
    char sign = '\0';
    if (sscanf(reference, "{%1d}%n", &part, &length) == 1 && length > 0 && part > 0) {
        text_add(text, "%.*s", parts[part - 1].length, parts[part - 1].start);
        return length;
    }
    if (sscanf(reference, "{%1d%c%4d}%n", &part, &sign, &operand, &length) == 3 && length > 0 && part > 0) {
        int number = atoi(parts[part - 1].start);
        bool divides = sign == '/' && operand > 0;
        number = divides ? number / operand : sign == '-' ? number - operand : number + operand;
        text_add(text, "%d", number);
        return length;
    }
    text_add(text, "%c", *reference);
    return 1;
}

static char *substitute(const char *name, const struct part *parts, const char *leaf)
{
    struct text text = {0};
    while (*name) {
        if (*name == '{') name += add_part(&text, name, parts);
        else text_add(&text, "%c", *name++);
    }
    text_add(&text, "%s", leaf);
    return text.data;
}

/* Shapes of another number of elements are left as they are. */
static void reshape(const struct shape *rule, struct shape *shape)
{
    struct shape to = {.rank = rule->rank, .dim = {1, 1, 1, 1}};
    int64_t left = shape_count(*shape);
    int rest = -1;
    for (int i = 0; i < rule->rank; i++) {
        to.dim[i] = rule->dim[i] == 0 ? shape->dim[i] : rule->dim[i];
        if (to.dim[i] > 0 ? left % to.dim[i] != 0 : rest >= 0) return;
        if (to.dim[i] > 0) left /= to.dim[i];
        else rest = i;
    }
    if (rest < 0 && left != 1) return;
    if (rest >= 0) to.dim[rest] = left;
    *shape = to;
}

/* The parameter has the pattern's name, or its layer; then its own name stays, and vectors stay vectors. */
static char *apply_rule(const struct weights_rule *rule, char *name, struct shape *shape)
{
    struct part parts[PARTS_MAX] = {0};
    char *leaf = strrchr(name, '.'), *changed = NULL;
    bool own = matches(rule->pattern, name, parts, 0);
    if (own) {
        changed = substitute(rule->name, parts, "");
    } else if (leaf) {
        char *layer = text_format("%.*s", (int)(leaf - name), name);
        if (matches(rule->pattern, layer, parts, 0)) changed = substitute(rule->name, parts, leaf);
        free(layer);
    }
    if (!changed) return name;
    if (rule->shape.rank > 0 && (own || shape->rank > 1)) reshape(&rule->shape, shape);
    free(name);
    return changed;
}

char *weights_names_apply(const struct weights_names *names, const char *ours, struct shape *shape)
{
    char *name = text_copy(ours);
    for (int i = 0; i < names->count; i++) name = apply_rule(&names->rules[i], name, shape);
    return name;
}

int weights_names_second(const struct weights_names *names, const char *name,
                         char *second[WEIGHTS_SOURCES_MAX])
{
    struct shape unused = {0};
    int count = 0;
    for (int i = 0; i < names->second_count; i++)
        for (int k = 0, before = count; k <= before && count < WEIGHTS_SOURCES_MAX; k++) {
            const char *from = k > 0 ? second[k - 1] : name;
            second[count] = apply_rule(&names->second[i], text_copy(from), &unused);
            if (strcmp(second[count], from) == 0) free(second[count]);
            else count++;
        }
    return count;
}

/* ---- Tensors that are parts of ours ---- */

/* "A{b,c}D" */
static int divide_rows(const char *name, const char *open, struct shape shape, struct weights_part *parts)
{
    const char *close = strchr(open, '}'), *at = open + 1;
    int count = 1;
    for (const char *c = open; close && c < close; c++) count += *c == ',';
    if (!close || count > WEIGHTS_SOURCES_MAX || shape.dim[0] % count != 0) return 0;
    shape.dim[0] /= count;
    for (int i = 0; i < count; i++) {
        int length = (int)strcspn(at, ",}");
        parts[i] = (struct weights_part){
            .name = text_format("%.*s%.*s%s", (int)(open - name), name, length, at, close + 1),
            .shape = shape, .first = i * shape_count(shape),
        };
        at += length + 1;
    }
    return count;
}

int weights_names_divide(const struct weights_names *names, const char *expression, struct shape shape,
                         struct weights_part parts[WEIGHTS_SOURCES_MAX])
{
    const char *sign = names->count > 0 ? strpbrk(expression, WEIGHTS_SIGNS) : NULL;
    if (sign && *sign == '{') return divide_rows(expression, sign, shape, parts);
    int length = (int)(sign ? (size_t)(sign - expression) : strlen(expression));
    struct weights_part part = {.name = text_format("%.*s", length, expression), .shape = shape};
    if (sign && *sign == '[') {
        int64_t tokens = strtoll(sign + 1, NULL, 10);
        if (tokens < 1 || tokens > TOKENS_MAX || shape.rank != 3) {
            free(part.name);
            return 0;
        }
        part.zeros = tokens * shape.dim[2];
        part.shape.dim[1] += tokens;
    }
    if (sign && *sign == '|') {
        part.row = shape.dim[1];
        part.shape.dim[1] *= 2;
    }
    parts[0] = part;
    return 1;
}
