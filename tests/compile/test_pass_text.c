/* test_pass_text: every pass and every rule on every program in text: those of tests/dumps, those that each
 * pass makes of several networks, and such texts with a few words changed. What a pass takes becomes a
 * program that has a text and can be planned; the rest is refused by name. Nothing ends the program. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "compile/compile.h"
#include "compile/ir/dump.h"
#include "compile/ir/parse.h"
#include "compile/pass_text.h"
#include "compile/passes.h"
#include "compile/rewrite/rule.h"
#include "tests/support/caught.h"
#include "tests/support/net.h"
#include "tests/support/rounds.h"

#include <cmocka.h>   /* after ours: its fail() is a macro */

#define FOLDER SOURCEDIR "/tests/dumps"
#define WORDS 200

/* Programs in text, each with a name for messages. */
struct texts {
    struct named { char *name, *text; } *of;
    int count;
};

static void texts_add(struct texts *texts, char *name, char *text)
{
    *array_push(texts->of, texts->count) = (struct named){name, text};
}

static void texts_free(struct texts *texts)
{
    for (int i = 0; i < texts->count; i++) {
        free(texts->of[i].name);
        free(texts->of[i].text);
    }
    free(texts->of);
}

/* The text that is being tried, for whoever looks on. */
static char *trying;

static bool fails(const char *why, const struct caught *caught)
{
    dprintf(caught->shown, "# %s: %s\n%s", trying, why, caught->words.data);
    return false;
}

static bool has_text(const char *text)
{
    struct program program;
    struct text again = {0};
    if (program_parse("made.txt", text, &program) != OK) return false;
    program_dump(&program, &again);
    bool same = strcmp(again.data, text) == 0;
    text_free(&again);
    program_free(&program);
    return same;
}

/* True if the pass takes the program, or says why not. A program that was changed may be any, and so may what
 * is made of it: it is then refused, too. */
static bool try_pass(const struct named *program, const char *pass, bool changed)
{
    struct caught caught;
    struct text made = {0};
    bool good = true;
    snprintf(trying, WORDS, "%s, pass %s", program->name, pass);
    caught_begin(&caught);
    enum status status = pass_text("program.txt", program->text, pass, NULL, &made);
    if (status == OK && (caught.errors > 0 || !has_text(made.data)))
        good = fails("what is made has no text", &caught);
    if (status != OK && caught.errors == 0) good = fails("nothing is said", &caught);
    if (!changed && strstr(caught.words.data, "after the pass")) good = fails("an invalid program", &caught);
    text_free(&made);
    caught_end(&caught);
    text_free(&caught.words);
    return good;
}

static bool try_passes(const struct named *program, bool changed)
{
    int count, rule_count;
    bool good = true;
    const struct pass *passes = passes_table(&count);
    const struct rule *rules = rules_table(&rule_count);
    for (int i = 0; i < count; i++) good = try_pass(program, passes[i].name, changed) && good;
    for (int i = 0; i < rule_count; i++)
        if (strcmp(rules[i].name, rules[i].pass) != 0)
            good = try_pass(program, rules[i].name, changed) && good;
    return good;
}

/* Tries all in a process of its own, which must not end otherwise. */
static bool survives(const struct named *program, bool (*attempt)(const struct named *program))
{
    int ended = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(attempt(program) ? 0 : 3);
    if (child < 0 || waitpid(child, &ended, 0) != child) return false;
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return true;
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 3) fprintf(stderr, "# the program ended: %s\n", trying);
    return false;
}

static void all_survive(const struct texts *texts, bool (*attempt)(const struct named *program))
{
    int bad = 0;
    for (int i = 0; i < texts->count; i++) bad += !survives(&texts->of[i], attempt);
    if (bad > 0) fail_msg("%d of %d programs", bad, texts->count);
}

/* The program with its options, and some with others, under which more passes run. */
static bool try_options(const struct named *program)
{
    bool has = strncmp(program->text, "options ", 8) == 0;
    const char *rest = has ? strchr(program->text, '\n') + 1 : program->text;
    struct named other = {text_format("%s with other options", program->name),
                          text_format("options fold=1 stages=2 offload=yes offload_least=1 streams=2 "
                                      "recompute=0\n%s", rest)};
    bool good = try_passes(program, false);
    if (strlen(program->text) % (size_t)rounds(4, 1) == 0) good = try_passes(&other, true) && good;
    free(other.name);
    free(other.text);
    return good;
}

/* ---- The texts of tests/dumps ---- */

static char *file_read(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    char *text = memory_new(size + 1, 1);
    rewind(file);
    assert_int_equal(fread(text, 1, size, file), size);
    fclose(file);
    return text;
}

/* A file has a program, and what becomes of it: all with its first lines, the options and the network, unless
 * they bring their own. */
static void split(const char *name, const char *text, struct texts *texts)
{
    static const char after[] = "\nafter ";
    const char *end = strstr(text, "\nprogram ") + 1, *next;
    for (const char *from = text; from; from = next) {
        next = strstr(from, after);
        int length = next ? (int)(next + 1 - from) : (int)strlen(from);
        bool whole = from == text || strncmp(from, "program ", 8) != 0;
        texts_add(texts, text_format("%s %d", name, texts->count),
                  text_format("%.*s%.*s", whole ? 0 : (int)(end - text), text, length, from));
        if (next) next += strlen(after) + strcspn(next + strlen(after), "\n") + 1;
    }
}

static struct texts dumps_find(void)
{
    struct texts texts = {0};
    struct dirent **entries;
    int count = scandir(FOLDER, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char *path = text_format(FOLDER "/%s", entries[i]->d_name);
        if (text_ends_in(path, ".txt")) {
            char *text = file_read(path);
            split(entries[i]->d_name, text, &texts);
            free(text);
        }
        free(path);
        free(entries[i]);
    }
    free(entries);
    return texts;
}

static void test_dumps(void **state)
{
    (void)state;
    struct texts texts = dumps_find();
    assert_true(texts.count > 120);
    all_survive(&texts, try_options);
    texts_free(&texts);
}

/* ---- The texts of networks after each pass ---- */

struct noted {
    struct texts texts;
    const char *name, *options;
};

static void note(const char *pass, const struct program *program, void *context)
{
    struct noted *noted = context;
    struct text text = {0};
    program_dump(program, &text);
    texts_add(&noted->texts, text_format("%s after %s", noted->name, pass),
              text_format("options %s\n%s", noted->options, text.data));
    text_free(&text);
}

static void note_network(struct noted *noted, const char *name, const char *network,
                         const struct compile_options *options)
{
    struct compile_options noting = *options;
    struct compiled compiled;
    struct graph graph = net_graph(network, false);
    noted->name = name;
    noting.after = note;
    noting.context = noted;
    assert_int_equal(compile_plan(&graph, &noting, &compiled), OK);
    compiled_free(&compiled);
    graph_free(&graph);
}

static const char transformer[] =
    "[input]\n"
    "channels = 3\n"
    "size = 8\n"
    "[layers]\n"
    "patches = conv input filters=8 kernel=4 stride=4\n"
    "places = position patches\n"
    "norm = layernorm places\n"
    "qkv = linear norm units=24 per_pixel=yes\n"
    "attention = attention qkv heads=2\n"
    "add = add attention places\n"
    "up = linear add units=16 per_pixel=yes\n"
    "gelu = gelu up\n"
    "down = linear gelu units=8 per_pixel=yes\n"
    "mean = globalavgpool down\n"
    "fc = linear mean units=5\n";

/* In fp32 and 16 bits; alone, as one of two ranks, as one of two stages. */
static struct texts networks_note(void)
{
    const char *const networks[][2] = {{"mixed", net_mixed}, {"plain", net_plain}, {"tokens", transformer}};
    struct compile_options options[5];
    struct noted noted = {.options = "streams=2 fold=1 recompute=0"};
    for (int k = 0; k < 5; k++)
        options[k] = (struct compile_options){
            .lower = {.batch = 8, .micro_batches = k == 1 || k == 3 ? 2 : 1, .training = k < 4,
                      .storage = k % 2 ? F16 : F32, .fold_least = k == 1,
                      .all_micro_batches = k == 2 ? 2 : 0},
            .kernel_plans = {.code_of = kernel_plans_code(DEVICE_CPU)}, .streams = 1 + k % 2,
            .fit = k == 0 ? FIT_OFFLOAD : FIT_RECOMPUTE, .budget.batches = 1,
        };
    options[3].cut = (struct cut_options){.stages = 2, .schedule = PIPELINE_1F1B};
    for (size_t n = 0; n < sizeof networks / sizeof *networks; n++)
        for (int k = 0; k < 5; k++)
            if (rounds(0, 1) || k % 3 == (int)n)
                note_network(&noted, networks[n][0], networks[n][1], &options[k]);
    return noted.texts;
}

static void test_networks(void **state)
{
    (void)state;
    struct texts texts = networks_note();
    all_survive(&texts, try_options);
    texts_free(&texts);
}

/* ---- Changed texts ---- */

/* Where a word, or a line, of a text begins that is drawn. */
static size_t drawn(const char *text, size_t length, char end, struct random *random)
{
    size_t at = random_below(random, (uint32_t)length);
    while (at > 0 && text[at - 1] != end && text[at - 1] != '\n') at--;
    return at;
}

/* A word takes the place of another one, a line vanishes, is doubled, or moves: most texts stay programs. */
static char *change(const char *text, struct random *random)
{
    size_t length = strlen(text);
    char end = random_below(random, 3) > 0 ? ' ' : '\n';
    size_t to = drawn(text, length, end, random), from = drawn(text, length, end, random);
    int gone = (int)strcspn(text + to, end == ' ' ? " \n" : "\n"), come = (int)strcspn(text + from, " \n");
    if (end == '\n') come = (int)strcspn(text + from, "\n");
    if (end == '\n' && random_below(random, 2) == 0) come = 0, gone += text[to + (size_t)gone] != '\0';
    return text_format("%.*s%.*s%s", (int)to, text, come, text + from, text + to + gone);
}

static bool try_changed(const struct named *program)
{
    bool good = true;
    struct random random = random_open((uint64_t)rounds(1, 2), PURPOSE_TEST, 7, strlen(program->text));
    for (long i = rounds(3, 1000); i > 0; i--) {
        struct named changed = {program->name, change(program->text, &random)};
        struct program read;
        struct caught caught;
        caught_begin(&caught);
        bool valid = program_parse("program.txt", changed.text, &read) == OK;
        caught_end(&caught);
        text_free(&caught.words);
        if (valid) program_free(&read);
        if (valid) good = try_passes(&changed, true) && good;
        free(changed.text);
    }
    return good;
}

static void test_changed(void **state)
{
    (void)state;
    struct texts texts = dumps_find();
    all_survive(&texts, try_changed);
    texts_free(&texts);
}

int main(void)
{
    trying = mmap(NULL, WORDS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dumps),
        cmocka_unit_test(test_networks),
        cmocka_unit_test(test_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
