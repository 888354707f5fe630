/* stage_mail.h: the messages that a stage of a pipeline receives in a step. */
#pragma once

#include "base/status.h"
#include "comm/comm.h"
#include "compile/ir/program.h"

/* Fills from[program->stages], by sender. */
void stage_mail(const struct program *program, struct comm_mail *from);

/* True if no message is of more than `most` bytes (0: there is no limit), where `replicas` ranks have each
 * stage; their collectives are messages, too (comm/group.h). `reason` names the largest. */
bool stage_mail_fits(const struct program *program, int replicas, size_t most, struct reason *reason);

/* Bytes of device memory into which other GPUs write them (cuda_mail.h); 0 if there are none. */
int64_t stage_mail_bytes(const struct program *program);
