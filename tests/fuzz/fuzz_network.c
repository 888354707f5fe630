#include "fuzz_network.h"

#include "fuzz.h"
#include "graph/model.h"

/* Few tensors of every kind: checkpoints of it are short. */
static const char tiny[] =
    "[input]\nchannels = 1\nsize = 2\n[layers]\nbn = batchnorm input\navg = globalavgpool bn\n"
    "fc = linear avg units=$classes bias=no\n";

struct fuzz_network *fuzz_network(void)
{
    static struct fuzz_network network;
    if (network.device) return &network;
    const struct model_options options = {.classes = 3, .dropout = -1};
    network.optimizer = optimizer_find("sgd");
    fuzz_must(model_load_text(&options, "tiny", tiny, &network.graph) == OK);
    const struct store_options parts = {.low = F32, .optimizer = network.optimizer, .ema = true};
    fuzz_must(device_open("cpu", 1, &network.device) == OK);
    fuzz_must(store_open(network.device, &network.graph, &parts, &network.store) == OK);
    fuzz_must(store_init(&network.store, 1) == OK);
    fuzz_must(settings_load(NULL, NULL, 0, &network.settings) == OK);
    return &network;
}
