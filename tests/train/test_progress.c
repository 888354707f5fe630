/* The live line of a terminal, which is played here: drawn over itself, cut at the edge, out of the way of
 * the log's lines, gone at the end; and none where the terminal is a dumb one. */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/support/unit.h"
#include "train/progress.h"

struct terminal {
    int near, shown;         /* our end; what stderr was */
    char words[4096];        /* that came through */
};

static void set_columns(int terminal, int columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    ioctl(terminal, TIOCSWINSZ, &size);
}

static void terminal_begin(struct terminal *terminal, int columns)
{
    struct termios raw;
    *terminal = (struct terminal){.near = posix_openpt(O_RDWR | O_NOCTTY)};
    if (terminal->near < 0 || grantpt(terminal->near) != 0 || unlockpt(terminal->near) != 0) skip();
    int far = open(ptsname(terminal->near), O_RDWR | O_NOCTTY);
    if (far < 0) skip();
    tcgetattr(far, &raw);
    cfmakeraw(&raw);
    tcsetattr(far, TCSANOW, &raw);
    set_columns(far, columns);
    fflush(stderr);
    terminal->shown = dup(2);
    dup2(far, 2);
    close(far);
}

static void terminal_end(struct terminal *terminal)
{
    size_t length = 0;
    fflush(stderr);
    dup2(terminal->shown, 2);
    close(terminal->shown);
    for (ssize_t got; length < sizeof terminal->words - 1; length += (size_t)got) {
        got = read(terminal->near, terminal->words + length, sizeof terminal->words - 1 - length);
        if (got <= 0) break;
    }
    terminal->words[length] = '\0';
    close(terminal->near);
}

/* A line on a terminal that is not dumb. */
static void begin_live(struct terminal *terminal, int columns, struct progress *progress)
{
    setenv("TERM", "xterm", 1);
    terminal_begin(terminal, columns);
    progress_open(false, STDERR_FILENO, progress);
}

static const struct progress_view view = {
    .epoch = 2, .epochs = 9, .batch = 7, .batches = 22, .loss = 1.5, .top1 = 0.25, .lr = 0.125,
    .images_per_second = 1000, .seconds_left = 3725, .loss_scale = 1024, .skipped = 3,
};

#define WHOLE "epoch 2/9  step 7/22  loss 1.5000  top1 25.00 %  lr 0.125  1000 images/s  scale 1024  " \
              "skipped 3  left 1:02:05"

static void test_live(void **state)
{
    struct terminal terminal;
    struct progress progress;
    begin_live(&terminal, 200, &progress);
    bool live = progress.live;
    progress_step(&progress, &view);
    progress.drawn = INFINITY;
    progress_step(&progress, &view);        /* at once: not drawn */
    log_info("a word");
    progress.drawn = 0;
    progress_step(&progress, &view);
    progress_close(&progress);
    terminal_end(&terminal);
    assert_true(live);
    assert_string_equal(terminal.words, "\r" WHOLE "\033[K\r\033[Ka word\n\r" WHOLE "\033[K\r\033[K");
}

static void test_narrow(void **state)
{
    struct terminal terminal;
    struct progress progress;
    begin_live(&terminal, 12, &progress);
    progress_step(&progress, &view);
    progress_close(&progress);
    terminal_end(&terminal);
    assert_string_equal(terminal.words, "\rloss 1.5000\033[K\r\033[K");
}

static int columns_of(int terminal)
{
    struct winsize size;
    return ioctl(terminal, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Reads what a terminal would have shown by now: its buffer is small, and writers wait when it is full. */
static void terminal_drain(const struct terminal *terminal)
{
    char words[4096];
    struct pollfd ready = {.fd = terminal->near, .events = POLLIN};
    while (poll(&ready, 1, 0) > 0 && read(terminal->near, words, sizeof words) > 0) continue;
}

/* At every width, and when it changes in between. */
static void test_resized(void **state)
{
    struct terminal terminal;
    struct progress progress;
    begin_live(&terminal, 200, &progress);
    for (int columns = 40; columns <= 200; columns++) {
        set_columns(terminal.near, columns);
        int width = columns_of(STDERR_FILENO);
        progress.drawn = 0;
        progress_step(&progress, &view);
        terminal_drain(&terminal);
        bool whole = strstr(progress.line, "loss 1.5000") && strstr(progress.line, "top1 25.00 %") &&
                     strstr(progress.line, "left 1:02:05");
        if (whole && width == columns && (int)strlen(progress.line) < columns) continue;
        progress_close(&progress);
        terminal_end(&terminal);
        fail_msg("%d columns: '%s'", columns, progress.line);
    }
    progress_close(&progress);
    terminal_end(&terminal);
}

/* A terminal that does not know its width: COLUMNS, or 80. */
static void test_width(void **state)
{
    static const char *const columns[] = {"31", "nonsense", NULL};
    static const int widths[] = {31, 80, 80};
    for (int i = 0; i < 3; i++) {
        struct terminal terminal;
        struct progress progress;
        if (columns[i]) setenv("COLUMNS", columns[i], 1);
        else unsetenv("COLUMNS");
        begin_live(&terminal, 0, &progress);
        int width = progress.width;
        progress_close(&progress);
        terminal_end(&terminal);
        assert_int_equal(width, widths[i]);
    }
}

static void test_not_live(void **state)
{
    struct terminal terminal;
    struct progress dumb, quiet;
    setenv("TERM", "dumb", 1);
    terminal_begin(&terminal, 80);
    progress_open(false, STDERR_FILENO, &dumb);
    progress_step(&dumb, &view);
    setenv("TERM", "xterm", 1);
    progress_open(true, STDERR_FILENO, &quiet);
    progress_step(&quiet, &view);
    progress_close(&quiet);
    progress_close(&dumb);
    terminal_end(&terminal);
    assert_string_equal(terminal.words, "");
}

static void test_colours(void **state)
{
    struct terminal terminal;
    setenv("TERM", "xterm", 1);
    terminal_begin(&terminal, 80);
    log_warning("one");
    setenv("NO_COLOR", "1", 1);
    log_warning("two");
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    log_warning("three");
    terminal_end(&terminal);
    assert_string_equal(terminal.words, "\033[33mamptrain: warning: \033[mone\namptrain: warning: two\n"
                                        "amptrain: warning: three\n");
}

static void test_times(void **state)
{
    char text[PROGRESS_TIME];
    assert_string_equal(progress_time(0, text), "0:00");
    assert_string_equal(progress_time(245.4, text), "4:05");
    assert_string_equal(progress_time(3723, text), "1:02:03");
    assert_string_equal(progress_time(-1, text), "?");
    assert_string_equal(progress_time(1e12, text), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live),  cmocka_unit_test(test_narrow), cmocka_unit_test(test_width),
        cmocka_unit_test(test_resized),
        cmocka_unit_test(test_not_live), cmocka_unit_test(test_colours), cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
