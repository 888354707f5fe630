#include <string.h>

#include "base/clock.h"
#include "comm/shared_parts.h"

static const struct shared_message *message_at(const struct shared_mailbox *box, uint32_t number)
{
    return &box->messages[number % SHARED_MAIL_MESSAGES];
}

/* The first position from `position` on at which so many bytes are contiguous; at the start of the ring if
 * nothing is in it, so that short messages touch few pages. */
static uint64_t place(uint64_t position, bool empty, size_t capacity, size_t bytes)
{
    uint64_t offset = position % capacity;
    bool behind = offset == 0 || (!empty && bytes <= capacity - offset);
    return behind ? position : position + (capacity - offset);
}

/* The messages in the ring lie within `capacity` bytes from the oldest one's position, so no two overlap. */
bool shared_mail_put(struct shared_mailbox *box, size_t capacity, const void *from, size_t bytes)
{
    uint32_t sent = atomic_load(&box->sent), received = atomic_load(&box->received);
    const struct shared_message *newest = message_at(box, sent - 1), *oldest = message_at(box, received);
    uint64_t position = place(newest->position + newest->bytes, sent == received, capacity, bytes);
    if (sent - received == SHARED_MAIL_MESSAGES) return false;
    if (sent != received && position + bytes - oldest->position > capacity) return false;
    if (bytes > 0) memcpy(box->data + position % capacity, from, bytes);
    box->messages[sent % SHARED_MAIL_MESSAGES] = (struct shared_message){position, bytes};
    atomic_store(&box->sent, sent + 1);
    return true;
}

const struct shared_message *shared_mail_oldest(const struct shared_mailbox *box)
{
    uint32_t received = atomic_load(&box->received);
    return atomic_load(&box->sent) == received ? NULL : message_at(box, received);
}

void shared_mail_take(struct shared_mailbox *box, size_t capacity, void *to)
{
    const struct shared_message *oldest = shared_mail_oldest(box);
    if (oldest->bytes > 0) memcpy(to, box->data + oldest->position % capacity, oldest->bytes);
    atomic_fetch_add(&box->received, 1);
}

static enum status mailbox(struct shared *shared, struct shared_mailbox **box, int from, int to)
{
    return *box ? OK : shared_mailbox_map(shared->descriptor, shared->comm.count, from, to, box);
}

enum status shared_send(struct comm *comm, int peer, const void *from, size_t bytes, void *stream)
{
    struct shared *shared = (struct shared *)comm;
    if (bytes > SHARED_MAIL_BYTES)
        return fail(FAILED, "%zu bytes are too many for one message from rank %d to rank %d", bytes,
                    comm->rank, peer);
    TRY(mailbox(shared, &shared->out[peer], comm->rank, peer));
    struct shared_mailbox *box = shared->out[peer];
    struct shared_wait wait = {shared, "send", peer, clock_seconds()};
    uint32_t received = atomic_load(&box->received);
    while (!shared_mail_put(box, SHARED_MAIL_BYTES, from, bytes)) {
        TRY(shared_wait(&wait, &box->received, received));
        received = atomic_load(&box->received);
    }
    shared_wake(&box->sent);
    return OK;
}

enum status shared_receive(struct comm *comm, int peer, void *to, size_t bytes, void *stream)
{
    struct shared *shared = (struct shared *)comm;
    TRY(mailbox(shared, &shared->in[peer], peer, comm->rank));
    struct shared_mailbox *box = shared->in[peer];
    struct shared_wait wait = {shared, "receive", peer, clock_seconds()};
    const struct shared_message *message;
    while (!(message = shared_mail_oldest(box)))
        TRY(shared_wait(&wait, &box->sent, atomic_load(&box->received)));
    if (message->bytes != bytes)
        return fail(FAILED, "rank %d sends %llu bytes where rank %d is to receive %zu", peer,
                    (unsigned long long)message->bytes, comm->rank, bytes);
    shared_mail_take(box, SHARED_MAIL_BYTES, to);
    shared_wake(&box->received);
    return OK;
}
