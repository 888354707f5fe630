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
    bool optional;               /* 0 in files of versions that did not know it */
};

enum { REQUIRED, OPTIONAL };
#define MEMBER(key, type, object, part, optional) \
    {key, MEMBER_##type, offsetof(struct object, part), optional}

static const struct member position_members[] = {
    MEMBER("position.epoch", INT64, position, epoch, REQUIRED),
    MEMBER("position.batch", INT64, position, batch, REQUIRED),
    MEMBER("position.loss_sum", DOUBLE, position, loss_sum, REQUIRED),
    MEMBER("position.images", INT64, position, images, REQUIRED),
    MEMBER("position.correct", INT64, position, correct, REQUIRED),
    MEMBER("position.skipped", INT64, position, skipped, REQUIRED),
    MEMBER("position.skipped_told", INT64, position, skipped_told, REQUIRED),
    MEMBER("position.bad_images", INT64, position, bad_images, REQUIRED),
    MEMBER("position.seconds", DOUBLE, position, seconds, REQUIRED),
    MEMBER("position.wait_seconds", DOUBLE, position, wait_seconds, REQUIRED),
    MEMBER("position.best", DOUBLE, position, best, REQUIRED),
    MEMBER("position.best_epoch", INT64, position, best_epoch, REQUIRED),
    MEMBER("position.epochs_without_gain", INT64, position, epochs_without_gain, REQUIRED),
    MEMBER("position.seed", INT64, position, seed, REQUIRED),
    MEMBER("position.plateau_lr", DOUBLE, position, plateau.lr, OPTIONAL),
    MEMBER("position.plateau_best", DOUBLE, position, plateau.best, OPTIONAL),
    MEMBER("position.plateau_bad", INT64, position, plateau.bad, OPTIONAL),
    MEMBER("position.plateau_cooldown", INT64, position, plateau.cooldown, OPTIONAL),
    MEMBER("position.swa_epoch", INT64, position, swa_epoch, OPTIONAL),
    {0},
};

static const struct member state_members[] = {
    MEMBER("optimizer.updates", INT64, optimizer_state, updates, REQUIRED),
    MEMBER("optimizer.step", INT64, optimizer_state, step, REQUIRED),
    MEMBER("optimizer.skipped_steps", INT64, optimizer_state, skipped_steps, REQUIRED),
    MEMBER("optimizer.skipped", INT32, optimizer_state, skipped, REQUIRED),
    MEMBER("optimizer.grad_norm", FLOAT, optimizer_state, grad_norm, REQUIRED),
    MEMBER("optimizer.lr", FLOAT, optimizer_state, lr, REQUIRED),
    MEMBER("optimizer.momentum", FLOAT, optimizer_state, momentum, REQUIRED),
    MEMBER("scaler.scale", FLOAT, optimizer_state, scaler.scale, REQUIRED),
    MEMBER("scaler.good_steps", INT32, optimizer_state, scaler.good_steps, REQUIRED),
    MEMBER("scaler.floor_overflows", INT32, optimizer_state, scaler.floor_overflows, REQUIRED),
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
        if (!text && member->optional) continue;
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
        position->plateau.bad, position->plateau.cooldown, position->swa_epoch,
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
