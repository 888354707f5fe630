libtrain_a_SOURCES = \
	src/train/evaluate.c \
	src/train/evaluate.h \
	src/train/finding.c \
	src/train/finding.h \
	src/train/folder.c \
	src/train/folder.h \
	src/train/health.c \
	src/train/health.h \
	src/train/metrics.c \
	src/train/metrics.h \
	src/train/programs.c \
	src/train/programs.h \
	src/train/progress.c \
	src/train/progress.h \
	src/train/rank_check.c \
	src/train/rank_check.h \
	src/train/ranks.c \
	src/train/ranks.h \
	src/train/report.c \
	src/train/report.h \
	src/train/results.c \
	src/train/results.h \
	src/train/run.c \
	src/train/run.h \
	src/train/train.c \
	src/train/train.h
