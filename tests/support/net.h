/* net.h: small networks and runs of them, for the tests of src/graph. */
#pragma once

#include "base/random.h"
#include "exec/exec.h"
#include "graph/model.h"
#include "place.h"

/* Convolutions, batch norm, a residual, a concat, pooling, dropout and a linear layer: 3 x 8 x 8
 * images, 5 classes. */
extern const char net_mixed[];
/* net_mixed without what is random or mixes images: convolutions, pooling, linear. */
extern const char net_plain[];

#define NET_CLASSES 5
#define NET_TARGETS (NET_CLASSES + 1)     /* numbers of an image: data/loader/targets.h */

/* The graph of a model text; exits the test when it is wrong. */
struct graph net_graph(const char *text, bool fused);

struct net_options {
    int batch, micro_batches, streams;
    enum stream_division division;      /* of the streams */
    int64_t stream_limit;               /* of streams_within */
    int first_micro_batch, all_micro_batches;   /* as in struct lower_options */
    enum dtype storage;
    bool training, reference, separate, ema, logits;
    bool merged;                        /* sums in the ops that read them, where the code can */
    int64_t fold_least;                 /* as in struct lower_options */
    bool soft_targets;                  /* labels come as targets of one class each */
    const char *pixel_loss;             /* as in struct lower_options; the test sets net.masks */
    bool sync_bn;                       /* as in struct lower_options */
    enum dtype wire;                    /* likewise */
    bool undetermined;                  /* runs need not repeat bit for bit */
    struct comm *comm;                  /* as in struct exec_options */
    struct device *device;              /* NULL: the test's place, or for references the CPU, opened and
                                           closed by the net */
    int stop_at;                        /* as in struct update */
    double scale;                       /* static loss scale; 0: 1 */
    const char *optimizer;              /* NULL: sgd */
    bool decay_norm_bias;
    void (*pass)(struct program *program, void *context);   /* after lowering; NULL: none */
    void *pass_context;
    void (*planned)(struct program *program, void *context);   /* after planning; NULL: none */
    void *planned_context;
    double plan_seconds;                /* as in struct exec_options */
    struct store *store;                /* to share; NULL: own, initialised by seed 7 */
};

/* A graph's program, opened on a device. */
struct net {
    struct graph *graph;
    struct device *device;
    bool own_device;
    struct store own, *store;
    struct compiled compiled;
    struct program program;             /* the compiled one, to look at */
    struct exec *exec;
    void *images;                       /* in the program's storage, NCHW values made up */
    int32_t *labels;
    float *targets;                     /* NULL: not soft */
    uint8_t *masks;                     /* the test's, with pixel_loss */
    int64_t image_elements;
};

void net_open(struct net *net, struct graph *graph, const struct net_options *options);
void net_close(struct net *net);

/* New images and labels: normal numbers, a function of `seed`. */
void net_batch(struct net *net, uint64_t seed);

/* Fills the arena with NaN of every floating type, then runs. */
enum status net_run(struct net *net, double lr);

/* The store's first `bytes`, on the heap. */
void *net_store(const struct net *net, int64_t bytes);

/* The gradient of a parameter, on the heap; NULL when it is not trained. */
float *net_gradient(const struct net *net, int param);

/* Asserts that the gradients of all parameters are the same bits in both. */
void net_assert_same_gradients(const struct net *a, const struct net *b);

/* A network's step without and with a pass's rules, for the code of its device or the reference's; `others`:
 * with what `seed` draws made again or moved to the host, too. */
struct net_pass {
    const char *name;
    bool others;
    uint64_t seed;
    code_lookup *code_of;               /* as net_pair_open found it */
};
struct net_pair {
    struct graph graph;
    struct net plain, changed;
    struct net_pass pass;
};
void net_pair_open(struct net_pair *pair, const char *text, const struct net_options *options,
                   struct net_pass pass);
/* Asserts that the changed one's plan is valid, and that both have the same bits; then closes them. */
void net_pair_compare(struct net_pair *pair);

/* Recomputes what `seed` draws, and offloads all that helps: the bytes that are moved to the host. */
int64_t net_recompute_and_offload(struct program *program, uint64_t seed);

/* An op's reference, as kernel_plans_code gives a device's code. */
const struct op_code *net_reference_of(const struct op *op);
/* The rules of a pass, for such code. */
void net_rules(struct program *program, const char *pass, code_lookup *code_of);
