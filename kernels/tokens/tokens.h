/* tokens.h: settings of the ops on tokens, and CPU loops that several of them share. Tokens are the pixels of
 * a tensor n, tokens, 1, c. */
#pragma once

#include "kernels/op.h"

/* Settings of learned tokens and positions. */
struct token_init {
    int choice;                /* index into token_inits */
    double std;
};

struct prepend {
    int64_t count;
    struct token_init init;
};

struct position {
    int64_t prefix;            /* tokens in front of the grid */
    struct token_init init;
};

enum token_pool_mode { TOKEN_POOL_CLASS, TOKEN_POOL_MEAN };

struct token_pool {
    int mode;
    int64_t prefix;            /* tokens that a mean leaves out */
};

extern const char *const token_inits[];
enum init token_init(const struct token_init *settings);

/* Rows for the op's field table; `member` is the struct token_init in struct `settings`. */
#define TOKEN_INIT_FIELDS(settings, member)                                                                \
    {.name = "init", .type = FIELD_CHOICE, .offset = offsetof(settings, member.choice), .initial = "normal", \
     .choices = token_inits, .help = "Initialisation."},                                                   \
    {.name = "init_std", .type = FIELD_REAL, .offset = offsetof(settings, member.std), .initial = "0.02",  \
     .min = 0, .max = 1e6, .help = "Standard deviation for init=normal and init=truncated_normal."}

static inline int64_t token_count(struct shape shape) { return shape.h * shape.w; }

/* to[i] = sum over images of from[image][i], of as many as `to` has. */
void tokens_sum_images(const struct tensor *from, const struct tensor *to);
void tokens_sum_images_cpu(const struct tensor *from, const struct tensor *to);
