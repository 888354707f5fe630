#include "format/pickle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define NOTHING 0     /* the value that stands for everything that is not kept */
#define NAME_MAX_BYTES 200

struct machine {
    struct pickle *pickle;
    const struct pickle_global *globals;
    const char *at, *end;
    int *stack, *marks, *memo;       /* values; heights of the stack; values, -1: none */
    int height, mark_count, memo_count;
    int stack_room, mark_room, memo_room;
    int memoized;                    /* the next place of MEMOIZE */
    struct reason *reason;
};

static bool damaged(struct machine *machine, const char *why)
{
    return because(machine->reason, "has a damaged pickle (%s at byte %td)", why,
                   machine->at - machine->pickle->bytes);
}

static bool full(struct machine *machine, int count)
{
    if (count < PICKLE_VALUES_MAX) return false;
    because(machine->reason, "has a pickle of more than %d values", PICKLE_VALUES_MAX);
    return true;
}

static bool push(struct machine *machine, int value)
{
    if (full(machine, machine->height)) return false;
    *array_put(machine->stack, machine->height, machine->stack_room) = value;
    return true;
}

static bool make(struct machine *machine, struct pickle_value value, int *made)
{
    struct pickle *pickle = machine->pickle;
    if (full(machine, pickle->value_count)) return false;
    *made = pickle->value_count;
    *array_put(pickle->values, pickle->value_count, pickle->value_room) = value;
    return true;
}

static bool push_new(struct machine *machine, struct pickle_value value)
{
    int made;
    return make(machine, value, &made) && push(machine, made);
}

static bool push_integer(struct machine *machine, int64_t integer)
{
    return push_new(machine, (struct pickle_value){.kind = PICKLE_INTEGER, .integer = integer});
}

static bool push_dict(struct machine *machine)
{
    return push_new(machine, (struct pickle_value){.kind = PICKLE_DICT, .first = -1, .count = -1});
}

/* Values since the last mark belong to it and cannot be popped singly. */
static int floor_of(const struct machine *machine)
{
    return machine->mark_count ? machine->marks[machine->mark_count - 1] : 0;
}

static bool has(struct machine *machine, int count)
{
    if (machine->height - floor_of(machine) < count) return damaged(machine, "too few values");
    return true;
}

static bool pop(struct machine *machine, int *value)
{
    if (!has(machine, 1)) return false;
    *value = machine->stack[--machine->height];
    return true;
}

/* Ends the values of the last mark: from `first` to the top of the stack, which the caller lowers. */
static bool pop_mark(struct machine *machine, int *first)
{
    if (machine->mark_count == 0) return damaged(machine, "no mark");
    *first = machine->marks[--machine->mark_count];
    return true;
}

/* Arguments of opcodes. */

static bool bytes_of(struct machine *machine, uint64_t count, const char **bytes)
{
    if (count > (uint64_t)(machine->end - machine->at)) return damaged(machine, "truncated");
    *bytes = machine->at;
    machine->at += count;
    return true;
}

static bool number(struct machine *machine, int bytes, uint64_t *value)
{
    const char *from = NULL;
    if (!bytes_of(machine, (uint64_t)bytes, &from)) return false;
    *value = 0;
    for (int i = bytes - 1; i >= 0; i--) *value = *value << 8 | (uint8_t)from[i];
    return true;
}

/* A length of so many bytes, and as many bytes as it says. */
static bool counted(struct machine *machine, int length, const char **bytes, uint64_t *count)
{
    return number(machine, length, count) && bytes_of(machine, *count, bytes);
}

static bool read_integer(struct machine *machine, int bytes)
{
    uint64_t value = 0;
    return number(machine, bytes, &value) &&
           push_integer(machine, bytes == 4 ? (int64_t)(int32_t)value : (int64_t)value);
}

/* Integers of any length, of which those that no size can have are not kept. */
static bool read_long(struct machine *machine, int length)
{
    const char *bytes = NULL;
    uint64_t count = 0, value = 0;
    if (!counted(machine, length, &bytes, &count)) return false;
    if (count > 8) return push(machine, NOTHING);
    if (count > 0 && (bytes[count - 1] & 0x80)) value = UINT64_MAX;
    for (int i = (int)count - 1; i >= 0; i--) value = value << 8 | (uint8_t)bytes[i];
    return push_integer(machine, (int64_t)value);
}

static bool read_text(struct machine *machine, int length)
{
    const char *bytes = NULL;
    uint64_t count = 0;
    return counted(machine, length, &bytes, &count) &&
           push_new(machine, (struct pickle_value){.kind = PICKLE_TEXT, .count = (int)count,
                                                   .first = (int)(bytes - machine->pickle->bytes)});
}

static bool read_unkept(struct machine *machine, int length)
{
    const char *bytes = NULL;
    uint64_t count = 0;
    return counted(machine, length, &bytes, &count) && push(machine, NOTHING);
}

static bool skip(struct machine *machine, int count)
{
    const char *bytes = NULL;
    return bytes_of(machine, (uint64_t)count, &bytes);
}

/* The memo: values by number. */

static bool memo_put(struct machine *machine, uint64_t number)
{
    if (!has(machine, 1)) return false;
    if (number >= PICKLE_VALUES_MAX) return !full(machine, PICKLE_VALUES_MAX);
    while ((uint64_t)machine->memo_count <= number)
        *array_put(machine->memo, machine->memo_count, machine->memo_room) = -1;
    machine->memo[number] = machine->stack[machine->height - 1];
    return true;
}

static bool read_put(struct machine *machine, int bytes)
{
    uint64_t place = 0;
    return number(machine, bytes, &place) && memo_put(machine, place);
}

static bool read_get(struct machine *machine, int bytes)
{
    uint64_t place = 0;
    if (!number(machine, bytes, &place)) return false;
    if (place >= (uint64_t)machine->memo_count || machine->memo[place] < 0)
        return damaged(machine, "an unknown place of the memo");
    return push(machine, machine->memo[place]);
}

/* Containers. */

static bool make_tuple(struct machine *machine, int first)
{
    struct pickle *pickle = machine->pickle;
    struct pickle_value tuple = {.kind = PICKLE_TUPLE, .first = pickle->item_count,
                                 .count = machine->height - first};
    for (int i = first; i < machine->height; i++) {
        if (full(machine, pickle->item_count)) return false;
        *array_put(pickle->items, pickle->item_count, pickle->item_room) = machine->stack[i];
    }
    machine->height = first;
    return push_new(machine, tuple);
}

static bool set_item(struct machine *machine, int dict, int key, int value)
{
    struct pickle *pickle = machine->pickle;
    struct pickle_value *into = &pickle->values[dict];
    if (into->kind != PICKLE_DICT) return true;
    if (full(machine, pickle->pair_count)) return false;
    int added = pickle->pair_count;
    *array_put(pickle->pairs, pickle->pair_count, pickle->pair_room) = (struct pickle_pair){key, value, -1};
    if (into->first < 0) into->first = added;
    else pickle->pairs[into->count].next = added;
    into->count = added;
    return true;
}

/* Keys and values from `first` on go to the value below them. */
static bool set_items(struct machine *machine, int first)
{
    if (first - floor_of(machine) < 1) return damaged(machine, "no dictionary");
    if ((machine->height - first) % 2) return damaged(machine, "a key without a value");
    int dict = machine->stack[first - 1];
    for (int i = first; i < machine->height; i += 2)
        if (!set_item(machine, dict, machine->stack[i], machine->stack[i + 1])) return false;
    machine->height = first;
    return true;
}

static bool make_dict(struct machine *machine, int first)
{
    int dict;
    if ((machine->height - first) % 2) return damaged(machine, "a key without a value");
    if (!make(machine, (struct pickle_value){.kind = PICKLE_DICT, .first = -1, .count = -1}, &dict))
        return false;
    for (int i = first; i < machine->height; i += 2)
        if (!set_item(machine, dict, machine->stack[i], machine->stack[i + 1])) return false;
    machine->height = first;
    return push(machine, dict);
}

/* Items from `first` on go to a list or set below them, of which nothing is kept. */
static bool drop_items(struct machine *machine, int first)
{
    if (first - floor_of(machine) < 1) return damaged(machine, "no list");
    machine->height = first;
    return true;
}

static bool drop_item(struct machine *machine)
{
    if (!has(machine, 2)) return false;
    machine->height--;
    return true;
}

static bool replace_by_nothing(struct machine *machine, int first)
{
    machine->height = first;
    return push(machine, NOTHING);
}

/* Names, and what would be called. */

static bool refuse_name(struct machine *machine, const char *module, int module_length, const char *name,
                        int length)
{
    return because(machine->reason, "contains the Python object '%.*s.%.*s', which is neither a tensor nor "
                   "plain data and is not loaded: save only model.state_dict()",
                   module_length < 80 ? module_length : 80, module, length < 80 ? length : 80, name);
}

static bool push_global(struct machine *machine, const char *module, int module_length, const char *name,
                        int length)
{
    const struct pickle_global *globals = machine->globals;
    for (int i = 0; globals[i].name; i++)
        if ((int)strlen(globals[i].module) == module_length && (int)strlen(globals[i].name) == length &&
            memcmp(globals[i].module, module, (size_t)module_length) == 0 &&
            memcmp(globals[i].name, name, (size_t)length) == 0)
            return push_new(machine, (struct pickle_value){.kind = PICKLE_GLOBAL, .global = i});
    return refuse_name(machine, module, module_length, name, length);
}

static bool read_line(struct machine *machine, const char **line, int *length)
{
    size_t left = (size_t)(machine->end - machine->at);
    const char *end = memchr(machine->at, '\n', left < NAME_MAX_BYTES ? left : NAME_MAX_BYTES);
    if (!end) return damaged(machine, "a name without an end");
    *line = machine->at;
    *length = (int)(end - machine->at);
    machine->at = end + 1;
    return true;
}

static bool read_global(struct machine *machine)
{
    const char *module = NULL, *name = NULL;
    int module_length = 0, length = 0;
    return read_line(machine, &module, &module_length) && read_line(machine, &name, &length) &&
           push_global(machine, module, module_length, name, length);
}

static bool stack_global(struct machine *machine)
{
    int name, module;
    if (!pop(machine, &name) || !pop(machine, &module)) return false;
    const struct pickle *pickle = machine->pickle;
    const struct pickle_value *m = &pickle->values[module], *n = &pickle->values[name];
    if (m->kind != PICKLE_TEXT || n->kind != PICKLE_TEXT) return damaged(machine, "a name that is not text");
    return push_global(machine, pickle->bytes + m->first, m->count, pickle->bytes + n->first, n->count);
}

static bool call(struct machine *machine)
{
    int arguments, callee;
    if (!pop(machine, &arguments) || !pop(machine, &callee)) return false;
    const struct pickle_value *global = &machine->pickle->values[callee];
    const struct pickle_value *tuple = &machine->pickle->values[arguments];
    if (global->kind != PICKLE_GLOBAL || tuple->kind != PICKLE_TUPLE)
        return damaged(machine, "a call of what is not a function");
    if (machine->globals[global->global].dict && tuple->count == 0) return push_dict(machine);
    return push_new(machine, (struct pickle_value){.kind = PICKLE_CALL, .global = global->global,
                                                   .first = arguments});
}

static bool persistent(struct machine *machine)
{
    int identity;
    return pop(machine, &identity) &&
           push_new(machine, (struct pickle_value){.kind = PICKLE_PERSISTENT, .first = identity});
}

/* Sets an object's attributes, such as the versions in a state_dict, which are not kept. */
static bool build(struct machine *machine)
{
    int state;
    return pop(machine, &state) && has(machine, 1);
}

/* One value, or a mark. */
static bool pop_any(struct machine *machine)
{
    int value;
    if (machine->mark_count == 0 || machine->height > floor_of(machine)) return pop(machine, &value);
    machine->mark_count--;
    return true;
}

static bool push_mark(struct machine *machine)
{
    if (full(machine, machine->mark_count)) return false;
    *array_put(machine->marks, machine->mark_count, machine->mark_room) = machine->height;
    return true;
}

static bool duplicate(struct machine *machine)
{
    return has(machine, 1) && push(machine, machine->stack[machine->height - 1]);
}

static bool refuse_opcode(struct machine *machine, int opcode)
{
    return because(machine->reason, "has a damaged pickle, or one that torch.save does not write (opcode "
                   "0x%02x at byte %td)", opcode, machine->at - 1 - machine->pickle->bytes);
}

static bool step_data(struct machine *machine, int opcode)
{
    switch (opcode) {
    case 'N': case 0x88: case 0x89: return push(machine, NOTHING);               /* None, True, False */
    case 'G': return skip(machine, 8) && push(machine, NOTHING);                 /* BINFLOAT */
    case 'J': return read_integer(machine, 4);                                   /* BININT */
    case 'M': return read_integer(machine, 2);
    case 'K': return read_integer(machine, 1);
    case 0x8a: return read_long(machine, 1);                                     /* LONG1 */
    case 0x8b: return read_long(machine, 4);
    case 'U': case 0x8c: return read_text(machine, 1);        /* SHORT_BINSTRING, SHORT_BINUNICODE */
    case 'T': case 'X': return read_text(machine, 4);         /* BINSTRING, BINUNICODE */
    case 0x8d: return read_text(machine, 8);
    case 'C': return read_unkept(machine, 1);                                    /* SHORT_BINBYTES */
    case 'B': return read_unkept(machine, 4);
    case 0x8e: case 0x96: return read_unkept(machine, 8);                        /* BINBYTES8, BYTEARRAY8 */
    case 'q': return read_put(machine, 1);                                       /* BINPUT */
    case 'r': return read_put(machine, 4);
    case 0x94: return memo_put(machine, (uint64_t)machine->memoized++);          /* MEMOIZE */
    case 'h': return read_get(machine, 1);                                       /* BINGET */
    case 'j': return read_get(machine, 4);
    case 'c': return read_global(machine);                                       /* GLOBAL */
    case 0x93: return stack_global(machine);
    case 'R': case 0x81: return call(machine);                                   /* REDUCE, NEWOBJ */
    case 'b': return build(machine);                                             /* BUILD */
    case 'Q': return persistent(machine);                                        /* BINPERSID */
    default: return refuse_opcode(machine, opcode);
    }
}

static bool step(struct machine *machine, int opcode)
{
    int first = machine->height;
    switch (opcode) {
    case 0x80: return skip(machine, 1);                                          /* PROTO */
    case 0x95: return skip(machine, 8);                                          /* FRAME */
    case '(': return push_mark(machine);
    case '0': return pop_any(machine);
    case '2': return duplicate(machine);
    case ')': return make_tuple(machine, first);                                 /* EMPTY_TUPLE */
    case 0x85: case 0x86: case 0x87:                                             /* TUPLE1 to TUPLE3 */
        return has(machine, opcode - 0x84) && make_tuple(machine, first - (opcode - 0x84));
    case '}': return push_dict(machine);                                         /* EMPTY_DICT */
    case ']': case 0x8f: return push(machine, NOTHING);                          /* EMPTY_LIST, EMPTY_SET */
    case 's': return has(machine, 3) && set_items(machine, first - 2);           /* SETITEM */
    case 'a': return drop_item(machine);                                         /* APPEND */
    default: break;
    }
    if (!memchr("tdul1e\x90\x91", opcode, 8)) return step_data(machine, opcode);
    if (!pop_mark(machine, &first)) return false;
    switch (opcode) {
    case 't': return make_tuple(machine, first);
    case 'd': return make_dict(machine, first);
    case 'u': return set_items(machine, first);                                  /* SETITEMS */
    case 'e': case 0x90: return drop_items(machine, first);                      /* APPENDS, ADDITEMS */
    case '1': machine->height = first; return true;                              /* POP_MARK */
    default: return replace_by_nothing(machine, first);                          /* LIST, FROZENSET */
    }
}

static bool interpret(struct machine *machine)
{
    int nothing;
    make(machine, (struct pickle_value){.kind = PICKLE_OTHER}, &nothing);        /* for which there is room */
    while (machine->at < machine->end) {
        int opcode = (uint8_t)*machine->at++;
        if (opcode == '.') return pop(machine, &machine->pickle->result);
        if (!step(machine, opcode)) return false;
    }
    return damaged(machine, "truncated");
}

bool pickle_read(const char *bytes, size_t count, const struct pickle_global *globals, struct pickle *pickle,
                 struct reason *reason)
{
    struct pickle read = {.bytes = bytes};
    struct machine machine = {.pickle = &read, .globals = globals, .at = bytes, .end = bytes + count,
                              .reason = reason};
    assert(count <= PICKLE_BYTES_MAX);
    bool good = interpret(&machine);
    free(machine.stack);
    free(machine.marks);
    free(machine.memo);
    read.used = (size_t)(machine.at - bytes);
    if (good) *pickle = read;
    else pickle_free(&read);
    return good;
}

void pickle_free(struct pickle *pickle)
{
    free(pickle->values);
    free(pickle->items);
    free(pickle->pairs);
    *pickle = (struct pickle){0};
}

bool pickle_is(const struct pickle *pickle, int value, const char *text)
{
    const struct pickle_value *is = &pickle->values[value];
    return is->kind == PICKLE_TEXT && (size_t)is->count == strlen(text) &&
           memcmp(pickle->bytes + is->first, text, (size_t)is->count) == 0;
}

int pickle_get(const struct pickle *pickle, int dict, const char *key)
{
    int found = -1;
    for (int i = pickle->values[dict].first; i >= 0; i = pickle->pairs[i].next)
        if (pickle_is(pickle, pickle->pairs[i].key, key)) found = pickle->pairs[i].value;
    return found;
}

int pickle_item(const struct pickle *pickle, int tuple, int item, enum pickle_kind kind)
{
    const struct pickle_value *of = &pickle->values[tuple];
    if (of->kind != PICKLE_TUPLE || item >= of->count) return -1;
    int value = pickle->items[of->first + item];
    return pickle->values[value].kind == kind ? value : -1;
}
