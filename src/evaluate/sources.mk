libevaluate_a_SOURCES = \
	src/evaluate/evaluate.c \
	src/evaluate/evaluate.h \
	src/evaluate/evaluate_masks.c \
	src/evaluate/evaluate_masks.h \
	src/evaluate/evaluation.c \
	src/evaluate/evaluation.h \
	src/evaluate/finding.c \
	src/evaluate/finding.h \
	src/evaluate/knn.c \
	src/evaluate/knn.h \
	src/evaluate/mask_strip.c \
	src/evaluate/mask_strip.h \
	src/evaluate/mistakes.c \
	src/evaluate/mistakes.h \
	src/evaluate/mistakes_explain.c \
	src/evaluate/ranks.c \
	src/evaluate/ranks.h \
	src/evaluate/scores.c \
	src/evaluate/scores.h \
	src/evaluate/image_results.c \
	src/evaluate/image_results.h
