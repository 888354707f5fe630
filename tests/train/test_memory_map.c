/* The memory map: its boxes are the plan's tensors, its sums the plan's bytes, its picture can be read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "forecast/memory_advice.h"
#include "forecast/memory_map_parts.h"
#include "session/session_open.h"
#include "tests/support/unit.h"

#define MODEL(name) "model.file=" SOURCEDIR "/conf/models/" name ".ini"

/* Runs that differ in what a plan can hold. */
static const char *const runs[][4] = {
    {MODEL("lenet5"), "train.batch=32"},
    {MODEL("resnet20"), "train.batch=16", "train.accumulate=2"},
    {MODEL("resnet20"), "train.batch=16", "memory.strategy=keep"},
    {MODEL("resnet20"), "train.batch=16", "memory.limit=15M"},
    {MODEL("mobilenet_v2"), "train.batch=8", "amp.precision=bf16"},
};
#define RUNS (int)(sizeof runs / sizeof *runs)

struct fixture {
    struct settings settings;
    struct session session;
    struct forecast forecast;
    struct memory_map map;
};

static void open_run(struct fixture *f, const char *const run[4])
{
    const char *sets[8] = {"data.format=synthetic", "data.train=64", "run.device=cpu"};
    const struct data_options data = {.wanted = DATA_TRAIN | DATA_OPTIONAL};
    int count = 3;
    for (int i = 0; i < 4 && run[i]; i++) sets[count++] = run[i];
    *f = (struct fixture){0};
    assert_int_equal(settings_load(NULL, sets, count, &f->settings), OK);
    assert_int_equal(session_open(&f->settings, &data, NULL, &f->session), OK);
    assert_int_equal(forecast_make(&f->session, &(struct forecast_options){.hosts = 1}, &f->forecast), OK);
    f->map = memory_map_make(&f->forecast);
}

static void close_run(struct fixture *f)
{
    memory_map_free(&f->map);
    forecast_free(&f->forecast);
    session_close(&f->session);
    settings_free(&f->settings);
}

static void every_run(void (*check)(const struct fixture *f))
{
    for (int r = 0; r < RUNS; r++) {
        struct fixture f;
        open_run(&f, runs[r]);
        check(&f);
        close_run(&f);
    }
}

static void check_count(const struct fixture *f)
{
    int held = 0;
    const struct plan *plan = &f->forecast.compiled.plan;
    for (int v = 0; v < plan->value_count; v++) held += plan->lifetimes[v].born >= 0;
    assert_int_equal(f->map.count, held);
    bool *seen = memory_new((size_t)f->forecast.compiled.program.value_count, sizeof *seen);
    for (int b = 0; b < f->map.count; b++) {
        assert_false(seen[f->map.boxes[b].value]);
        seen[f->map.boxes[b].value] = true;
    }
    free(seen);
}

static void each_tensor_has_one_box(void **state)
{
    every_run(check_count);
}

static void check_inside(const struct fixture *f)
{
    for (int b = 0; b < f->map.count; b++) {
        const struct map_box *box = &f->map.boxes[b];
        assert_true(box->offset >= 0 && box->bytes > 0);
        assert_true(box->offset + box->bytes <= f->forecast.compiled.plan.arena_bytes);
        assert_true(box->born >= 0 && box->born < box->dead);
        assert_true(box->dead <= f->forecast.compiled.program.count);
    }
}

static void no_box_leaves_the_arena(void **state)
{
    every_run(check_inside);
}

static void check_apart(const struct fixture *f)
{
    for (int a = 0; a < f->map.count; a++)
        for (int b = 0; b < a; b++) {
            const struct map_box *one = &f->map.boxes[a], *two = &f->map.boxes[b];
            bool time = one->born < two->dead && two->born < one->dead;
            bool place = one->offset < two->offset + two->bytes && two->offset < one->offset + one->bytes;
            if (time && place)
                fail_msg("%s lies over %s", f->forecast.compiled.program.values[one->value].name,
                         f->forecast.compiled.program.values[two->value].name);
        }
}

static void no_boxes_overlap(void **state)
{
    every_run(check_apart);
}

static void check_sums(const struct fixture *f)
{
    int64_t most = 0, at_peak = 0;
    int where = -1;
    for (int i = 0; i < f->forecast.compiled.program.count; i++) {
        int64_t alive = 0;
        for (int k = 0; k < MAP_KINDS; k++) alive += f->map.alive[i * MAP_KINDS + k];
        if (alive > most) most = alive, where = i;
    }
    assert_true(most == f->forecast.compiled.plan.live_bytes_bound);
    assert_int_equal(where, f->forecast.compiled.plan.peak);
    for (int b = 0; b < f->map.peak_count; b++) {
        at_peak += f->map.peak[b].bytes;
        if (b > 0) assert_true(f->map.peak[b].bytes <= f->map.peak[b - 1].bytes);
    }
    assert_true(at_peak == most);
}

static void the_curve_peaks_at_the_bound(void **state)
{
    every_run(check_sums);
}

static void what_is_made_again_is_told_apart(void **state)
{
    for (int r = 2; r < 4; r++) {
        struct fixture f;
        open_run(&f, runs[r]);
        int again = 0;
        for (int b = 0; b < f.map.count; b++) again += f.map.boxes[b].kind == MAP_AGAIN;
        assert_true(again > 0);
        close_run(&f);
    }
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = memory_new(1, 4 << 20);
    assert_true(fread(text, 1, (4 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

/* The boxes of the SVG's group of tensors: how many, and how far they reach. */
static int read_boxes(const char *svg, struct point *from, struct point *to)
{
    const char *at = strstr(svg, "<g id=\"tensors\">"), *end = at ? strstr(at, "</g>") : NULL;
    int count = 0;
    assert_non_null(end);
    *from = (struct point){1e9, 1e9};
    *to = (struct point){-1e9, -1e9};
    for (at = strstr(at, "<rect"); at && at < end; at = strstr(at + 1, "<rect")) {
        double x, y, w, h;
        assert_int_equal(
            sscanf(at, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &x, &y, &w, &h), 4);
        assert_true(w > 0 && h >= 0);
        if (x < from->x) from->x = x;
        if (y < from->y) from->y = y;
        if (x + w > to->x) to->x = x + w;
        if (y + h > to->y) to->y = y + h;
        count++;
    }
    return count;
}

static void check_picture(const struct fixture *f)
{
    char folder[] = "/tmp/memory-XXXXXX", path[64];
    struct directory in;
    struct point from, to;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(directory_open(folder, &in), OK);
    assert_int_equal(memory_map_draw(&f->session, &f->map, MEMORY_MAP_FILE, &in), OK);
    directory_close(&in);
    snprintf(path, sizeof path, "%s/memory.svg", folder);
    char *svg = read_file(path);
    assert_int_equal(read_boxes(svg, &from, &to), f->map.count);
    assert_true(from.x >= LEFT - 0.01 && from.y >= ARENA_TOP - 0.01);
    assert_true(to.x <= WIDTH - RIGHT + 0.01 && to.y <= ARENA_TOP + ARENA_HEIGHT + 0.01);
    free(svg);
    unlink(path);
    rmdir(folder);
}

static void the_picture_has_every_box(void **state)
{
    every_run(check_picture);
}

static void advice_holds(void **state)
{
    struct fixture f, other;
    struct advice advice[ADVICE_MAX];
    open_run(&f, runs[1]);
    int count = memory_advice(&f.session, &f.forecast, advice);
    assert_true(count >= 4);
    for (int a = 0; a < count; a++) {
        const char *const run[4] = {runs[1][0], runs[1][1], runs[1][2], advice[a].setting};
        assert_true(advice[a].total_bytes < f.forecast.bytes.total);
        if (a > 0) assert_true(advice[a].total_bytes >= advice[a - 1].total_bytes);
        open_run(&other, run);
        assert_true(other.forecast.bytes.total == advice[a].total_bytes);
        close_run(&other);
    }
    close_run(&f);
}

static void words_are_escaped(void **state)
{
    struct svg svg = svg_open(10, 10, "a<b");
    svg_rect(&svg, (struct rect){1, 1, 2, 2}, 0, (struct svg_stroke){0}, "c>d");
    svg_text(&svg, (struct point){1, 5}, (struct svg_font){.size = 5}, "\"1 & 2\" > \x01\xff");
    const char *written = svg_end(&svg)->data;
    assert_non_null(strstr(written, "<title>a&lt;b</title>"));
    assert_non_null(strstr(written, "><title>c&gt;d</title></rect>"));
    assert_non_null(strstr(written, ">&quot;1 &amp; 2&quot; &gt; \xef\xbf\xbd\xef\xbf\xbd</text>"));
    svg_free(&svg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tensor_has_one_box),
        cmocka_unit_test(no_box_leaves_the_arena),
        cmocka_unit_test(no_boxes_overlap),
        cmocka_unit_test(the_curve_peaks_at_the_bound),
        cmocka_unit_test(what_is_made_again_is_told_apart),
        cmocka_unit_test(the_picture_has_every_box),
        cmocka_unit_test(advice_holds),
        cmocka_unit_test(words_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
