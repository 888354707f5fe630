/* Listing folders of class folders: what is found, and when what is remembered may be taken. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/formats/listing.h"
#include "data/loader/sampler.h"
#include "tests/support/data_case.h"
#include "tests/support/process.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

#define CLASSES 21
#define IMAGES 8

/* CLASSES folders of IMAGES images and a text, one image in a folder of its own; "class03" has none. */
static char *make_tree(void)
{
    char *root = case_folder();
    for (int i = 0; i < CLASSES; i++)
        for (int k = 0; k < IMAGES; k++) {
            char *name = text_format("class%02d/%s%d.png", i, k == 3 ? "deep/er/" : "", 9 - k);
            if (i != 3) case_write_bytes(root, name, case_plain_png(1, 1, 0, 0, 0));
            free(name);
            name = text_format("class%02d/.hidden.txt", i);
            case_write(root, name, "x", 1);
            free(name);
        }
    case_write(root, "class05/notes", "no image", 8);
    case_write(root, "class05/empty.jpg", "", 0);
    case_write(root, "class07/deep/phone", "\0\0\0\x18" "ftypheic\0\0\0\0", 16);
    case_write(root, "class08/old", "BM\x46\0\0\0\0\0\0\0", 10);
    case_write(root, "class09/BMW", "BMW and others", 14);
    case_write_bytes(root, "__MACOSX/class01/x.png", case_plain_png(1, 1, 0, 0, 0));
    case_write_bytes(root, "class09/@eaDir/x.png/thumbnail.png", case_plain_png(1, 1, 0, 0, 0));
    case_write_bytes(root, "outside.png", case_plain_png(1, 1, 0, 0, 0));
    case_write(root, "README", "no class", 8);
    return root;
}

static struct listing listed(const char *root)
{
    struct listing listing;
    struct reason reason;
    if (!listing_make(root, NULL, &listing, &reason)) fail_msg("%s", reason.text);
    return listing;
}

static void finds_images_in_order(void **state)
{
    char *root = make_tree();
    struct listing listing = listed(root);
    assert_int_equal(listing.class_count, CLASSES);
    assert_string_equal(listing.classes[20], "class20");
    assert_int_equal(listing.count, (CLASSES - 1) * IMAGES + 1);
    assert_int_equal(listing.ignored, 4);
    assert_int_equal(listing.foreign, 2);
    assert_int_equal(listing.stray, 1);
    assert_string_equal(listing.example, "class07/deep/phone (HEIC)");
    for (size_t i = 0; i < listing.count; i++) {
        const char *name = listing.names + listing.files[i].name;
        const char *class = listing.classes[listing.files[i].class];
        assert_memory_equal(name, class, strlen(class));
        if (i > 0) assert_true(strcmp(name, listing.names + listing.files[i - 1].name) > 0);
    }
    assert_int_equal(listing.folder_count, 1 + CLASSES + 2 * (CLASSES - 1));
    listing_free(&listing);
    case_remove(root);
}

/* Random trees: every file that is not hidden is listed, or counted among those left out, with an example. */
static void nothing_is_left_out_in_silence(void **state)
{
    static const char *const contents[] = {
        "\x89PNG\r\n\x1a\nrest", "\xff\xd8\xff\xe0 rest", "<html>", "GIF89a....", "", "\n\xff\xd8\xff",
        "version https://git-lfs",
    };
    static const char *const names[] = {
        "a.png", "b.JPG", "c.txt", "d", "e.webp", "f.jpeg", "g.gif", ".hidden",
    };
    long count = rounds(40, 2000);
    for (int64_t round = 0; round < count; round++) {
        struct random random = random_open((uint64_t)round, PURPOSE_TEST, 3, 0);
        char *root = case_folder();
        int64_t in_classes = 0, in_root = 0, images_in_root = 0;
        for (int i = 0; i < 30; i++) {
            const char *what = contents[random_below(&random, 7)], *name = names[random_below(&random, 8)];
            static const char *const folders[] = {"x/", "y/", "x/deep/", "y/deep/er/", ""};
            uint32_t folder = random_below(&random, 5);
            char *path = text_format("%s%d-%s", folders[folder], i, name);
            if (*name == '.') {
                free(path);
                path = text_format("%s.%d", folders[folder], i);
            }
            case_write(root, path, what, strlen(what));
            bool hidden = *name == '.';
            bool looks = strchr(name, '.') && !strstr(name, "txt") && !strstr(name, "gif");
            bool image = what == contents[0] || what == contents[1] || what == contents[3];
            in_classes += !hidden && folder < 4;
            in_root += !hidden && folder == 4;
            images_in_root += !hidden && folder == 4 && (image || looks);
            free(path);
        }
        case_write(root, "x/1.png", contents[0], strlen(contents[0]));
        in_classes++;
        struct listing listing = listed(root), all;
        struct reason reason;
        assert_int_equal((int64_t)listing.count + listing.ignored, in_classes);
        assert_int_equal(listing.stray, images_in_root);
        assert_true(listing.ignored == 0 || listing.example);
        assert_true(listing_images(root, &all, &reason));
        assert_int_equal((int64_t)all.count + all.ignored, in_classes + in_root);
        listing_free(&listing);
        listing_free(&all);
        case_remove(root);
    }
}

/* Sets the time of modification, as tar, cp and rsync do; the inode's time of change cannot be set. */
static void age(const char *path)
{
    struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void expect_same(const struct listing *a, const struct listing *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->class_count, b->class_count);
    assert_int_equal(a->ignored, b->ignored);
    assert_int_equal(a->foreign, b->foreign);
    assert_int_equal(a->stray, b->stray);
    assert_int_equal(a->example == NULL, b->example == NULL);
    if (a->example) assert_string_equal(a->example, b->example);
    for (int i = 0; i < a->class_count; i++) assert_string_equal(a->classes[i], b->classes[i]);
    for (size_t i = 0; i < a->count; i++) {
        assert_string_equal(a->names + a->files[i].name, b->names + b->files[i].name);
        assert_int_equal(a->files[i].class, b->files[i].class);
    }
}

/* A tree whose folders have not changed for long, it seems, listed and remembered. */
static char *remembered_tree(const char *cache, struct listing *listing)
{
    char *root = make_tree();
    *listing = listed(root);
    listing->began += INT64_C(10000000000);
    listing_remember(root, cache, listing);
    return root;
}

static void a_listing_is_remembered(void **state)
{
    char *folder = case_folder(), *cache = text_format("%s/some/where", folder);
    struct listing listing, recalled;
    char *root = remembered_tree(cache, &listing);
    assert_true(listing_recall(root, cache, &recalled));
    expect_same(&recalled, &listing);
    listing_free(&recalled);
    char *other = text_format("%s/class05", root);
    assert_false(listing_recall(other, cache, &recalled));
    assert_false(listing_recall("/nonexistent", cache, &recalled));
    free(other);
    listing_free(&listing);
    case_remove(root);
    case_remove(folder);
    free(cache);
}

static void a_changed_folder_is_listed_again(void **state)
{
    static const char *const changes[] = {"class07/deep/er/new.png", "class30/new.png", "new"};
    for (int i = 0; i < 3; i++) {
        char *cache = case_folder();
        struct listing listing, recalled;
        char *root = remembered_tree(cache, &listing);
        case_write(root, changes[i], "x", 1);
        assert_false(listing_recall(root, cache, &recalled));
        listing_free(&listing);
        case_remove(root);
        case_remove(cache);
    }
}

/* Another folder in the old one's place, and a change whose time was set back. */
static void times_that_were_set_back_are_noticed(void **state)
{
    static const char *const changes[] = {
        "cp -a class07 new && rm -r class07 && mv new class07 && touch -r class08 .",
        "touch class07/new.png && touch -d @1000000000 class07",
    };
    for (int i = 0; i < 2; i++) {
        char *cache = case_folder();
        struct listing listing, recalled;
        char *root = make_tree(), *class = text_format("%s/class07", root);
        age(class);
        listing = listed(root);
        listing.began += INT64_C(10000000000);
        listing_remember(root, cache, &listing);
        assert_true(listing_recall(root, cache, &recalled));
        listing_free(&recalled);
        char *command = text_format("cd '%s' && %s", root, changes[i]);
        assert_int_equal(system(command), 0);
        assert_false(listing_recall(root, cache, &recalled));
        listing_free(&listing);
        free(class), free(command);
        case_remove(root);
        case_remove(cache);
    }
}

static void what_has_just_changed_is_not_remembered(void **state)
{
    char *cache = case_folder(), *root = make_tree();
    struct listing listing = listed(root), recalled;
    listing_remember(root, cache, &listing);
    assert_false(listing_recall(root, cache, &recalled));
    listing_free(&listing);
    case_remove(root);
    case_remove(cache);
}

static char *only_file(const char *folder)
{
    char *command = text_format("cd '%s' && mv folder-*.list x", folder);
    assert_int_equal(system(command), 0);
    free(command);
    return text_format("%s/x", folder);
}

/* Puts other bytes where `listing` is remembered. */
static void replace_memory(const char *root, const char *cache, const struct listing *listing,
                           struct bytes file)
{
    listing_remember(root, cache, listing);       /* gives the file its name */
    case_write(cache, "x", file.data, file.count);
    char *command = text_format("cd '%s' && mv x \"$(ls folder-*.list)\"", cache);
    assert_int_equal(system(command), 0);
    free(command);
}

static void a_pipe_is_no_memory(void **state)
{
    char *cache = case_folder();
    struct listing listing, recalled;
    char *root = remembered_tree(cache, &listing);
    char *command = text_format("cd '%s' && list=$(ls folder-*.list) && rm \"$list\" && mkfifo \"$list\" "
                                "\"$list.%ld\"", cache, (long)getpid());
    assert_int_equal(system(command), 0);
    free(command);
    alarm(20);
    assert_false(listing_recall(root, cache, &recalled));
    listing_remember(root, cache, &listing);          /* its new file is a pipe, too, and goes */
    listing_remember(root, cache, &listing);
    assert_true(listing_recall(root, cache, &recalled));
    alarm(0);
    listing_free(&recalled);
    listing_free(&listing);
    case_remove(root);
    case_remove(cache);
}

/* A file of 200 GB, the first of which are right, is not read at all. */
static void a_hole_is_no_memory(void **state)
{
    char *cache = case_folder();
    struct listing listing, recalled;
    char *root = remembered_tree(cache, &listing);
    char *command = text_format("cd '%s' && truncate -s 200G folder-*.list 2>/dev/null", cache);
    if (system(command) == 0) {
        double before = process_seconds();
        assert_false(listing_recall(root, cache, &recalled));
        assert_true(process_seconds() - before < 10);
        listing_remember(root, cache, &listing);
        assert_true(listing_recall(root, cache, &recalled));
        listing_free(&recalled);
    }
    free(command);
    listing_free(&listing);
    case_remove(root);
    case_remove(cache);
}

/* Eight processes that remember and recall at once: each recalls all of it, or nothing. */
static void many_may_remember_at_once(void **state)
{
    char *cache = case_folder();
    struct listing listing, recalled;
    char *root = remembered_tree(cache, &listing);
    for (int writer = 0; writer < 8; writer++) {
        if (fork() != 0) continue;
        bool same = true;
        for (int i = 0; i < 50 && same; i++) {
            listing_remember(root, cache, &listing);
            same = listing_recall(root, cache, &recalled) && recalled.count == listing.count;
            if (same) listing_free(&recalled);
        }
        _exit(same ? 0 : 1);
    }
    for (int writer = 0; writer < 8; writer++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_true(listing_recall(root, cache, &recalled));
    expect_same(&recalled, &listing);
    free(only_file(cache));                                          /* no other is left */
    listing_free(&recalled);
    listing_free(&listing);
    case_remove(root);
    case_remove(cache);
}

static void a_garbled_memory_is_no_memory(void **state)
{
    char *cache = case_folder();
    struct listing listing, recalled;
    char *root = remembered_tree(cache, &listing), *path = only_file(cache);
    struct bytes file = case_read(path);
    for (size_t i = 0; i < file.count; i += 97) {
        file.data[i] ^= 4;
        replace_memory(root, cache, &listing, file);
        assert_false(listing_recall(root, cache, &recalled));
        file.data[i] ^= 4;
    }
    free(file.data), free(path);
    listing_free(&listing);
    case_remove(root);
    case_remove(cache);
}

/* Counts of folders, files and bytes of names that no file can hold. */
static void a_memory_that_promises_too_much_is_no_memory(void **state)
{
    static const uint64_t claims[] = {UINT64_C(1) << 60, INT64_MAX, UINT64_MAX, UINT64_MAX / 8};
    char *cache = case_folder();
    struct listing listing, recalled;
    char *root = remembered_tree(cache, &listing), *path = only_file(cache);
    struct bytes file = case_read(path);
    for (int i = 0; i < 3 * 4; i++) {
        uint64_t good;
        uint8_t *field = file.data + 8 + 8 * (i / 4);
        memcpy(&good, field, sizeof good);
        memcpy(field, &claims[i % 4], sizeof good);
        replace_memory(root, cache, &listing, file);
        assert_false(listing_recall(root, cache, &recalled));
        memcpy(field, &good, sizeof good);
    }
    replace_memory(root, cache, &listing, file);
    assert_true(listing_recall(root, cache, &recalled));
    listing_free(&recalled);
    free(file.data), free(path);
    listing_free(&listing);
    case_remove(root);
    case_remove(cache);
}

/* Anybody can compute a checksum. */
static void a_memory_that_leads_elsewhere_is_no_memory(void **state)
{
    static const char *const elsewhere[] = {"../x", "/etc/passwd", "class05/../../x", "class05/..", ""};
    char *cache = case_folder();
    struct listing listing, recalled;
    char *root = remembered_tree(cache, &listing);
    uint64_t good = listing.files[0].name;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        listing.files[0].name = listing_name(&listing, elsewhere[i]);
        listing_remember(root, cache, &listing);
        assert_false(listing_recall(root, cache, &recalled));
    }
    listing.files[0].name = good;
    listing.files[0].class = (unsigned)listing.class_count;
    listing_remember(root, cache, &listing);
    assert_false(listing_recall(root, cache, &recalled));
    listing.files[0].class = 0;
    listing_remember(root, cache, &listing);
    assert_true(listing_recall(root, cache, &recalled));
    listing_free(&recalled);
    listing_free(&listing);
    case_remove(root);
    case_remove(cache);
}

static void long_listings_are_remembered_by_themselves(void **state)
{
    char *cache = case_folder(), *root = case_folder();
    struct listing listing, recalled;
    struct reason reason;
    char *command = text_format("cd '%s' && mkdir a b && touch b/x && cd a && seq 20000 | xargs touch", root);
    assert_int_equal(system(command), 0);
    free(command);
    sleep(3);
    assert_true(listing_make(root, cache, &listing, &reason));
    assert_true(listing_recall(root, cache, &recalled));
    expect_same(&recalled, &listing);
    assert_int_equal(listing.count, 20001);
    listing_free(&listing), listing_free(&recalled);
    case_remove(root);
    case_remove(cache);
}

/* Writes as many images as ImageNet has, in folders of 5,000. */
static void write_many(const char *root, long count)
{
    char *name = NULL;
    for (long i = 0; i < count; i++) {
        name = text_format("n%08ld/n%08ld_%ld.JPEG", i / 5000, i / 5000, i);
        case_write(root, name, "\xff\xd8\xff\xe0", 4);
        free(name);
    }
}

static void many_files_take_little(void **state)
{
    long count = rounds(3000, 1000000), before = 0;
    char *root = case_folder(), *cache = case_folder();
    struct listing listing, recalled;
    struct reason reason;
    write_many(root, count);
    before = process_status("VmRSS:");
    double start = process_seconds();
    if (!listing_make(root, NULL, &listing, &reason)) fail_msg("%s", reason.text);
    double listed = process_seconds();
    int64_t sum = 0;
    for (long i = 0; i < count; i++) sum += sampler_permute(1, 2, count, i);
    double shuffled = process_seconds();
    assert_int_equal(listing.count, count);
    assert_int_equal(sum, (int64_t)count * (count - 1) / 2);
    long most = process_status("VmHWM:") - before;
    listing.began += INT64_C(10000000000);
    listing_remember(root, cache, &listing);
    double remembered = process_seconds();
    assert_true(listing_recall(root, cache, &recalled));
    figure("%ld files: listed in %.2f s, shuffled in %.2f s, recalled in %.2f s; %.1f MiB", count,
           listed - start, shuffled - listed, process_seconds() - remembered, (double)most / 1024);
    if (count >= 1000000 && !getenv("AMPTRAIN_SANITIZED")) assert_true(most < 64 << 10);
    expect_same(&recalled, &listing);
    listing_free(&recalled);
    listing_free(&listing);
    case_remove(root);
    case_remove(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_images_in_order), cmocka_unit_test(nothing_is_left_out_in_silence),
        cmocka_unit_test(a_listing_is_remembered),
        cmocka_unit_test(a_changed_folder_is_listed_again),
        cmocka_unit_test(times_that_were_set_back_are_noticed),
        cmocka_unit_test(what_has_just_changed_is_not_remembered),
        cmocka_unit_test(a_pipe_is_no_memory),
        cmocka_unit_test(a_hole_is_no_memory),
        cmocka_unit_test(many_may_remember_at_once),
        cmocka_unit_test(a_garbled_memory_is_no_memory),
        cmocka_unit_test(a_memory_that_promises_too_much_is_no_memory),
        cmocka_unit_test(a_memory_that_leads_elsewhere_is_no_memory),
        cmocka_unit_test(long_listings_are_remembered_by_themselves),
        cmocka_unit_test(many_files_take_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
