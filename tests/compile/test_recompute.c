/* Activations made again, or moved to the host: the same bits as when they are kept, whatever is chosen;
 * smaller arenas. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "compile/memory/offload.h"
#include "compile/memory/recompute_replay.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

/* How an activation is chosen for being made again. */
enum choice { CHOOSE_NONE, CHOOSE_CHEAP, CHOOSE_ALL_ONCE, CHOOSE_ALL_EACH, CHOOSE_RANDOM };

struct policy {
    enum choice choice;
    uint64_t seed;
    bool offloads;        /* and all that helps is moved, or as much as comes below a random limit */
    bool fused;       /* and what backward can make by the way is left to it */
    int again;         /* answer: instructions that make something again */
    int by_the_way;    /* and backward ones that do */
    int moved;         /* and tensors moved */
};

static void move(struct program *program, struct policy *policy, struct random *random)
{
    struct offload_forecast before, after;
    offload(program, &(struct offload_options){.limit = INT64_MAX, .least = 1}, &before);
    assert_int_equal(before.count, 0);
    int64_t share = random_below(random, 2) ? 50 + (int64_t)random_below(random, 50) : 0;
    int64_t limit = before.bytes * share / 100;
    bool fits = offload(program, &(struct offload_options){.limit = limit, .least = 1}, &after);
    assert_true(after.bytes <= before.bytes);
    assert_int_equal(fits, after.bytes <= limit);
    assert_int_equal(offload_bytes(program), after.moved);
    policy->moved = after.count;
}

static void choose(struct program *program, void *context)
{
    struct policy *policy = context;
    enum recompute_mode *modes = memory_new((size_t)program->count, sizeof *modes);
    struct random random = random_open(policy->seed, PURPOSE_TEST, 0, 0);
    if (policy->choice == CHOOSE_CHEAP) recompute_cheap(program, modes);
    for (int i = 0; i < program->count; i++) {
        if (policy->choice == CHOOSE_ALL_ONCE) modes[i] = RECOMPUTE_ONCE;
        if (policy->choice == CHOOSE_ALL_EACH) modes[i] = RECOMPUTE_EACH;
        if (policy->choice == CHOOSE_RANDOM) modes[i] = (enum recompute_mode)random_below(&random, 3);
    }
    recompute(program, modes);
    policy->again = recompute_count(program);
    if (policy->fused) fuse_recompute(program, INT64_MAX);
    assert_int_equal(recompute_count(program), policy->again);
    for (int i = 0; i < program->count; i++)
        policy->by_the_way += operand(&program->instructions[i], OPERAND_Y_RECOMPUTED, 0) >= 0;
    if (policy->offloads) move(program, policy, &random);
    free(modes);
}

/* The results of two training steps. */
struct outcome {
    float **gradients;
    float *params, *losses;
    int64_t arena, bound;
};

static const char net_pooled[] =
    "[input]\n"
    "channels = 3\n"
    "size = 16\n"
    "[layers]\n"
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "relu1 = relu6 bn1\n"
    "pool1 = maxpool relu1 kernel=3 stride=2 pad=1\n"
    "lrn = lrn pool1\n"
    "conv2 = conv lrn filters=8 kernel=3 pad=1\n"
    "gelu = gelu conv2\n"
    "drop = dropout gelu rate=0.4\n"
    "conv3 = conv drop filters=8 kernel=3 pad=1 groups=8 bias=no\n"
    "bn3 = batchnorm conv3\n"
    "leaky = leaky_relu bn3\n"
    "cat = concat leaky pool1\n"
    "bn4 = batchnorm cat\n"
    "relu4 = relu bn4\n"
    "conv4 = conv relu4 filters=6 kernel=1\n"
    "pool4 = adaptive_maxpool conv4 size=2\n"
    "flat = flatten pool4\n"
    "fc1 = linear flat units=7\n"
    "relu5 = relu fc1\n"
    "fc = linear relu5 units=5\n";

static struct outcome outcome_of(const char *text, bool fused, struct net_options options,
                                 struct policy *policy)
{
    struct graph graph = net_graph(text, fused);
    struct net net;
    struct outcome out = {0};
    options.training = true;
    options.pass = choose;
    options.pass_context = policy;
    options.plan_seconds = 0.02;
    net_open(&net, &graph, &options);
    out.gradients = memory_new((size_t)graph.param_count, sizeof *out.gradients);
    for (int step = 0; step < 2; step++) {
        net_batch(&net, (uint64_t)step);
        assert_int_equal(net_run(&net, 0.05), OK);
    }
    for (int p = 0; p < graph.param_count; p++) out.gradients[p] = net_gradient(&net, p);
    out.arena = exec_plan(net.exec)->arena_bytes;
    out.bound = exec_plan(net.exec)->live_bytes_bound;
    out.losses = memory_new((size_t)options.batch, sizeof *out.losses);
    memcpy(out.losses, exec_losses(net.exec), (size_t)options.batch * sizeof *out.losses);
    out.params = memory_new((size_t)graph_param_elements(&graph), sizeof *out.params);
    int64_t at = 0;
    for (int p = 0; p < graph.param_count; p++) {
        if (graph.params[p].spec.role == ROLE_STATISTIC) continue;
        assert_int_equal(store_read(net.store, p, STORE_MASTER, out.params + at), OK);
        at += shape_count(graph.params[p].spec.shape);
    }
    net_close(&net);
    graph_free(&graph);
    return out;
}

static void outcome_free(const char *text, bool fused, struct outcome *out)
{
    struct graph graph = net_graph(text, fused);
    for (int p = 0; p < graph.param_count; p++) free(out->gradients[p]);
    graph_free(&graph);
    free(out->gradients);
    free(out->params);
    free(out->losses);
}

static void assert_same(const char *text, bool fused, int batch, const struct outcome *a,
                        const struct outcome *b)
{
    struct graph graph = net_graph(text, fused);
    assert_memory_equal(a->losses, b->losses, (size_t)batch * sizeof(float));
    for (int p = 0; p < graph.param_count; p++) {
        if (!a->gradients[p]) continue;
        size_t bytes = (size_t)shape_count(graph.params[p].spec.shape) * sizeof(float);
        assert_memory_equal(a->gradients[p], b->gradients[p], bytes);
    }
    assert_memory_equal(a->params, b->params, (size_t)graph_param_elements(&graph) * sizeof(float));
    graph_free(&graph);
}

/* Every choice gives the bits of keeping all. Counts in `sum` what was moved in them, and what was made by
 * the way. */
static void check_bits(const char *text, bool fused, struct net_options options, struct policy *sum)
{
    struct policy none = {.choice = CHOOSE_NONE};
    struct outcome kept = outcome_of(text, fused, options, &none);
    assert_int_equal(none.again, 0);
    for (int choice = CHOOSE_NONE; choice <= CHOOSE_RANDOM; choice++)
        for (uint64_t seed = 0; seed < (choice == CHOOSE_RANDOM ? 4 : 1); seed++) {
            struct policy policy = {.choice = (enum choice)choice, .seed = seed, .fused = seed != 1,
                                    .offloads = ((uint64_t)choice + seed) % 2 == 0};
            struct outcome out = outcome_of(text, fused, options, &policy);
            assert_same(text, fused, options.batch, &kept, &out);
            if (choice > CHOOSE_CHEAP) assert_true(policy.again > 0);
            sum->moved += policy.moved;
            sum->by_the_way += policy.by_the_way;
            outcome_free(text, fused, &out);
        }
    outcome_free(text, fused, &kept);
}

static void check_nets(struct net_options options)
{
    const char *const texts[] = {net_mixed, net_plain, net_pooled};
    struct policy sum = {.moved = 0};
    for (int t = 0; t < 3; t++)
        for (int fused = 0; fused < 2; fused++) check_bits(texts[t], fused, options, &sum);
    assert_true(sum.moved > 0);
    assert_true(sum.by_the_way > 0);
}

static void test_bits(void **state)
{
    check_nets((struct net_options){.batch = 4, .storage = F32});
}

static void test_bits_bf16(void **state)
{
    check_nets((struct net_options){.batch = 4, .storage = BF16});
}

static void test_bits_micro_batches(void **state)
{
    check_nets((struct net_options){.batch = 6, .micro_batches = 3, .storage = F32});
}

static void test_bits_streams(void **state)
{
    check_nets((struct net_options){.batch = 4, .micro_batches = 2, .streams = 2, .storage = F32});
}

static void test_bits_reference(void **state)
{
    check_nets((struct net_options){.batch = 2, .storage = F16, .reference = true});
}

static struct program lower_net(const struct graph *graph, int batch, int micro_batches)
{
    struct program program;
    struct lower_options options = {.batch = batch, .micro_batches = micro_batches, .training = true,
                                    .storage = F16};
    assert_int_equal(lower(graph, &options, &(struct kernel_options){0}, &program), OK);
    return program;
}

static int64_t bound_of(const struct program *program, const enum recompute_mode *modes)
{
    struct program copy = program_copy(program);
    struct plan plan;
    recompute(&copy, modes);
    assert_int_equal(plan_make(&copy, true, 0.01, &plan), OK);
    int64_t bound = plan.live_bytes_bound;
    plan_free(&plan);
    program_free(&copy);
    return bound;
}

/* The memory of a choice is known without applying it. */
static void test_forecast(void **state)
{
    const char *const texts[] = {net_mixed, net_plain, net_pooled};
    struct random random = random_open(5, PURPOSE_TEST, 0, 0);
    for (int t = 0; t < 3; t++) {
        struct graph graph = net_graph(texts[t], true);
        struct program program = lower_net(&graph, 4, 1 + t % 2);
        struct kernel_plans kernel_plans;
        const struct kernel_options options = {.code_of = kernel_plans_code(DEVICE_CPU)};
        enum recompute_mode *modes = memory_new((size_t)program.count, sizeof *modes);
        if (t > 0) assert_int_equal(kernel_plans_prepare(&program, &options, &kernel_plans), OK);
        for (int trial = 0; trial < 40; trial++) {
            struct recompute_forecast forecast;
            for (int i = 0; i < program.count; i++) modes[i] = (enum recompute_mode)random_below(&random, 3);
            recompute_measure(&program, modes, &forecast);
            assert_int_equal(forecast.bytes, bound_of(&program, modes));
        }
        if (t > 0) kernel_plans_release(&kernel_plans);
        free(modes);
        program_free(&program);
        graph_free(&graph);
    }
}

/* Byte-instructions above the limit, by the lifetimes of the program that a choice makes. */
static double excess_of(const struct program *program, const enum recompute_mode *modes, int64_t limit)
{
    struct program copy = program_copy(program);
    struct plan plan;
    recompute(&copy, modes);
    assert_int_equal(plan_make(&copy, true, 0.01, &plan), OK);
    int *end = memory_new((size_t)copy.value_count, sizeof *end);
    int64_t *change = memory_new((size_t)copy.count + 1, sizeof *change), alive = 0;
    for (int v = 0; v < copy.value_count; v++) {
        const struct lifetime *life = &plan.lifetimes[v];
        if (life->born >= 0 && life->dead > end[life->group]) end[life->group] = life->dead;
    }
    for (int v = 0; v < copy.value_count; v++) {
        if (plan.lifetimes[v].born < 0 || plan.lifetimes[v].group != v) continue;
        change[plan.lifetimes[v].born] += plan_bytes(&copy.values[v]);
        change[end[v]] -= plan_bytes(&copy.values[v]);
    }
    double excess = 0;
    for (int i = 0; i < copy.count; i++) {
        alive += change[i];
        if (alive > limit) excess += (double)(alive - limit);
    }
    free(end);
    free(change);
    plan_free(&plan);
    program_free(&copy);
    return excess;
}

/* One choice after another takes what the programs take that they make. */
static void check_replay(const struct program *program, struct random *random)
{
    double *cost = memory_new((size_t)program->count, sizeof *cost);
    for (int i = 0; i < program->count; i++) cost[i] = 1e-6 * (1 + (double)random_below(random, 1000));
    struct replay replay;
    replay_open(&replay, program, cost, true);
    int64_t all = bound_of(program, replay.modes);
    for (int k = 0; k < 60; k++) {
        int count = random_below(random, 8) ? 1 + (int)random_below(random, 4) : program->count;
        for (int c = 0; c < count; c++)
            replay.modes[random_below(random, (uint64_t)program->count)] =
                (enum recompute_mode)random_below(random, 3);
        replay.limit = all * (30 + (int64_t)random_below(random, 70)) / 100;
        replay_run(&replay);
        assert_int_equal(replay.peak, bound_of(program, replay.modes));
        assert_true(replay.excess == excess_of(program, replay.modes, replay.limit));
    }
    replay_close(&replay);
    free(cost);
}

static void test_replay(void **state)
{
    const char *const texts[] = {net_mixed, net_plain, net_pooled};
    struct random random = random_open(6, PURPOSE_TEST, 0, 0);
    for (int t = 0; t < 6; t++) {
        struct graph graph = net_graph(texts[t % 3], t % 2);
        struct program program = lower_net(&graph, 6, 1 + t % 3);
        struct kernel_plans kernel_plans = {0};
        const struct kernel_options options = {.code_of = kernel_plans_code(DEVICE_CPU)};
        if (t > 2) assert_int_equal(kernel_plans_prepare(&program, &options, &kernel_plans), OK);
        check_replay(&program, &random);
        kernel_plans_release(&kernel_plans);
        program_free(&program);
        graph_free(&graph);
    }
}

/* Two of many micro-batches stand for all, where the same is chosen for each: what else is alive in others,
 * partial sums of gradients, is little. */
static void test_few_micro_batches(void **state)
{
    const char *const texts[] = {net_mixed, net_plain, net_pooled};
    struct random random = random_open(7, PURPOSE_TEST, 0, 0);
    for (int t = 0; t < 9; t++) {
        struct graph graph = net_graph(texts[t % 3], t % 2);
        struct program program = lower_net(&graph, 960, t < 3 ? 3 : t < 6 ? 4 : 16);
        double *cost = memory_new((size_t)program.count, sizeof *cost);
        enum recompute_mode *folded = memory_new((size_t)program.count, sizeof *folded);
        struct replay replay;
        replay_open(&replay, &program, cost, false);
        assert_true(replay.walk.end - replay.begin < program.count);
        int count = recompute_fold(&program, replay.modes, folded);
        for (int k = 0; k < 20; k++) {
            folded[random_below(&random, (uint64_t)count)] = (enum recompute_mode)random_below(&random, 3);
            recompute_unfold(&program, folded, replay.modes);
            replay_run(&replay);
            int64_t bound = bound_of(&program, replay.modes);
            assert_true(replay.peak <= bound && (double)replay.peak >= 0.98 * (double)bound);
        }
        replay_close(&replay);
        free(cost);
        free(folded);
        program_free(&program);
        graph_free(&graph);
    }
}

/* The memory of every choice among the activations, each kept or recomputed once. */
static struct recompute_forecast *try_all(const struct program *program, int *count)
{
    int at[13], activations = 0;
    enum recompute_mode *modes = memory_new((size_t)program->count, sizeof *modes);
    for (int i = 0; i < program->first_backward; i++)
        if (program->values[operand_y(&program->instructions[i])].home == HOME_ARENA) {
            assert_true(activations < 13);
            at[activations++] = i;
        }
    *count = 1 << activations;
    struct recompute_forecast *all = memory_new((size_t)*count, sizeof *all);
    for (int set = 0; set < *count; set++) {
        for (int k = 0; k < activations; k++) modes[at[k]] = set >> k & 1 ? RECOMPUTE_ONCE : RECOMPUTE_NEVER;
        recompute_measure(program, modes, &all[set]);
    }
    free(modes);
    return all;
}

static double cheapest(const struct recompute_forecast *all, int count, int64_t limit)
{
    double best = 1e300;
    for (int k = 0; k < count; k++)
        if (all[k].bytes <= limit && all[k].seconds < best) best = all[k].seconds;
    return best;
}

static void test_cheapest(void **state)
{
    const char *const texts[] = {net_mixed, net_plain};
    int met = 0;
    if (getenv("AMPTRAIN_SANITIZED")) skip();
    for (int t = 0; t < 2; t++) {
        struct graph graph = net_graph(texts[t], true);
        struct program program = lower_net(&graph, 512, 1);
        enum recompute_mode *modes = memory_new((size_t)program.count, sizeof *modes);
        int64_t all = bound_of(&program, modes);
        int count;
        struct recompute_forecast *choices = try_all(&program, &count);
        for (int percent = 95; percent >= 60; percent -= 5) {
            struct recompute_forecast forecast;
            double best = cheapest(choices, count, all * percent / 100);
            const struct recompute_goal goal = {.limit = all * percent / 100, .work = RECOMPUTE_WORK};
            bool fits = recompute_choose(&program, &goal, modes, &forecast);
            if (best < 1e299) assert_true(fits);
            if (!fits) continue;
            assert_true(forecast.bytes <= all * percent / 100);
            assert_int_equal(forecast.bytes, bound_of(&program, modes));
            assert_true(forecast.seconds <= 1.05 * best + 1e-9);
            met++;
        }
        free(choices);
        free(modes);
        program_free(&program);
        graph_free(&graph);
    }
    assert_true(met >= 4);
}

static struct program lower_model(const char *name, struct graph *graph)
{
    static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
    struct model_options model = {.arch = name, .folders = folders, .dropout = -1};
    assert_int_equal(model_load(&model, graph), OK);
    assert_int_equal(fuse(graph), OK);
    return lower_net(graph, 256, 1);
}

/* Shares of the memory of keeping all, and what they may cost at most: milliseconds of a GPU as modelled. */
static void check_model(const char *name, const double shares[4], const double most[4])
{
    struct graph graph;
    struct program program = lower_model(name, &graph);
    enum recompute_mode *modes = memory_new((size_t)program.count, sizeof *modes);
    int64_t all = bound_of(&program, modes);
    for (int k = 0; k < 4; k++) {
        struct recompute_forecast forecast;
        int64_t limit = (int64_t)(shares[k] * (double)all);
        const struct recompute_goal goal = {.limit = limit, .work = RECOMPUTE_WORK};
        bool fits = recompute_choose(&program, &goal, modes, &forecast);
        if (!fits || forecast.seconds * 1e3 > most[k])
            print_message("%s in %.2f of its memory: %.2f ms\n", name, shares[k], forecast.seconds * 1e3);
        assert_true(fits && forecast.seconds * 1e3 <= most[k]);
        assert_true(bound_of(&program, modes) <= limit);
    }
    free(modes);
    program_free(&program);
    graph_free(&graph);
}

static void test_models(void **state)
{
    if (getenv("AMPTRAIN_SANITIZED")) skip();      /* how good choices are: the code is that of test_work */
    check_model("resnet50", (double[]){0.85, 0.65, 0.5, 0.35}, (double[]){0.4, 1.3, 2.3, 3.85});
    check_model("mobilenet_v2", (double[]){0.8, 0.6, 0.5, 0.3}, (double[]){0.4, 0.8, 1.05, 1.5});
    check_model("densenet121", (double[]){0.8, 0.5, 0.35, 0.2}, (double[]){0.8, 2.4, 3.8, 5.6});
}

/* How long a choice takes is bounded by work that is counted: so much of it where there is a choice, little
 * more than was allowed where there is none, and less where the cheapest is not asked for. */
static void test_work(void **state)
{
    struct graph graph;
    struct program program = lower_model("resnet152", &graph);
    enum recompute_mode *modes = memory_new((size_t)program.count, sizeof *modes);
    int64_t all = bound_of(&program, modes), least = plan_minimum_bytes(&program);
    struct recompute_forecast cheapest, any, none;
    for (int percent = 80; percent >= 20; percent -= 15) {
        struct recompute_goal goal = {.limit = all * percent / 100, .work = RECOMPUTE_WORK};
        assert_true(recompute_choose(&program, &goal, modes, &cheapest));
        goal.any = true;
        assert_true(recompute_choose(&program, &goal, modes, &any));
        assert_true(cheapest.work < 52000000);
        assert_true(any.work < 6000000);
        assert_true(cheapest.seconds <= any.seconds);
    }
    const struct recompute_goal goal = {.limit = least - 1, .work = 2000000};
    assert_false(recompute_choose(&program, &goal, modes, &none));
    assert_true(none.bytes >= least && none.bytes < all / 2);
    assert_true(none.work < 3500000);
    free(modes);
    program_free(&program);
    graph_free(&graph);
}

/* Each value is written before it is read, and once. */
static void assert_in_order(const struct program *program)
{
    bool *written = memory_new((size_t)program->value_count, sizeof *written);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        FOR_READS(o, at) assert_true(program->values[o->value].home != HOME_ARENA || written[o->value]);
        FOR_WRITES(o, at) {
            assert_false(program->values[o->value].home == HOME_ARENA && written[o->value]);
            written[o->value] = true;
        }
    }
    free(written);
}

/* Every inner norm and GELU of a network makes its output by the way; no instruction is left that only does
 * that. */
static void test_by_the_way(void **state)
{
    const char *const names[] = {"resnet50", "mobilenet_v2", "densenet121", "vit_tiny_patch16_224",
                                 "convnext_tiny"};
    const int counts[] = {32, 41, 119, 37, 41};
    for (int m = 0; m < 5; m++) {
        struct graph graph;
        struct program program = lower_model(names[m], &graph);
        enum recompute_mode *modes = memory_new((size_t)program.count, sizeof *modes);
        int count = program.count, by_the_way = 0;
        recompute_cheap(&program, modes);
        int64_t bound = bound_of(&program, modes);
        recompute(&program, modes);
        fuse_recompute(&program, INT64_MAX);
        assert_in_order(&program);
        for (int i = 0; i < program.count; i++) {
            assert_int_not_equal(program.instructions[i].phase, PHASE_RECOMPUTE);
            by_the_way += operand(&program.instructions[i], OPERAND_Y_RECOMPUTED, 0) >= 0;
        }
        assert_int_equal(program.count, count);
        assert_int_equal(by_the_way, counts[m]);
        struct plan plan;
        assert_int_equal(plan_make(&program, true, 0.01, &plan), OK);
        assert_true((double)plan.live_bytes_bound <= 1.02 * (double)bound);
        plan_free(&plan);
        free(modes);
        program_free(&program);
        graph_free(&graph);
    }
}

/* Outputs that backward recomputes with at most `limit` alive; the most alive is `bytes`. */
static int made_by_the_way(const struct program *program, const enum recompute_mode *modes, int64_t limit,
                           int64_t *bytes)
{
    struct program copy = program_copy(program);
    int count = 0;
    recompute(&copy, modes);
    int again = recompute_count(&copy);
    fuse_recompute(&copy, limit);
    assert_in_order(&copy);
    assert_int_equal(recompute_count(&copy), again);
    for (int i = 0; i < copy.count; i++)
        count += operand(&copy.instructions[i], OPERAND_Y_RECOMPUTED, 0) >= 0;
    *bytes = plan_live_peak(&copy);
    program_free(&copy);
    return count;
}

/* Gradients that wait take memory: where there is none left for that, they do not, and elsewhere they do. */
static void test_by_the_way_within(void **state)
{
    const char *const names[] = {"vgg16_bn", "mobilenet_v2"};
    const double shares[] = {0.4, 0.25};
    for (int m = 0; m < 2; m++) {
        struct graph graph;
        struct program program = lower_model(names[m], &graph);
        enum recompute_mode *modes = memory_new((size_t)program.count, sizeof *modes);
        struct recompute_forecast forecast;
        int64_t all = bound_of(&program, modes), bytes, most_bytes;
        const struct recompute_goal goal = {.limit = (int64_t)(shares[m] * (double)all),
                                            .work = RECOMPUTE_WORK};
        recompute_choose(&program, &goal, modes, &forecast);
        int64_t least_bytes = bound_of(&program, modes);
        int most = made_by_the_way(&program, modes, INT64_MAX, &most_bytes);
        assert_true((double)most_bytes > 1.03 * (double)least_bytes);
        assert_int_equal(made_by_the_way(&program, modes, most_bytes, &bytes), most);
        assert_int_equal(bytes, most_bytes);
        int some = made_by_the_way(&program, modes, least_bytes, &bytes);
        assert_true(bytes <= least_bytes);
        assert_in_range(some, 1, most - 1);
        int more = made_by_the_way(&program, modes, (least_bytes + most_bytes) / 2, &bytes);
        assert_true(bytes <= (least_bytes + most_bytes) / 2);
        assert_in_range(more, some, most);
        free(modes);
        program_free(&program);
        graph_free(&graph);
    }
}

/* The choice for what is beside the chain with at most `limit` alive; the most alive is `bytes`. */
static int beside_within(const struct program *program, const enum recompute_mode *modes, int64_t limit,
                         int64_t *bytes)
{
    struct program copy = program_copy(program);
    int count = 0;
    recompute(&copy, modes);
    fuse_recompute(&copy, limit);
    assert_int_equal(streams_within(&copy, limit > 0 ? 2 : 1, BY_MICRO_BATCH, limit), OK);
    for (int i = 0; i < copy.count; i++) count += copy.instructions[i].stream > 0;
    struct plan plan;
    assert_int_equal(plan_make(&copy, true, 0.01, &plan), OK);
    *bytes = plan.live_bytes_bound;
    plan_free(&plan);
    program_free(&copy);
    return count;
}

/* Weight gradients run beside the chain as far as there is memory for that. */
static void test_beside_within(void **state)
{
    const char *const names[] = {"resnet50", "densenet121", "mobilenet_v2"};
    for (int m = 0; m < 3; m++) {
        struct graph graph;
        struct program program = lower_model(names[m], &graph);
        enum recompute_mode *modes = memory_new((size_t)program.count, sizeof *modes);
        struct recompute_forecast forecast;
        int64_t all = bound_of(&program, modes), least, most, bytes;
        const struct recompute_goal goal = {.limit = all / 2, .work = RECOMPUTE_WORK};
        assert_true(recompute_choose(&program, &goal, modes, &forecast));
        assert_int_equal(beside_within(&program, modes, 0, &least), 0);
        int every = beside_within(&program, modes, INT64_MAX, &most), before = 0;
        assert_true(most > least);
        for (int part = 0; part <= 4; part++) {
            int64_t limit = least + (most - least) * part / 4;
            int count = beside_within(&program, modes, limit, &bytes);
            assert_true(bytes <= limit);
            assert_in_range(count, before + (part == 0), every);
            before = count;
        }
        assert_int_equal(before, every);
        free(modes);
        program_free(&program);
        graph_free(&graph);
    }
}

static int64_t bound_on_streams(struct program *program, int count)
{
    struct plan plan;
    assert_int_equal(streams_assign(program, count, BY_MICRO_BATCH), OK);
    assert_int_equal(plan_make(program, true, 0.01, &plan), OK);
    int64_t bound = plan.live_bytes_bound;
    plan_free(&plan);
    return bound;
}

/* Offloading in the shipped networks, beside computing and alone: on streams of its own it takes hardly more
 * memory than was forecast. */
static void test_moves_of_models(void **state)
{
    static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
    const char *const names[] = {"resnet50", "densenet121"};
    for (int m = 0; m < 2; m++)
        for (int hidden = 0; hidden < 2; hidden++) {
            struct model_options model = {.arch = names[m], .folders = folders, .dropout = -1};
            struct offload_forecast before, after;
            struct graph graph;
            assert_int_equal(model_load(&model, &graph), OK);
            assert_int_equal(fuse(&graph), OK);
            struct program program = lower_net(&graph, 256, 1);
            offload(&program, &(struct offload_options){.limit = INT64_MAX}, &before);
            int64_t limit = hidden ? 0 : before.bytes / 2;
            const struct offload_options options = {.limit = limit, .hidden = hidden};
            bool fits = offload(&program, &options, &after);
            int64_t bound = bound_on_streams(&program, 2);
            assert_int_equal(program.streams, 4);
            assert_true((double)bound <= 1.02 * (double)after.bytes);
            assert_true(hidden ? after.seconds < 1e-6 : fits && after.seconds > 1e-3);
            assert_true((double)after.bytes <= (hidden ? 0.98 : 0.5) * (double)before.bytes);
            program_free(&program);
            graph_free(&graph);
        }
}

/* A U-Net: two convolutions with batch norm and relu on each level. */
#define CONVOLUTION(name, from, filters) \
    name " = conv " from " filters=" filters " kernel=3 pad=1 bias=no\n" \
    name "n = batchnorm " name "\n" \
    name "r = relu " name "n\n"
#define LEVEL(name, from, filters) \
    CONVOLUTION(name "a", from, filters) CONVOLUTION(name "b", name "ar", filters)
#define DOWN(name, from, filters) LEVEL(name, from, filters) name "p = maxpool " name "br kernel=2\n"
#define UP(name, from, beside, filters) \
    name "u = conv_transpose " from " filters=" filters " kernel=2 stride=2\n" \
    name "k = concat " beside " " name "u\n" \
    LEVEL(name, name "k", filters)
static const char ushape[] =
    "[input]\n"
    "channels = 3\n"
    "size = 64\n"
    "[layers]\n"
    DOWN("d0", "input", "16") DOWN("d1", "d0p", "32") DOWN("d2", "d1p", "64") DOWN("d3", "d2p", "128")
    LEVEL("m", "d3p", "256")
    UP("e3", "mbr", "d3br", "128") UP("e2", "e3br", "d2br", "64") UP("e1", "e2br", "d1br", "32")
    UP("e0", "e1br", "d0br", "16")
    "head = conv e0br filters=21 kernel=1\n"
    "pool = globalavgpool head\n"
    "fc = linear pool units=5\n";

/* Limits that are not met: the search leaves the choice with the smallest peak that it has seen. */
static void test_smallest(void **state)
{
    static const int percent[] = {10, 14, 16, 20, 22, 28};
    const int count = sizeof percent / sizeof percent[0];
    struct graph graph = net_graph(ushape, true);
    struct program program = lower_net(&graph, 64, 1);
    enum recompute_mode *modes = memory_new((size_t)program.count, sizeof *modes);
    double all = (double)bound_of(&program, modes), sum = 0;
    for (int k = 0; k < count; k++) {
        struct recompute_forecast forecast;
        const struct recompute_goal goal = {.limit = (int64_t)(percent[k] * all / 100), .any = true,
                                            .work = RECOMPUTE_WORK};
        assert_false(recompute_choose(&program, &goal, modes, &forecast));
        assert_int_equal(forecast.bytes, bound_of(&program, modes));
        sum += (double)forecast.bytes / all;
    }
    print_message("%.4f of the memory in the mean\n", sum / count);
    assert_true(sum / count < 0.315);
    free(modes);
    program_free(&program);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),       cmocka_unit_test(test_bits_bf16),
        cmocka_unit_test(test_bits_micro_batches),
        cmocka_unit_test(test_bits_streams), cmocka_unit_test(test_bits_reference),
        cmocka_unit_test(test_forecast),   cmocka_unit_test(test_replay),
        cmocka_unit_test(test_few_micro_batches), cmocka_unit_test(test_cheapest),
        cmocka_unit_test(test_models),     cmocka_unit_test(test_work),
        cmocka_unit_test(test_by_the_way),
        cmocka_unit_test(test_by_the_way_within),
        cmocka_unit_test(test_beside_within),
        cmocka_unit_test(test_moves_of_models),
        cmocka_unit_test(test_smallest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
