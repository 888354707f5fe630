/* status.h: the result of every function that can fail; its values are the program's exit codes. */
#pragma once

enum status {
    OK = 0,              /* done */
    FAILED = 1,          /* failed while running */
    USAGE = 2,           /* command line, configuration or model file */
    BAD_DATA = 3,        /* data missing, unreadable, or nothing usable in it */
    NO_DEVICE = 4,       /* device missing or broken, or its memory too small */
    BAD_CHECKPOINT = 5,  /* a checkpoint or weights file that cannot be used */
    STOPPED = 75,        /* stopped on request, a checkpoint is written */
};

/* Reports a failure, once, and returns `why` for the caller to pass on. It is called where a failure is first
 * understood, with file:line, key, tensor, layer or image in the text; all callers pass the status on with
 * TRY. */
enum status fail(enum status why, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define TRY(call)                                 \
    do {                                          \
        enum status try_status_ = (call);         \
        if (try_status_ != OK) return try_status_; \
    } while (0)

/* A sentence that a function returns to its caller, which knows the file and line and reports it. */
#define REASON_SIZE 256
struct reason {
    char text[REASON_SIZE];
    int error;              /* errno of a failed system call; 0: the content is wrong */
};

/* Writes the sentence and returns false, so that a check can end with `return because(...)`. */
_Bool because(struct reason *reason, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Gives the reason "WHAT: ERROR" by errno. */
_Bool because_errno(struct reason *reason, const char *what);

/* Gives the reason "WHAT: WHY", where the beginning of `what`, a path, is cut if both do not fit. `why` may
 * be the reason's own text. */
_Bool because_of(struct reason *reason, const char *what, const char *why);
