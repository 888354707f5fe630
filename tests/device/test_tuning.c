/* test_tuning: choices in the file of remembered algorithms: found again, whole beside others' writing, and
 * without harm from a file that is damaged or not there. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "device/cuda_tuning.h"
#include "tests/support/unit.h"

#define PATH_BYTES 256
#define WRITERS 8
#define CHOICES 20

/* Folders of a test: the cache, and the file in it. */
struct place {
    char cache[PATH_BYTES], file[PATH_BYTES];
};

static int place_open(void **state)
{
    static struct place place;
    const char *temporary = getenv("TMPDIR");
    snprintf(place.cache, sizeof place.cache, "%.100s/tuning.XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(place.cache)) return -1;
    snprintf(place.file, sizeof place.file, "%.200s/amptrain/algorithms", place.cache);
    *state = &place;
    return setenv("XDG_CACHE_HOME", place.cache, 1);
}

static int place_close(void **state)
{
    const struct place *place = *state;
    char path[PATH_BYTES + 16];
    remove(place->file);
    snprintf(path, sizeof path, "%s.lock", place->file);
    remove(path);
    snprintf(path, sizeof path, "%s/amptrain", place->cache);
    remove(path);
    return remove(place->cache);
}

static void remember(const char *key, const char *choice)
{
    struct tuning *tuning = tuning_open();
    tuning_set(tuning, key, choice);
    tuning_close(tuning);
}

static void assert_remembered(const char *key, const char *choice)
{
    struct tuning *tuning = tuning_open();
    const char *found = tuning_find(tuning, key);
    if (choice) {
        assert_non_null(found);
        assert_string_equal(found, choice);
    } else {
        assert_null(found);
    }
    tuning_close(tuning);
}

static void test_found_again(void **state)
{
    assert_remembered("conv a", NULL);
    remember("conv a", "37 2=5");
    remember("conv ab", "direct");
    assert_remembered("conv a", "37 2=5");
    assert_remembered("conv ab", "direct");
    assert_remembered("conv", NULL);
    remember("conv a", "38");
    assert_remembered("conv a", "38");
}

/* A choice that is set is found before the file is written. */
static void test_found_at_once(void **state)
{
    struct tuning *tuning = tuning_open();
    tuning_set(tuning, "b", "1");
    assert_string_equal(tuning_find(tuning, "b"), "1");
    assert_remembered("b", NULL);
    tuning_close(tuning);
    assert_remembered("b", "1");
}

static void test_damaged_line(void **state)
{
    const struct place *place = *state;
    remember("a", "one");
    remember("b", "two");
    FILE *file = fopen(place->file, "r+");
    assert_non_null(file);
    char text[256];
    size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    char *one = strstr(text, "one");
    assert_non_null(one);
    *one = 'O';
    rewind(file);
    fwrite(text, 1, length, file);
    fputs("no line of ours\n\n0123 = \nffffffff x=y\nhalf a li", file);
    fclose(file);
    assert_remembered("a", NULL);
    assert_remembered("b", "two");
    assert_remembered("x", NULL);
    remember("a", "again");
    assert_remembered("a", "again");
    assert_remembered("b", "two");
}

static void test_binary_file(void **state)
{
    const struct place *place = *state;
    remember("a", "one");
    FILE *file = fopen(place->file, "w");
    assert_non_null(file);
    for (int i = 0; i < 10000; i++) fputc(i * 7 % 256, file);
    fclose(file);
    assert_remembered("a", NULL);
    remember("a", "two");
    assert_remembered("a", "two");
}

/* A pipe in the place of the file or its lock is not waited for. */
static void test_pipes(void **state)
{
    const struct place *place = *state;
    char lock[PATH_BYTES + 16];
    snprintf(lock, sizeof lock, "%s.lock", place->file);
    remember("a", "one");
    alarm(20);
    assert_int_equal(remove(place->file), 0);
    assert_int_equal(mkfifo(place->file, 0666), 0);
    assert_remembered("a", NULL);
    remember("b", "two");
    assert_remembered("b", "two");
    assert_int_equal(remove(lock), 0);
    assert_int_equal(mkfifo(lock, 0666), 0);
    remember("c", "three");
    assert_remembered("c", NULL);
    assert_remembered("b", "two");
    alarm(0);
}

/* From one to another as text, in which a damaged line is as if it were not there; what was set wins. */
static void test_as_text(void **state)
{
    struct tuning *from = tuning_new(), *to = tuning_new();
    struct text text = {0};
    tuning_print(from, &text);
    assert_null(text.data);
    tuning_set(from, "b", "two");
    tuning_set(from, "a", "one");
    tuning_set(from, "c", "three");
    tuning_print(from, &text);
    assert_true(strstr(text.data, "a=one\n") < strstr(text.data, "b=two\n"));
    *strstr(text.data, "two") = 'T';
    tuning_set(to, "c", "3");
    tuning_add(to, "\n\n0000000 x=y\n");
    tuning_add(to, text.data);
    assert_string_equal(tuning_find(to, "a"), "one");
    assert_null(tuning_find(to, "b"));
    assert_string_equal(tuning_find(to, "c"), "3");
    tuning_close(from);
    tuning_close(to);
    text_free(&text);
    assert_remembered("a", NULL);
}

/* Nothing can be written where a file stands in the folder's place. */
static void test_no_place(void **state)
{
    char path[] = "/dev/null/cache";
    setenv("XDG_CACHE_HOME", path, 1);
    remember("a", "one");
    assert_remembered("a", NULL);
    unsetenv("XDG_CACHE_HOME");
    char *home = strdup(getenv("HOME") ? getenv("HOME") : "");
    unsetenv("HOME");
    remember("a", "one");
    assert_remembered("a", NULL);
    if (*home) setenv("HOME", home, 1);
    free(home);
}

static void test_writers_side_by_side(void **state)
{
    char key[32], choice[32];
    for (int writer = 0; writer < WRITERS; writer++) {
        if (fork() != 0) continue;
        for (int i = 0; i < CHOICES; i++) {
            snprintf(key, sizeof key, "%d of %d", i, writer);
            snprintf(choice, sizeof choice, "%d", i * writer);
            remember(key, choice);
        }
        _exit(0);
    }
    for (int writer = 0; writer < WRITERS; writer++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    for (int writer = 0; writer < WRITERS; writer++)
        for (int i = 0; i < CHOICES; i++) {
            snprintf(key, sizeof key, "%d of %d", i, writer);
            snprintf(choice, sizeof choice, "%d", i * writer);
            assert_remembered(key, choice);
        }
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, place_open, place_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_found_again), CASE(test_found_at_once), CASE(test_damaged_line),
        CASE(test_binary_file), CASE(test_as_text),       CASE(test_no_place),
        CASE(test_writers_side_by_side), CASE(test_pipes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
