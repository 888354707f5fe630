/* Programs in text: what is read has a text, which is read again, and can be planned or is refused; one pass
 * takes it, or says why not. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/ir/dump.h"
#include "compile/ir/parse.h"
#include "compile/memory/plan.h"
#include "compile/pass_text.h"
#include "compile/passes.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

static void try_again(const struct program *program)
{
    struct text text = {0}, again = {0};
    struct program read;
    program_dump(program, &text);
    fuzz_must(fuzz_good(program_parse("fuzz.txt", text.data, &read), "fuzz.txt"));
    program_dump(&read, &again);
    fuzz_must(strcmp(text.data, again.data) == 0);
    text_free(&text);
    text_free(&again);
    program_free(&read);
}

static void try_plan(const struct program *program)
{
    struct plan plan;
    struct reason reason = fuzz_reason();
    if (!fuzz_good(plan_make(program, true, 0.001, &plan), "the memory plan")) return;
    fuzz_must(plan_verify(program, &plan, &reason));
    plan_free(&plan);
}

static void try_pass(const char *text, const uint8_t *data, size_t size)
{
    struct random random = fuzz_random(data, size);
    struct text made = {0};
    struct program read;
    int count;
    const struct pass *passes = passes_table(&count);
    const char *pass = passes[random_below(&random, (uint32_t)count)].name;
    if (fuzz_good(pass_text("fuzz.txt", text, pass, NULL, &made), "")) {
        fuzz_must(fuzz_good(program_parse("fuzz.txt", made.data, &read), "fuzz.txt"));
        program_free(&read);
    }
    text_free(&made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = text_format("%.*s", (int)size, size ? (const char *)data : "");
    struct program program;
    if (fuzz_good(program_parse("fuzz.txt", text, &program), "fuzz.txt")) {
        try_again(&program);
        try_plan(&program);
        program_free(&program);
        try_pass(text, data, size);
    }
    free(text);
    return 0;
}
