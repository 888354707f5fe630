/* health.h: whether a run's numbers go where they should. Each thing that goes wrong is said in one line
 * when it begins, not at every step. */
#ifndef TRAIN_HEALTH_H
#define TRAIN_HEALTH_H

#include "base/text.h"
#include "data/loader.h"
#include "exec/exec.h"

struct run;
struct queued_step;

struct health {
    bool lost;                   /* the last step's loss was not finite ... */
    bool evaluation_lost;        /* ... nor that of the last evaluation */
    int diagnoses;               /* made so far */
    double norm;                 /* running mean of the logarithms (base 2) of gradient norms ... */
    int norms;                   /* ... of so many steps */
    bool exploding;
    bool broken;                 /* a parameter that is not finite has been named */
    bool ended;                  /* the run, which no more steps would help */
    struct still *still;         /* by parameter; NULL: not looked yet */
    bool doubt;                  /* the last look does not say that no gradient is zero */
};

void health_close(struct health *health);     /* accepts a zeroed struct */

/* A finding, and the images that it is in by their indices in the data, and files where they have some. */
void health_add(const struct exec_finding *found, const struct dataset *dataset, const struct loader *loader,
                const struct batch *batch, struct text *text);

/* Whether gradients and parameters are looked at after this step of the process (from 1), the last of an
 * epoch aside; and whether nothing may then be under way. */
bool health_looks(int64_t step);
bool health_looks_alone(const struct run *run, int64_t step);

/* After each step, while its batch is still lent: `loss` is the batch's mean. What is known of the step
 * anyway is looked at every time, gradients and parameters now and then: wholly where the device has nothing
 * to do, otherwise in a glimpse (exec.h). FAILED when that ends the run: train.on_nan=stop, or an epoch
 * without any update, which the loss scale does not explain. */
enum status health_step(struct run *run, const struct queued_step *made, double loss);

#endif
