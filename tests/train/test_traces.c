/* Whole networks against an independent implementation: losses and gradient norms step by step,
 * then logits, from weights given by a formula. Needs AMPTRAIN_DATA (traces, mnist, cifar10) and
 * the program; each JSON file in traces is a case. They run on the CPU, or where AMPTRAIN_DEVICE says. */
#include "base/memory.h"
#include "base/text.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/unit.h"

#define CASES_MAX 64

/* The formula of the traces' README: uniform numbers by splitmix64 from FNV-1a of the name. */
static uint64_t name_hash(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return hash;
}

static double uniform_at(uint64_t name, uint64_t i)
{
    uint64_t z = i + name + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static float weight_value(const char *name, int rank, double fan_in, uint64_t i)
{
    if (ends_in(name, "running_mean")) return 0;
    if (ends_in(name, "running_var")) return 1;
    double u = uniform_at(name_hash(name), i);
    if (rank >= 2) return (float)((2 * u - 1) * sqrt(6 / fan_in) * 0.7);
    return ends_in(name, "weight") ? (float)(0.5 + u) : (float)((2 * u - 1) * 0.1);
}

/* A safetensors file of the formula's weights for the trace's parameter list. */
static void weights_write(json_t *params, const char *path)
{
    struct text header = {0};
    uint64_t at = 0;
    size_t i, j;
    json_t *param, *extent;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    text_add(&header, "{");
    json_array_foreach(params, i, param) {
        const char *name = json_string_value(json_array_get(param, 0));
        if (ends_in(name, "num_batches_tracked")) continue;
        uint64_t count = 1;
        text_add(&header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", at ? "," : "", name);
        json_array_foreach(json_array_get(param, 1), j, extent) {
            text_add(&header, "%s%d", j ? "," : "", (int)json_integer_value(extent));
            count *= (uint64_t)json_integer_value(extent);
        }
        text_add(&header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                 (unsigned long long)(at + 4 * count));
        at += 4 * count;
    }
    text_add(&header, "}");
    uint64_t length = header.length;
    fwrite(&length, 8, 1, file);
    fwrite(header.data, 1, header.length, file);
    json_array_foreach(params, i, param) {
        const char *name = json_string_value(json_array_get(param, 0));
        if (ends_in(name, "num_batches_tracked")) continue;
        json_t *shape = json_array_get(param, 1);
        uint64_t count = 1;
        json_array_foreach(shape, j, extent) count *= (uint64_t)json_integer_value(extent);
        double fan_in =
            json_array_size(shape) > 0 ? (double)count / (double)json_integer_value(json_array_get(shape, 0))
                                       : 1;
        for (uint64_t k = 0; k < count; k++) {
            float value = weight_value(name, (int)json_array_size(shape), fan_in, k);
            fwrite(&value, 4, 1, file);
        }
    }
    assert_int_equal(fclose(file), 0);
    text_free(&header);
}

static void number_add(struct text *out, json_t *spec, const char *name, const char *key)
{
    json_t *value = json_object_get(spec, name);
    if (json_is_number(value)) text_add(out, "%s = %.17g\n", key, json_number_value(value));
    if (json_is_boolean(value)) text_add(out, "%s = %s\n", key, json_is_true(value) ? "yes" : "no");
}

static void list_add(struct text *out, json_t *spec, const char *name)
{
    json_t *list = json_object_get(spec, name);
    if (!json_is_array(list)) return;
    text_add(out, "%s = ", name);
    size_t i;
    json_t *value;
    json_array_foreach(list, i, value) text_add(out, "%s%.17g", i ? "," : "", json_number_value(value));
    text_add(out, "\n");
}

static void config_write(json_t *spec, const char *data, const char *folder, const char *path)
{
    struct text ini = {0};
    const char *format = json_string_value(json_object_get(spec, "data"));
    const char *device = getenv("AMPTRAIN_DEVICE");
    text_add(&ini, "[run]\ndevice = %s\nmax_steps = %d\noutput = %s/run\n", device ? device : "cpu",
             (int)json_integer_value(json_object_get(spec, "steps")), folder);
    text_add(&ini, "[data]\nformat = %s\ntrain = %s/%s\nlimit = 2560\nshuffle = no\n", format, data, format);
    text_add(&ini, "[augment]\nflip = 0\n");
    list_add(&ini, spec, "mean");
    list_add(&ini, spec, "std");
    number_add(&ini, spec, "label_smoothing", "label_smoothing");
    text_add(&ini, "[model]\narch = %s\nweights = %s/weights.safetensors\nclasses = 10\ndropout = 0\n",
             json_string_value(json_object_get(spec, "arch")), folder);
    text_add(&ini, "[train]\nepochs = 1\n");
    number_add(&ini, spec, "batch", "batch");
    number_add(&ini, spec, "accumulate", "accumulate");
    number_add(&ini, spec, "clip_norm", "clip_norm");
    text_add(&ini, "[optimizer]\nname = %s\ndecay_norm_bias = yes\n",
             json_string_value(json_object_get(spec, "optimizer")));
    list_add(&ini, spec, "betas");
    const char *const keys[] = {"lr", "momentum", "nesterov", "weight_decay", "alpha", "eps", "trust"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) number_add(&ini, spec, keys[i], keys[i]);
    text_add(&ini, "[schedule]\nname = constant\n[log]\nevery = 1\n[amp]\nprecision = fp32\n");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(ini.data, file);
    assert_int_equal(fclose(file), 0);
    text_free(&ini);
}

static void run(const char *command)
{
    int result = system(command);
    if (result != 0) fail_msg("%s: ended with %d", command, result);
}

static double at(json_t *spec, const char *list, size_t i)
{
    return json_number_value(json_array_get(json_object_get(spec, list), i));
}

/* The tolerances are those of the traces' README: four times PyTorch's own fp32 spread, and a floor.
 *
 *   |loss - losses[i]| <= 1e-5 + 4 * max over j <= i of losses_float32_spread[j]
 *   first gradient norm, relative: 1e-4 + 4 * first_grad_norm_float32_spread */
static double loss_allowed(json_t *spec, size_t step)
{
    double spread = 0;
    for (size_t i = 0; i <= step; i++) spread = fmax(spread, at(spec, "losses_float32_spread", i));
    return 1e-5 + 4 * spread;
}

static double norm_allowed(json_t *spec)
{
    return 1e-4 + 4 * json_number_value(json_object_get(spec, "first_grad_norm_float32_spread"));
}

static void steps_check(json_t *spec, const char *metrics)
{
    FILE *file = fopen(metrics, "r");
    assert_non_null(file);
    static char line[65536];
    size_t step = 0;
    while (fgets(line, sizeof line, file)) {
        json_t *entry = json_loads(line, 0, NULL);
        assert_non_null(entry);
        const char *event = json_string_value(json_object_get(entry, "event"));
        if (event && strcmp(event, "step") == 0) {
            double wanted = at(spec, "losses", step), allowed = loss_allowed(spec, step);
            double loss = json_number_value(json_object_get(entry, "loss"));
            double norm = json_number_value(json_object_get(entry, "grad_norm"));
            print_message("step %2zu: loss %.7f, off by %.1e (allowed %.1e)\n", step + 1, loss,
                          fabs(loss - wanted), allowed);
            if (!(fabs(loss - wanted) <= allowed))
                fail_msg("step %zu: loss %.9g, wanted %.9g", step + 1, loss, wanted);
            double norm_wanted = at(spec, "grad_norms", step);
            if (step == 0)
                print_message("first gradient norm off by %.1e (allowed %.1e)\n",
                              fabs(norm / norm_wanted - 1), norm_allowed(spec));
            if (step == 0 && !(fabs(norm - norm_wanted) <= norm_allowed(spec) * norm_wanted))
                fail_msg("first gradient norm %.9g, wanted %.9g", norm, norm_wanted);
            step++;
        }
        json_decref(entry);
    }
    fclose(file);
    assert_int_equal(step, json_integer_value(json_object_get(spec, "steps")));
}

/* The logits after training agree as well as the last loss does. */
static void logits_check(json_t *spec, const char *path)
{
    json_t *rows = json_object_get(spec, "eval_logits_images_2496_to_2499");
    if (!rows) return;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    unsigned char head[10];
    assert_int_equal(fread(head, 1, 10, file), 10);
    long data = 10 + head[8] + 256 * head[9];
    double largest = 0, worst = 0;
    double allowed = 1e-4 + loss_allowed(spec, json_array_size(json_object_get(spec, "losses")) - 1);
    fseek(file, data + 2496L * 10 * 4, SEEK_SET);
    for (size_t i = 0; i < json_array_size(rows); i++)
        for (size_t j = 0; j < 10; j++) {
            float logit;
            double wanted = json_number_value(json_array_get(json_array_get(rows, i), j));
            assert_int_equal(fread(&logit, 4, 1, file), 1);
            largest = fmax(largest, fabs(wanted));
            worst = fmax(worst, fabs(logit - wanted));
        }
    fclose(file);
    print_message("logits off by %.1e of %.3f (allowed %.1e)\n", worst, largest, allowed);
    assert_true(worst <= allowed);
}

static void test_trace(void **state)
{
    const char *path = *state;
    const char *data = getenv("AMPTRAIN_DATA"), *program = getenv("AMPTRAIN");
    json_t *spec = json_load_file(path, 0, NULL);
    assert_non_null(spec);
    char folder[] = "/tmp/amptrain-trace-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *weights = text_format("%s/weights.safetensors", folder);
    char *config = text_format("%s/trace.ini", folder);
    char *train = text_format("%s train -q -c %s >%s/out 2>&1 || { cat %s/out; exit 1; }", program, config,
                              folder, folder);
    char *eval = text_format("%s eval -q -c %s --split train --weights %s/run/checkpoint-last.safetensors"
                             " --logits %s/logits.npy >%s/out 2>&1 || { cat %s/out; exit 1; }",
                             program, config, folder, folder, folder, folder);
    char *metrics = text_format("%s/run/metrics.jsonl", folder);
    char *logits = text_format("%s/logits.npy", folder);
    char *clean = text_format("rm -rf %s", folder);
    weights_write(json_object_get(spec, "params"), weights);
    config_write(spec, data, folder, config);
    run(train);
    steps_check(spec, metrics);
    run(eval);
    logits_check(spec, logits);
    run(clean);
    char *const texts[] = {weights, config, train, eval, metrics, logits, clean};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) free(texts[i]);
    json_decref(spec);
}

int main(void)
{
    struct CMUnitTest tests[CASES_MAX];
    size_t count = 0;
    const char *data = getenv("AMPTRAIN_DATA");
    char *folder = text_format("%s/traces", data ? data : "");
    DIR *listing = data && getenv("AMPTRAIN") ? opendir(folder) : NULL;
    if (!listing) {
        puts("1..0 # SKIP needs AMPTRAIN_DATA with traces");
        free(folder);
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(listing)) && count < CASES_MAX;)
        if (ends_in(entry->d_name, ".json"))
            tests[count++] = (struct CMUnitTest){.name = text_copy(entry->d_name), .test_func = test_trace,
                                                 .initial_state = text_format("%s/%s", folder,
                                                                              entry->d_name)};
    closedir(listing);
    int failed = _cmocka_run_group_tests("traces", tests, count, NULL, NULL);
    for (size_t i = 0; i < count; i++) {
        free((char *)tests[i].name);
        free(tests[i].initial_state);
    }
    free(folder);
    return failed;
}
