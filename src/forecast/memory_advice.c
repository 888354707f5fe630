#include "forecast/memory_advice.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "compile/memory/recompute.h"

#define LIMIT_SHARE 0.75         /* fraction of the current total: a limit that most networks can meet */
#define INSTRUCTIONS_MAX 500    /* maximum of a step for which memory.limit is tried, because the search is
                                 * slow */
#define CHEAP 0.005              /* of a step's time, which is next to nothing */
#define GAIN 0.01                /* of a step's time, for which a setting is worth naming */
#define MEBIBYTE 1048576

/* A run with one setting changed. */
struct variant {
    struct settings settings;
    struct session session;
};

struct asking {
    const struct session *session;
    const struct forecast *forecast;
    struct advice *advice;
    int count;
};

/* If a step was made to fit a limit, a variant that also has to be made to fit takes as much: only one that
 * fits with everything kept takes less. */
static void vary(const struct asking *asking, struct variant *variant)
{
    int64_t limit = asking->session->settings->memory.limit;
    variant->settings = *asking->session->settings;
    variant->session = *asking->session;
    variant->session.settings = &variant->settings;
    if (asking->forecast->bytes.total <= limit) variant->settings.memory.limit = 0;
}

/* Every variant at best halves what is not in the store. */
static bool may_fit(const struct asking *asking)
{
    const struct budget *bytes = &asking->forecast->bytes;
    int64_t limit = asking->session->settings->memory.limit;
    return limit == 0 || (bytes->total + bytes->store) / 2 <= limit;
}

/* The part of its time for an image by which the step is slower, by the same kind of forecast; or 0. */
static double slower_by(const struct asking *asking, const struct variant *variant,
                        const struct forecast *other)
{
    if (other->origin != asking->forecast->origin) return 0;
    double images = (double)variant->session.hyper.batch / (double)asking->session->hyper.batch;
    return other->time.ms / (images * asking->forecast->time.ms) - 1;
}

/* Consequences besides memory. `what` NULL: recomputation. */
static void price_variant(const struct asking *asking, const struct variant *variant,
                          const struct forecast *other, const char *what, char *price, size_t size)
{
    double slower = slower_by(asking, variant, other);
    char words[32] = "", recomputes[64];
    if (fabs(slower) >= CHEAP)
        snprintf(words, sizeof words, ", %.1f %% %s", 100 * fabs(slower), slower > 0 ? "slower" : "faster");
    else if (!what && other->origin == asking->forecast->origin)
        snprintf(words, sizeof words, ", at next to no cost");
    snprintf(recomputes, sizeof recomputes, "same results; recomputes %d activations",
             recompute_count(&other->compiled.program));
    snprintf(price, size, "%s%s", what ? what : recomputes, words);
}

/* Plans the variant and keeps the advice if it saves at least 1 % of the memory or, under a limit, of the
 * time. `price` NULL: that of recomputation. */
static void consider(struct asking *asking, const struct variant *variant, const char *setting,
                     const char *price)
{
    struct forecast other;
    int64_t now = asking->forecast->bytes.total, limit = variant->settings.memory.limit;
    if (limit == 0) limit = asking->session->settings->memory.limit;
    if (forecast_make(&variant->session, &(struct forecast_options){.hosts = 1}, &other) != OK) return;
    struct advice *advice = &asking->advice[asking->count];
    *advice = (struct advice){.total_bytes = other.bytes.total};
    snprintf(advice->setting, sizeof advice->setting, "%s", setting);
    price_variant(asking, variant, &other, price, advice->price, sizeof advice->price);
    bool fits = limit == 0 || other.bytes.total <= limit;
    advice->saves = now - other.bytes.total >= now / 100;
    if (fits && (advice->saves || (limit > 0 && slower_by(asking, variant, &other) < -GAIN))) asking->count++;
    forecast_free(&other);
}

static void consider_strategy(struct asking *asking)
{
    struct variant variant;
    vary(asking, &variant);
    if (asking->session->settings->memory.limit > 0 || variant.settings.memory.strategy == STRATEGY_KEEP)
        return;
    variant.settings.memory.strategy = STRATEGY_KEEP;
    consider(asking, &variant, "memory.strategy=keep", NULL);
}

static void consider_limit(struct asking *asking)
{
    struct variant variant;
    char setting[64];
    vary(asking, &variant);
    int64_t mebibytes = (int64_t)(LIMIT_SHARE * (double)asking->forecast->bytes.total / MEBIBYTE);
    if (mebibytes < 1 || asking->forecast->compiled.program.count > INSTRUCTIONS_MAX) return;
    variant.settings.memory.limit = mebibytes * MEBIBYTE;
    if (variant.settings.memory.strategy == STRATEGY_KEEP) return;
    snprintf(setting, sizeof setting, "memory.limit=%" PRId64 "M", mebibytes);
    consider(asking, &variant, setting, NULL);
}

static bool has_batchnorm(const struct graph *graph)
{
    for (int p = 0; p < graph->param_count; p++)
        if (graph->params[p].spec.role == ROLE_STATISTIC) return true;
    return false;
}

/* True if it is divisible into equal micro-batches of at least one image, on every rank. */
static bool batch_divides(const struct hyperparameters *hyper)
{
    return hyper->batch > 0 && hyper->batch % hyperparameters_micro_batches(hyper) == 0;
}

/* Under a limit, smaller micro-batches also leave less to be recomputed. */
static void consider_micro_batches(struct asking *asking)
{
    struct variant variant;
    char setting[64], price[64];
    vary(asking, &variant);
    variant.settings.memory.limit = asking->session->settings->memory.limit;
    struct hyperparameters *hyper = &variant.session.hyper;
    int each = (int)(settings_micro_batches(&variant.settings) / variant.settings.train.accumulate);
    hyper->micro_batches *= 2;
    if (!batch_divides(hyper)) return;
    snprintf(setting, sizeof setting, "train.accumulate=%d", hyper->micro_batches / each);
    snprintf(price, sizeof price, "micro-batches of %d images%s",
             hyper->batch / hyperparameters_micro_batches(hyper),
             has_batchnorm(&variant.session.graphs.training) ? ", also in batch norm" : "");
    consider(asking, &variant, setting, price);
}

static void consider_batch(struct asking *asking)
{
    struct variant variant;
    char setting[64];
    vary(asking, &variant);
    struct hyperparameters *hyper = &variant.session.hyper;
    hyper->batch /= 2;
    if (!batch_divides(hyper)) return;
    snprintf(setting, sizeof setting, "train.batch=%d", hyper->batch);
    consider(asking, &variant, setting, "half the batch");
}

static void consider_precision(struct asking *asking)
{
    struct variant variant;
    vary(asking, &variant);
    if (variant.session.hyper.precision->storage != F32) return;
    variant.session.hyper.precision = &precision_table[PRECISION_BF16];
    consider(asking, &variant, "amp.precision=bf16", "16-bit activations");
}

static int compare_advice(const void *a, const void *b)
{
    const struct advice *left = a, *right = b;
    return (left->total_bytes > right->total_bytes) - (left->total_bytes < right->total_bytes);
}

int memory_advice(const struct session *session, const struct forecast *forecast,
                  struct advice advice[ADVICE_MAX])
{
    struct asking asking = {.session = session, .forecast = forecast, .advice = advice};
    if (!may_fit(&asking)) return 0;
    consider_strategy(&asking);
    consider_limit(&asking);
    consider_micro_batches(&asking);
    consider_batch(&asking);
    consider_precision(&asking);
    qsort(advice, (size_t)asking.count, sizeof *advice, compare_advice);
    return asking.count;
}
