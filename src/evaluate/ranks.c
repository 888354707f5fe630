#include "evaluate/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/signals.h"

/* Sent from each rank to all: this, then the columns, each of [share] floats or int32. */
struct message {
    uint64_t fingerprint;
    int32_t count, bad;
    int32_t stop, checkpoint, out_of_time, save_due;
    int32_t bad_images;              /* there are lines of them to share */
};

#define COLUMNS 5   /* losses, ranks, labels, predictions, confidences */

static size_t column_bytes(const struct ranks *ranks)
{
    return (size_t)ranks->share * sizeof(int32_t);
}

static size_t message_bytes(const struct ranks *ranks)
{
    return sizeof(struct message) + COLUMNS * column_bytes(ranks);
}

void ranks_open(struct comm *comm, int share, struct bad_images *bad_images, struct ranks *ranks)
{
    size_t all = (size_t)share * (size_t)comm_count(comm);
    *ranks = (struct ranks){
        .comm = comm, .share = share, .stages = 1, .bad_images = comm_count(comm) > 1 ? bad_images : NULL,
        .progress = {.saved = -1},
        .losses = memory_new(all, sizeof(float)),
        .ranks = memory_new(all, sizeof(int32_t)),
        .labels = memory_new(all, sizeof(int32_t)),
        .predictions = memory_new(all, sizeof(int32_t)),
        .confidences = memory_new(all, sizeof(float)),
    };
    if (ranks->bad_images) bad_images_share(ranks->bad_images);
    ranks->sent = memory_new(1, message_bytes(ranks));
    ranks->received = memory_new((size_t)comm_count(comm), message_bytes(ranks));
}

void ranks_close(struct ranks *ranks)
{
    free(ranks->losses);
    free(ranks->ranks);
    free(ranks->labels);
    free(ranks->predictions);
    free(ranks->confidences);
    free(ranks->sent);
    free(ranks->received);
    *ranks = (struct ranks){0};
}

static void write_message(struct ranks *ranks, const struct ranks_batch *batch)
{
    struct comm_request asked = comm_requested(ranks->comm);
    struct message message = {
        .fingerprint = batch->fingerprint,
        .count = batch->count, .bad = batch->bad,
        .stop = ranks_asked_to_stop(ranks),
        .checkpoint = asked.checkpoints != ranks->checkpoints,
        .out_of_time = batch->out_of_time, .save_due = batch->save_due,
        .bad_images = ranks->bad_images && bad_images_pending(ranks->bad_images),
    };
    if (ranks->comm && signals_checkpoint()) message.checkpoint = true;
    ranks->checkpoints = asked.checkpoints;
    const void *columns[COLUMNS] = {batch->losses, batch->ranks, batch->labels, batch->predictions,
                                    batch->confidences};
    char *at = ranks->sent;
    memcpy(at, &message, sizeof message);
    at += sizeof message;
    for (int i = 0; i < COLUMNS; i++, at += column_bytes(ranks))
        if (columns[i]) memcpy(at, columns[i], (size_t)batch->count * sizeof(int32_t));
}

static struct message message_of(const struct ranks *ranks, int rank)
{
    struct message message;
    memcpy(&message, (const char *)ranks->received + (size_t)rank * message_bytes(ranks), sizeof message);
    return message;
}

static void read_message(struct ranks *ranks, int rank)
{
    const struct message message = message_of(ranks, rank), first = message_of(ranks, rank % ranks->stages);
    const char *at = (const char *)ranks->received + (size_t)rank * message_bytes(ranks) + sizeof message;
    int count = ranks->count;
    void *columns[COLUMNS] = {
        ranks->losses + count, ranks->ranks + count, ranks->labels + count, ranks->predictions + count,
        ranks->confidences + count,
    };
    for (int i = 0; i < COLUMNS; i++, at += column_bytes(ranks))
        memcpy(columns[i], at, (size_t)message.count * sizeof(int32_t));
    ranks->count += message.count;
    ranks->bad += message.bad;
    if (ranks->stop == 0) ranks->stop = message.stop;
    if (ranks->comm && message.checkpoint) ranks->checkpoint = true;
    if (message.fingerprint != first.fingerprint) ranks->unlike = true;
    if (message.bad_images) ranks->bad_images_pending = true;
    if (rank > 0) return;
    ranks->out_of_time = message.out_of_time;
    ranks->save_due = message.save_due;
}

enum status ranks_gather(struct ranks *ranks, const struct ranks_batch *batch)
{
    write_message(ranks, batch);
    TRY(comm_all_gather(ranks->comm, ranks->sent, ranks->received, message_bytes(ranks)));
    ranks->count = ranks->bad = 0;
    ranks->unlike = ranks->bad_images_pending = false;
    for (int rank = 0; rank < comm_count(ranks->comm); rank++) read_message(ranks, rank);
    ranks->own_lost = false;
    for (int i = 0; i < batch->count; i++)
        if (batch->labels[i] >= 0 && !isfinite(batch->losses[i])) ranks->own_lost = true;
    return ranks->bad_images_pending ? ranks_share_bad_images(ranks) : OK;
}

enum status ranks_gather_rows(struct ranks *ranks, const float *rows, int width, float *all)
{
    size_t count = (size_t)comm_count(ranks->comm), most = (size_t)ranks->share * (size_t)width;
    float *received = memory_new(count * most, sizeof *received);
    enum status status = comm_all_gather(ranks->comm, rows, received, most * sizeof *rows);
    for (size_t rank = 0; status == OK && rank < count; rank++) {
        size_t own = (size_t)message_of(ranks, (int)rank).count * (size_t)width;
        memcpy(all, received + rank * most, own * sizeof *all);
        all += own;
    }
    free(received);
    return status;
}

/* lines: of this rank; `most`: bytes of the longest of all ranks. */
static enum status gather_lines(struct ranks *ranks, const char *lines, size_t most)
{
    size_t count = (size_t)comm_count(ranks->comm);
    char *own = memory_new(most + 1, 1), *all = memory_new(count, most + 1);
    memcpy(own, lines, strlen(lines));
    enum status status = comm_all_gather(ranks->comm, own, all, most + 1);
    for (size_t rank = 0; status == OK && rank < count; rank++)
        bad_images_add(ranks->bad_images, all + rank * (most + 1));
    free(own);
    free(all);
    return status;
}

enum status ranks_share_bad_images(struct ranks *ranks)
{
    int count = comm_count(ranks->comm);
    if (!ranks->bad_images) return OK;
    char *lines = bad_images_collect(ranks->bad_images);
    uint64_t bytes = lines ? strlen(lines) : 0, most = 0;
    uint64_t *all = memory_new((size_t)count, sizeof *all);
    enum status status = comm_all_gather(ranks->comm, &bytes, all, sizeof bytes);
    for (int rank = 0; rank < count; rank++) most = all[rank] > most ? all[rank] : most;
    if (status == OK && most > 0) status = gather_lines(ranks, lines ? lines : "", (size_t)most);
    free(all);
    free(lines);
    return status;
}

int ranks_asked_to_stop(const struct ranks *ranks)
{
    int asked = comm_requested(ranks->comm).stop;
    return asked ? asked : signals_stop();
}

int ranks_stop(const struct ranks *ranks)
{
    return ranks->comm ? ranks->stop : signals_stop();
}

bool ranks_checkpoint(struct ranks *ranks)
{
    if (!ranks->comm) return signals_checkpoint();
    bool asked = ranks->checkpoint;
    ranks->checkpoint = false;
    return asked;
}

bool ranks_status(struct ranks *ranks)
{
    uint32_t statuses = comm_requested(ranks->comm).statuses;
    bool asked = statuses != ranks->statuses;
    ranks->statuses = statuses;
    return signals_status() || asked;
}

void ranks_report(struct ranks *ranks, enum comm_phase phase, int64_t step)
{
    ranks->progress.phase = phase;
    ranks->progress.step = step;
    comm_report(ranks->comm, &ranks->progress);
}

void ranks_report_saved(struct ranks *ranks, int64_t step)
{
    ranks->progress.saved = step;
    comm_report(ranks->comm, &ranks->progress);
}

enum status ranks_share_text(struct comm *comm, int root, const char *text, char **shared)
{
    int64_t length = text ? (int64_t)strlen(text) : -1;
    *shared = NULL;
    TRY(comm_broadcast(comm, root, &length, sizeof length));
    if (length < 0) return OK;
    char *copy = memory_new((size_t)length + 1, 1);
    if (text && comm_rank(comm) == root) memcpy(copy, text, (size_t)length);
    enum status status = comm_broadcast(comm, root, copy, (size_t)length);
    if (status == OK) *shared = copy;
    else free(copy);
    return status;
}

/* All ranks get the choices of rank `root`. */
static enum status share_algorithms(struct comm *comm, int root, struct device *device)
{
    struct text own = {0};
    char *shared;
    const struct device_autotuner *autotuner = &device->backend->autotuner;
    if (autotuner->save && comm_rank(comm) == root) autotuner->save(device, &own);
    enum status status = ranks_share_text(comm, root, own.data, &shared);
    if (status == OK && shared && comm_rank(comm) != root) autotuner->load(device, shared);
    text_free(&own);
    free(shared);
    return status;
}

enum status ranks_receive_algorithms(struct comm *comm, int stages, struct device *device)
{
    int taken = comm_rank(comm) < stages ? comm_rank(comm) : stages;
    for (int root = 0; root < taken; root++) TRY(share_algorithms(comm, root, device));
    return OK;
}

enum status ranks_send_algorithms(struct comm *comm, int stages, struct device *device)
{
    if (comm_count(comm) == 1) return OK;
    for (int root = comm_rank(comm); root < stages; root++) TRY(share_algorithms(comm, root, device));
    return OK;
}
