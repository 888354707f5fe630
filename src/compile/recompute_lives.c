#include "compile/recompute_lives.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/build.h"
#include "compile/plan.h"

/* `to` may take `from`'s place at a moment, if that dies there. */
struct lives_in_place {
    int from, to;
    int64_t moment;
};

/* A value, or what was made of it again. */
struct lives_tensor {
    int64_t first, last;     /* -1: never alive */
    int64_t bytes;
    int head;                /* the tensor whose place it has; itself if its own */
};

static bool is_arena(const struct lives *lives, int value)
{
    return value >= 0 && lives->set_of[value] >= 0;
}

/* Sets of values as trees, by value: the way to the root, shortened. */
static int root_of(int *parent, int value)
{
    while (parent[value] != value) value = parent[value] = parent[parent[value]];
    return value;
}

static void sets_make(struct lives *lives)
{
    const struct program *program = lives->walk->program;
    struct listed *listed = memory_new((size_t)program->value_count + 1, sizeof *listed);
    int *parent = memory_new((size_t)program->value_count + 1, sizeof *parent), count = 0;
    for (int v = 0; v < program->value_count; v++) {
        parent[v] = v;
        lives->set_of[v] = program->values[v].home == HOME_ARENA ? 0 : -1;
    }
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (is_arena(lives, at->in_place_from) && is_arena(lives, at->in_place_to))
            parent[root_of(parent, at->in_place_to)] = root_of(parent, at->in_place_from);
    }
    for (int v = 0; v < program->value_count; v++)
        if (lives->set_of[v] >= 0 && root_of(parent, v) == v) lives->set_of[v] = lives->set_count++;
    for (int v = 0; v < program->value_count; v++) {
        if (lives->set_of[v] < 0) continue;
        lives->set_of[v] = lives->set_of[root_of(parent, v)];
        listed[count++] = (struct listed){lives->set_of[v], v};
    }
    lives->values = lists_make(listed, count, lives->set_count);
    free(listed);
    free(parent);
}

static void pairs_note(struct lives *lives)
{
    const struct program *program = lives->walk->program;
    struct listed *listed = memory_new((size_t)program->count + 1, sizeof *listed);
    int count = 0;
    lives->pairs = memory_new((size_t)program->count + 1, sizeof *lives->pairs);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (!is_arena(lives, at->in_place_from) || !is_arena(lives, at->in_place_to)) continue;
        lives->pairs[count] =
            (struct lives_in_place){at->in_place_from, at->in_place_to, moment_of(i, MOMENT_ITSELF)};
        listed[count] = (struct listed){lives->set_of[at->in_place_to], count};
        count++;
    }
    lives->pairs_of = lists_make(listed, count, lives->set_count);
    free(listed);
}

static void keepers_note(struct lives *lives)
{
    const struct program *program = lives->walk->program;
    struct listed *listed = NULL;
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (!walk_has(lives->walk, i) || !remake_keeps_saved(at->op)) continue;
        for (int k = 0; k < at->saved_count; k++)
            *array_push(listed, count) = (struct listed){at->saved[k], i};
    }
    lives->keepers = lists_make(listed, count, program->value_count);
    free(listed);
}

static void use_note(struct lives *lives, int value, int i)
{
    if (lives->set_of[value] < 0) return;
    if (lives->first[value] < 0) lives->first[value] = moment_of(i, MOMENT_ITSELF);
    lives->last[value] = moment_of(i, MOMENT_ITSELF);
}

/* What reads a value that may be made again is among the walk's readers. */
static void uses_note(struct lives *lives)
{
    const struct walk *walk = lives->walk;
    const struct program *program = walk->program;
    for (int v = 0; v < program->value_count; v++) lives->first[v] = lives->last[v] = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        bool wants = walk->remade.wanted_first[i] < walk->remade.wanted_first[i + 1];
        for (int k = 0; k < at->read_count; k++)
            if (!wants || walk->remade.producer[at->reads[k]] < 0) use_note(lives, at->reads[k], i);
        for (int k = 0; k < at->write_count; k++) use_note(lives, at->writes[k], i);
    }
}

static void tensor_add(struct lives *lives, struct lives_tensor tensor)
{
    tensor.head = lives->tensor_count;
    *array_put(lives->tensors, lives->tensor_count, lives->tensor_room) = tensor;
}

/* Each use is of what was made last. */
static void use_tensors(struct lives *lives, int value, const int64_t *moments, int count)
{
    int t = lives->tensor_first[value], end = lives->tensor_end[value];
    if (end - t > 1) t++;
    if (end - t == 1 && count > 1) moments += count - 1, count = 1;
    for (int m = 0; m < count; m++) {
        while (t + 1 < end && lives->tensors[t + 1].first < moments[m]) t++;
        struct lives_tensor *tensor = &lives->tensors[t];
        if (tensor->first < 0) tensor->first = moments[m];
        if (moments[m] > tensor->last) tensor->last = moments[m];
    }
}

static void use_itself(struct lives *lives, int value, const struct numbers *moments)
{
    struct lives_tensor *tensor = &lives->tensors[lives->tensor_first[value]];
    if (moments->count == 0) return;
    if (tensor->first < 0) tensor->first = moments->at[0];
    if (moments->at[moments->count - 1] > tensor->last) tensor->last = moments->at[moments->count - 1];
}

/* The value itself, what is made of it again, and until when each is used. */
static void value_play(struct lives *lives, int value)
{
    const struct walk *walk = lives->walk;
    int producer = walk->remade.producer[value];
    bool again = producer >= 0 && walk->remake[producer] != REMAKE_NOT;
    int64_t bytes = plan_bytes(&walk->program->values[value]);
    lives->tensor_first[value] = lives->tensor_count;
    tensor_add(lives, (struct lives_tensor){lives->first[value], lives->last[value], bytes, 0});
    const struct numbers *made = again ? walk_made(walk, producer) : NULL;
    for (int m = 0; again && m < made->count; m++)
        tensor_add(lives, (struct lives_tensor){made->at[m], made->at[m], bytes, 0});
    lives->tensor_end[value] = lives->tensor_count;
    const struct lists *readers = &walk->readers, *users = &walk->users, *keepers = &lives->keepers;
    for (int r = readers->first[value]; r < readers->first[value + 1]; r++) {
        int64_t moment = moment_of(readers->items[r], MOMENT_ITSELF);
        use_tensors(lives, value, &moment, 1);
    }
    for (int u = users->first[value]; u < users->first[value + 1]; u++) {
        const struct numbers *called = walk_made(walk, users->items[u]);
        use_tensors(lives, value, called->at, called->count);
    }
    for (int k = keepers->first[value]; k < keepers->first[value + 1]; k++)
        use_itself(lives, value, walk_made(walk, keepers->items[k]));
}

static void joints_of_value(struct lives *lives, int value)
{
    const struct walk *walk = lives->walk;
    int producer = walk->remade.producer[value];
    if (producer < 0 || walk->remake[producer] == REMAKE_NOT) return;
    const struct instruction *at = &walk->program->instructions[producer];
    if (at->y != value || !is_arena(lives, at->in_place_from)) return;
    const struct numbers *made = walk_made(walk, producer);
    for (int m = 0; m < made->count; m++)
        *array_put(lives->joints, lives->joint_count, lives->joint_room) =
            (struct lives_in_place){at->in_place_from, value, made->at[m]};
}

static int compare_joints(const void *a, const void *b)
{
    const struct lives_in_place *left = a, *right = b;
    return (left->moment > right->moment) - (left->moment < right->moment);
}

/* The tensor of a value that was made last when a moment comes. */
static int tensor_then(const struct lives *lives, int value, int64_t moment)
{
    int low = lives->tensor_first[value], high = lives->tensor_end[value];
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (lives->tensors[middle].first <= moment) low = middle;
        else high = middle;
    }
    return low;
}

/* `to` takes `from`'s place where that dies. */
static void join(struct lives *lives, const struct lives_in_place *joint)
{
    struct lives_tensor *from = &lives->tensors[tensor_then(lives, joint->from, joint->moment)];
    struct lives_tensor *to = &lives->tensors[tensor_then(lives, joint->to, joint->moment)];
    if (from->last != joint->moment || to->bytes > from->bytes) return;
    to->head = from->head;
    struct lives_tensor *head = &lives->tensors[from->head];
    if (to->last > head->last) head->last = to->last;
}

static void set_play(struct lives *lives, int set)
{
    const struct lists *values = &lives->values, *pairs = &lives->pairs_of;
    lives->tensor_count = lives->joint_count = 0;
    for (int v = values->first[set]; v < values->first[set + 1]; v++) value_play(lives, values->items[v]);
    if (pairs->first[set] < pairs->first[set + 1]) {
        for (int p = pairs->first[set]; p < pairs->first[set + 1]; p++)
            *array_put(lives->joints, lives->joint_count, lives->joint_room) = lives->pairs[pairs->items[p]];
        for (int v = values->first[set]; v < values->first[set + 1]; v++)
            joints_of_value(lives, values->items[v]);
        qsort(lives->joints, (size_t)lives->joint_count, sizeof *lives->joints, compare_joints);
        for (int j = 0; j < lives->joint_count; j++) join(lives, &lives->joints[j]);
    }
    struct life_list *list = &lives->now[set];
    list->count = 0;
    lives->work += lives->tensor_count;
    for (int t = 0; t < lives->tensor_count; t++) {
        const struct lives_tensor *tensor = &lives->tensors[t];
        if (tensor->first >= 0 && tensor->head == t)
            *array_put(list->at, list->count, list->room) =
                (struct life){tensor->first, tensor->last, tensor->bytes};
    }
}

static bool may_change(const struct lives *lives, int set)
{
    const struct walk *walk = lives->walk;
    for (int k = lives->values.first[set]; k < lives->values.first[set + 1]; k++) {
        int v = lives->values.items[k];
        if (walk->remade.producer[v] >= 0 || walk->users.first[v] < walk->users.first[v + 1] ||
            lives->keepers.first[v] < lives->keepers.first[v + 1])
            return true;
    }
    return false;
}

static void life_lists_swap(struct life_list *a, struct life_list *b)
{
    struct life_list kept = *a;
    *a = *b;
    *b = kept;
}

/* With everything kept. */
static void begin(struct lives *lives)
{
    for (int set = 0; set < lives->set_count; set++) {
        set_play(lives, set);
        if (may_change(lives, set)) {
            numbers_add(&lives->changing, set);
            life_lists_swap(&lives->settled[set], &lives->now[set]);
            continue;
        }
        for (int k = 0; k < lives->now[set].count; k++) {
            const struct life *life = &lives->now[set].at[k];
            lives->begins[life->first >> 32] += life->bytes;
            lives->ends[life->last >> 32] += life->bytes;
        }
    }
}

struct lives lives_open(const struct walk *walk)
{
    size_t values = (size_t)walk->program->value_count + 1, count = (size_t)walk->program->count + 1;
    struct lives lives = {.walk = walk};
    lives.set_of = memory_new(values, sizeof *lives.set_of);
    lives.first = memory_new(values, sizeof *lives.first);
    lives.last = memory_new(values, sizeof *lives.last);
    lives.tensor_first = memory_new(values, sizeof *lives.tensor_first);
    lives.tensor_end = memory_new(values, sizeof *lives.tensor_end);
    lives.begins = memory_new(count, sizeof *lives.begins);
    lives.ends = memory_new(count, sizeof *lives.ends);
    sets_make(&lives);
    pairs_note(&lives);
    keepers_note(&lives);
    uses_note(&lives);
    lives.settled = memory_new((size_t)lives.set_count + 1, sizeof *lives.settled);
    lives.now = memory_new((size_t)lives.set_count + 1, sizeof *lives.now);
    lives.touched_round = memory_new((size_t)lives.set_count + 1, sizeof *lives.touched_round);
    begin(&lives);
    return lives;
}

void lives_close(struct lives *lives)
{
    for (int set = 0; set < lives->set_count; set++) {
        free(lives->settled[set].at);
        free(lives->now[set].at);
    }
    lists_free(&lives->values);
    lists_free(&lives->keepers);
    lists_free(&lives->pairs_of);
    free(lives->set_of);
    free(lives->pairs);
    free(lives->first);
    free(lives->last);
    free(lives->begins);
    free(lives->ends);
    free(lives->changing.at);
    free(lives->settled);
    free(lives->now);
    free(lives->touched.at);
    free(lives->touched_round);
    free(lives->tensors);
    free(lives->tensor_first);
    free(lives->tensor_end);
    free(lives->joints);
}

static void touch(struct lives *lives, int value)
{
    int set = lives->set_of[value];
    if (set < 0 || lives->touched_round[set] == lives->walk->round) return;
    lives->touched_round[set] = lives->walk->round;
    numbers_add(&lives->touched, set);
    set_play(lives, set);
}

void lives_play(struct lives *lives)
{
    const struct walk *walk = lives->walk;
    lives->touched.count = 0;
    for (int p = 0; p < walk->touched.count; p++) {
        const struct instruction *at = &walk->program->instructions[walk->touched.at[p]];
        touch(lives, at->y);
        for (int k = 0; k < at->saved_count; k++) touch(lives, at->saved[k]);
        for (int k = 0; k < at->x_count; k++) touch(lives, at->x[k]);
    }
}

void lives_settle(struct lives *lives)
{
    for (int k = 0; k < lives->touched.count; k++) {
        int64_t set = lives->touched.at[k];
        life_lists_swap(&lives->settled[set], &lives->now[set]);
    }
    lives->touched.count = 0;
}
