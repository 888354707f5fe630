/* run.h: the state of a training run: its folder, store, programs, loader, and position. */
#pragma once

#include "checkpoint/checkpoint.h"
#include "evaluate/evaluate.h"
#include "evaluate/mistakes.h"
#include "evaluate/ranks.h"
#include "format/events.h"
#include "session/step_queue.h"
#include "train/energy.h"
#include "train/folder.h"
#include "train/health.h"
#include "train/metrics.h"
#include "train/programs.h"
#include "train/progress.h"

struct run;

struct run_options {
    const char *output;          /* the run folder; NULL: none */
    bool resume;                 /* from the newest good checkpoint there ... */
    const char *resume_file;     /* ... or from this one */
    bool quiet;
    int terminal;                /* descriptor for a progress line, if it is a terminal */
    const char *config;          /* the configuration file, to be reread on request; NULL: none */
    const char *const *sets;     /* and its overrides */
    int set_count;
    /* Called before a run's last checkpoint and records. May be NULL. */
    void (*ending)(const struct run *run);
    /* Called when the folder has all records of a run; `before`: it had them when this process began, which
     * may then only add what is missing. May be NULL. */
    void (*ended)(const struct run *run, bool before);
};

#define RUN_STRIPS 4           /* pictures of validation images in TensorBoard */
#define RUN_METRICS "metrics.jsonl"

struct run {
    struct session *session;
    const struct run_options *options;
    char id[CHECKPOINT_RUN];            /* the identity of the run */
    struct folder folder;
    struct store store;
    struct programs programs;
    struct loader *loader;              /* of training images */
    struct loader *evaluation_loader;   /* of validation images; NULL: there was no evaluation yet */
    struct metrics metrics;
    struct events events;
    struct progress progress;
    struct ranks ranks;
    struct position position;
    struct evaluation evaluation;       /* the last one; no images: there was none, or it is shown */
    struct evaluation shown;            /* that of the best epoch, or the last one while none was best; no
                                         * images: this process has not made it */
    struct mistakes mistakes;           /* in it */
    struct mask_strip strips[RUN_STRIPS];    /* of the first validation images, with masks */
    struct health health;
    struct optimizer_state state;       /* after the last step collected */
    struct step_queue queue;            /* of training steps */
    bool frozen;                        /* train.freeze_epochs are not over */
    struct image_size size;             /* of training images, if augment.sizes has several */
    double began;                       /* all times by clock_seconds */
    int64_t steps;                      /* that this process made */
    int64_t verified, last_verified;    /* of those, steps that were run twice; the number of the last */
    double saved;                       /* when the last checkpoint was begun */
    double resumed_at;                  /* when this process continued the epoch ... */
    double seconds_before;              /* ... and the time spent on it before */
    double reported;                    /* when the last line of metrics was written ... */
    int64_t images_since_report;          /* ... and the images since */
    struct energy energy;               /* since the first step of this process */
    bool saved_any;
    struct position saved_position;     /* that the last checkpoint holds */
    struct checkpoint_writing *writing; /* one that is being written; NULL: none */
    struct position written_position;   /* that it holds, and its step */
    int64_t written_step;
};

/* For a resumed run, resolves train.batch=auto and run.threads=auto to their previous numbers. */
void run_recall(const struct run_options *options, struct settings *settings);

/* Locks the folder, and restores the store and the position of a resumed run; nothing is written yet. */
enum status run_open(struct session *session, const struct run_options *options, struct run *run);

/* True if the folder has everything of a run that has ended: its checkpoint and its records. */
bool run_ended(const struct run *run);

/* Loads the best epoch's checkpoint into the store, on all ranks; *there: there is one. */
enum status run_load_best(struct run *run, bool *there);

/* Prepares everything for the first step, and truncates metrics. */
enum status run_begin(struct run *run);
void run_close(struct run *run);        /* accepts a half-built struct */

/* To be called before each epoch, while no step is in progress: for train.freeze_epochs and augment.sizes. */
enum status run_freeze(struct run *run);
enum status run_freeze_weights(struct run *run, bool frozen);    /* for train.swa */
enum status run_resize(struct run *run);

/* Applies the memory.limit of the current configuration file, while no step is in progress
 * (programs_set_limit). */
enum status run_reread_limit(struct run *run);

/* The name of an epoch's checkpoint, to be kept (checkpoint.keep); for the caller to free. */
char *run_checkpoint_name(int64_t epoch);

/* Writes checkpoint-last, under other names too (checkpoint_save), and removes the oldest one that was kept
 * if this one is kept instead. No effect without a folder, or if it was written already. No other may be in
 * progress. */
enum status run_save(struct run *run, const char *const *also);

/* Saves in a thread, if possible (checkpoint_begin): the result is run_save_end's. */
enum status run_save_begin(struct run *run, const char *const *also);

/* Waits for a checkpoint that is being written; OK if none is. */
enum status run_save_end(struct run *run);
