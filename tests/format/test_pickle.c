/* The limits of pickles, which is compiled here with at most 64 values (tests/train.mk): whatever makes or
 * stacks one too many is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "format/pickle.h"
#include "tests/support/unit.h"

static const struct pickle_global globals[] = {{"argparse", "Namespace", 0, false},
                                               {"collections", "OrderedDict", 0, true}, {0}};

/* `count` times `code`, which is a text, after `before`, and then `end`. */
static bool reads(const char *before, const char *code, int count, const char *end, struct reason *reason)
{
    struct text text = {0};
    struct pickle pickle;
    text_add(&text, "%s", before);
    for (int i = 0; i < count; i++) text_add(&text, "%s", code);
    text_add(&text, "%s", end);
    bool good = pickle_read(text.data, text.length, globals, &pickle, reason);
    if (good) pickle_free(&pickle);
    text_free(&text);
    return good;
}

/* Opcodes that fill a limit, and how often they fit. */
static void repeated(void **state)
{
    static const struct {
        const char *before, *code, *end;
        int most;
    } rows[] = {
        {"", "N", ".", 64},                      /* on the stack */
        {"", "]", ".", 64},
        {"N", "2", ".", 63},
        {"Nq\1", "h\1", ".", 63},
        {"", "(", "N.", 64},                     /* marks */
        {"N", "K\1" "0", ".", 63},               /* values, of which one stands for nothing */
        {"N", "M\1\1" "0", ".", 63},
        {"N", "J\1\1\1\1" "0", ".", 63},
        {"N", "\x8a\1\1" "0", ".", 63},
        {"N", "U\1x" "0", ".", 63},
        {"N", ")0", ".", 63},
        {"N", "}0", ".", 63},
        {"N", "(d0", ".", 63},
        {"N", "NQ0", ".", 63},
        {"N", "cargparse\nNamespace\n0", ".", 63},
        {"N", "cargparse\nNamespace\n)R0", ".", 21},
        {"N", "ccollections\nOrderedDict\n)R0", ".", 21},
        {"N", "N\x85" "0", ".", 63},
        {"N", "NN\x86" "0", ".", 32},            /* items of tuples */
        {"N", "(NNNNt0", ".", 16},
        {"}", "NNs", ".", 64},                   /* pairs of dictionaries */
        {"}", "(NNNNu", ".", 32},
        {"N", "(NNNNd0", ".", 32},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reason reason = {.text = ""};
        if (!reads(rows[i].before, rows[i].code, rows[i].most, rows[i].end, &reason))
            fail_msg("%d times %s: %s", rows[i].most, rows[i].code, reason.text);
        if (reads(rows[i].before, rows[i].code, rows[i].most + 1, rows[i].end, &reason))
            fail_msg("%d times %s is accepted", rows[i].most + 1, rows[i].code);
        if (!strstr(reason.text, "more than 64 values")) fail_msg("%s: %s", rows[i].code, reason.text);
    }
}

/* Opcodes that leave one more on a full stack. */
static void on_a_full_stack(void **state)
{
    static const char *const codes[] = {
        "K\1.", "M\1\1.", "J\1\1\1\1.", "\x8a\1\1.", "\212\011123456789.", "U\1x.", "C\1x.",
        "G12345678.", ").", "}.", "].", "h\1.", "2.", "(l.", "(t.", "(d.", "cargparse\nNamespace\n.",
    };
    struct reason reason;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (!reads("Nq\1", "N", 62, codes[i], &reason)) fail_msg("%s: %s", codes[i], reason.text);
        if (reads("Nq\1", "N", 63, codes[i], &reason)) fail_msg("%s is accepted", codes[i]);
        if (!strstr(reason.text, "more than 64 values")) fail_msg("%s: %s", codes[i], reason.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(repeated), cmocka_unit_test(on_a_full_stack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
