#include "session/preprocessing.h"

#include "input/caching.h"
#include "input/decoding.h"
#include "session/decoding_division.h"
#include "input/gpu_preprocessing.h"

enum status preprocessing_open(struct session *session, bool keeps)
{
    const struct data *data = &session->data;
    if (!gpu_preprocessing_can(session_device_kind(session), data)) return OK;
    if (keeps) TRY(decoding_division_open(session));
    const struct caching_options caching = session_caching_options(session);
    const struct gpu_preprocessing_options options = {
        .device = session->device,
        .data = data,
        .dtype = session->hyper.precision->storage,
        .batch = hyperparameters_share(&session->hyper),
        .kept_bytes = keeps ? (size_t)caching_device_bytes(&caching) : 0,
        .decoded = decoding_room(session->decoding),
    };
    return gpu_preprocessing_open(&options, &session->gpu_preprocessing);
}
