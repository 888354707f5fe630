/* Files beside weights about them, config.json and preprocessor_config.json, are used if they can be. */
#include "fuzz.h"

#include <string.h>

#include "checkpoint/model_card.h"

static const char *weights;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    weights = fuzz_write("model.safetensors", "", 0);
    return 0;
}

static void check(const struct model_card *card)
{
    bool known = card->architecture || card->normalised || card->crop.h || card->classes;
    fuzz_must(!known || (card->path && strstr(card->path, "config.json")));
    fuzz_must(card->crop.h >= 0 && card->crop.h <= 10000 && (card->crop.h > 0) == (card->crop.w > 0));
    fuzz_must(card->crop.w <= 10000 && card->resize.h >= 0 && card->resize.w >= 0);
    fuzz_must((card->classes > 0) == (card->class_names != NULL));
    for (int i = 0; i < card->classes; i++) fuzz_must(card->class_names[i] != NULL);
    for (int k = 0; k < MODEL_CARD_CHANNELS && card->normalised; k++)
        fuzz_must(card->mean[k] >= 0 && card->mean[k] <= 1 && card->std[k] > 0 && card->std[k] <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_card card;
    fuzz_write("config.json", data, size);
    fuzz_write("preprocessor_config.json", data, size);
    model_card_read(weights, true, &card);
    fuzz_forget();
    check(&card);
    model_card_free(&card);
    return 0;
}
