/* knn.h: classifies images by their nearest neighbours among the training images, by the features of a
 * network that is not trained any more. */
#pragma once

#include "evaluate/evaluate.h"
#include "exec/store.h"

/* Evaluates session->data.val. An image's class is the one for which its k nearest training images speak
 * most, by the cosine of their features' angle, each with exp(cosine / 0.07), as Wu et al. (2018) and DINO
 * do; images are preprocessed as in an evaluation. There is no loss: NAN. The session has both data sets. */
enum status knn_evaluate(const struct session *session, struct store *store, int k,
                         struct evaluation *evaluation);
