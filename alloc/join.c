#include "join.h"

#include <stdlib.h>

#include "base/memory.h"

/* What blocks are looked up by: the time at which they die and their size, birth and size, birth and
 * death. */
enum kind { DYING, BORN, LIVING, KINDS };

/* An item, or two nodes joined to one. */
struct node {
    struct part_item item;
    int first, second;         /* -1: an item; else the one before or below, and the other */
    bool stacked;
    bool gone;                 /* joined to another */
    int next[KINDS], before[KINDS];     /* in the lists of those looked up alike; -1: none */
};

/* A node that could be stacked on one of its life. */
struct chance {
    bool doubtful;             /* it would make no pair with any other */
    int64_t others;            /* how many it could pair with: the fewer, the less is a pair by chance */
    int node;
};

struct join {
    struct node *nodes;
    int count, items;
    int left;
    int *heads[KINDS];         /* by hash; -1: none */
    size_t mask;
    int *dying, *born;         /* by time: how many */
    int *fresh;                /* nodes to be looked at */
    int fresh_count;
    struct chance *chances;    /* a heap, the best at the root */
    int chance_count;
    int *roots;                /* what is left in the end */
};

/* The two numbers of a key. */
struct key {
    int64_t one, two;
};

static struct key key_of(const struct part_item *item, enum kind kind)
{
    switch (kind) {
    case DYING: return (struct key){item->upper, item->size};
    case BORN: return (struct key){item->lower, item->size};
    case LIVING: return (struct key){item->lower, item->upper};
    case KINDS: break;
    }
    return (struct key){0, 0};
}

/* Knuth's multiplier, from the golden ratio, on both numbers. */
static size_t place_of(const struct join *join, struct key key)
{
    uint64_t mixed = ((uint64_t)key.one * 0x9e3779b97f4a7c15u ^ (uint64_t)key.two) * 0x9e3779b97f4a7c15u;
    return (size_t)(mixed >> 32) & join->mask;
}

/* The first node with the key from `node` on; -1: there is none. */
static int with_key(const struct join *join, int node, enum kind kind, struct key key)
{
    for (; node >= 0; node = join->nodes[node].next[kind]) {
        struct key own = key_of(&join->nodes[node].item, kind);
        if (own.one == key.one && own.two == key.two) break;
    }
    return node;
}

static int first_with(const struct join *join, enum kind kind, struct key key)
{
    return with_key(join, join->heads[kind][place_of(join, key)], kind, key);
}

static int next_with(const struct join *join, enum kind kind, int node)
{
    return with_key(join, join->nodes[node].next[kind], kind, key_of(&join->nodes[node].item, kind));
}

static void enter(struct join *join, int number)
{
    struct node *node = &join->nodes[number];
    for (enum kind kind = 0; kind < KINDS; kind++) {
        int *head = &join->heads[kind][place_of(join, key_of(&node->item, kind))];
        node->next[kind] = *head;
        node->before[kind] = -1;
        if (*head >= 0) join->nodes[*head].before[kind] = number;
        *head = number;
    }
    join->dying[node->item.upper]++;
    join->born[node->item.lower]++;
    join->fresh[join->fresh_count++] = number;
}

static void leave(struct join *join, int number)
{
    struct node *node = &join->nodes[number];
    for (enum kind kind = 0; kind < KINDS; kind++) {
        int next = node->next[kind], before = node->before[kind];
        if (next >= 0) join->nodes[next].before[kind] = before;
        if (before >= 0) join->nodes[before].next[kind] = next;
        else join->heads[kind][place_of(join, key_of(&node->item, kind))] = next;
    }
    join->dying[node->item.upper]--;
    join->born[node->item.lower]--;
    node->gone = true;
}

static void unite(struct join *join, int first, int second, bool stacked)
{
    struct part_item item = join->nodes[first].item, other = join->nodes[second].item;
    leave(join, first);
    leave(join, second);
    if (stacked) item.size += other.size;
    else item.upper = other.upper, item.dies = other.dies;
    join->nodes[join->count] =
        (struct node){.item = item, .first = first, .second = second, .stacked = stacked};
    enter(join, join->count++);
    join->left--;
}

/* Joins the only two blocks of one size of which one dies and one is born at the time. */
static bool unite_at(struct join *join, int32_t time, int64_t size)
{
    const struct key key = {time, size};
    int dying = first_with(join, DYING, key), born = first_with(join, BORN, key);
    if (dying < 0 || born < 0) return false;
    if (next_with(join, DYING, dying) >= 0 || next_with(join, BORN, born) >= 0) return false;
    unite(join, dying, born, false);
    return true;
}

/* Stacks. */

static bool better(const struct chance *a, const struct chance *b)
{
    if (a->doubtful != b->doubtful) return b->doubtful;
    return a->others != b->others ? a->others < b->others : a->node < b->node;
}

static void chance_add(struct join *join, struct chance chance)
{
    int at = join->chance_count;
    array_push(join->chances, join->chance_count);
    for (; at > 0 && better(&chance, &join->chances[(at - 1) / 2]); at = (at - 1) / 2)
        join->chances[at] = join->chances[(at - 1) / 2];
    join->chances[at] = chance;
}

static struct chance chance_take(struct join *join)
{
    struct chance best = join->chances[0], last = join->chances[--join->chance_count];
    int at = 0;
    for (int below = 1; below < join->chance_count; below = 2 * at + 1) {
        const struct chance *left = &join->chances[below];
        bool right = below + 1 < join->chance_count && better(left + 1, left);
        if (!better(left + right, &last)) break;
        below += right;
        join->chances[at] = join->chances[below];
        at = below;
    }
    join->chances[at] = last;
    return best;
}

static int64_t others_at(const struct join *join, int number)
{
    const struct part_item *item = &join->nodes[number].item;
    return (int64_t)join->born[item->lower] * join->dying[item->upper];
}

/* How many pairs a block would make that has the node's life and `size`. */
static int pairs_of(const struct join *join, int number, int64_t size)
{
    const struct part_item *item = &join->nodes[number].item;
    return (first_with(join, DYING, (struct key){item->lower, size}) >= 0) +
           (first_with(join, BORN, (struct key){item->upper, size}) >= 0);
}

/* The node to stack it with, of those of its life that which makes most pairs; -1: it is alone. */
#define STACKED_MOST 64        /* that are looked at */
static int companion_of(const struct join *join, int number, int *most)
{
    const struct part_item *item = &join->nodes[number].item;
    int best = -1, looked = 0;
    int other = first_with(join, LIVING, (struct key){item->lower, item->upper});
    for (; other >= 0 && looked < STACKED_MOST; other = next_with(join, LIVING, other), looked++) {
        if (other == number) continue;
        int pairs = pairs_of(join, number, item->size + join->nodes[other].item.size);
        if (best >= 0 && pairs <= *most) continue;
        best = other;
        *most = pairs;
    }
    return best;
}

/* Looks at what is new: joined where that is certain, else perhaps to be stacked. */
static void unite_fresh(struct join *join)
{
    while (join->fresh_count > 0) {
        int number = join->fresh[--join->fresh_count], pairs;
        const struct node *node = &join->nodes[number];
        if (node->gone || unite_at(join, node->item.upper, node->item.size)) continue;
        if (unite_at(join, node->item.lower, node->item.size)) continue;
        if (companion_of(join, number, &pairs) >= 0)
            chance_add(join, (struct chance){false, others_at(join, number), number});
    }
}

/* Takes the best chance to stack; one that turns out worse than it was waits for another turn. */
static void stack_next(struct join *join)
{
    struct chance chance = chance_take(join);
    int pairs = 0, other = join->nodes[chance.node].gone ? -1 : companion_of(join, chance.node, &pairs);
    if (other < 0) return;
    struct chance now = {chance.doubtful || pairs == 0, others_at(join, chance.node), chance.node};
    if (now.doubtful != chance.doubtful || now.others < chance.others) chance_add(join, now);
    else unite(join, chance.node, other, true);
}

struct join *join_open(const struct part_item *items, int count)
{
    int32_t times = 0;
    size_t n = (size_t)count;
    struct join *join = memory_new(1, sizeof *join);
    *join = (struct join){.items = count, .left = count, .mask = 1};
    while (join->mask < 2 * n) join->mask *= 2;
    for (enum kind kind = 0; kind < KINDS; kind++) {
        join->heads[kind] = memory_new(join->mask, sizeof *join->heads[kind]);
        for (size_t i = 0; i < join->mask; i++) join->heads[kind][i] = -1;
    }
    join->mask--;
    for (int i = 0; i < count; i++)
        if (items[i].upper > times) times = items[i].upper;
    join->dying = memory_new((size_t)times + 1, sizeof *join->dying);
    join->born = memory_new((size_t)times + 1, sizeof *join->born);
    join->nodes = memory_new(2 * n, sizeof *join->nodes);
    join->fresh = memory_new(2 * n, sizeof *join->fresh);
    for (; join->count < count; join->count++) {
        join->nodes[join->count] = (struct node){.item = items[join->count], .first = -1, .second = -1};
        enter(join, join->count);
    }
    unite_fresh(join);
    while (join->chance_count > 0) {
        stack_next(join);
        unite_fresh(join);
    }
    join->roots = memory_new((size_t)join->left, sizeof *join->roots);
    for (int i = 0, root = 0; i < join->count; i++)
        if (!join->nodes[i].gone) join->roots[root++] = i;
    return join;
}

void join_close(struct join *join)
{
    for (enum kind kind = 0; kind < KINDS; kind++) free(join->heads[kind]);
    free(join->nodes);
    free(join->dying);
    free(join->born);
    free(join->fresh);
    free(join->chances);
    free(join->roots);
    free(join);
}

int join_count(const struct join *join)
{
    return join->left;
}

struct part_item join_item(const struct join *join, int number)
{
    return join->nodes[join->roots[number]].item;
}

/* Nodes were made after those that they are made of. */
void join_spread(const struct join *join, const int64_t *left, int64_t *offsets)
{
    int64_t *at = memory_new((size_t)join->count, sizeof *at);
    for (int i = 0; i < join->left; i++) at[join->roots[i]] = left[i];
    for (int i = join->count - 1; i >= join->items; i--) {
        const struct node *node = &join->nodes[i];
        at[node->first] = at[i];
        at[node->second] = at[i] + (node->stacked ? join->nodes[node->first].item.size : 0);
    }
    for (int i = 0; i < join->items; i++) offsets[i] = at[i];
    free(at);
}
