libtask_a_SOURCES = \
	src/task/hyperparameters.c \
	src/task/hyperparameters.h \
	src/task/ranking.c \
	src/task/ranking.h \
	src/task/schedule.c \
	src/task/schedule.h \
	src/task/task.c \
	src/task/task.h \
	src/task/task_classify.c \
	src/task/task_multilabel.c \
	src/task/task_regress.c \
	src/task/task_segment.c
