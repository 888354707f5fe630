#include "compile/ir/program_words.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"

const char *const instruction_kind_words[] = {
    [INSTRUCTION_OP] = "op", [INSTRUCTION_UPDATE] = "update", [INSTRUCTION_MEASURE] = "measure",
    [INSTRUCTION_COPY_TO_HOST] = "copy_to_host", [INSTRUCTION_COPY_FROM_HOST] = "copy_from_host",
    [INSTRUCTION_SEND] = "send", [INSTRUCTION_RECEIVE] = "receive",
    [INSTRUCTION_ALL_TO_ALL] = "all_to_all", [INSTRUCTION_ALL_GATHER] = "all_gather",
    [INSTRUCTION_ALL_REDUCE] = "all_reduce", NULL,
};

const char *const home_words[] = {
    [HOME_ARENA] = "arena", [HOME_PART] = "in", [HOME_PARAM] = "store", [HOME_IMAGES] = "images",
    [HOME_TARGETS] = "targets", [HOME_RESULT] = "results", [HOME_FLAGS] = "flags", [HOME_HOST] = "host",
    [HOME_MAIL] = "mail", NULL,
};

const char *const value_kind_words[] = {
    [KIND_ACTIVATION] = "activation", [KIND_SAVED] = "saved", [KIND_GRADIENT] = "gradient",
    [KIND_PARAM_GRADIENT] = "param_gradient", [KIND_WORKSPACE] = "workspace",
    [KIND_EXCHANGE] = "exchange", [KIND_OTHER] = "other", NULL,
};

const char *const schedule_words[] = {
    [PIPELINE_GPIPE] = "gpipe", [PIPELINE_1F1B] = "1f1b", [PIPELINE_ZERO_BUBBLE] = "zerobubble",
    [PIPELINE_V] = "vshape", NULL,
};

const char *const operand_words[] = {
    [OPERAND_X] = "x", [OPERAND_D_X] = "d_x", [OPERAND_PARAM] = "params", [OPERAND_D_PARAM] = "d_params",
    [OPERAND_SAVED] = "saved", [OPERAND_Y] = "y", [OPERAND_D_Y] = "d_y", [OPERAND_D_Y_MORE] = "d_y_more",
    [OPERAND_D_X_MORE] = "d_x_more", [OPERAND_Y_RECOMPUTED] = "y_recomputed", [OPERAND_SUMS] = "sums",
    [OPERAND_Y_SUMS] = "y_sums", [OPERAND_X_PRODUCTS] = "x_products", [OPERAND_Y_PRODUCTS] = "y_products",
    [OPERAND_MASK] = "mask", [OPERAND_WORKSPACE] = "workspace", NULL,
};

const struct program_word program_value_words[] = {
    {"images", offsetof(struct program, images)}, {"labels", offsetof(struct program, labels)},
    {"loss", offsetof(struct program, loss)}, {"rank", offsetof(struct program, rank)},
    {"logits", offsetof(struct program, logits)}, {"flags", offsetof(struct program, flags)},
    {"flags_sum", offsetof(struct program, flags_sum)}, {NULL, 0},
};

/* The member of an operand that is alone. */
static int *single(struct instruction *at, enum operand_role role)
{
    int *const members[] = {
        [OPERAND_Y] = &at->y, [OPERAND_D_Y] = &at->d_y, [OPERAND_D_Y_MORE] = &at->d_y_more,
        [OPERAND_D_X_MORE] = &at->d_x_more, [OPERAND_Y_RECOMPUTED] = &at->y_recomputed,
        [OPERAND_SUMS] = &at->sums, [OPERAND_Y_SUMS] = &at->y_sums, [OPERAND_X_PRODUCTS] = &at->x_products,
        [OPERAND_Y_PRODUCTS] = &at->y_products, [OPERAND_MASK] = &at->mask,
        [OPERAND_WORKSPACE] = &at->workspace,
    };
    return members[role];
}

/* A list of ids, whose length other lists may share. */
struct id_list {
    int **ids, *count;
};

static struct id_list list_of(struct instruction *at, enum operand_role role)
{
    const struct id_list lists[] = {
        [OPERAND_X] = {&at->x, &at->x_count}, [OPERAND_D_X] = {&at->d_x, &at->x_count},
        [OPERAND_PARAM] = {&at->params, &at->param_count},
        [OPERAND_D_PARAM] = {&at->d_params, &at->param_count},
        [OPERAND_SAVED] = {&at->saved, &at->saved_count},
    };
    return lists[role];
}

struct operand_list {
    const struct instruction *at;
    struct operand *operands;
    int count;
};

static void operand_add(struct operand_list *list, enum operand_role role, int index, int value)
{
    const struct instruction *at = list->at;
    unsigned access = ids_have(at->reads, at->read_count, value) ? ACCESS_READ : ACCESS_SHAPE;
    if (value < 0) return;
    if (ids_have(at->writes, at->write_count, value)) access |= ACCESS_WRITE;
    *array_push(list->operands, list->count) = (struct operand){role, index, value, access};
}

/* The update, and what adds up squares for it, name gradients and parameters in their lists of reads and
 * writes alone. */
static void add_accesses(struct operand_list *list)
{
    const struct instruction *at = list->at;
    int gradients = at->read_count - (at->kind == INSTRUCTION_UPDATE ? at->x_count : 0);
    for (int k = 0; k < gradients; k++) operand_add(list, OPERAND_D_PARAM, k, at->reads[k]);
    for (int k = 0; at->kind == INSTRUCTION_UPDATE && k < at->write_count; k++)
        if (at->writes[k] != at->workspace) operand_add(list, OPERAND_PARAM, k, at->writes[k]);
}

static bool has_accesses_alone(const struct instruction *at)
{
    return at->kind == INSTRUCTION_UPDATE || at->kind == INSTRUCTION_MEASURE;
}

struct operand *operands_of(const struct instruction *at, int *count)
{
    struct operand_list list = {.at = at};
    struct instruction members = *at;
    for (enum operand_role role = OPERAND_X; operand_is_list(role); role++) {
        struct id_list ids = list_of(&members, role);
        for (int k = 0; *ids.ids && k < *ids.count; k++) operand_add(&list, role, k, (*ids.ids)[k]);
    }
    if (has_accesses_alone(at)) add_accesses(&list);
    for (enum operand_role role = OPERAND_Y; role <= OPERAND_WORKSPACE; role++)
        operand_add(&list, role, 0, *single(&members, role));
    *count = list.count;
    return list.operands;
}

static int operands_length(const struct operand *operands, int count, enum operand_role role)
{
    int length = 0;
    for (int k = 0; k < count; k++)
        if (operands[k].role == role && operands[k].index >= length) length = operands[k].index + 1;
    return length;
}

/* Gradients have the length of what they are of, and are there where the phase writes any. */
static bool has_list(const struct instruction *at, enum operand_role role)
{
    bool params = at->phase == PHASE_BACKWARD_PARAMS, data = at->phase == PHASE_BACKWARD_DATA;
    if (role == OPERAND_D_X) return instruction_is_backward(at) && !params;
    if (role == OPERAND_D_PARAM) return instruction_is_backward(at) && !data;
    return true;
}

static bool lists_make(struct instruction *at, const struct operand *operands, int count,
                       struct reason *reason)
{
    static const int most[] = {[OPERAND_X] = OP_MAX_INPUTS, [OPERAND_D_X] = OP_MAX_INPUTS,
                               [OPERAND_PARAM] = OP_MAX_PARAMS, [OPERAND_D_PARAM] = OP_MAX_PARAMS,
                               [OPERAND_SAVED] = OP_MAX_SAVED};
    for (int r = 0; operand_is_list((enum operand_role)r); r++) {
        enum operand_role role = (enum operand_role)r;
        struct id_list list = list_of(at, role);
        int length = operands_length(operands, count, role);
        bool gradient = role == OPERAND_D_X || role == OPERAND_D_PARAM;
        if (length > (gradient ? *list.count : most[role]) || (length > 0 && !has_list(at, role)))
            return because(reason, "it has no %s[%d]", operand_words[role], length - 1);
        if (!gradient) *list.count = length;
        if (!has_list(at, role) || (length == 0 && !gradient)) continue;
        *list.ids = memory_new((size_t)*list.count, sizeof **list.ids);
        for (int k = 0; k < *list.count; k++) (*list.ids)[k] = -1;
    }
    return true;
}

static bool operand_set(struct instruction *at, const struct operand *operand, struct reason *reason)
{
    struct id_list list = operand_is_list(operand->role) ? list_of(at, operand->role) : (struct id_list){0};
    int *id = list.ids ? &(*list.ids)[operand->index] : single(at, operand->role);
    if (*id >= 0 && *id != operand->value)
        return because(reason, "it has two values for %s[%d]", operand_words[operand->role], operand->index);
    *id = operand->value;
    return true;
}

/* All inputs and parameters of an op are known; some of what it saves may not be used. */
static bool lists_whole(const struct instruction *at, struct reason *reason)
{
    for (int k = 0; k < at->x_count; k++)
        if (at->x[k] < 0) return because(reason, "it has no x[%d]", k);
    for (int k = 0; k < at->param_count; k++)
        if (at->params[k] < 0) return because(reason, "it has no params[%d]", k);
    return true;
}

/* Reads and writes of what is not an op's, which linking leaves alone. */
static void accesses_set(struct instruction *at, const struct operand *operands, int count)
{
    for (int last = 0; last < 2; last++)
        for (int k = 0; k < count; k++) {
            if ((operands[k].role == OPERAND_X) != last) continue;
            if (operands[k].access & ACCESS_READ) *array_push(at->reads, at->read_count) = operands[k].value;
            if (operands[k].access & ACCESS_WRITE)
                *array_push(at->writes, at->write_count) = operands[k].value;
        }
}

static bool is_member(const struct instruction *at, const struct operand *operand)
{
    bool gradient = operand->role == OPERAND_D_PARAM, param = operand->role == OPERAND_PARAM;
    return !(has_accesses_alone(at) && (gradient || (param && at->kind == INSTRUCTION_UPDATE)));
}

bool operands_set(struct instruction *at, const struct operand *operands, int count, struct reason *reason)
{
    struct operand *members = memory_new((size_t)count + 1, sizeof *members);
    int member_count = 0;
    bool right = true;
    for (int k = 0; k < count; k++)
        if (is_member(at, &operands[k])) members[member_count++] = operands[k];
    right = lists_make(at, members, member_count, reason);
    for (int k = 0; right && k < member_count; k++) {
        right = operand_set(at, &members[k], reason);
        if (members[k].role == OPERAND_SUMS) at->sums_given = members[k].access == ACCESS_WRITE;
    }
    free(members);
    if (right && !at->op) accesses_set(at, operands, count);
    return right && lists_whole(at, reason);
}
