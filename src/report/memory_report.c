#include "report/memory_report.h"

#include <inttypes.h>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/members.h"
#include "compile/memory/offload.h"
#include "compile/memory/recompute.h"
#include "forecast/memory_map.h"

static void add_plan(const struct run *run, struct text *out)
{
    const struct budget *bytes = &run->programs.bytes;
    const struct program *program = &run->programs.training.compiled.program;
    text_add(out, "{\"plan\":{");
    step_taken_json(bytes, &run->programs.training.compiled.plan, out);
    member_integer(out, "exchange_bytes", bytes->exchange);
    member_string(out, "strategy", step_strategy(run->session, program));
    member_integer(out, "recomputed", recompute_count(program));
    member_integer(out, "offloaded_bytes", offload_bytes(program));
    text_add(out, "}");
}

/* The allocators' counts, which the CPU's memory does not have. */
static void add_device(const struct session *session, struct text *out)
{
    text_add(out, ",\n\"device\":");
    if (!session->cache) {
        text_add(out, "null");
        return;
    }
    const struct cache_statistics used = cache_statistics(session->cache);
    text_add(out, "{\"requested_peak_bytes\":%zu,\"allocated_peak_bytes\":%zu,\"reserved_peak_bytes\":%zu,"
             "\"reserved_bytes\":%zu,\"largest_free_bytes\":%zu", used.requested_peak, used.allocated_peak,
             used.reserved_peak, used.reserved, used.largest);
    member_number(out, "fragmentation", used.fragmentation);
    member_integer(out, "refusals", used.retries);
    text_add(out, "}");
}

static void add_host(const struct session *session, struct text *out)
{
    text_add(out, ",\n\"host\":{\"peak_bytes\":%" PRId64, (int64_t)clock_host_peak_bytes());
    if (session->pinned) {
        const struct pinned_statistics used = pinned_statistics(session->pinned);
        text_add(out, ",\"pinned_peak_bytes\":%zu,\"batches_peak_bytes\":%zu,\"unpinned\":%" PRId64,
                 used.held_peak, used.requested_peak, used.fallbacks);
    }
    text_add(out, "}");
}

static void add_tensor(const struct memory_map *map, const struct map_box *box, struct text *out)
{
    text_add(out, "{");
    member_string(out, "name", map->forecast->compiled.program.values[box->value].name);
    text_add(out, ",\"kind\":\"%s\",\"offset\":%" PRId64 ",\"bytes\":%" PRId64 ",\"born\":%d,\"dead\":%d}",
             map_kinds[box->kind].name, box->offset, box->bytes, box->born, box->dead);
}

static void add_tensors(const struct run *run, struct text *out)
{
    const struct programs *programs = &run->programs;
    const struct forecast forecast = {.compiled = programs->training.compiled, .bytes = programs->bytes};
    struct memory_map map = memory_map_make(&forecast);
    text_add(out, ",\n\"peak\":");
    memory_map_json(&map, out);
    text_add(out, ",\n\"tensors\":[");
    for (int i = 0; i < map.count; i++) {
        text_add(out, i ? ",\n" : "\n");
        add_tensor(&map, &map.boxes[i], out);
    }
    text_add(out, "]}\n");
    memory_map_free(&map);
}

void memory_report(const struct run *run)
{
    struct text out = {0};
    if (!run->session->settings->memory.report) return;
    add_plan(run, &out);
    add_device(run->session, &out);
    add_host(run->session, &out);
    add_tensors(run, &out);
    if (atomic_file_write(&run->folder.at, MEMORY_REPORT_FILE, out.data, out.length) != OK)
        log_warning("the memory report was not written; the run continues");
    text_free(&out);
}
