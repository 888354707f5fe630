#include "checkpoint/position.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/better.h"
#include "base/memory.h"

/* Limit of all counters, whose sums and products do not overflow. */
#define COUNT_MAX ((int64_t)1 << 40)

enum member_type { MEMBER_INT64, MEMBER_INT32, MEMBER_DOUBLE, MEMBER_FLOAT };

struct member {
    const char *key;
    enum member_type type;
    size_t offset;
};

static const struct member position_members[] = {
    {"position.epoch", MEMBER_INT64, offsetof(struct position, epoch)},
    {"position.batch", MEMBER_INT64, offsetof(struct position, batch)},
    {"position.loss_sum", MEMBER_DOUBLE, offsetof(struct position, loss_sum)},
    {"position.images", MEMBER_INT64, offsetof(struct position, images)},
    {"position.correct", MEMBER_INT64, offsetof(struct position, correct)},
    {"position.skipped", MEMBER_INT64, offsetof(struct position, skipped)},
    {"position.skipped_told", MEMBER_INT64, offsetof(struct position, skipped_told)},
    {"position.bad_images", MEMBER_INT64, offsetof(struct position, bad_images)},
    {"position.seconds", MEMBER_DOUBLE, offsetof(struct position, seconds)},
    {"position.wait_seconds", MEMBER_DOUBLE, offsetof(struct position, wait_seconds)},
    {"position.best", MEMBER_DOUBLE, offsetof(struct position, best)},
    {"position.best_epoch", MEMBER_INT64, offsetof(struct position, best_epoch)},
    {"position.epochs_without_gain", MEMBER_INT64, offsetof(struct position, epochs_without_gain)},
    {"position.seed", MEMBER_INT64, offsetof(struct position, seed)},
    {0},
};

static const struct member state_members[] = {
    {"optimizer.updates", MEMBER_INT64, offsetof(struct optimizer_state, updates)},
    {"optimizer.step", MEMBER_INT64, offsetof(struct optimizer_state, step)},
    {"optimizer.skipped_steps", MEMBER_INT64, offsetof(struct optimizer_state, skipped_steps)},
    {"optimizer.skipped", MEMBER_INT32, offsetof(struct optimizer_state, skipped)},
    {"optimizer.grad_norm", MEMBER_FLOAT, offsetof(struct optimizer_state, grad_norm)},
    {"optimizer.lr", MEMBER_FLOAT, offsetof(struct optimizer_state, lr)},
    {"optimizer.momentum", MEMBER_FLOAT, offsetof(struct optimizer_state, momentum)},
    {"scaler.scale", MEMBER_FLOAT, offsetof(struct optimizer_state, scaler.scale)},
    {"scaler.good_steps", MEMBER_INT32, offsetof(struct optimizer_state, scaler.good_steps)},
    {"scaler.floor_overflows", MEMBER_INT32, offsetof(struct optimizer_state, scaler.floor_overflows)},
    {0},
};

/* Floating numbers are written in hexadecimal, which is exact. */
static char *member_print(const struct member *member, const void *object)
{
    const void *at = (const char *)object + member->offset;
    switch (member->type) {
    case MEMBER_INT64:
        return text_format("%" PRId64, *(const int64_t *)at);
    case MEMBER_INT32:
        return text_format("%" PRId32, *(const int32_t *)at);
    case MEMBER_DOUBLE:
        return text_format("%a", *(const double *)at);
    case MEMBER_FLOAT:
        return text_format("%a", (double)*(const float *)at);
    }
    return NULL;
}

static bool member_parse(const struct member *member, void *object, const char *text)
{
    void *at = (char *)object + member->offset;
    bool whole = member->type == MEMBER_INT64 || member->type == MEMBER_INT32;
    char *end;
    errno = 0;
    long long integer = whole ? strtoll(text, &end, 10) : 0;
    double real = whole ? 0 : strtod(text, &end);
    if (end == text || *end != '\0' || (whole && errno != 0)) return false;
    switch (member->type) {
    case MEMBER_INT64:
        *(int64_t *)at = integer;
        break;
    case MEMBER_INT32:
        if (integer < INT32_MIN || integer > INT32_MAX) return false;
        *(int32_t *)at = (int32_t)integer;
        break;
    case MEMBER_DOUBLE:
        *(double *)at = real;
        break;
    case MEMBER_FLOAT:
        *(float *)at = (float)real;
        break;
    }
    return true;
}

static void members_print(const struct member *members, const void *object, struct safetensors_pair **pairs,
                          int *count)
{
    for (const struct member *member = members; member->key; member++)
        *array_push(*pairs, *count) =
            (struct safetensors_pair){text_copy(member->key), member_print(member, object)};
}

static bool members_parse(const struct member *members, void *object, const struct safetensors *file,
                          struct reason *reason)
{
    for (const struct member *member = members; member->key; member++) {
        const char *text = safetensors_value(file, member->key);
        if (!text) return because(reason, "has no '%s'", member->key);
        if (!member_parse(member, object, text))
            return because(reason, "has an invalid value for '%s': '%.40s'", member->key, text);
    }
    return true;
}

static bool counts_can_be(const struct position *position, const struct optimizer_state *state)
{
    const int64_t counts[] = {
        position->epoch, position->batch, position->images, position->correct, position->skipped,
        position->skipped_told, position->bad_images, position->best_epoch, position->epochs_without_gain,
        state->step, state->updates, state->skipped_steps, state->scaler.good_steps,
        state->scaler.floor_overflows,
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i] < 0 || counts[i] > COUNT_MAX) return false;
    return state->updates <= state->step;
}

bool position_update_best(struct position *position, double value, bool lower_is_better)
{
    bool gain = better(value, position->best_epoch > 0 ? position->best : (double)NAN, lower_is_better);
    position->epochs_without_gain = gain ? 0 : position->epochs_without_gain + 1;
    if (!gain) return false;
    position->best = value;
    position->best_epoch = position->epoch + 1;
    return true;
}

void position_print(const struct position *position, const struct optimizer_state *state,
                    struct safetensors_pair **pairs, int *count)
{
    members_print(position_members, position, pairs, count);
    members_print(state_members, state, pairs, count);
}

bool position_parse(const struct safetensors *file, struct position *position,
                    struct optimizer_state *state, struct reason *reason)
{
    struct position parsed_position = {0};
    struct optimizer_state parsed_state = {0};
    if (!members_parse(position_members, &parsed_position, file, reason)) return false;
    if (!members_parse(state_members, &parsed_state, file, reason)) return false;
    if (!counts_can_be(&parsed_position, &parsed_state))
        return because(reason, "has an invalid position");
    *position = parsed_position;
    *state = parsed_state;
    return true;
}
