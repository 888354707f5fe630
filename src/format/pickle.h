/* pickle.h: Python's pickle format (protocols 2 to 5), read as plain values; nothing in it is ever called.
 *
 * A pickle is a program for a stack machine that makes objects by calling functions by their names. This
 * reader notes what would be called, and with which arguments, and refuses every name that its caller does
 * not list. Python's pickletools.py describes the opcodes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PICKLE_BYTES_MAX (64 << 20)
#ifndef PICKLE_VALUES_MAX             /* a test has a smaller one */
#define PICKLE_VALUES_MAX (1 << 22)   /* values, height of the stack, and size of the memo */
#endif

enum pickle_kind {
    PICKLE_OTHER,         /* None, numbers with a fraction, bytes, lists, sets: nothing of it is kept */
    PICKLE_INTEGER,
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_DICT,
    PICKLE_GLOBAL,        /* a name of the caller's list */
    PICKLE_CALL,          /* what that name would have returned for its arguments */
    PICKLE_PERSISTENT,    /* an object outside of the pickle */
};

/* Numbers of values, items and pairs are those in struct pickle. */
struct pickle_value {
    enum pickle_kind kind;
    int global;           /* GLOBAL, CALL: its place in the caller's list */
    int first, count;     /* TUPLE: items; TEXT: bytes of the pickle; DICT: its first pair, -1: none, and its
                           * last; CALL: the arguments, a TUPLE; PERSISTENT: its identity */
    int64_t integer;
};

struct pickle_pair {
    int key, value;
    int next;             /* of the same dictionary; -1: the last */
};

/* A name that may be in a pickle. */
struct pickle_global {
    const char *module, *name;
    int role;             /* for the caller */
    bool dict;            /* calling it without arguments makes a dictionary */
};

struct pickle {
    const char *bytes;    /* the caller's */
    struct pickle_value *values;
    int *items;
    struct pickle_pair *pairs;
    int value_count, item_count, pair_count;
    int value_room, item_room, pair_room;
    int result;
    size_t used;          /* bytes, with the opcode that ends it */
};

/* Reads one pickle at the beginning of `bytes`, of which there are at most PICKLE_BYTES_MAX. `globals` ends
 * with a row of NULLs. False, with a reason, for a damaged pickle, one with too many values, opcodes of
 * protocols 0 and 1, and any name that is not listed. */
bool pickle_read(const char *bytes, size_t count, const struct pickle_global *globals, struct pickle *pickle,
                 struct reason *reason);
void pickle_free(struct pickle *pickle);

/* True if a value is this text. */
bool pickle_is(const struct pickle *pickle, int value, const char *text);

/* A dictionary's value for this text; -1: none. The last of several. */
int pickle_get(const struct pickle *pickle, int dict, const char *key);

/* The item of a tuple, if it has one of this number and kind; -1 otherwise. */
int pickle_item(const struct pickle *pickle, int tuple, int item, enum pickle_kind kind);
