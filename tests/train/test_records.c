/* metrics.jsonl and TensorBoard events: what is written, and what a resumed run cuts off. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/members.h"
#include "base/memory.h"
#include "format/events.h"
#include "tests/support/caught.h"
#include "tests/support/unit.h"
#include "train/metrics.h"

static char folder[] = "/tmp/test_records.XXXXXX";

static char *in_folder(const char *name)
{
    return text_format("%s/%s", folder, name);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static size_t read_bytes(const char *path, char *bytes, size_t room)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t count = fread(bytes, 1, room - 1, file);
    bytes[count] = '\0';
    fclose(file);
    return count;
}

static void cut(const char *before, int64_t step, int64_t epoch, const char *after)
{
    char *path = in_folder("metrics.jsonl"), read[4096];
    write_text(path, before);
    assert_int_equal(metrics_cut(&directory_working, path, step, epoch), OK);
    read_bytes(path, read, sizeof read);
    assert_string_equal(read, after);
    unlink(path);
    free(path);
}

#define START "{\"event\":\"start\"}\n"
#define STEP(n) "{\"event\":\"step\",\"step\":" #n ",\"epoch\":1}\n"
#define EPOCH(n) "{\"event\":\"epoch\",\"epoch\":" #n "}\n"
#define EVAL "{\"event\":\"eval\"}\n"
#define END "{\"event\":\"end\",\"reason\":\"stopped\"}\n"

static void cut_beyond(void **state)
{
    cut(START STEP(1) STEP(2) STEP(3), 3, 0, START STEP(1) STEP(2) STEP(3));
    cut(START STEP(1) STEP(2) STEP(3), 2, 0, START STEP(1) STEP(2));
    cut(START STEP(1) STEP(2) EPOCH(1) STEP(3), 2, 1, START STEP(1) STEP(2) EPOCH(1));
    cut(START STEP(1) STEP(2) EPOCH(1), 2, 0, START STEP(1) STEP(2));
    cut(START STEP(1) STEP(2), 0, 0, START);
    cut("", 5, 5, "");
}

/* Lines after one beyond the checkpoint are beyond it too: each is from the same process or a
 * later one. */
static void cut_all_that_follows(void **state)
{
    cut(START STEP(1) STEP(2) START STEP(3) END, 1, 0, START STEP(1));
    cut(START STEP(1) END START STEP(2), 1, 0, START STEP(1) END START);
}

static void cut_torn(void **state)
{
    cut(START STEP(1) "{\"event\":\"st", 1, 0, START STEP(1));
    cut(START STEP(1) "{\"event\":\"step\",\"step\":2}", 2, 0, START STEP(1));
    cut(START "\n" STEP(1), 1, 0, START STEP(1));
    cut(START STEP(1) STEP(2) EVAL EPOCH(1) END EVAL, 1, 0, START STEP(1) EVAL EVAL);
    cut(START "[1]\nrubbish\n" STEP(1), 1, 0, START STEP(1));
}

/* Lines that nobody wrote, longer than all that is. */
static void cut_long(void **state)
{
    struct text text = {0};
    text_add(&text, START "{\"event\":\"start\",\"x\":\"%0*d\"}\n", 1 << 24, 0);
    text_add(&text, STEP(1) "%0*d\n" STEP(2), 1 << 25, 0);
    cut(text.data, 2, 0, START STEP(1) STEP(2));
    text_free(&text);
}

static void cut_nothing(void **state)
{
    char *path = in_folder("none.jsonl");
    assert_int_equal(metrics_cut(&directory_working, path, 1, 1), OK);
    assert_int_equal(access(path, F_OK), -1);
    free(path);
}

static void lines(void **state)
{
    struct metrics metrics = {0};
    struct text line = {0};
    char *path = in_folder("lines.jsonl"), read[1024];
    assert_int_equal(metrics_open(&directory_working, path, &metrics), OK);
    text_add(&line, "{");
    member_string(&line, "event", "step");
    member_integer(&line, "step", 7);
    member_number(&line, "loss", 0.1f);
    member_number(&line, "grad_norm", INFINITY);
    member_number(&line, "lr", NAN);
    member_string(&line, "device", "a \"b\"\n");
    text_add(&line, "}");
    assert_int_equal(metrics_line(&metrics, line.data), OK);
    read_bytes(path, read, sizeof read);   /* flushed: it can be read before the file is closed */
    assert_string_equal(read,
                        "{\"event\":\"step\",\"step\":7,\"loss\":0.100000001,\"grad_norm\":null,\"lr\":null,"
                        "\"device\":\"a \\\"b\\\"\\n\"}\n");
    assert_int_equal(metrics_sync(&metrics), OK);
    metrics_close(&metrics);
    text_free(&line);
    unlink(path);
    free(path);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Lines for which there is no room wait: the file has whole lines at any time, and all of them at last. */
static void disk_full(void **state)
{
    struct metrics metrics = {0};
    char *path = in_folder("full.jsonl"), read[64];
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(metrics_open(&directory_working, path, &metrics), OK);
    limit_files(7);
    for (int i = 0; i < 3; i++) assert_int_equal(metrics_line(&metrics, i ? "{22}" : "{1}"), OK);
    assert_int_equal(metrics_sync(&metrics), FAILED);
    read_bytes(path, read, sizeof read);
    assert_string_equal(read, "{1}\n");
    limit_files(RLIM_INFINITY);
    assert_int_equal(metrics_line(&metrics, "{3}"), OK);
    read_bytes(path, read, sizeof read);
    assert_string_equal(read, "{1}\n{22}\n{22}\n{3}\n");
    assert_int_equal(metrics_sync(&metrics), OK);
    metrics_close(&metrics);
    unlink(path);
    free(path);
}

/* No pipe is waited for, and no device taken for a file. */
static void not_files(void **state)
{
    struct metrics metrics = {0};
    char *path = in_folder("pipe");
    assert_int_equal(mkfifo(path, 0666), 0);
    assert_int_equal(metrics_open(&directory_working, path, &metrics), FAILED);
    assert_int_equal(metrics_cut(&directory_working, path, 1, 1), FAILED);
    assert_int_equal(metrics_open(&directory_working, "/dev/full", &metrics), FAILED);
    assert_int_equal(metrics_open(&directory_working, folder, &metrics), FAILED);
    assert_int_equal(metrics_open(&directory_working, "/nowhere/metrics", &metrics), FAILED);
    unlink(path);
    free(path);
}

/* Lines after a torn one would be lost with it when the run is resumed. */
static void torn(void **state)
{
    struct text text = {0};
    struct metrics metrics = {0};
    char *path = in_folder("torn.jsonl"), *read = memory_new(1 << 14, 1);
    text_add(&text, START "%09000d", 0);
    write_text(path, text.data);
    assert_int_equal(metrics_open(&directory_working, path, &metrics), OK);
    assert_int_equal(metrics_line(&metrics, "{\"event\":\"eval\"}"), OK);
    metrics_close(&metrics);
    read_bytes(path, read, 1 << 14);
    assert_string_equal(read, START EVAL);
    write_text(path, "{\"event\"");
    assert_int_equal(metrics_open(&directory_working, path, &metrics), OK);
    metrics_close(&metrics);
    assert_int_equal(read_bytes(path, read, 1 << 14), 0);
    unlink(path);
    text_free(&text);
    free(read);
    free(path);
}

static void ended(void **state)
{
    static const struct {
        const char *text;
        bool is;
    } cases[] = {
        {START STEP(1) END, true}, {START END EVAL EVAL, true}, {START STEP(1), false},
        {START END START, false}, {START "{\"event\":\"end\"", false}, {"", false},
    };
    char *path = in_folder("ended.jsonl");
    assert_false(metrics_ended(&directory_working, path));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(path, cases[i].text);
        assert_int_equal(metrics_ended(&directory_working, path), cases[i].is);
    }
    unlink(path);
    free(path);
}

/* TensorBoard */

static uint32_t number(const char *bytes)
{
    uint32_t value = 0;
    for (int i = 3; i >= 0; i--) value = value << 8 | (uint8_t)bytes[i];
    return value;
}

/* tensorflow's unmasking, the reverse of what is written. */
static uint32_t unmask(uint32_t masked)
{
    uint32_t rotated = masked - 0xa282ead8u;
    return rotated >> 17 | rotated << 15;
}

static char *event_file(void)
{
    DIR *listing = opendir(folder);
    char *path = NULL;
    for (struct dirent *entry; (entry = readdir(listing));)
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0) path = in_folder(entry->d_name);
    closedir(listing);
    return path;
}

/* Checks every frame; how many there are. `payloads` gets where each begins. */
static int frames(const char *bytes, size_t count, const char **payloads)
{
    int found = 0;
    for (size_t at = 0; at < count;) {
        uint32_t length = number(bytes + at);
        assert_true(at + 16 + length <= count);
        assert_int_equal(unmask(number(bytes + at + 8)), crc32c(0, bytes + at, 8));
        assert_int_equal(unmask(number(bytes + at + 12 + length)), crc32c(0, bytes + at + 12, length));
        payloads[found++] = bytes + at + 12;
        at += 16 + length;
    }
    return found;
}

static void open_events(int64_t step, struct events *events)
{
    struct directory directory;
    assert_int_equal(directory_open(folder, &directory), OK);
    assert_int_equal(events_open(&directory, step, events), OK);
    directory_close(&directory);
}

static void event_frames(void **state)
{
    struct events events = {0};
    char bytes[4096];
    const char *payloads[8];
    open_events(0, &events);
    events_scalar(&events, "train/loss", 300, 1.5);
    char *path = event_file();
    assert_non_null(path);
    size_t count = read_bytes(path, bytes, sizeof bytes);          /* as a kill would leave it */
    events_close(&events);
    events_scalar(&events, "off", 1, 1);   /* without effect once closed */
    assert_int_equal(frames(bytes, count, payloads), 2);
    assert_memory_equal(payloads[0] + 9, "\x1a\x0d" "brain.Event:2", 15);
    /* step 300 as a varint, then summary { value { tag, simple_value 1.5 } } */
    assert_memory_equal(payloads[1] + 9, "\x10\xac\x02" "\x2a\x13" "\x0a\x11" "\x0a\x0a" "train/loss"
                        "\x15\x00\x00\xc0\x3f", 24);
    unlink(path);
    free(path);
}

static void event_values(void **state)
{
    struct events events = {0};
    char bytes[4096];
    const char *payloads[8];
    const struct events_picture picture = {(const uint8_t *)"png", 3, 200, 7};
    open_events(0, &events);
    events_text(&events, "config", 0, "a | b");
    events_image(&events, "confusion", 1, &picture);
    char *path = event_file();
    size_t count = read_bytes(path, bytes, sizeof bytes);
    events_close(&events);
    events_text(&events, "off", 1, "");
    events_image(&events, "off", 1, &picture);
    assert_int_equal(frames(bytes, count, payloads), 3);
    /* summary { value { tag, tensor { dtype DT_STRING, string_val }, metadata { plugin_data { "text" } } }
     * } */
    assert_memory_equal(payloads[1] + 9, "\x2a\x1f" "\x0a\x1d" "\x0a\x06" "config"
                        "\x42\x09" "\x08\x07" "\x42\x05" "a | b" "\x4a\x08" "\x0a\x06" "\x0a\x04" "text", 33);
    /* step, summary { value { tag, image { height 7, width 200, colorspace 3, encoded_image_string } } } */
    assert_memory_equal(payloads[2] + 9, "\x10\x01" "\x2a\x1b" "\x0a\x19" "\x0a\x09" "confusion"
                        "\x22\x0c" "\x08\x07" "\x10\xc8\x01" "\x18\x03" "\x22\x03" "png", 31);
    unlink(path);
    free(path);
}

static void event_restart(void **state)
{
    struct events events = {0};
    char bytes[4096];
    const char *payloads[8];
    open_events(9, &events);
    events_close(&events);
    char *path = event_file();
    size_t count = read_bytes(path, bytes, sizeof bytes);
    assert_int_equal(frames(bytes, count, payloads), 2);
    /* step 10, session_log { status START } */
    assert_memory_equal(payloads[1] + 9, "\x10\x0a" "\x3a\x02\x08\x01", 6);
    unlink(path);
    free(path);
}

static int make_folder(void **state)
{
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    return rmdir(folder);
}

/* Wherever the disk is full: that is said once, and the run goes on without. */
static void events_on_a_full_disk(void **state)
{
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t bytes = 0; bytes < 80; bytes += 20) {
        struct events events = {0};
        struct caught caught;
        caught_begin(&caught);
        limit_files(bytes);
        open_events(9, &events);
        for (int step = 0; step < 4; step++) events_scalar(&events, "train/loss", 9 + step, 1);
        limit_files(RLIM_INFINITY);
        caught_end(&caught);
        assert_true(caught_has(&caught, "cannot be written: File too large; no more events are written\n"));
        assert_ptr_equal(strchr(caught.words.data, '\n') + 1, caught.words.data + caught.words.length);
        assert_null(events.file);
        text_free(&caught.words);
        char *path = event_file();
        unlink(path);
        free(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_beyond),  cmocka_unit_test(cut_all_that_follows), cmocka_unit_test(cut_torn),
        cmocka_unit_test(cut_long),
        cmocka_unit_test(cut_nothing), cmocka_unit_test(lines),                cmocka_unit_test(disk_full),
        cmocka_unit_test(not_files),   cmocka_unit_test(torn),                 cmocka_unit_test(ended),
        cmocka_unit_test(not_files),
        cmocka_unit_test(torn),
        cmocka_unit_test(ended),
        cmocka_unit_test(event_frames), cmocka_unit_test(event_values), cmocka_unit_test(event_restart),
        cmocka_unit_test(events_on_a_full_disk),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
