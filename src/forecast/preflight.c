#include "forecast/preflight.h"

#include "base/log.h"
#include "comm/comm.h"
#include "forecast/forecast.h"
#include "session/step.h"

#define MUCH 0.1             /* of a step */

/* One setting that exchanges less for an image, or, where messages take their time empty, less often. */
static void advise(const struct session *session, double share)
{
    const struct settings *settings = session->settings;
    bool low = session->hyper.precision->storage != F32;
    double bytes = 4.0 * (double)graph_trained_elements(step_graph(session, STEP_TRAINING));
    bool late = session->comm->message_seconds * session->comm->bytes_per_second > bytes;
    if (low && !late && settings->parallel.wire != WIRE_STORAGE)
        log_info("parallel.wire=storage would halve what is exchanged, in rounded gradients");
    else
        log_info("train.batch=%d, with a learning rate that suits it, would exchange half as often: %.0f %% "
                 "of a step are waiting for that now", 2 * session->hyper.batch, 100 * share);
}

void preflight_say(const struct session *session)
{
    const struct comm *comm = session->comm;
    if (!comm || comm->rank > 0 || comm->hosts < 2 || comm->count % comm->hosts != 0) return;
    const struct forecast_options options = {.hosts = comm->hosts,
                                             .link_bytes_per_second = comm->bytes_per_second,
                                             .link_seconds = comm->message_seconds};
    struct forecast forecast;
    if (forecast_make(session, &options, &forecast) != OK) return;
    double share = forecast.time.exposed_ms / forecast.time.ms;
    log_info("a step is expected to take %.3g ms there, of these %.3g for exchanges (plan --hosts %d --link "
             "%.3gGb)", forecast.time.ms, forecast.time.exposed_ms, comm->hosts,
             8e-9 * comm->bytes_per_second);
    if (share > MUCH) advise(session, share);
    forecast_free(&forecast);
}
