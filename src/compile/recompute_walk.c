#include "compile/recompute_walk.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/build.h"

#define ALL_ALONG (-1)
#define NEVER INT_MAX

void numbers_add(struct numbers *numbers, int64_t number)
{
    *array_put(numbers->at, numbers->count, numbers->room) = number;
}

struct lists lists_make(const struct listed *listed, int count, int list_count)
{
    struct lists lists = {memory_new((size_t)list_count + 2, sizeof *lists.first),
                          memory_new((size_t)count + 1, sizeof *lists.items)};
    int *end = lists.first + 1;
    for (int k = 0; k < count; k++) end[listed[k].list + 1]++;
    for (int l = 0; l < list_count; l++) end[l + 1] += end[l];
    for (int k = 0; k < count; k++) lists.items[end[listed[k].list]++] = listed[k].item;
    return lists;
}

void lists_free(struct lists *lists)
{
    free(lists->first);
    free(lists->items);
}

bool walk_has(const struct walk *walk, int i)
{
    const struct instruction *at = &walk->program->instructions[i];
    return at->op && at->y >= 0 && walk->remade.producer[at->y] == i;
}

/* What a producer makes again: `k` from 0 on; -1: that is all. */
static inline int output(const struct instruction *at, int k)
{
    if (k == 0) return at->y;
    return k <= at->saved_count && !remake_keeps_saved(at->op) ? at->saved[k - 1] : -1;
}

static void readers_note(struct walk *walk)
{
    const struct remade *remade = &walk->remade;
    struct listed *listed = NULL;
    int count = 0;
    for (int i = 0; i < walk->program->count; i++)
        for (int w = remade->wanted_first[i]; w < remade->wanted_first[i + 1]; w++)
            *array_push(listed, count) = (struct listed){remade->wanted[w], i};
    walk->readers = lists_make(listed, count, walk->program->value_count);
    free(listed);
}

static void users_note(struct walk *walk)
{
    const struct program *program = walk->program;
    struct listed *listed = NULL;
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        for (int k = 0; walk_has(walk, i) && k < at->x_count; k++)
            if (!ids_have(at->x, k, at->x[k])) *array_push(listed, count) = (struct listed){at->x[k], i};
    }
    walk->users = lists_make(listed, count, program->value_count);
    free(listed);
}

struct walk *walk_open(const struct program *program)
{
    size_t count = (size_t)program->count + 1, values = (size_t)program->value_count;
    struct walk *walk = memory_new(1, sizeof *walk);
    walk->program = program;
    walk->remade = remade_open(program);
    readers_note(walk);
    users_note(walk);
    walk->settled = memory_new(count, sizeof *walk->settled);
    walk->remake = memory_new(count, sizeof *walk->remake);
    walk->is_set = memory_new(count, sizeof *walk->is_set);
    walk->agains = memory_new(count, sizeof *walk->agains);
    walk->made = memory_new(count, sizeof *walk->made);
    walk->made_now = memory_new(count, sizeof *walk->made_now);
    walk->touched_round = memory_new(count, sizeof *walk->touched_round);
    walk->change_round = memory_new(count, sizeof *walk->change_round);
    walk->change_of = memory_new(count, sizeof *walk->change_of);
    walk->kept = memory_new(values, sizeof *walk->kept);
    walk->kept_now = memory_new(values, sizeof *walk->kept_now);
    walk->kept_round = memory_new(values, sizeof *walk->kept_round);
    walk->called_turn = memory_new(values, sizeof *walk->called_turn);
    for (int v = 0; v < program->value_count; v++) walk->kept[v] = ALL_ALONG;
    return walk;
}

void walk_close(struct walk *walk)
{
    for (int i = 0; i < walk->program->count; i++) {
        free(walk->agains[i].at);
        free(walk->made[i].at);
        free(walk->made_now[i].at);
    }
    remade_close(&walk->remade);
    lists_free(&walk->readers);
    lists_free(&walk->users);
    free(walk->settled);
    free(walk->remake);
    free(walk->set.at);
    free(walk->is_set);
    free(walk->agains);
    free(walk->made);
    free(walk->made_now);
    free(walk->changes);
    free(walk->agains_now.at);
    free(walk->touched.at);
    free(walk->touched_round);
    free(walk->change_round);
    free(walk->change_of);
    free(walk->kept);
    free(walk->kept_now);
    free(walk->kept_round);
    free(walk->called_turn);
    free(walk->next.at);
    free(walk);
}

void walk_set(struct walk *walk, int i, enum remake remake)
{
    if (!walk_has(walk, i)) return;
    walk->remake[i] = remake;
    if (walk->is_set[i]) return;
    walk->is_set[i] = true;
    numbers_add(&walk->set, i);
}

const struct numbers *walk_made(const struct walk *walk, int producer)
{
    return walk->touched_round[producer] == walk->round ? &walk->made_now[producer] : &walk->made[producer];
}

static inline int kept_now(const struct walk *walk, int value)
{
    return walk->kept_round[value] == walk->round ? walk->kept_now[value] : walk->kept[value];
}

static void keep_from(struct walk *walk, int value, int i)
{
    walk->kept_now[value] = i;
    walk->kept_round[value] = walk->round;
}

static void touch(struct walk *walk, int producer)
{
    if (walk->touched_round[producer] == walk->round) return;
    walk->touched_round[producer] = walk->round;
    walk->made_now[producer].count = 0;
    numbers_add(&walk->touched, producer);
}

/* The instructions still to be looked at, the first of them on top. */
static void next_add(struct walk *walk, int i)
{
    numbers_add(&walk->next, i);
    int64_t *heap = walk->next.at;
    int at = walk->next.count - 1;
    for (; at > 0 && heap[(at - 1) / 2] > i; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = i;
}

static int next_take(struct walk *walk)
{
    int64_t *heap = walk->next.at, first = heap[0], last = heap[--walk->next.count];
    int count = walk->next.count, at = 0;
    for (int child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return (int)first;
}

/* The first instruction behind `i` before which a producer was called again; NEVER. */
static int called_behind(const struct walk *walk, int producer, int i)
{
    const struct numbers *made = &walk->made[producer];
    int64_t end = moment_of(i, MOMENT_ITSELF);
    int low = 0, high = made->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (made->at[middle] <= end) low = middle + 1;
        else high = middle;
    }
    return low < made->count ? (int)(made->at[low] >> 32) : NEVER;
}

/* The first instruction behind `i` that needed a value, by itself or to make something again; NEVER. */
static int needed_behind(const struct walk *walk, int value, int i)
{
    const struct lists *readers = &walk->readers, *users = &walk->users;
    int first = NEVER;
    for (int r = readers->first[value]; r < readers->first[value + 1] && first == NEVER; r++)
        if (readers->items[r] > i) first = readers->items[r];
    for (int u = users->first[value]; u < users->first[value + 1]; u++) {
        int called = called_behind(walk, users->items[u], i);
        if (called < first) first = called;
    }
    return first;
}

/* A value that is there behind `i` and was not, or the other way round, makes a difference where it is needed
 * next. */
static void follow(struct walk *walk, int value, int i)
{
    int producer = walk->remade.producer[value];
    if (producer < 0) return;
    bool was = walk->kept[value] <= i, is = kept_now(walk, value) <= i;
    if (was == is) return;
    int next = was ? needed_behind(walk, value, i) : called_behind(walk, producer, i);
    if (next != NEVER) next_add(walk, next);
}

static void follow_all(struct walk *walk, const int64_t *producers, int count, int i)
{
    for (int p = 0; p < count; p++) {
        const struct instruction *at = &walk->program->instructions[producers[p]];
        for (int k = 0, value; (value = output(at, k)) >= 0; k++) follow(walk, value, i);
        for (int k = 0; k < at->x_count; k++) follow(walk, at->x[k], i);
    }
}

/* Sees to it that `value` is there before instruction `i`: it is kept, or made again, after what that
 * needs. */
static void want(struct walk *walk, int value, int i)
{
    int producer = walk->remade.producer[value];
    if (producer < 0 || walk->remake[producer] == REMAKE_NOT) return;
    if (walk->called_turn[value] == walk->turn || kept_now(walk, value) < i) return;
    const struct instruction *at = &walk->program->instructions[producer];
    for (int k = 0; k < at->x_count; k++) want(walk, at->x[k], i);
    for (int k = 0, made; (made = output(at, k)) >= 0; k++) walk->called_turn[made] = walk->turn;
    numbers_add(&walk->agains_now, producer);
}

/* Of what was made again before `i`, what is not for the sake of remaking alone stays. */
static void keep_made(struct walk *walk, const int64_t *producers, int count, int i)
{
    const struct instruction *reader = &walk->program->instructions[i];
    for (int p = 0; p < count; p++) {
        const struct instruction *at = &walk->program->instructions[producers[p]];
        bool once = walk->remake[producers[p]] == REMAKE_ONCE;
        for (int k = 0, value; (value = output(at, k)) >= 0; k++)
            if (kept_now(walk, value) > i && (once || ids_have(reader->reads, reader->read_count, value)))
                keep_from(walk, value, i);
    }
}

static void forget_made(struct walk *walk, const struct numbers *producers, int i)
{
    for (int p = 0; p < producers->count; p++) {
        const struct instruction *at = &walk->program->instructions[producers->at[p]];
        for (int k = 0, value; (value = output(at, k)) >= 0; k++)
            if (kept_now(walk, value) == i) keep_from(walk, value, NEVER);
    }
}

static void change_add(struct walk *walk, int i, int first)
{
    struct rewalked change = {i, first, walk->agains_now.count - first};
    walk->change_round[i] = walk->round;
    walk->change_of[i] = walk->change_count;
    *array_put(walk->changes, walk->change_count, walk->change_room) = change;
}

/* What is made again before `i` now. */
static void rewalk(struct walk *walk, int i)
{
    const struct remade *remade = &walk->remade;
    const struct numbers *was = &walk->agains[i];
    int first = walk->agains_now.count;
    forget_made(walk, was, i);
    walk->turn++;
    for (int w = remade->wanted_first[i]; w < remade->wanted_first[i + 1]; w++)
        want(walk, remade->wanted[w], i);
    const int64_t *is = walk->agains_now.at + first;
    int count = walk->agains_now.count - first;
    walk->work += 1 + was->count + count;
    keep_made(walk, is, count, i);
    for (int w = remade->wanted_first[i]; w < remade->wanted_first[i + 1]; w++)
        follow(walk, remade->wanted[w], i);
    follow_all(walk, is, count, i);
    if (count == was->count && (count == 0 || memcmp(is, was->at, (size_t)count * sizeof *is) == 0)) {
        walk->agains_now.count = first;
        return;
    }
    follow_all(walk, was->at, was->count, i);
    for (int p = 0; p < was->count; p++) touch(walk, (int)was->at[p]);
    for (int p = 0; p < count; p++) touch(walk, (int)is[p]);
    change_add(walk, i, first);
}

/* Where a choice that differs first makes a difference. */
static void begin(struct walk *walk, int i)
{
    const struct instruction *at = &walk->program->instructions[i];
    bool kept = walk->remake[i] == REMAKE_NOT, was_kept = walk->settled[i] == REMAKE_NOT;
    touch(walk, i);
    for (int k = 0, value; (value = output(at, k)) >= 0; k++) {
        keep_from(walk, value, kept ? ALL_ALONG : NEVER);
        follow(walk, value, ALL_ALONG);
    }
    int called = called_behind(walk, i, ALL_ALONG);
    if (!kept && !was_kept && called != NEVER) next_add(walk, called);
}

static bool is_changed(const struct walk *walk, int64_t moment)
{
    return walk->change_round[moment >> 32] == walk->round;
}

/* Moments in order: of those that were, the ones that no change has done away with. */
static void made_merge(struct walk *walk, int producer)
{
    const struct numbers *was = &walk->made[producer];
    struct numbers *now = &walk->made_now[producer];
    int left = now->count, stay = 0;
    for (int m = 0; m < was->count; m++) stay += !is_changed(walk, was->at[m]);
    for (int k = 0; k < stay; k++) numbers_add(now, 0);
    int to = now->count - 1;
    for (int m = was->count - 1; m >= 0; m--) {
        if (is_changed(walk, was->at[m])) continue;
        while (left > 0 && now->at[left - 1] > was->at[m]) now->at[to--] = now->at[--left];
        now->at[to--] = was->at[m];
    }
}

static void made_note(struct walk *walk)
{
    for (int c = 0; c < walk->change_count; c++) {
        const struct rewalked *change = &walk->changes[c];
        for (int k = 0; k < change->count; k++)
            numbers_add(&walk->made_now[walk->agains_now.at[change->first + k]], moment_of(change->at, k));
    }
    for (int p = 0; p < walk->touched.count; p++) made_merge(walk, (int)walk->touched.at[p]);
}

/* Instructions for which the choice is again what is settled drop out. */
static void set_sift(struct walk *walk)
{
    int count = 0;
    for (int k = 0; k < walk->set.count; k++) {
        int i = (int)walk->set.at[k];
        walk->is_set[i] = walk->remake[i] != walk->settled[i];
        if (walk->is_set[i]) walk->set.at[count++] = i;
    }
    walk->set.count = count;
}

void walk_play(struct walk *walk)
{
    set_sift(walk);
    walk->round++;
    walk->change_count = walk->agains_now.count = walk->touched.count = walk->next.count = 0;
    for (int k = 0; k < walk->set.count; k++) begin(walk, (int)walk->set.at[k]);
    for (int done = -1; walk->next.count > 0;) {
        int i = next_take(walk);
        if (i != done) rewalk(walk, i);
        done = i;
    }
    made_note(walk);
}

static void numbers_swap(struct numbers *a, struct numbers *b)
{
    struct numbers kept = *a;
    *a = *b;
    *b = kept;
}

/* What was remembered of the values that were looked at. */
static void kept_settle(struct walk *walk, int producer)
{
    const struct instruction *at = &walk->program->instructions[producer];
    for (int k = 0, value; (value = output(at, k)) >= 0; k++) walk->kept[value] = kept_now(walk, value);
}

void walk_settle(struct walk *walk)
{
    for (int c = 0; c < walk->change_count; c++) {
        const struct rewalked *change = &walk->changes[c];
        struct numbers *agains = &walk->agains[change->at];
        agains->count = 0;
        for (int k = 0; k < change->count; k++) numbers_add(agains, walk->agains_now.at[change->first + k]);
    }
    for (int p = 0; p < walk->touched.count; p++) {
        int producer = (int)walk->touched.at[p];
        numbers_swap(&walk->made[producer], &walk->made_now[producer]);
        kept_settle(walk, producer);
    }
    for (int k = 0; k < walk->set.count; k++) walk->settled[walk->set.at[k]] = walk->remake[walk->set.at[k]];
    walk->round++;
    walk->change_count = walk->touched.count = 0;
    set_sift(walk);
}
