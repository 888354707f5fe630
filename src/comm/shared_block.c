#include "comm/shared_block.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/align.h"

#define MAGIC 0x616d7072u
/* The largest page that Linux has on any processor: what is mapped begins at a multiple of it. */
#define PAGE 65536

static size_t slots_at(int count)
{
    return align_up(sizeof(struct shared_block) + (size_t)count * sizeof(struct shared_rank), PAGE);
}

static size_t block_bytes(int count)
{
    return slots_at(count) + (size_t)count * 2 * SHARED_SLOT_BYTES;
}

static size_t mailbox_bytes(void)
{
    return align_up(sizeof(struct shared_mailbox) + SHARED_MAIL_BYTES, PAGE);
}

enum status shared_block_create(int count, int *descriptor)
{
    int file = memfd_create("amptrain", MFD_CLOEXEC);
    if (file < 0) return fail(FAILED, "no memory to share among %d ranks: %s", count, strerror(errno));
    size_t bytes = block_bytes(count) + (size_t)count * (size_t)count * mailbox_bytes();
    struct shared_block head = {.magic = MAGIC, .count = (uint32_t)count};
    if (ftruncate(file, (off_t)bytes) != 0 || pwrite(file, &head, sizeof head, 0) != (ssize_t)sizeof head) {
        enum status status = fail(FAILED, "no memory to share among %d ranks: %s", count, strerror(errno));
        close(file);
        return status;
    }
    *descriptor = file;
    return OK;
}

/* NULL, reported, where it cannot be. */
static void *map(int descriptor, size_t offset, size_t bytes)
{
    int flags = MAP_SHARED | MAP_NORESERVE;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, descriptor, (off_t)offset);
    if (memory != MAP_FAILED) return memory;
    fail(FAILED, "the memory that ranks share cannot be mapped: %s", strerror(errno));
    return NULL;
}

enum status shared_block_map(int descriptor, struct shared_block **block)
{
    struct shared_block head;
    bool good = pread(descriptor, &head, sizeof head, 0) == (ssize_t)sizeof head && head.magic == MAGIC;
    if (!good) return fail(FAILED, "descriptor %d is not memory shared by ranks", descriptor);
    struct shared_block *mapped = map(descriptor, 0, block_bytes((int)head.count));
    if (!mapped) return FAILED;
    *block = mapped;
    return OK;
}

void shared_block_unmap(struct shared_block *block)
{
    if (block) munmap(block, block_bytes((int)block->count));
}

char *shared_block_slot(struct shared_block *block, int rank, int turn)
{
    size_t number = (size_t)rank * 2 + (size_t)turn;
    return (char *)block + slots_at((int)block->count) + number * SHARED_SLOT_BYTES;
}

enum status shared_mailbox_map(int descriptor, int count, int from, int to, struct shared_mailbox **box)
{
    size_t number = (size_t)from * (size_t)count + (size_t)to;
    struct shared_mailbox *mapped = map(descriptor, block_bytes(count) + number * mailbox_bytes(),
                                        mailbox_bytes());
    if (!mapped) return FAILED;
    *box = mapped;
    return OK;
}

void shared_mailbox_unmap(struct shared_mailbox *box)
{
    if (box) munmap(box, mailbox_bytes());
}

void shared_sleep(_Atomic uint32_t *word, uint32_t value, double seconds)
{
    struct timespec most = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &most, NULL, 0);
}

void shared_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
