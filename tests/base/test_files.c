/* Files that are written whole or not at all, by one or by many; links, which nothing is written through. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/signature.h"
#include "tests/support/caught.h"
#include "tests/support/unit.h"

static char folder[] = "/tmp/test_files.XXXXXX";

static int enter(void **state)
{
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

/* All files of a test are in the folder, and none in another. */
static int leave(void **state)
{
    glob_t found;
    for (int i = glob("*", 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0; i > 0; i--)
        if (unlink(found.gl_pathv[i - 1]) != 0) rmdir(found.gl_pathv[i - 1]);
    globfree(&found);
    return 0;
}

static int end(void **state)
{
    return chdir("/") == 0 ? rmdir(folder) : -1;
}

static void put(const char *name, const char *content)
{
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(file_write(file, content, strlen(content), 0));
    close(file);
}

static void assert_content(const char *name, const char *content)
{
    char bytes[256];
    int file = open(name, O_RDONLY);
    ssize_t count = file_read(file, bytes, sizeof bytes - 1, 0);
    assert_true(count >= 0);
    bytes[count] = '\0';
    close(file);
    assert_string_equal(bytes, content);
}

static int count_temporary(void)
{
    glob_t found;
    int count = glob("*.tmp", 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    globfree(&found);
    return count;
}

/* Links. */

static void assert_refused(const char *name, int flags, int error, const char *words)
{
    struct reason reason = {0};
    assert_int_equal(directory_file(&directory_working, name, flags, &reason), -1);
    assert_int_equal(reason.error, error);
    assert_non_null(strstr(reason.text, words));
}

static void symbolic_links(void **state)
{
    struct reason reason;
    put("victim", "mine");
    assert_int_equal(symlink("victim", "link") | symlink("nowhere", "dangling"), 0);
    const int writes[] = {O_WRONLY, O_RDWR, O_WRONLY | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC,
                          O_RDWR | O_CREAT | O_APPEND};
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
        assert_refused("link", writes[i], ELOOP, "a symbolic link");
        assert_refused("dangling", writes[i], ELOOP, "a symbolic link");
    }
    static const char *const modes[] = {"w", "a", "r+"};
    for (size_t i = 0; i < 3; i++)
        assert_null(directory_stream(&directory_working, "link", modes[i], &reason));
    assert_content("victim", "mine");
    assert_int_equal(access("nowhere", F_OK), -1);
    FILE *read = directory_stream(&directory_working, "link", "r", &reason);
    assert_non_null(read);
    fclose(read);
    assert_int_equal(symlink("circle", "circle"), 0);
    assert_refused("circle", O_RDONLY, ELOOP, "Too many levels");
}

static void hard_links(void **state)
{
    put("victim", "mine");
    assert_int_equal(link("victim", "link"), 0);
    assert_refused("link", O_WRONLY, EMLINK, "hard links");
    assert_refused("link", O_WRONLY | O_CREAT | O_TRUNC, EMLINK, "hard links");
    assert_content("victim", "mine");
    assert_int_equal(unlink("link"), 0);
    int file = directory_file(&directory_working, "victim", O_WRONLY | O_TRUNC, &(struct reason){0});
    assert_true(file >= 0);
    close(file);
    assert_content("victim", "");
}

/* A symbolic link to a folder is the user's business. */
static void linked_folder(void **state)
{
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_int_equal(symlink("folder", "way"), 0);
    assert_int_equal(atomic_file_write(&directory_working, "way/file", "new", 3), OK);
    assert_content("folder/file", "new");
    int file = directory_file(&directory_working, "way/file", O_WRONLY, &(struct reason){0});
    assert_true(file >= 0);
    close(file);
    assert_int_equal(unlink("folder/file"), 0);
}

static void no_files(void **state)
{
    assert_int_equal(mkfifo("pipe", 0666), 0);
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_refused("pipe", O_WRONLY, 0, "not a regular file");
    assert_refused("pipe", O_RDONLY, 0, "not a regular file");
    assert_refused("folder", O_RDONLY, 0, "Is a directory");
    assert_refused("folder", O_WRONLY, EISDIR, "Is a directory");
    assert_refused("none", O_RDONLY, ENOENT, "No such file");
}

/* A link that has the name of an output is replaced, and what it leads to stays. */
static void replaced_link(void **state)
{
    put("victim", "mine");
    assert_int_equal(symlink("victim", "out"), 0);
    assert_int_equal(atomic_file_write(&directory_working, "out", "new", 3), OK);
    assert_content("out", "new");
    assert_content("victim", "mine");
}

/* Temporary names. */

static void several_writers(void **state)
{
    struct atomic_file files[3];
    put("out", "old");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_file_begin(&directory_working, "out", &files[i]), OK);
        fprintf(files[i].stream, "content %d", i);
    }
    assert_int_equal(count_temporary(), 3);
    assert_content("out", "old");
    assert_int_equal(atomic_file_end(&files[1], true), OK);
    assert_content("out", "content 1");
    assert_int_equal(atomic_file_end(&files[2], false), OK);
    assert_content("out", "content 1");
    assert_int_equal(atomic_file_end(&files[0], true), OK);
    assert_content("out", "content 0");
    assert_int_equal(count_temporary(), 0);
}

/* Each a process of its own, ended in the midst of writing. */
static void kill_writers(int count)
{
    for (int i = 0; i < count; i++) {
        struct atomic_file file;
        pid_t child = fork();
        if (child == 0) {
            bool begun = atomic_file_begin(&directory_working, "out", &file) == OK;
            _exit(begun && fputs("half", file.stream) >= 0 && fflush(file.stream) == 0 ? 0 : 1);
        }
        int result;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_int_equal(result, 0);
    }
}

static void killed_writers_leave_one(void **state)
{
    put("out.tmp", "mine");
    put("out.other.tmp", "mine");
    put("outer.123456.tmp", "mine");
    put("out.123456.tmp.gz", "mine");
    kill_writers(5);
    assert_int_equal(count_temporary(), 3 + 1);
    assert_int_equal(atomic_file_write(&directory_working, "out", "whole", 5), OK);
    assert_int_equal(count_temporary(), 3);
    assert_content("out", "whole");
}

static void parallel_writers(void **state)
{
    char content[2000];
    pid_t children[8];
    for (int i = 0; i < 8; i++) {
        if ((children[i] = fork()) != 0) continue;
        memset(content, 'a' + i, sizeof content);
        for (int round = 0; round < 20; round++)
            if (atomic_file_write(&directory_working, "out", content, sizeof content) != OK) _exit(1);
        _exit(0);
    }
    for (int i = 0; i < 8; i++) {
        int result;
        assert_int_equal(waitpid(children[i], &result, 0), children[i]);
        assert_int_equal(result, 0);
    }
    int file = open("out", O_RDONLY);
    assert_int_equal(file_read(file, content, sizeof content, 0), sizeof content);
    close(file);
    for (size_t i = 1; i < sizeof content; i++) assert_int_equal(content[i], content[0]);
    assert_int_equal(count_temporary(), 0);
}

/* Things that are in the way of the name, or of a temporary one. */
static void cannot_be_written(void **state)
{
    struct caught caught;
    struct atomic_file file;
    assert_int_equal(mkdir("out", 0777), 0);
    caught_begin(&caught);
    enum status folder_there = atomic_file_write(&directory_working, "out", "new", 3);
    enum status no_folder = atomic_file_begin(&directory_working, "none/out", &file);
    caught_end(&caught);
    assert_int_equal(folder_there, FAILED);
    assert_int_equal(no_folder, FAILED);
    assert_true(caught_has(&caught, "cannot rename it to out"));
    assert_true(caught_has(&caught, "none/out: cannot be written: No such file or directory"));
    text_free(&caught.words);
    assert_int_equal(count_temporary(), 0);
}

static void full_disk(void **state)
{
    struct caught caught;
    struct atomic_file file;
    assert_int_equal(atomic_file_begin(&directory_working, "out", &file), OK);
    int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0 && dup2(full, fileno(file.stream)) >= 0);
    close(full);
    fputs("lost", file.stream);
    caught_begin(&caught);
    enum status status = atomic_file_end(&file, true);
    caught_end(&caught);
    assert_int_equal(status, FAILED);
    assert_true(caught_has(&caught, "out: cannot be written: No space left on device"));
    text_free(&caught.words);
    assert_int_equal(access("out", F_OK), -1);
    assert_int_equal(count_temporary(), 0);
}

static void second_names(void **state)
{
    struct caught caught;
    put("one", "content");
    put("two", "old");
    put("two.tmp", "left");
    assert_int_equal(atomic_file_link(&directory_working, "one", "two"), OK);
    assert_content("two", "content");
    assert_int_equal(atomic_file_link(&directory_working, "one", "two"), OK);
    assert_int_equal(count_temporary(), 0);
    caught_begin(&caught);
    enum status status = atomic_file_link(&directory_working, "none", "two");
    caught_end(&caught);
    assert_int_equal(status, FAILED);
    assert_true(caught_has(&caught, "two: cannot be written: No such file or directory"));
    text_free(&caught.words);
    assert_content("two", "content");
}

/* From another file system, or one without hard links, the name is given to a copy. */
static void copied_names(void **state)
{
    char other[] = "/dev/shm/test_files.XXXXXX";
    struct caught caught;
    int file = mkstemp(other);
    if (file < 0) skip();
    assert_true(file_write(file, "content", 7, 0));
    close(file);
    assert_int_equal(atomic_file_link(&directory_working, other, "copy"), OK);
    assert_content("copy", "content");
    assert_int_equal(unlink(other), 0);
    assert_int_equal(mkdir("folder", 0777), 0);
    caught_begin(&caught);
    enum status status = atomic_file_link(&directory_working, "folder", "copy");
    caught_end(&caught);
    assert_int_equal(status, FAILED);
    text_free(&caught.words);
    assert_content("copy", "content");
    assert_int_equal(count_temporary(), 0);
}

static void folders(void **state)
{
    struct directory opened;
    struct caught caught;
    struct reason reason;
    put("file", "x");
    assert_true(directory_make("made/of/parts", 0777, &reason));
    assert_true(directory_make("made/of/parts", 0777, &reason));
    assert_true(directory_is("made/of/parts"));
    assert_false(directory_is("file"));
    assert_false(directory_is("none"));
    assert_false(directory_make("file", 0777, &reason));
    assert_string_equal(reason.text, strerror(ENOTDIR));
    assert_false(directory_make("file/below", 0777, &reason));
    assert_false(directory_make("", 0777, &reason));
    caught_begin(&caught);
    enum status missing = directory_open("none", &opened);
    enum status refused = directory_refuse(&directory_working, "x", "why");
    caught_end(&caught);
    text_free(&caught.words);
    assert_int_equal(missing, FAILED);
    assert_int_equal(refused, FAILED);
    assert_int_equal(directory_open("made", &opened), OK);
    char *shown = directory_show(&opened, "x"), *alone = directory_show(&directory_working, "x");
    assert_string_equal(shown, "made/x");
    assert_string_equal(alone, "x");
    free(shown);
    free(alone);
    assert_true(directory_has(&opened, "of"));
    assert_false(directory_has(&opened, "none"));
    assert_false(directory_has(&directory_working, "file/below"));
    assert_int_equal(symlink("nowhere", "made/dangling"), 0);
    assert_true(directory_has(&opened, "dangling"));
    directory_remove(&opened, "dangling");
    assert_false(directory_has(&opened, "dangling"));
    directory_close(&opened);
    directory_close(&opened);
    assert_int_equal(rmdir("made/of/parts") | rmdir("made/of"), 0);
}

static void many_files(void **state)
{
    struct rlimit before, low;
    struct reason reason;
    int files[16];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = (struct rlimit){12, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    put("file", "x");
    for (int i = 0; i < 16; i++) files[i] = directory_file(&directory_working, "file", O_RDONLY, &reason);
    for (int i = 0; i < 16; i++) close(files[i]);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(low.rlim_cur, before.rlim_max);
    assert_false(file_raise_limit());
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < 16; i++) assert_true(files[i] >= 0);
}

static void same_files(void **state)
{
    put("one", "x");
    put("two", "x");
    assert_int_equal(symlink("one", "link"), 0);
    assert_true(file_same("one", "link"));
    assert_false(file_same("one", "two"));
    assert_false(file_same("one", "none"));
    assert_false(file_same("none", "one"));
}

static void reads_and_writes(void **state)
{
    char bytes[8];
    put("one", "abc");
    int file = open("one", O_RDONLY);
    assert_int_equal(file_read(file, bytes, 8, 1), 2);
    assert_int_equal(file_read(file, bytes, 8, 9), 0);
    assert_false(file_write(file, "x", 1, 0));
    close(file);
    assert_int_equal(file_read(file, bytes, 8, 0), -1);
}

static void signatures(void **state)
{
    static const char zeros[] = "??magic*";
    put("one", "head of a file");
    put("empty", "");
    int file = open("zeros", O_WRONLY | O_CREAT, 0666);
    assert_true(file_write(file, "\0\0magic\0\xff", 9, 0));
    close(file);
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_true(signature_matches(&directory_working, "one", "head*"));
    assert_true(signature_matches(&directory_working, "one", "@(foot|head) of*"));
    assert_false(signature_matches(&directory_working, "one", "head"));
    assert_false(signature_matches(&directory_working, "one", "[0-9]*"));
    assert_true(signature_matches(&directory_working, "zeros", zeros));
    assert_false(signature_matches(&directory_working, "one", zeros));
    assert_true(signature_matches(&directory_working, "empty", "head*"));
    assert_true(signature_matches(&directory_working, "none", "head*"));
    assert_true(signature_matches(&directory_working, "folder", "head*"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(symbolic_links, leave),
        cmocka_unit_test_teardown(hard_links, leave),
        cmocka_unit_test_teardown(linked_folder, leave),
        cmocka_unit_test_teardown(no_files, leave),
        cmocka_unit_test_teardown(replaced_link, leave),
        cmocka_unit_test_teardown(several_writers, leave),
        cmocka_unit_test_teardown(killed_writers_leave_one, leave),
        cmocka_unit_test_teardown(parallel_writers, leave),
        cmocka_unit_test_teardown(cannot_be_written, leave),
        cmocka_unit_test_teardown(full_disk, leave),
        cmocka_unit_test_teardown(second_names, leave),
        cmocka_unit_test_teardown(copied_names, leave),
        cmocka_unit_test_teardown(folders, leave),
        cmocka_unit_test_teardown(many_files, leave),
        cmocka_unit_test_teardown(same_files, leave),
        cmocka_unit_test_teardown(reads_and_writes, leave),
        cmocka_unit_test_teardown(signatures, leave),
    };
    return cmocka_run_group_tests_name("files", tests, enter, end);
}
