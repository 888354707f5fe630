/* simulate.h: the time of a step of several ranks, by discrete-event simulation with the cost model. */
#pragma once

#include "compile/ir/program.h"

/* A piece of work. */
struct task {
    int rank, queue;         /* queues are numbered over all ranks and run one task at a time, in order */
    bool computes;           /* shares the rank's device with other tasks that compute; */
    bool exchanges;          /* or takes exchange_share of it; neither: copy engines work */
    double delay;            /* seconds before the work begins, in which the device is free for others */
    double seconds;          /* of work, with the device to itself */
    int *waits, wait_count;  /* tasks that must have ended before, owned */
    int meeting;             /* tasks of one number begin together and take as long as the longest; -1 */
};

struct tasks {
    struct task *task;
    int count;
    int ranks, queues, meetings;     /* numbers that occur are below these */
    double exchange_share;           /* of a device, occupied by tasks that exchange */
};
void tasks_free(struct tasks *tasks);

struct simulation {
    double seconds;          /* until all have ended; infinite: some wait for each other */
    double *busy;            /* [ranks]: seconds in which something computes */
    int *head;               /* [queues]: the first task that never ends; -1: all end */
};
struct simulation simulate(const struct tasks *tasks);
void simulation_free(struct simulation *simulation);

/* Seconds of instruction i of a rank's program, alone on its device. */
typedef double simulate_seconds(const void *context, int rank, int i);

/* The tasks of one replica's programs, by stage; all other replicas are the same. The first `delay` seconds
 * of a task that computes are its launch. */
struct tasks simulate_tasks(const struct program *const *programs, int stages, double delay,
                            simulate_seconds *seconds, const void *context);
