/* memory_map_print.c: the memory map as text and as JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "base/members.h"
#include "forecast/memory_advice.h"
#include "forecast/memory_map.h"

#define LARGEST 10               /* number of tensors listed */

static const struct instruction *peak_instruction(const struct memory_map *map)
{
    const struct compiled *compiled = &map->forecast->compiled;
    return &compiled->program.instructions[compiled->plan.peak];
}

/* NULL: it belongs to no layer. */
static const char *peak_layer(const struct memory_map *map)
{
    int node = peak_instruction(map)->node;
    return node < 0 ? NULL : map->forecast->compiled.program.graph->nodes[node].name;
}

/* Bytes and tensors of a kind alive at the peak. */
static int64_t kind_at_peak(const struct memory_map *map, int kind, int *count)
{
    int64_t bytes = 0;
    *count = 0;
    for (int b = 0; b < map->peak_count; b++) {
        if (map->peak[b].kind != kind) continue;
        bytes += map->peak[b].bytes;
        (*count)++;
    }
    return bytes;
}

static void print_kinds(const struct memory_map *map)
{
    char text[TEXT_BYTES];
    for (int k = 0; k < MAP_KINDS; k++) {
        int count;
        int64_t bytes = kind_at_peak(map, k, &count);
        if (count > 0)
            printf("  %-28s %12s  %d tensor%s\n", map_kinds[k].name, text_bytes((uint64_t)bytes, text), count,
                   count == 1 ? "" : "s");
    }
}

static void print_largest(const struct memory_map *map)
{
    const struct program *program = &map->forecast->compiled.program;
    char text[TEXT_BYTES];
    int64_t rest = 0;
    printf("\nLargest tensors:\n");
    for (int b = 0; b < map->peak_count; b++) {
        const struct map_box *box = &map->peak[b];
        if (b >= LARGEST)
            rest += box->bytes;
        else
            printf("  %-28s %12s  %s\n", program->values[box->value].name,
                   text_bytes((uint64_t)box->bytes, text), map_kinds[box->kind].name);
    }
    if (map->peak_count > LARGEST)
        printf("  %-28s %12s  %d more\n", "others", text_bytes((uint64_t)rest, text),
               map->peak_count - LARGEST);
}

static void print_advice(const struct session *session, const struct memory_map *map)
{
    struct advice advice[ADVICE_MAX];
    int count = memory_advice(session, map->forecast, advice);
    int64_t now = map->forecast->bytes.total;
    char total[TEXT_BYTES], saved[TEXT_BYTES];
    if (count == 0) return;
    printf("\nSettings that would reduce the total or the time, each alone:\n");
    for (int a = 0; a < count; a++) {
        int64_t less = now - advice[a].total_bytes;
        printf("  %-28s %12s  ", advice[a].setting, text_bytes((uint64_t)advice[a].total_bytes, total));
        if (advice[a].saves)
            printf("saves %s, %.0f %%: ", text_bytes((uint64_t)less, saved),
                   100.0 * (double)less / (double)now);
        printf("%s\n", advice[a].price);
    }
}

void memory_map_print(const struct session *session, const struct memory_map *map)
{
    const struct compiled *compiled = &map->forecast->compiled;
    const struct plan *plan = &compiled->plan;
    const char *layer = peak_layer(map);
    char text[TEXT_BYTES];
    printf("\nPeak at instruction %d of %d, '%s'", plan->peak, compiled->program.count,
           peak_instruction(map)->name);
    if (layer) printf(" (layer %s)", layer);
    printf(": %s\n", text_bytes((uint64_t)plan->live_bytes_bound, text));
    print_kinds(map);
    print_largest(map);
    print_advice(session, map);
}

static void add_tensors(const struct memory_map *map, struct text *out)
{
    for (int b = 0; b < map->peak_count; b++) {
        text_add(out, b ? ",{" : "{");
        member_string(out, "name", map->forecast->compiled.program.values[map->peak[b].value].name);
        member_string(out, "kind", map_kinds[map->peak[b].kind].name);
        member_integer(out, "bytes", map->peak[b].bytes);
        text_add(out, "}");
    }
}

void memory_map_json(const struct memory_map *map, struct text *out)
{
    const struct plan *plan = &map->forecast->compiled.plan;
    text_add(out, "{");
    member_integer(out, "bytes", plan->live_bytes_bound);
    member_integer(out, "instruction", plan->peak);
    member_string(out, "name", peak_instruction(map)->name);
    member_string(out, "layer", peak_layer(map));
    text_add(out, ",\"tensors\":[");
    add_tensors(map, out);
    text_add(out, "]}");
}
