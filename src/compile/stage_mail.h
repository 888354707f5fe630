/* stage_mail.h: the messages that a stage of a pipeline receives in a step. */
#pragma once

#include "comm/comm.h"
#include "compile/program.h"

/* Fills from[program->stages], by sender. */
void stage_mail(const struct program *program, struct comm_mail *from);

/* Bytes of device memory into which other GPUs write them (cuda_mail.h); 0 if there are none. */
int64_t stage_mail_bytes(const struct program *program);
