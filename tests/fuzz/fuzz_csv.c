/* Tables of labels: what is read is whole, and read again in a plain form it is the same. */
#include "fuzz.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "data/formats/csv_table.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

static void check_labels(const struct csv_table *table)
{
    fuzz_must((table->kind == TARGET_NUMBER) == (table->numbers != NULL));
    fuzz_must((table->kind == TARGET_MASK) == (table->masks != NULL));
    if (table->kind == TARGET_NUMBER) return;
    for (int64_t i = 0; table->masks && i < table->count; i++) fuzz_must(*table->masks[i]);
    if (table->masks) return;
    int64_t labels = table->begins ? table->begins[table->count] : table->count;
    for (int64_t i = 0; table->begins && i < table->count; i++)
        fuzz_must(table->begins[i] >= 0 && table->begins[i] <= table->begins[i + 1]);
    for (int64_t i = 0; i < labels; i++)
        fuzz_must(table->labels[i] >= 0 && table->labels[i] < table->classes);
}

/* A field that reads back as the same. */
static void add_field(struct text *out, const char *field, char end)
{
    text_add(out, "\"");
    for (; *field; field++) text_add(out, *field == '"' ? "\"\"" : "%c", *field);
    text_add(out, "\"%c", end);
}

static void add_target(struct text *out, const struct csv_table *table, int64_t image)
{
    if (table->kind == TARGET_NUMBER) text_add(out, "%.17g\n", table->numbers[image]);
    else if (table->masks) add_field(out, table->masks[image], '\n');
    else add_field(out, table->names[table->labels[image]], '\n');
}

/* Sets are compared by their sizes alone: a name in a column of its own may have any characters. */
static void read_again(const struct csv_table *table)
{
    struct csv_table again;
    struct text text = {0};
    if (table->begins) return;
    text_add(&text, "path,%s\n", table->masks ? "mask" : table->kind == TARGET_NUMBER ? "value" : "label");
    for (int64_t i = 0; i < table->count; i++) {
        add_field(&text, table->paths[i], ',');
        add_target(&text, table, i);
    }
    const char *path = fuzz_write("again.csv", (const uint8_t *)text.data, text.length);
    enum target_kind kind = table->masks ? TARGET_MASK : TARGET_ANY;
    fuzz_must(csv_table_read(path, kind, NULL, &again) == OK && again.count == table->count);
    for (int64_t i = 0; i < table->count; i++) {
        fuzz_must(strcmp(again.paths[i], table->paths[i]) == 0);
        if (table->masks) fuzz_must(strcmp(again.masks[i], table->masks[i]) == 0);
        else if (table->kind == TARGET_NUMBER) fuzz_must(again.numbers[i] == table->numbers[i]);
        else fuzz_must(strcmp(again.names[again.labels[i]], table->names[table->labels[i]]) == 0);
    }
    csv_table_free(&again);
    text_free(&text);
}

static void read_as(const char *name, const uint8_t *data, size_t size)
{
    const char *path = fuzz_write(name, data, size);
    for (enum target_kind kind = TARGET_ANY; kind <= TARGET_MASK; kind++) {
        struct csv_table table;
        if (!fuzz_good(csv_table_read(path, kind, NULL, &table), name)) continue;
        fuzz_must(table.count > 0 && (table.classes > 0 || table.kind == TARGET_LABELS || table.masks));
        fuzz_must(kind == TARGET_ANY || table.kind == kind);
        for (int64_t i = 0; i < table.count; i++) fuzz_must(*table.paths[i]);
        for (int64_t i = 0; i < table.count; i++) fuzz_must(csv_table_line(&table, i) >= i + 2);
        check_labels(&table);
        read_again(&table);
        csv_table_free(&table);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct csv_table table;
    read_as("fuzz.csv", data, size);
    read_as("fuzz.jsonl", data, size);
    read_as("fuzz.json", data, size);
    const char *path = fuzz_write("fuzz.csv", data, size);
    if (fuzz_good(csv_table_read(path, TARGET_ANY, "image:a,labels:b,labels:c", &table), "fuzz.csv"))
        csv_table_free(&table);
    return 0;
}
