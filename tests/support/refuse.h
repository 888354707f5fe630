/* refuse.h: lets a system call fail in a test that is built with $(REFUSE) (tests/base.mk). */
#pragma once

#include <stdbool.h>

/* The call of this name (refuse.c lists them) after `calls` others of it fails, once, with EIO. */
void refuse(const char *name, int calls);

/* True if it did; from now on none does. */
bool refuse_struck(void);
