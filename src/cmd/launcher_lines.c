#include "cmd/launcher_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

/* Seconds for which a line waits for identical ones of other ranks. */
#define WAIT 0.3
/* Number of the first rank's lines that are remembered to suppress identical ones. */
#define REMEMBERED 64
#define LINE_MAX_BYTES 8192

/* A line of ranks other than the first. */
struct held {
    char *text;
    bool *said;              /* [ranks] by whom */
    double since;
};

struct lines {
    int ranks;
    bool terminal;
    struct log_sink sink;
    int only;                /* -1: all ranks count */
    struct text *begun;      /* [ranks] incomplete lines */
    char *remembered[REMEMBERED];
    int next;                /* index of the remembered line to replace next */
    struct held *held;
    int held_count;
};

struct lines *lines_new(int ranks, bool terminal, struct log_sink sink)
{
    struct lines *lines = memory_new(1, sizeof *lines);
    *lines = (struct lines){.ranks = ranks, .terminal = terminal, .sink = sink, .only = -1};
    lines->begun = memory_new((size_t)ranks, sizeof *lines->begun);
    return lines;
}

static void forget(struct lines *lines, int index)
{
    free(lines->held[index].text);
    free(lines->held[index].said);
    memmove(&lines->held[index], &lines->held[index + 1],
            (size_t)(lines->held_count - index - 1) * sizeof *lines->held);
    lines->held_count--;
}

void lines_free(struct lines *lines)
{
    while (lines->held_count > 0) forget(lines, 0);
    for (int rank = 0; rank < lines->ranks; rank++) text_free(&lines->begun[rank]);
    for (int i = 0; i < REMEMBERED; i++) free(lines->remembered[i]);
    free(lines->begun);
    free(lines->held);
    free(lines);
}

/* One write per line, so that a progress line cannot interrupt it. */
static void show(const struct lines *lines, const char *who, const char *line)
{
    char *shown = text_format("%s%s%s\n", lines->terminal ? "\r\033[K" : "", who, line);
    size_t length = strlen(shown), done = 0;
    while (done < length) {
        ssize_t written = write(STDERR_FILENO, shown + done, length - done);
        if (written < 0 && errno != EINTR) break;
        done += written > 0 ? (size_t)written : 0;
    }
    free(shown);
}

/* The level from the beginning of a line, which is skipped. */
static enum log_level level_of(const char **line)
{
    static const char error[] = "amptrain: ", warning[] = "amptrain: warning: ";
    bool warns = strncmp(*line, warning, strlen(warning)) == 0;
    if (!warns && strncmp(*line, error, strlen(error)) != 0) return LOG_INFO;
    *line += warns ? strlen(warning) : strlen(error);
    return warns ? LOG_WARNING : LOG_ERROR;
}

static void keep(const struct lines *lines, const char *who, const char *line)
{
    enum log_level level = level_of(&line);
    char *kept = text_format("%s%s", who, line);
    lines->sink.write(lines->sink.context, level, kept);
    free(kept);
}

/* "rank 3: ", "ranks 1, 2, 5: " */
static void show_held(const struct lines *lines, const struct held *held)
{
    struct text who = {0};
    int count = 0;
    for (int rank = 0; rank < lines->ranks; rank++) count += held->said[rank];
    text_add(&who, count == 1 ? "rank" : "ranks");
    for (int rank = 0, shown = 0; rank < lines->ranks; rank++)
        if (held->said[rank]) text_add(&who, "%s %d", shown++ > 0 ? "," : "", rank);
    text_add(&who, ": ");
    show(lines, who.data, held->text);
    keep(lines, who.data, held->text);
    text_free(&who);
}

void lines_show(struct lines *lines, bool now)
{
    double late = clock_seconds() - WAIT;
    for (int i = 0; i < lines->held_count;) {
        if (!now && lines->held[i].since > late) {
            i++;
            continue;
        }
        show_held(lines, &lines->held[i]);
        forget(lines, i);
    }
}

bool lines_wait(const struct lines *lines)
{
    return lines->held_count > 0;
}

void lines_only(struct lines *lines, int rank)
{
    lines->only = rank;
}

static int find_held(const struct lines *lines, const char *line)
{
    for (int i = 0; i < lines->held_count; i++)
        if (strcmp(lines->held[i].text, line) == 0) return i;
    return -1;
}

static bool is_remembered(const struct lines *lines, const char *line)
{
    for (int i = 0; i < REMEMBERED; i++)
        if (lines->remembered[i] && strcmp(lines->remembered[i], line) == 0) return true;
    return false;
}

static void take_first(struct lines *lines, const char *line, int held)
{
    if (lines->only > 0 && held < 0) return;
    if (held >= 0) forget(lines, held);
    show(lines, "", line);
    free(lines->remembered[lines->next]);
    lines->remembered[lines->next] = text_copy(line);
    lines->next = (lines->next + 1) % REMEMBERED;
}

static void take_other(struct lines *lines, int rank, const char *line, int held)
{
    if (is_remembered(lines, line)) return;
    if (held < 0 && lines->only >= 0 && lines->only != rank) return;
    if (held < 0) {
        held = lines->held_count;
        struct held *new = array_push(lines->held, lines->held_count);
        *new = (struct held){.text = text_copy(line), .since = clock_seconds()};
        new->said = memory_new((size_t)lines->ranks, sizeof(bool));
    }
    lines->held[held].said[rank] = true;
}

static void lines_take(struct lines *lines, int rank)
{
    struct text *begun = &lines->begun[rank];
    int held = find_held(lines, begun->data);
    if (rank == 0)
        take_first(lines, begun->data, held);
    else
        take_other(lines, rank, begun->data, held);
    text_free(begun);
}

static void take_bytes(struct lines *lines, int rank, char *bytes)
{
    char *rest = bytes, *part;
    while ((part = strsep(&rest, "\n"))) {
        text_add(&lines->begun[rank], "%s", part);
        if (rest || strlen(lines->begun[rank].data) > LINE_MAX_BYTES) lines_take(lines, rank);
    }
}

bool lines_read(struct lines *lines, int rank, int descriptor)
{
    char bytes[4096 + 1];
    ssize_t count;
    while ((count = read(descriptor, bytes, sizeof bytes - 1)) > 0) {
        for (ssize_t i = 0; i < count; i++)
            if (bytes[i] == '\0') bytes[i] = ' ';
        bytes[count] = '\0';
        take_bytes(lines, rank, bytes);
    }
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (lines->begun[rank].length > 0) lines_take(lines, rank);
    return false;
}
