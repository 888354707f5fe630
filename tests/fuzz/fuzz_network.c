#include "fuzz_network.h"

#include "base/memory.h"
#include "fuzz.h"
#include "graph/model.h"

/* Few tensors of every kind: checkpoints of it are short. */
const char fuzz_model[] =
    "[input]\nchannels = 1\nsize = 2\n[layers]\nbn = batchnorm input\navg = globalavgpool bn\n"
    "fc = linear avg units=$classes bias=no\n";

struct fuzz_network *fuzz_network(void)
{
    static struct fuzz_network network;
    if (network.device) return &network;
    const struct model_options options = {.classes = 3, .dropout = -1};
    network.optimizer = optimizer_find("sgd");
    fuzz_must(model_load_text(&options, "tiny", fuzz_model, &network.graph) == OK);
    const struct store_options parts = {.low = F32, .optimizer = network.optimizer, .ema = true};
    fuzz_must(device_open("cpu", 1, &network.device) == OK);
    fuzz_must(store_open(network.device, &network.graph, &parts, &network.store) == OK);
    fuzz_must(store_init(&network.store, 1) == OK);
    fuzz_must(settings_load(NULL, NULL, 0, &network.settings) == OK);
    for (int i = 0; i < 2; i++) {
        const struct dataset_options images = {.split = (enum split)i, .classes = 3, .synthetic_count = 10};
        fuzz_must(dataset_open(format_find("synthetic"), &images, &network.datasets[i]) == OK);
        dataset_identity_make(&network.datasets[i], &network.identities[i]);
    }
    return &network;
}

struct checkpoint_source fuzz_source(void)
{
    static char *names[] = {(char *)"one", (char *)"two", (char *)"three"};
    const struct fuzz_network *network = fuzz_network();
    return (struct checkpoint_source){
        .store = &network->store,
        .optimizer = network->optimizer,
        .settings = &network->settings,
        .graph = &network->graph,
        .class_names = names,
        .classes = 3,
        .train_images = 10,
        .val_images = 2,
        .identities = {&network->identities[SPLIT_TRAIN], &network->identities[SPLIT_VAL]},
        .h = 2,
        .w = 2,
        .channels = 1,
        .algorithms = "conv 8x8=1.0 us\n",
    };
}

static void match(const struct safetensors *file)
{
    const struct checkpoint_source now = fuzz_source();
    struct settings settings;
    bool same;
    fuzz_good(checkpoint_match_settings(file, now.settings), "checkpoint");
    fuzz_good(checkpoint_match_network(file, &now), "checkpoint");
    fuzz_good(checkpoint_match_data(file, &now), "checkpoint");
    fuzz_good(checkpoint_match_best(file, now.settings, &same), "checkpoint");
    fuzz_must(settings_load(NULL, (const char *[]){"train.batch=auto"}, 1, &settings) == OK);
    checkpoint_recall_batch(file, &settings);
    fuzz_forget();
    settings_free(&settings);
}

void fuzz_resume(const char *path)
{
    struct fuzz_network *network = fuzz_network();
    struct safetensors file;
    struct position position;
    struct reason reason = fuzz_reason();
    if (!checkpoint_open(&directory_working, path, &file, &reason)) {
        fuzz_check_reason(&reason);
        return;
    }
    char **names;
    int count, h, w, channels;
    checkpoint_class_names(&file, &names, &count);
    text_list_free(names, (size_t)count);
    if (!checkpoint_input(&file, &h, &w, &channels, &reason)) fuzz_check_reason(&reason);
    checkpoint_algorithms(&file);
    match(&file);
    if (fuzz_good(checkpoint_match(&file, &network->store, network->optimizer), "checkpoint"))
        fuzz_good(checkpoint_restore(&file, &network->store, network->optimizer, &position), "checkpoint");
    safetensors_close(&file);
}
