#include "compile/ir/program_words.h"

#include <stddef.h>

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

const struct program_word program_value_words[] = {
    {"images", offsetof(struct program, images)}, {"labels", offsetof(struct program, labels)},
    {"loss", offsetof(struct program, loss)}, {"rank", offsetof(struct program, rank)},
    {"logits", offsetof(struct program, logits)}, {"flags", offsetof(struct program, flags)},
    {"flags_sum", offsetof(struct program, flags_sum)}, {NULL, 0},
};
