#include "input/mask_summary.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/watch.h"
#include "data/dataset/masks.h"

static enum status log_split(const struct images *images, const char *split)
{
    const struct dataset *dataset = images->dataset;
    struct mask_counts counts;
    struct text said = {0}, missing = {0};
    if (!dataset || dataset->target != TARGET_MASK || images->count == 0) return OK;
    struct watch *watch = watch_begin(WATCH_SECONDS, "reading the %s masks", split);
    enum status status = masks_count(dataset, images->subset, images->count, &counts);
    watch_end(watch);
    if (status != OK) return status;
    masks_describe(dataset, &counts, &said);
    log_info("pixels of %" PRId64 " %s masks: %s", counts.masks, split, said.data);
    if (counts.unreadable > 0)
        log_warning("%" PRId64 " of %" PRId64 " %s masks cannot be read", counts.unreadable, counts.masks,
                    split);
    if (masks_missing(dataset, &counts, &missing) > 0)
        log_warning("classes without a pixel in the %s masks: %s", split, missing.data);
    text_free(&said);
    text_free(&missing);
    return OK;
}

enum status mask_summary_log(const struct data *data)
{
    TRY(log_split(&data->train, "training"));
    return log_split(&data->val, "validation");
}
