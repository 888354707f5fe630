libmeasure_a_SOURCES = \
	src/measure/bench.c \
	src/measure/bench.h \
	src/measure/bench_feed.c \
	src/measure/bench_feed.h \
	src/measure/libraries.c \
	src/measure/libraries.h \
	src/measure/libraries_print.c \
	src/measure/op_time.c \
	src/measure/op_time.h \
	src/measure/peaks.c \
	src/measure/peaks.h \
	src/measure/profile.c \
	src/measure/profile.h \
	src/measure/stage_times.c \
	src/measure/stage_times.h \
	src/measure/timeline.c \
	src/measure/timeline.h \
	src/measure/timeline_print.c
