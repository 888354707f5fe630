/* run.h: the state of a training run: its folder, store, programs, loader, and position. */
#pragma once

#include "session/checkpoint.h"
#include "session/step_queue.h"
#include "train/evaluate.h"
#include "format/events.h"
#include "train/folder.h"
#include "train/health.h"
#include "train/metrics.h"
#include "train/programs.h"
#include "train/progress.h"
#include "train/ranks.h"

struct run;

struct run_options {
    const char *output;          /* the run folder; NULL: none */
    bool resume;                 /* from the newest good checkpoint there ... */
    const char *resume_file;     /* ... or from this one */
    bool quiet;
    int terminal;                /* descriptor for a progress line, if it is one */
    const char *config;          /* the configuration's file, to be read again on request; NULL: none */
    const char *const *sets;     /* and what was set over it */
    int set_count;
    /* Called before a run's last checkpoint and records. NULL: nobody. */
    void (*ending)(const struct run *run);
    /* Called when the folder has all of a run's records; `before`: they were all there when this process
     * began, which may touch nothing but what is missing. NULL: nobody. */
    void (*ended)(const struct run *run, bool before);
};

#define RUN_METRICS "metrics.jsonl"

struct run {
    struct session *session;
    const struct run_options *options;
    struct folder folder;
    struct store store;
    struct programs programs;
    struct loader *loader;
    struct metrics metrics;
    struct events events;
    struct progress progress;
    struct ranks ranks;
    struct position position;
    uint32_t checksums[2];              /* of the data, by enum split (dataset_checksum) */
    struct evaluation evaluation;       /* the last one; no images: there was none */
    struct health health;
    struct optimizer_state state;       /* after the last step collected */
    struct step_queue queue;            /* of training steps */
    bool frozen;                        /* train.freeze_epochs are not over */
    double began;                       /* all times by clock_seconds */
    int64_t steps;                      /* that this process made */
    int64_t verified, last_verified;    /* of those, steps that were run twice; the number of the last */
    double saved;                       /* when the last checkpoint was written */
    double resumed_at;                  /* when this process went on with the epoch ... */
    double seconds_before;              /* ... on which it had spent so much */
    double told;                        /* when the last line of metrics was written ... */
    int64_t images_since_told;          /* ... and the images since */
    bool saved_any;
    struct position saved_position;     /* that the last checkpoint holds */
};

/* Where a run is resumed, train.batch=auto and run.threads=auto are the numbers that they were before. */
void run_recall(const struct run_options *options, struct settings *settings);

/* The folder taken, and on a resumed run the store and the position restored; nothing is written yet. */
enum status run_open(struct session *session, const struct run_options *options, struct run *run);

/* Whether the folder has all of a run that has come to its end: its checkpoint and its records. */
bool run_ended(const struct run *run);

/* Everything ready for the first step, metrics cut. */
enum status run_begin(struct run *run);
void run_close(struct run *run);        /* accepts a half-built struct */

/* Before each epoch, while no step is under way: what train.freeze_epochs freezes, and no longer does. */
enum status run_freeze(struct run *run);

/* Takes the memory.limit that the configuration file has by now, while no step is under way
 * (programs_set_limit). */
enum status run_reread_limit(struct run *run);

/* Writes checkpoint-last, under other names too (checkpoint_save). Without a folder, or when it stands there
 * already: nothing. */
enum status run_save(struct run *run, const char *const *also);
