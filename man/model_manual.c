/* model_manual.c: writes amptrain-model(5): its hand-written frame, read from standard input, with
 * every op's own words where a line says @OPS@. */
#include <stdio.h>
#include <string.h>

#include "kernels/op.h"

static void inputs(const struct op *op, struct text *sentence)
{
    text_add(sentence, "%s", op->help);
    int least = op->min_inputs ? op->min_inputs : 1, most = op->max_inputs ? op->max_inputs : 1;
    if (most == 1) return;
    text_add(sentence, " Takes %d ", least);
    if (most == OP_MAX_INPUTS) text_add(sentence, "or more inputs.");
    else if (most == least) text_add(sentence, "inputs.");
    else text_add(sentence, "to %d inputs.", most);
}

static void setting(const struct field *field, struct text *page)
{
    struct text plain = {0};
    field_kind(field, &plain);
    text_add(page, ".TP\n.BI \"%s=\" \"", field->name);
    text_manual(page, plain.data);
    text_add(page, "\"\n");
    text_free(&plain);
    text_add(&plain, "%s ", field->help);
    if (!field->initial) text_add(&plain, "Required");
    else text_add(&plain, "Default: %s", field->initial[0] ? field->initial : "empty");
    if (field->min != 0 || field->max != 0) text_add(&plain, "; ");
    field_range(field, &plain);
    text_add(&plain, ".");
    text_manual(page, plain.data);
    text_add(page, "\n");
    text_free(&plain);
}

static void ops(struct text *page)
{
    for (const struct op *const *op = op_table; *op; op++) {
        struct text sentence = {0};
        if ((*op)->internal) continue;
        text_add(page, ".SS %s\n", (*op)->name);
        inputs(*op, &sentence);
        text_manual(page, sentence.data);
        text_add(page, "\n");
        text_free(&sentence);
        for (const struct field *field = (*op)->fields; field && field->name; field++) setting(field, page);
    }
}

int main(void)
{
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "@OPS@\n") != 0) {
            fputs(line, stdout);
            continue;
        }
        struct text page = {0};
        ops(&page);
        fputs(page.data, stdout);
        text_free(&page);
    }
    return ferror(stdin) || fflush(stdout) != 0;
}
