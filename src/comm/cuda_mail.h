/* cuda_mail.h: messages among GPUs of one host, each written by a copy engine into memory of the receiver's,
 * whose stream waits for a flag there. No multiprocessor copies or waits: what computes has the whole GPU.
 *
 * Every message of a step has a place of its own. The next step's may be written there at once, since no step
 * ends on a rank before it has had a message from each other one at its end (stage_norm.c), and that comes
 * after all that the other had to receive. */
#pragma once

#include "comm/comm.h"

/* Makes this the exchange backend of `comm`, whose ranks are on one host, for the calling thread's CUDA
 * device; all ranks call together. *opened is false, and the backend as it was, where a GPU does not reach
 * another one's memory. It has no all_to_all. */
enum status cuda_mail_open(struct comm *comm, bool *opened);

/* Opens the exchange of shares of gradients: a rank copies them to where they belong in another rank's
 * memory, between a flag that allows it and one that says that they are there. Small exchanges remain those
 * that `comm` had. No effect where a GPU does not reach another one's memory. */
enum status cuda_shares_open(struct comm *comm);

/* Device memory of a rank that gets so much from each of `count` ranks. */
size_t cuda_mail_bytes(const struct comm_mail *from, int count);
