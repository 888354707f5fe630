#include <string.h>

#include "base/clock.h"
#include "comm/shared_parts.h"

/* The offset at which a message fits while those from `received` to `sent` are in the ring, each contiguous:
 * behind the newest one, or at the start again. False: there is no room yet. */
static bool place(const struct shared_mailbox *box, uint32_t received, uint32_t sent, size_t bytes,
                  size_t *at)
{
    *at = 0;
    if (received == sent) return true;
    if (sent - received == SHARED_MAIL_MESSAGES) return false;
    const struct shared_message *newest = &box->messages[(sent - 1) % SHARED_MAIL_MESSAGES];
    const struct shared_message *oldest = &box->messages[received % SHARED_MAIL_MESSAGES];
    size_t end = newest->offset + newest->bytes;
    bool round = newest->offset < oldest->offset;
    if (round || SHARED_MAIL_BYTES - end >= bytes) *at = end;
    return *at + bytes <= (*at >= oldest->offset ? SHARED_MAIL_BYTES : oldest->offset);
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
    uint32_t sent = atomic_load(&box->sent), received = atomic_load(&box->received);
    size_t offset;
    while (!place(box, received, sent, bytes, &offset)) {
        TRY(shared_wait(&wait, &box->received, received));
        received = atomic_load(&box->received);
    }
    if (bytes > 0) memcpy(box->data + offset, from, bytes);
    box->messages[sent % SHARED_MAIL_MESSAGES] = (struct shared_message){offset, bytes};
    atomic_store(&box->sent, sent + 1);
    shared_wake(&box->sent);
    return OK;
}

enum status shared_receive(struct comm *comm, int peer, void *to, size_t bytes, void *stream)
{
    struct shared *shared = (struct shared *)comm;
    TRY(mailbox(shared, &shared->in[peer], peer, comm->rank));
    struct shared_mailbox *box = shared->in[peer];
    struct shared_wait wait = {shared, "receive", peer, clock_seconds()};
    uint32_t received = atomic_load(&box->received);
    while (atomic_load(&box->sent) == received) TRY(shared_wait(&wait, &box->sent, received));
    const struct shared_message *message = &box->messages[received % SHARED_MAIL_MESSAGES];
    if (message->bytes != bytes)
        return fail(FAILED, "rank %d sends %llu bytes where rank %d is to receive %zu", peer,
                    (unsigned long long)message->bytes, comm->rank, bytes);
    if (bytes > 0) memcpy(to, box->data + message->offset, bytes);
    atomic_store(&box->received, received + 1);
    shared_wake(&box->received);
    return OK;
}
