#include "task/task.h"

#include <stdlib.h>
#include <string.h>

#include "base/better.h"
#include "base/memory.h"

extern const struct data_task task_classify, task_multilabel, task_regress, task_segment;

static const struct data_task *const tasks[] = {
    [TARGET_ANY] = &task_classify, [TARGET_CLASS] = &task_classify, [TARGET_LABELS] = &task_multilabel,
    [TARGET_NUMBER] = &task_regress, [TARGET_MASK] = &task_segment,
};

const struct data_task *task_of(const struct data *data) { return tasks[data->target]; }

const struct data_task *task_named(const char *name)
{
    for (enum target_kind i = TARGET_CLASS; i <= TARGET_MASK; i++)
        if (strcmp(tasks[i]->name, name) == 0) return tasks[i];
    return &task_classify;
}

const char *task_metric_title(const struct task_metric *metric)
{
    return metric ? metric->title : "validation loss";
}

const char *task_metric_text(const struct task_metric *metric, double value, char text[TEXT_NUMBER])
{
    bool percent = metric && metric->percent;
    return percent ? text_number(100 * value, 2, "%", text) : text_number(value, 4, NULL, text);
}

bool task_better(const struct task_metric *metric, double value, double than)
{
    return better(value, than, !metric || metric->lower);
}

int task_metric_find(const struct data_task *task, const char *key)
{
    for (int i = 0; task->metrics[i].key; i++)
        if (strcmp(task->metrics[i].key, key) == 0) return i;
    return -1;
}

static enum status refuse_loss(const struct data_task *task, const struct settings *settings,
                               enum loss loss)
{
    struct text all = {0};
    for (int i = 0; task->losses[i] != LOSSES; i++)
        text_add(&all, "%s%s", i ? ", " : "", loss_table[task->losses[i]].name);
    enum status status = settings_refuse(settings, "train", "loss", "%s is no loss of data.task = %s; it has "
                                         "%s", loss_table[loss].name, task->name, all.data);
    text_free(&all);
    return status;
}

static enum status choose_loss(const struct data_task *task, struct settings *settings, enum loss *loss)
{
    if (settings->train.loss == TRAIN_LOSS_AUTO) {
        *loss = task->losses[0];
        settings_derive(settings, "train", "loss", loss_table[*loss].name);
        return OK;
    }
    *loss = (enum loss)(settings->train.loss - TRAIN_LOSS_CE);
    for (int i = 0; task->losses[i] != LOSSES; i++)
        if (task->losses[i] == *loss) return OK;
    return refuse_loss(task, settings, *loss);
}

static enum status refuse_best(const struct data_task *task, const struct settings *settings,
                               const char *name)
{
    struct text all = {0};
    for (int i = 0; task->metrics[i].key; i++) text_add(&all, "val_%s, ", task->metrics[i].key);
    enum status status = settings_refuse(settings, "checkpoint", "best", "%s is no metric of data.task = %s; "
                                         "it has %sval_loss", name, task->name, all.data);
    text_free(&all);
    return status;
}

static enum status choose_best(const struct data_task *task, struct settings *settings, int *best)
{
    if (settings->checkpoint.best == BEST_AUTO) {
        char *name = text_format("val_%s", task->metrics[0].key);
        settings_derive(settings, "checkpoint", "best", name);
        free(name);
    }
    char *name = option_value(option_find("checkpoint", "best"), settings);
    bool loss = settings->checkpoint.best == BEST_VAL_LOSS;
    *best = loss ? -1 : task_metric_find(task, name + strlen("val_"));
    enum status status = loss || *best >= 0 ? OK : refuse_best(task, settings, name);
    free(name);
    return status;
}

enum status task_choose(const struct data_task *task, struct settings *settings, enum loss *loss, int *best)
{
    TRY(choose_loss(task, settings, loss));
    return choose_best(task, settings, best);
}
